"""Ask a server of deniable for estimates, from a notebook or a script. It needs `requests` only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from urllib.parse import quote

import requests
from requests.auth import AuthBase

if TYPE_CHECKING:
    Value = str | bool | float
    Row = dict[str, str | int | float | bool | None]

__all__ = ["Answer", "Metric", "Query", "QueryError"]

_PAGE = 10_000
_TRIES = 3
_ALONE = "Query takes the server's address alone, such as https://telemetry.example.org"


class QueryError(Exception):
    """A query was not answered.

    Parameters
    ----------
    status
        The HTTP status; 0: nothing answered.
    code
        The stable code of the problem, such as ``"unknown_metric"``; empty if the answer is not one of this server.
    detail
        The rule, what broke it, and what to do.
    retry_after
        Seconds after which to ask again; None: it would not help.
    """

    def __init__(self, status: int, code: str, detail: str, retry_after: int | None = None) -> None:
        number = f" ({status} {code})" if code else f" ({status})" if status else ""
        super().__init__(f"{detail}{number}")
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after


class Metric(TypedDict):
    """A metric as the server lists it, before anything is estimated."""

    trial: bool  # whether everything is published at once, however few reports there are
    id: str
    type: str
    version: int
    description: str  # what is asked and why, in words
    owner: str  # whom to ask about it
    expires: str | None  # the last day of collection
    period_length: str  # hour, day, week or month
    domain_size: int | None  # number of possible answers; None if they cannot be listed
    candidates: int | None  # number of answers that are looked for; None if none are declared
    discover: bool  # whether answers that nobody listed are searched for
    mechanism: str
    epsilon: float  # privacy loss of one report in nats
    epsilon_permanent: float | None  # of all reports of one answer; None if reports are independent
    sample: float  # share of the occasions on which a device reports
    min_reports: int  # fewest reports that a release rests on
    next_release: str | None  # when the next period closes; None if no release depends on it
    report_bytes: int
    n: int  # reports in what was published of this version
    updated: str | None  # the hour of the last release; None if nothing was published
    versions: list[dict[str, Any]]  # each version, the highest first


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query.

    Parameters
    ----------
    rows
        The rows of all pages, each by the names of `columns`.
    columns
        Of each column its ``name``, ``type`` and ``meaning``, in order.
    metrics
        What the metrics are: ``id``, ``type``, ``unit`` and so on.
    trial
        Whether everything is published at once, however few reports there are.
    """

    rows: list[Row]
    columns: list[dict[str, str]]
    metrics: list[dict[str, Any]]
    trial: bool

    def __repr__(self) -> str:
        """Say how many rows there are, of which days, and why some have no estimate."""
        names = ", ".join(each["id"] for each in self.metrics)
        days = [str(row["to"]) for row in self.rows if row["to"]]
        since = [str(row["from"]) for row in self.rows if row["from"]]
        about = f", {min(since) if since else 'the beginning'} to {max(days)}" if days else ""
        reasons = Counter(row["reason"] for row in self.rows if row["reason"])
        remarks = "".join(f"; {_rows(n)}: {reason}" for reason, n in reasons.items())
        return f"<Answer: {_rows(len(self.rows))} of {names}{about}{remarks}>"

    def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Return the rows as a data frame, each column with its type.

        Parameters
        ----------
        library
            Whose frame; None: of pandas, or of polars where there is no pandas.

        Raises
        ------
        ImportError
            If there is neither.
        """
        if library != "polars":
            try:
                return self._pandas()
            except ModuleNotFoundError:
                if library:
                    raise
        try:
            return self._polars()
        except ModuleNotFoundError as error:
            raise ImportError("frame() needs pandas or polars; rows() needs neither") from error

    def _pandas(self) -> Any:
        import pandas as pd  # noqa: PLC0415 - it takes long, and rows need none

        kinds = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
        columns = {column["name"]: pd.Series(self._column(column), dtype=kinds.get(column["type"])) for column in self.columns}
        for column in self.columns:
            if column["type"] == "time":
                columns[column["name"]] = pd.to_datetime(columns[column["name"]], utc=True)
        return pd.DataFrame(columns)

    def _polars(self) -> Any:
        import polars as pl  # noqa: PLC0415 - it takes long, and rows need none

        kinds: dict[str, Any] = {
            "text": pl.String(),
            "integer": pl.Int64(),
            "number": pl.Float64(),
            "boolean": pl.Boolean(),
            "time": pl.Datetime("us", "UTC"),
        }
        return pl.DataFrame([pl.Series(each["name"], self._column(each), kinds[each["type"]]) for each in self.columns])

    def _column(self, of: dict[str, str]) -> list[Any]:
        values = [row[of["name"]] for row in self.rows]
        return [datetime.fromisoformat(str(each)) if each else None for each in values] if of["type"] == "time" else values


def _rows(number: int) -> str:
    return f"{number} row{'s' * (number != 1)}"


def _word(value: object) -> str:
    """Write a value of a filter as rows have it: yes and no for booleans, numbers as texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real):
        return f"{float(value):.12g}" if not isinstance(value, Integral) else str(int(value))
    raise QueryError(0, "", f"a filter names texts, True, False or numbers, one or several; this is {value!r}")


def _words(values: object) -> list[str]:
    one = isinstance(values, str) or not isinstance(values, Iterable)
    return [_word(values)] if one else [_word(each) for each in values]  # type: ignore[attr-defined]


def _time(at: str | date) -> str:
    """Write a day, or a time in UTC unless it has another offset. A midnight without an offset is a day."""
    if isinstance(at, str):
        return at
    if not isinstance(at, date):
        raise QueryError(0, "", f"between() takes days or times, such as '2026-10-01' or a datetime; this is {at!r}")
    if not isinstance(at, datetime):
        return at.isoformat()
    if at.tzinfo is None and at.time() == time():
        return at.date().isoformat()
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


class _Bearer(AuthBase):
    """The key. As a header of our own, a password in ~/.netrc would take its place."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


@dataclass(frozen=True, slots=True)
class Query:
    """A question about metrics. Each method returns a new one; `rows`, `frame` and `answer` ask it, `metrics` what there is.

    Parameters
    ----------
    url
        Of the server, such as ``"https://telemetry.example.org"``.
    key
        A read key.
    timeout
        Seconds to wait for a page.

    Examples
    --------
    >>> themes = Query("https://telemetry.example.org", "rk_...").metric("ui.theme").where(platform="linux")
    >>> frame = themes.by("time").last(30).frame()  # doctest: +SKIP
    """

    url: str
    key: str = field(repr=False)
    timeout: float = 60.0
    _members: dict[str, Any] = field(default_factory=dict)

    def metric(self, *names: str) -> Query:
        """Ask about metrics: their ids, or ``metric@version``."""
        if wrong := [each for each in names if not isinstance(each, str)]:
            raise QueryError(0, "", f"metric() takes ids, such as 'ui.theme', one or several; this is {wrong[0]!r}")
        return self._with(metrics=[*self._members.get("metrics", ()), *names])

    def by(self, *dimensions: str, values: bool = True) -> Query:
        """Break rows down by ``"time"`` and by segments; and by value, unless only numbers of reports are wanted."""
        return self._with(dimensions=[*dimensions, *["value"] * (values and "value" not in dimensions)])

    def between(self, first: str | date, last: str | date) -> Query:
        """Ask about the periods that overlap the time between two days in UTC, both included, or between two times."""
        return self._with(date_range=[_time(each) for each in (first, last)])

    def last(self, days: int | str) -> Query:
        """Ask about the periods that overlap the last days, today included: 30, or ``"30d"``; seven weeks are 49."""
        if not isinstance(days, int | str) or isinstance(days, bool):
            raise QueryError(0, "", f"last() takes a whole number of days, such as 30 or '30d'; this is {days!r}")
        return self._with(date_range=f"{days}d" if isinstance(days, int) or days.isdigit() else days)

    def where(self, **segments: Value | Iterable[Value]) -> Query:
        """Keep rows of these segments, or of a ``value``: one of each, or several if rows are broken down by it."""
        return self._filtered("is", segments)

    def where_not(self, **segments: Value | Iterable[Value]) -> Query:
        """Leave out rows of segments that rows are broken down by, or of a ``value``."""
        return self._filtered("is_not", segments)

    def compare(self, segment: str, base: str) -> Query:
        """Compare each value of a segment that rows are broken down by with one of them."""
        return self._compared({"dimension": segment, "base": base})

    def compare_previous(self, *, weekday: bool = False) -> Query:
        """Compare with the range of the same length before; or whole weeks before, so that weekdays match."""
        return self._compared({"date_range": "previous", **({"match": "weekday"} if weekday else {})})

    def pool(self) -> Query:
        """Estimate the values that versions have in common from all of them together."""
        return self._with(pool=True)

    def trend(self) -> Query:
        """Add the slope of a line through the closed periods."""
        return self._with(include=["trend"])

    def level(self, level: float) -> Query:
        """Set the confidence of the intervals; without it 0.95."""
        return self._with(level=level)

    def respondents(self) -> Query:
        """Estimate shares and means of those who answered, not of the population they were drawn from."""
        return self._with(target="respondents")

    def consistent(self) -> Query:
        """Show possible shares, for people to look at: none is negative, and those of all values are 1 together."""
        return self._with(view="consistent")

    def rows(self) -> list[Row]:
        """Ask, and return the rows of all pages."""
        return self.answer().rows

    def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Ask, and return a data frame of pandas or polars: see `Answer.frame`."""
        return self.answer().frame(library)

    def metrics(self) -> list[Metric]:
        """Ask which metrics there are, and return all of them in the registry's order, whatever else the query asks about.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        listed: list[Metric] = []
        after: str | None = ""
        with self._session() as session:
            while after is not None:
                page = self._sent(session, "GET", "metrics", "metrics", params={"after": after} if after else {})
                listed += page["metrics"]
                after = page["next"]
        return listed

    def leading(self) -> dict[str, dict[str, Any] | None]:
        """Ask of each metric named which value is the most frequent one, or may be; None of a number, and without reports.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        level = {"level": self._members["level"]} if "level" in self._members else {}
        with self._session() as session:
            paths = {name: f"metrics/{quote(name, safe='@')}" for name in self._members.get("metrics", ())}
            return {name: self._sent(session, "GET", path, "leading", params=level)["leading"] for name, path in paths.items()}

    def answer(self) -> Answer:
        """Ask, and return the rows of all pages with what the columns mean.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        for _ in range(_TRIES):
            pages = self._pages()
            if len({page["releases"] for page in pages}) == 1:
                first, *_ = pages
                rows = [row for page in pages for row in page["rows"]]
                return Answer(rows, first["columns"], first["metrics"], first["trial"])
        raise QueryError(200, "", "something was published between the pages, again and again; ask again")

    def _pages(self) -> list[dict[str, Any]]:
        pages: list[dict[str, Any]] = []
        offset: int | None = 0
        with self._session() as session:
            while offset is not None:
                question = self._members | {"pagination": {"limit": _PAGE, "offset": offset}}
                pages.append(self._sent(session, "POST", "query", "rows", json=question))
                offset = pages[-1]["next"]
        return pages

    def _session(self) -> requests.Session:
        if "@" in self.url:  # it is not repeated: what stands before this sign may be a key
            raise QueryError(0, "", "the address has a key or a name in it: give Query the address alone, and the key as `key`")
        if "?" in self.url or "#" in self.url:  # what stands behind may be a key, too
            raise QueryError(0, "", f"the address has a ? or # in it: {_ALONE}")
        if not self.key:
            raise QueryError(0, "", "the key is empty: give Query a read key, which begins with rk_")
        if not (self.key.isascii() and self.key.isprintable()):
            raise QueryError(0, "", "a read key has printable ASCII characters only, and this one has others: copy it anew")
        session = requests.Session()
        session.auth = _Bearer(self.key)
        return session

    def _sent(self, session: requests.Session, method: str, path: str, member: str, **options: Any) -> dict[str, Any]:
        """Send a request, and return the document that answers it; it has this member."""
        address = f"{self.url.rstrip('/')}/api/v1/{path}"
        try:
            answer = session.request(method, address, timeout=self.timeout, allow_redirects=False, **options)
        except requests.RequestException as error:
            raise QueryError(0, "", self._unanswered(error)) from error
        try:
            sent = answer.json()
        except ValueError:
            sent = None
        document: dict[str, Any] = sent if isinstance(sent, dict) else {}
        if answer.status_code == requests.codes.ok and member in document:
            return document
        wait = answer.headers.get("Retry-After", "")
        detail = document.get("detail") or f"{self.url} did not answer like a server of deniable"
        if document.get("code") == "not_found":
            detail = f"{address}: {detail}; {_ALONE}"
        raise QueryError(answer.status_code, document.get("code", ""), detail, int(wait) if wait.isdigit() else None)

    def _unanswered(self, error: requests.RequestException) -> str:
        """Say why there is no answer."""
        if isinstance(error, ValueError):  # of the address
            return f"the address {self.url!r} is no server's: begin it with https:// or http://"
        if isinstance(error, requests.exceptions.SSLError):
            return f"{self.url} answers without https, or with a certificate that is not trusted"
        if isinstance(error, requests.Timeout):
            return f"{self.url} did not answer within {self.timeout:g} seconds"
        return f"{self.url} cannot be reached: is a server running there?"

    def _compared(self, compare: dict[str, str]) -> Query:
        before = self._members.get("compare", {})
        # Of two ways to compare both stay, so that the server refuses them. The same way once more replaces the first.
        return self._with(compare=compare if before.keys() & compare.keys() else before | compare)

    def _filtered(self, op: str, segments: dict[str, Value | Iterable[Value]]) -> Query:
        new = [[op, name, _words(values)] for name, values in segments.items()]
        return self._with(filters=[*self._members.get("filters", ()), *new])

    def _with(self, **members: Any) -> Query:
        return replace(self, _members=self._members | members)
