"""Ask a server of deniable for estimates, from a notebook or a script. It needs `requests` only."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from deniable_query.answer import Answer
from deniable_query.calls import calls
from deniable_query.clauses import check, range_of, segment_of
from deniable_query.error import QueryError
from deniable_query.metric import Metric
from deniable_query.server import Server
from deniable_query.words import answer_text, answer_texts, time_text, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from deniable_query.answer import Row

    Value = str | bool | float

__all__ = ["Answer", "Metric", "Query", "QueryError"]

VARIABLES = {"DENIABLE_URL": "", "DENIABLE_READ_KEY": ""}
"""What it reads from the environment, with defaults."""
_ABOUT = {"DENIABLE_URL": "the server's address", "DENIABLE_READ_KEY": "a read key of the app"}
_PAGE = 10_000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Query:
    """A question about metrics. Each method returns a new one; `rows`, `frame` and `answer` ask it, `metrics` what there is.

    A method applies the whole question, or raises `QueryError` and names the part that it cannot apply.

    Parameters
    ----------
    url
        Of the server, such as ``"https://telemetry.example.org"``; with neither url nor key that of ``DENIABLE_URL``.
    key
        A read key; with neither url nor key that of ``DENIABLE_READ_KEY``. No key of the environment goes to another address.
    timeout
        Seconds to wait for a page.

    Examples
    --------
    >>> themes = Query("https://telemetry.example.org", "rk_...").metric("ui.theme").where(platform="linux")
    >>> frame = themes.by("time").last(30).frame()  # doctest: +SKIP
    """

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    _members: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Write the question as it is asked, without the key."""
        return f"Query({self.url!r}){''.join(f'.{each}' for each in calls(self._members))}"

    def __post_init__(self) -> None:
        """Read the address and the key from the environment if neither is given."""
        if self.url is None and self.key is None:
            if missing := [name for name in VARIABLES if not os.environ.get(name)]:
                variables = " and ".join(f"{name} ({_ABOUT[name]})" for name in missing)
                raise QueryError(0, "", f"set {variables}; `deniable serve` prints the lines to copy")
            for member, name in (("url", "DENIABLE_URL"), ("key", "DENIABLE_READ_KEY")):
                object.__setattr__(self, member, os.environ[name])
        if self.url is None or self.key is None:
            raise QueryError(0, "", "give Query both an address and a key, or neither: it then reads them from the environment")

    if not TYPE_CHECKING:  # else a type checker would believe in every name

        def __getattr__(self, name: str) -> Any:
            """Say what to write in place of a method that there is not."""
            methods = [each for each, method in vars(type(self)).items() if callable(method)]
            raise AttributeError(unknown(name, methods), name=name, obj=self)

    def metric(self, *names: str) -> Query:
        """Ask about metrics: their ids, or ``metric@version``."""
        if wrong := [each for each in names if not isinstance(each, str)]:
            raise QueryError(0, "", f"metric() takes ids, such as 'ui.theme', one or several; this is {wrong[0]!r}")
        return self._with(metrics=[*self._members.get("metrics", ()), *names])

    def by(self, *dimensions: str, values: bool = True) -> Query:
        """Break rows down by ``"time"`` and by segments; and by value, unless only numbers of reports are wanted."""
        return self._with(dimensions=[*dimensions, *["value"] * (values and "value" not in dimensions)])

    def between(self, first: str | date, last: str | date = "") -> Query:
        """Ask about the periods that overlap a day, a week or a month in UTC, two of them and the time between, or two times."""
        return self._with(date_range=time_text(first) if last == "" else [time_text(first), time_text(last)])

    def last(self, days: int | str) -> Query:
        """Ask about the periods that overlap the last days, today included: 30, ``"30d"``, or for twelve weeks ``"12w"``."""
        if not isinstance(days, int | str) or isinstance(days, bool):
            raise QueryError(0, "", f"last() takes a whole number of days, such as 30 or '30d'; this is {days!r}")
        return self._with(date_range=f"{days}d" if isinstance(days, int) or days.isdigit() else days)

    def where(self, *unnamed: Value, **segments: Value | Iterable[Value]) -> Query:
        """Keep rows of these segments, or of a ``value``: one of each, or several if rows are broken down by it.

        Of a number a value is a figure, such as ``"p50"``, or a range, such as ``"200..500"``: above 200 and at most 500.
        """
        if unnamed:
            rule = "name what is chosen: a segment, such as where(platform='linux'), or where(value='p50')"
            raise QueryError(0, "", f"where({unnamed[0]!r}) says nothing of what it is: {rule}")
        return self._filtered("is", segments)

    def where_not(self, **segments: Value | Iterable[Value]) -> Query:
        """Leave out rows of segments that rows are broken down by, or of a ``value``."""
        return self._filtered("is_not", segments)

    def compare(self, segment: str, base: str = "") -> Query:
        """Break rows down by a segment, and compare each value of it with one of them, the base."""
        if not base:
            rule = f"compare({segment!r}) has no base: name the value to compare with, as the second argument"
            raise QueryError(0, "", f"{rule}; of an experiment, experiment({segment!r}) has its base")
        divided = self._members.get("dimensions", [])
        query = self if segment in divided else self.by(*(each for each in divided if each != "value"), segment)
        return Query._compared(query, {"dimension": segment, "base": base})

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
        """Ask which metrics there are, and return all of them in the registry's order.

        Raises
        ------
        QueryError
            If the query asks about anything, or if the server answers with a problem, or not at all.
        """
        check("metrics", self._members)
        listed: list[Metric] = []
        after: str | None = ""
        with self._server() as server:
            while after is not None:
                page = server.document("GET", "metrics", "metrics", params={"after": after} if after else {})
                listed += page["metrics"]
                after = page["next"]
        return listed

    def leading(self) -> dict[str, dict[str, Any] | None]:
        """Ask of each metric named which value is the most frequent one, or may be; None of a number, and without reports.

        It is of the reports that the range and one value of each segment leave.

        Raises
        ------
        QueryError
            If the query asks for anything else, or if the server answers with a problem, or not at all.
        """
        reports = self._reports("leading")
        return {name: each["leading"] for name, each in self._of_each("", "leading", reports).items()}

    def says(self) -> dict[str, list[str]]:
        """Ask of each metric named what its page says of the same range and segment: the result, changes, trend, experiments.

        Raises
        ------
        QueryError
            If the query asks for anything but a range, a level and one value of each segment, or if the server answers with a
            problem, or not at all.
        """
        reports = self._reports("says")
        now, course = self._of_each("", "says", reports), self._of_each("/series", "says", reports)
        listed = {}
        for name, answer in now.items():
            of_arms = [*(arm["says"] for arm in answer["arms"]), *dict.fromkeys(arm["sizes"] for arm in answer["arms"])]
            listed[name] = [answer["says"], course[name]["says"], course[name]["trend_says"], *of_arms]
        return {name: [each for each in words if each] for name, words in listed.items()}

    def comparison(self, a: str, b: str) -> dict[str, dict[str, Any]]:
        """Ask of each metric named how two sides differ, with tests of all values together.

        `where` names the segments that both sides have in common. Of two segments, `between` names the one period that they
        have in common.

        Parameters
        ----------
        a, b
            Two periods, such as ``"2026-W40"``; two longer times, such as ``"2026-10"`` or ``"2026-10-01..2026-10-31"``, of which
            whole periods count; or two segments, such as ``"platform=linux"``.

        Returns
        -------
        dict
            By metric what ``/compare`` answers: ``says``, ``times``, ``differences``, ``overall`` and so on.

        Raises
        ------
        QueryError
            If the query asks for anything else, or if the server answers with a problem, or not at all.
        """
        of_segments = "=" in a or "=" in b
        check("comparison of segments" if of_segments else "comparison of times", self._members)
        segment, period = segment_of(self._members), range_of(self._members)
        sides = {"a": f"{a},{segment}", "b": f"{b},{segment}"} if of_segments and segment else {"a": a, "b": b}
        common = {"period": period} if of_segments else {"segment": segment}
        return self._of_each(
            "/compare", "differences", self._level() | sides | {name: each for name, each in common.items() if each}
        )

    def experiment(self, segment: str | None = None, *, value: Value | None = None) -> dict[str, dict[str, Any]]:
        """Ask of each metric named how the arms of an experiment differ from its base, as reports came in.

        Parameters
        ----------
        segment
            Whose values are the arms; None: the metric's first experiment.
        value
            The answer to follow; None: the one whose difference is clearest.

        Returns
        -------
        dict
            By metric what ``/experiment`` answers: ``base``, ``planned``, ``sizes``, ``order``, and the ``arms`` with a
            ``comparison`` and ``looks`` each.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        check("experiment", self._members)
        parameters = {"segment": segment, "value": None if value is None else answer_text(value)}
        return self._of_each("/experiment", "arms", self._level() | {name: each for name, each in parameters.items() if each})

    def diagnosis(self) -> dict[str, dict[str, Any]]:
        """Ask of each metric named why nothing is published of it: ``says``, the ``cause``, and all ``conditions`` in order.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        check("diagnosis", self._members)
        return self._of_each("/diagnosis", "conditions", {})

    def withheld(
        self, period: str, *cells: str, epsilon: float, figure: Literal["count", "sum", "mean", "value"] = "count"
    ) -> dict[str, dict[str, Any]]:
        """Ask of each metric named about cells that are withheld. Each answer has noise, and is paid from the key's budget.

        Parameters
        ----------
        period
            The period whose release is asked about, such as ``"2026-11-20"``. It has to be closed.
        cells
            A withheld segment, such as ``"platform=beos"``; or several, to learn which has most reports.
        epsilon
            What each answer costs, in nats. The same question again costs nothing.
        figure
            What is asked of one cell: how many reports it has, the sum or the mean of a number, or the most frequent value.

        Returns
        -------
        dict
            By metric what ``/withheld`` answers: ``count`` or ``most``, ``estimate`` or ``value``, ``interval``, ``left``, and
            so on.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all; with the code ``budget_spent`` if too little is left.
        """
        check("withheld", self._members)
        question = {"period": period, "cells": list(cells), "epsilon": epsilon, "figure": figure}
        with self._server() as server:
            return {
                name: server.document("POST", f"metrics/{quote(name, safe='@')}/withheld", "guarantee", json=question)
                for name in self._named()
            }

    def budgets(self) -> dict[str, Any]:
        """Ask what all keys together, and this one, may spend on withheld cells, and what is left of each month.

        Where nothing can be asked, ``reason`` says why; else it is None.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        check("budgets", self._members)
        with self._server() as server:
            return server.document("GET", "budgets", "months")

    def csv(self) -> str:
        """Ask, and return the rows as the text of a CSV file, as the server writes it for spreadsheets.

        Raises
        ------
        QueryError
            If the server answers with a problem, or not at all.
        """
        with self._server() as server:
            return server.file("POST", "query", "text/csv", params={"format": "csv"}, json=self._members)

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
                about = (first["columns"], first["metrics"], first["trial"], first["simulated"] or "", first["together"] or "")
                return Answer(rows, *about)
        raise QueryError(200, "", "something was published between the pages, again and again; ask again")

    def _pages(self) -> list[dict[str, Any]]:
        self._named()
        pages: list[dict[str, Any]] = []
        offset: int | None = 0
        with self._server() as server:
            while offset is not None:
                question = self._members | {"pagination": {"limit": _PAGE, "offset": offset}}
                pages.append(server.document("POST", "query", "rows", json=question))
                offset = pages[-1]["next"]
        return pages

    def _of_each(self, path: str, member: str, parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Ask the same about each metric named; the answer has this member."""
        with self._server() as server:
            return {
                name: server.document("GET", f"metrics/{quote(name, safe='@')}{path}", member, params=parameters)
                for name in self._named()
            }

    def _named(self) -> list[str]:
        """Return the metrics that the query is about; raise `QueryError` if it names none."""
        names: list[str] = self._members.get("metrics", [])
        if not names:
            raise QueryError(0, "", "the query names no metric: add metric('ui.theme'), or several; metrics() lists them")
        return names

    def _reports(self, method: str) -> dict[str, Any]:
        """Write the level, the range and the segment as parameters of what a method says of one group of reports."""
        check(method, self._members)
        parameters = {"date_range": range_of(self._members), "segment": segment_of(self._members)}
        return self._level() | {name: each for name, each in parameters.items() if each}

    def _level(self) -> dict[str, Any]:
        return {"level": self._members["level"]} if "level" in self._members else {}

    def _server(self) -> Server:
        return Server(str(self.url), str(self.key), self.timeout)

    def _compared(self, compare: dict[str, str]) -> Query:
        before = self._members.get("compare", {})
        # Of two ways to compare both stay, so that the server refuses them. The same way once more replaces the first.
        return self._with(compare=compare if before.keys() & compare.keys() else before | compare)

    def _filtered(self, op: str, segments: dict[str, Value | Iterable[Value]]) -> Query:
        new = [[op, name, answer_texts(values)] for name, values in segments.items()]
        return self._with(filters=[*self._members.get("filters", ()), *new])

    def _with(self, **members: Any) -> Query:
        return replace(self, _members=self._members | members)
