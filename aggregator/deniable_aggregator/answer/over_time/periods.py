"""The releases that a series shows, and those before them on which its shifts depend."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from deniable.registry import period
from deniable_aggregator.answer.model.series import SeriesPeriod
from deniable_aggregator.answer.reading import Reading
from deniable_aggregator.answer.readings import read
from deniable_aggregator.answer.select import state
from deniable_aggregator.inference.shift import MEMORY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.select import Published, Selection

_FEWEST, _MOST_PERIODS = 4, 100
_LISTED, _OPEN = 400_000, 20_000  # values over all periods that take no longer than a page may

R_co = TypeVar("R_co", bound=Reading, covariant=True)


class Estimated(NamedTuple, Generic[R_co]):
    """A release of the cell, with what was read of it."""

    selection: Selection
    reading: R_co
    at: int  # its place in the series, from 0; negative before the periods shown
    closed: bool  # whether nothing more comes for it, and no part of it is left out


def estimate(
    dated: Sequence[tuple[int, Selection]],  # each with its place in the series
    unfinished: Collection[int] = (),  # places of those of which a part is missing
) -> list[Estimated[Reading]]:
    """Read some releases."""
    readings = read([selection for _, selection in dated])
    return [
        Estimated(selection, reading, at, selection.closed and at not in unfinished)
        for (at, selection), reading in zip(dated, readings, strict=True)
    ]


def of_kind(periods: Sequence[Estimated[Reading]], kind: type[R_co]) -> list[Estimated[R_co]]:
    """Return those of one kind of reading: versions of a metric may be of different kinds."""
    return [Estimated(each.selection, each.reading, each.at, each.closed) for each in periods if isinstance(each.reading, kind)]


def most_periods(current: Declared) -> int:
    """Return how many periods a series of a metric has at most."""
    metric = current.metric
    size = len(current.candidates) if metric.open else 1 if metric.axis else metric.domain_size
    # A page shows the more periods the fewer values each has, so that it stays fast.
    most = (_OPEN if metric.open else _LISTED) // max(size, 1)
    return min(max(most, _FEWEST), _MOST_PERIODS)


def join(by_last: Mapping[str, Selection], length: str, by: str) -> dict[str, Selection]:
    """Join releases by the longer period in which their last period begins: of several versions those of the last one."""
    by_name: dict[str, Selection] = {}
    for last in sorted(by_last):
        selection, name = by_last[last], period.of(period.bounds(last, length)[0], by)
        before = by_name.get(name)
        if before and before.declared is selection.declared:
            selection = selection._replace(releases={**before.releases, **selection.releases})
        by_name[name] = selection
    return by_name


def is_over(name: str, by_last: Mapping[str, Selection], length: str, by: str) -> bool:
    """Tell whether all releases of a longer period are there: its end is reached, or a later one has a release."""
    following = period.of(period.bounds(by_last[name].last, length)[1], by)
    return following > name or max(by_last) > name


def last_periods(current: Declared, by_last: Mapping[str, Selection], length: str) -> list[str]:
    """Name the last periods up to the last release; the first one has a release, those between may have none."""
    names = list[str]()
    if by_last:
        names = list(islice(back(max(by_last), min(by_last), length), most_periods(current)))
    names.reverse()
    return names[next((at for at, name in enumerate(names) if name in by_last), 0) :]


def back(last: str, first: str, length: str) -> Iterator[str]:
    """Yield the names of periods, the last first."""
    while last >= first:
        yield last
        begins, _ = period.bounds(last, length)
        last = period.of(begins - timedelta(seconds=1), length)


def earlier_releases(current: Declared, by_last: Mapping[str, Selection], names: Sequence[str]) -> list[tuple[int, Selection]]:
    """Return the closed releases before the periods shown on which their shifts depend, each with its negative place."""
    if not names:
        return []
    earlier = islice(back(names[0], min(by_last), current.metric.period), 1, None)
    releases = ((-distance, by_last[name]) for distance, name in enumerate(earlier, 1) if name in by_last)
    own = [(at, each) for at, each in releases if each.declared is current and each.closed]
    return own[MEMORY - 1 :: -1]


def period_state(
    name: str,
    by_last: Mapping[str, Selection],
    versions: Iterable[tuple[Published, str]],
    *,
    is_over: bool = True,  # whether all of it is there
) -> SeriesPeriod:
    """Say what was published of a period, or why nothing was."""
    if name in by_last:
        selection = by_last[name]
        version = selection.declared.metric.version
        return SeriesPeriod(
            name, "published", selection.spans[0], selection.days, version, selection.n, selection.closed and is_over
        )
    absent = state(versions, name)
    # The reports of a joined period are in a later release, so nothing more will be published for it.
    return SeriesPeriod(name, absent, None, None, None, 0, closed=absent == "joined")
