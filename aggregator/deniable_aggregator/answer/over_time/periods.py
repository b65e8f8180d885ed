"""The releases that a series shows, and those before them on which its shifts depend."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from deniable.registry import period
from deniable_aggregator.answer.model.series import Told
from deniable_aggregator.answer.reading import Reading
from deniable_aggregator.answer.readings import read
from deniable_aggregator.answer.select import state
from deniable_aggregator.inference.shift import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.select import Published, Selection

_FEWEST, _MOST_PERIODS = 4, 100
_LISTED, _OPEN = 400_000, 20_000  # values over all periods that take no longer than a page may

R_co = TypeVar("R_co", bound=Reading, covariant=True)


class Estimated(NamedTuple, Generic[R_co]):
    """What was read of one release of the cell asked for."""

    selection: Selection
    reading: R_co
    at: int  # its place in the series


def estimate(app: AppMetrics, several: Sequence[tuple[int, Selection]]) -> list[Estimated[Reading]]:
    """Read some releases, each with its place in the series."""
    readings = read(app, [selection for _, selection in several])
    return [Estimated(selection, reading, at) for (at, selection), reading in zip(several, readings, strict=True)]


def of_kind(several: Sequence[Estimated[Reading]], kind: type[R_co]) -> list[Estimated[R_co]]:
    """Return those of a kind. Versions of a metric may be of several."""
    return [Estimated(each.selection, each.reading, each.at) for each in several if isinstance(each.reading, kind)]


def shown(current: Declared, found: Mapping[str, Selection]) -> list[str]:
    """Return the last periods up to the last release, from the first release among them on."""
    metric, names = current.metric, list[str]()
    size = len(current.candidates) if metric.open else 1 if metric.axis else metric.domain_size
    most = (_OPEN if metric.open else _LISTED) // max(size, 1)
    most = min(max(most, _FEWEST), _MOST_PERIODS)
    if found:
        names = list(islice(_back(max(found), min(found), metric.period), most))
    names.reverse()
    return names[next((at for at, name in enumerate(names) if name in found), 0) :]


def _back(last: str, first: str, length: str) -> Iterator[str]:
    """Yield the names of periods, the last first."""
    while last >= first:
        yield last
        begins, _ = period.bounds(last, length)
        last = period.of(begins - timedelta(seconds=1), length)


def before(current: Declared, found: Mapping[str, Selection], names: Sequence[str]) -> list[tuple[int, Selection]]:
    """Return the closed releases before the periods shown on which their shifts depend, by their place before these."""
    if not names:
        return []
    earlier = islice(_back(names[0], min(found), current.metric.period), 1, None)
    there = ((-before, found[name]) for before, name in enumerate(earlier, 1) if name in found)
    mine = [(at, each) for at, each in there if each.declared is current and each.closed]
    return mine[MEMORY - 1 :: -1]


def told(name: str, found: Mapping[str, Selection], versions: Iterable[tuple[Published, str]]) -> Told:
    """Say what there is of a period: the selection of its release, if there is one, and else why there is none."""
    if name in found:
        each = found[name]
        return Told(name, "published", each.spans[0], each.declared.metric.version, each.n, each.closed)
    what = state(versions, name)
    return Told(name, what, None, None, 0, closed=what == "joined")
