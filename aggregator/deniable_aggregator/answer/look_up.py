"""What was published of the metrics of a query: its releases, before any of them is read."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer import date_range
from deniable_aggregator.answer.cells import Cells, segments_of
from deniable_aggregator.answer.comparison import Incomparable
from deniable_aggregator.answer.lines import MEAN, QUANTILE_NAMES
from deniable_aggregator.answer.query import IncompatibleMembers, UnknownDimension
from deniable_aggregator.publish import release

if TYPE_CHECKING:
    from collections.abc import Collection as Some
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from deniable.declared import Declared, Definition
    from deniable.wire.report import Stratum
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.answer.date_range import DateRange, Earlier
    from deniable_aggregator.answer.query import Query
    from deniable_aggregator.publish.release import Release

    Words = tuple[str, ...]


_MOST_TOLD = 20  # values in a refusal


class Found(NamedTuple):
    """The releases that some rows rest on, all of one version and one cell."""

    declared: Declared
    chosen: Mapping[Stratum, Release]

    @property
    def n(self) -> int:
        """Their reports."""
        return sum(note.n for note in self.chosen.values())

    @property
    def closed(self) -> bool:
        """Whether nothing more will be published for them."""
        return all(note.closed for note in self.chosen.values())

    def within(self, names: Some[str]) -> Found:
        """Return those of some periods."""
        return self._replace(chosen={stratum: note for stratum, note in self.chosen.items() if stratum.period in names})


@dataclass(frozen=True, eq=False)
class Published:
    """What was published of a metric, as far as a query is about it."""

    versions: Sequence[Declared]  # the versions to try, the highest first
    cells: Mapping[Definition, Cells]  # of each version
    releases: Mapping[tuple[Definition, str], Mapping[str, tuple[Stratum, Release]]]  # by version, cell and last period
    # first, last: the periods that the query is about; empty and "~" where it is open
    first: str
    last: str
    earlier: Earlier | None  # where the range before lies, if each row is compared with it

    @property
    def groups(self) -> list[Words]:
        """The values of the segments that rows are broken down by."""
        return list(product(*self._listed))

    @property
    def size(self) -> int:
        """How many they are."""
        return prod(map(len, self._listed))

    @property
    def _listed(self) -> tuple[Words, ...]:
        return self.cells[self.versions[0].definition].listed

    @property
    def length(self) -> str:
        """Of a period."""
        return self.versions[0].metric.period

    @cached_property
    def names(self) -> list[str]:
        """The periods from the first to the last in which anything is published."""
        within = self._within
        return list(date_range.names_between(min(within), max(within), self.length)) if within else []

    @cached_property
    def _within(self) -> frozenset[str]:
        """The last periods of the releases of any cell."""
        return frozenset(name for each in self.releases.values() for name in each if self.first <= name <= self.last)

    def find(self, words: Words, first: str, last: str) -> Found | None:
        """Return the releases of a cell between two periods, of the highest version that has any."""
        return next(self.find_each(words, first, last), None)

    def find_each(self, words: Words, first: str, last: str) -> Iterator[Found]:
        """Yield the releases of a cell between two periods for each version that has any, the highest first."""
        for declared in self.versions:
            there = self._of(declared, words)
            if first == last:
                chosen = dict([there[first]]) if first in there else {}
            else:
                chosen = dict(each for name, each in sorted(there.items()) if first <= name <= last)
            if chosen:
                yield Found(declared, chosen)

    def state(self, words: Words, name: str | None, *, published: bool) -> str:
        """Say what became of a cell in a period."""
        if published:
            return "published"
        if name is None:
            return "withheld" if self._within else "missing"
        some = (self._joining.get(self._key(declared, words), ()) for declared in self.versions)
        if any(note.covers(last, name) for each in some for last, note in each):
            return "joined"
        return "withheld" if name in self._within else "missing"

    @cached_property
    def _joining(self) -> Mapping[tuple[Definition, str], Sequence[tuple[str, Release]]]:
        """The releases that cover several periods, each with its last one."""
        found: dict[tuple[Definition, str], list[tuple[str, Release]]] = {}
        for key, each in self.releases.items():
            found[key] = [(last, note) for last, (_, note) in each.items() if note.first != last]
        return found

    def _of(self, declared: Declared, words: Words) -> Mapping[str, tuple[Stratum, Release]]:
        return self.releases.get(self._key(declared, words), {})

    def _key(self, declared: Declared, words: Words) -> tuple[Definition, str]:
        return declared.definition, self.cells[declared.definition].text(words)


def look_up(
    app: Collection,  # whose metrics they are
    query: Query,
    asked: Sequence[Sequence[Declared]],  # of each metric the versions to try, the highest first
    now: datetime,  # the last days of a date range end today
) -> list[Published]:
    """Find what was published of the metrics of a query.

    Raises
    ------
    Refusal
        If the query cannot be answered, whatever was published.
    """
    _check(query)
    _check_values(query, asked)
    span = date_range.read(query.date_range, now)
    return [_published(app, query, versions, span) for versions in asked]


def _check(query: Query) -> None:
    compare = query.compare
    if len(set(query.dimensions)) < len(query.dimensions):
        raise UnknownDimension("dimensions names each dimension once")
    if "value" not in query.dimensions and any(each.dimension == "value" for each in query.filters):
        raise UnknownDimension("values are filtered where value is one of the dimensions")
    if query.pool and (compare or query.include or query.view == "consistent" or query.target == "respondents"):
        raise IncompatibleMembers("versions are pooled in the raw view of the population, without compare and trend")
    if query.view == "consistent" and (compare or query.include):
        raise IncompatibleMembers("consistent shares are biased, so compare and trend are of the view raw")
    if compare is None:
        return
    segment = compare.dimension is not None and compare.base is not None
    if segment == (compare.date_range is not None) or (compare.dimension is None) != (compare.base is None):
        raise Incomparable("compare has a dimension and its base, or the date_range previous")
    if compare.match and segment:
        raise Incomparable("match belongs to the date_range previous")
    if segment and (compare.dimension not in query.dimensions or compare.dimension in ("time", "value")):
        raise Incomparable("what is compared are values of a segment, where it is one of the dimensions")


def _check_values(query: Query, asked: Sequence[Sequence[Declared]]) -> None:
    """Refuse a filter of a value that no metric has. What a search may find is not known before."""
    wanted = [word for each in query.filters if each.dimension == "value" for word in each.values]
    versions = [declared for each in asked for declared in each]
    if not wanted or any(declared.metric.discover for declared in versions):
        return
    known = dict.fromkeys(label for declared in versions for label in _labels(declared))
    for word in wanted:
        if word not in known:
            raise UnknownDimension(_unknown_value(word, list(known), ", ".join(each[0].metric.id for each in asked)))


def _labels(declared: Declared) -> Sequence[str]:
    """Return what may stand in the column of values."""
    metric = declared.metric
    if metric.estimate:
        return (MEAN, *(QUANTILE_NAMES if metric.estimate == "distribution" else ()))
    number = len(metric.values) if metric.type == "set" else metric.domain_size
    return [metric.label(position) for position in (declared.candidates if metric.open else range(number))]


def _unknown_value(word: str, known: Sequence[str], metrics: str) -> str:
    if len(known) <= _MOST_TOLD:
        return f"values of {metrics} are {', '.join(known)}; got {word}"
    near = get_close_matches(word, known, 1)
    return f"{metrics} has no such value; got {word}{f'; did you mean {near[0]}?' if near else ''}"


def _published(app: Collection, query: Query, asked: Sequence[Declared], span: DateRange) -> Published:
    over_time = "time" in query.dimensions or query.include or (query.compare and query.compare.date_range)
    # A metric's versions may have periods of other lengths, which are no part of one series.
    versions = [each for each in asked if not over_time or each.metric.period == asked[0].metric.period]
    if (query.compare or query.include) and "value" not in query.dimensions and not versions[0].metric.estimate:
        raise IncompatibleMembers("compare and trend are of shares and means: name value among the dimensions")
    cells = Cells.of_each(app.registry, versions, query)
    versions = [each for each in versions if each.definition in cells]
    if query.compare and query.compare.base is not None:
        at = segments_of(query).index(str(query.compare.dimension))
        if any(each.overlapping(at, query.compare.base) for each in cells.values()):
            raise Incomparable("segments are compared if nobody can be in both at the same time")
    releases: dict[tuple[Definition, str], dict[str, tuple[Stratum, Release]]] = {}
    for stratum, note in release.listed(app.store, asked[0].metric.id).items():
        if stratum[:3] in cells:
            releases.setdefault((stratum[:3], stratum.segment), {})[stratum.period] = (stratum, note)
    length = versions[0].metric.period
    earlier = None
    if query.compare and query.compare.date_range:
        earlier = span.before(length, weekday=query.compare.match is not None)
    return Published(versions, cells, releases, *span.names(length), earlier)


def state_of(app: Collection, several: Sequence[Published]) -> str:
    """Return a text that changes with every release of the metrics, and with the registry."""
    told = [(key, sorted(there.items())) for each in several for key, there in each.releases.items()]
    return sha256(repr((app.name, app.registry.digest, sorted(told))).encode()).hexdigest()[:16]
