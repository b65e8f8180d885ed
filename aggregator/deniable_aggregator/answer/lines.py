"""Lines: what is estimated from one tally, line by line, as rows of a table show it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.registry.period import CYCLES
from deniable_aggregator.answer.differing import between, differing_means, moved
from deniable_aggregator.answer.merge import common
from deniable_aggregator.answer.numbers import QUANTILES, course_of, to_number
from deniable_aggregator.decode.consistent import consistent, lowered_by
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.slope import Course, slope
from deniable_aggregator.inference.some_values import some_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.answer.reading import Centre, Reading
    from deniable_aggregator.decode.estimate import Estimate, Target
    from deniable_aggregator.inference.difference import Ends

MEAN = "mean"
QUANTILE_NAMES = tuple(f"p{round(100 * share):02}" for share in QUANTILES)
_UNKNOWN = float("nan")


class Wanted(NamedTuple):
    """What is wanted of each tally."""

    kept: Callable[[str], bool]  # whether a value is wanted, by its label; of a number "mean", "p50" and so on
    # target, consistent, level: as of a `Query`
    target: Target
    consistent: bool
    level: float


@dataclass(frozen=True, eq=False)
class Lines:
    """What is estimated from one tally."""

    reading: Reading  # of the tally; of several versions that of the first
    n: int  # reports
    labels: Sequence[str]  # what each line is of
    # reports, estimates, stderr: (lines,). The first is how many reports each estimate rests on.
    reports: NDArray[np.int64]
    estimates: NDArray[np.float64]
    stderr: NDArray[np.float64]
    detected: Sequence[bool | None]  # whether each value is present; None of a number
    interval: Callable[[float], Ends]  # computes the intervals, (lines,) each, at a confidence level
    lowered_by: float  # the amount that consistent shares are lowered by; nan of others
    shares: Estimate | None  # what the estimates are made of; None of a number, and of several versions
    centre: Centre | None  # of a number; else None

    @property
    def hypotheses(self) -> int:
        """How many of the estimates are not told by another one."""
        return self.shares.hypotheses if self.shares else len(self.labels)

    @property
    def alike(self) -> tuple[object, ...]:
        """What lines of the same values have in common."""
        return self.reading.declared.definition, self.labels


def lines_of(reading: Reading, wanted: Wanted) -> Lines:
    """Return what is wanted of a reading."""
    return _numbers(reading, wanted) if reading.shares is None else _shares(reading, reading.shares, wanted)


def _shares(reading: Reading, whole: Estimate, wanted: Wanted) -> Lines:
    metric = reading.declared.metric
    found = whole.detected(1 - wanted.level)
    labels = [metric.label(position) for position in reading.values]
    # What a search tried and could not confirm is not an answer that anybody is known to have given.
    places = [at for at, label in enumerate(labels) if (found[at] or not metric.discover) and wanted.kept(label)]
    some = some_values(whole, places)
    shown, lowered = some.frequency, _UNKNOWN
    if wanted.consistent and metric.type == "set":  # shares of options need not sum to 1
        shown = np.clip(shown, 0.0, 1.0)
    elif wanted.consistent:
        shown = consistent(whole.frequency, complete=not metric.open)[places]
        lowered = lowered_by(whole.frequency, complete=not metric.open)
    return Lines(
        reading=reading,
        n=reading.n,
        labels=[labels[at] for at in places],
        reports=some.reports,
        estimates=shown,
        stderr=some.stderr if wanted.target == "population" else some.respondents_stderr,
        detected=[bool(found[at]) for at in places],
        interval=lambda level: some.interval(level, target=wanted.target),
        lowered_by=lowered,
        shares=some,
        centre=None,
    )


def _numbers(reading: Reading, wanted: Wanted) -> Lines:
    metric, number, centre = reading.declared.metric, to_number(reading.declared.metric), reading.centre
    if wanted.target == "respondents":
        centre = centre._replace(interval=centre.respondents)
    shares = [share for share, name in zip(QUANTILES, QUANTILE_NAMES, strict=True) if wanted.kept(name)]
    spread = reading.spread if shares and metric.estimate == "distribution" else None
    quantiles = [] if spread is None else shares
    first = [MEAN] if wanted.kept(MEAN) else []
    places = [centre.place] * len(first) + [spread.quantile(share).place for share in quantiles if spread]

    def interval(level: float) -> Ends:
        ends = [centre.interval(level)] * len(first)
        if spread:
            ends += [(each.low, each.high) for each in (spread.quantile(share, level) for share in quantiles)]
        return np.array([number(low) for low, _ in ends]), np.array([number(high) for _, high in ends])

    length = moved(metric)(1.0) if metric.scale == "linear" else _UNKNOWN
    return Lines(
        reading=reading,
        n=reading.n,
        labels=first + [name for share, name in zip(QUANTILES, QUANTILE_NAMES, strict=True) if share in quantiles],
        reports=np.full(len(places), reading.n, np.int64),
        estimates=np.array([number(place) for place in places]),
        stderr=np.array([centre.stderr * length] * len(first) + [_UNKNOWN] * len(quantiles)),
        detected=[None] * len(places),
        interval=interval,
        lowered_by=_UNKNOWN,
        shares=None,
        centre=centre,
    )


def pooled(several: Sequence[Lines], wanted: Wanted) -> Lines | None:
    """Combine what is estimated from several versions; None if they have no values in common, or are numbers."""
    found = common([each.reading for each in several])
    if found is None:
        return None
    positions, combined = found
    metric = several[0].reading.declared.metric
    labels = [metric.label(position) for position in positions]
    places = [at for at, label in enumerate(labels) if wanted.kept(label)]

    def interval(level: float) -> Ends:
        low, high = combined.interval(level)
        return low[places], high[places]

    return replace(
        several[0],
        n=sum(each.n for each in several),
        labels=[labels[at] for at in places],
        reports=combined.reports[places],
        estimates=combined.frequency[places],
        stderr=combined.stderr[places],
        detected=[None] * len(places),
        interval=interval,
        shares=None,
    )


def differences(base: Lines, lines: Lines, wanted: Wanted, planned: float | None) -> NDArray[np.float64]:
    """Compare each line with that of another tally; of an experiment with its `planned` difference.

    Returns
    -------
    ndarray of float
        (4, lines): difference, its interval's low and high end, and p-value. nan of quantiles, and where the other tally is of
        another definition or its search found other values. On a logarithmic scale differences are ratios.
    """
    found = np.full((4, len(lines.labels)), _UNKNOWN)
    if lines.alike != base.alike or not (lines.n and base.n):
        return found
    if lines.centre is None or base.centre is None:
        sides = [Side(each.shares.frequency, each.interval, each.shares.mirrored) for each in (base, lines) if each.shares]
        apart = between(sides[0], sides[1], planned)
        return np.array([apart.estimates, *apart.interval(wanted.level), apart.p_value])
    if MEAN in lines.labels:
        (mean,) = differing_means(lines.reading.declared.metric, base.centre, lines.centre, wanted.level, planned)
        found[:, 0] = mean.difference, *mean.interval, mean.p_value
    return found


def trends(
    course: Sequence[tuple[int, Lines]],  # the times, which are rising whole numbers, each with its lines
    level: float,  # of the intervals
) -> NDArray[np.float64] | None:
    """Fit a line through the estimates of some times, all of one definition.

    Returns
    -------
    ndarray of float
        (3, lines): the rise in a period, and its interval's low and high end; nan of quantiles. On a logarithmic scale it is a
        factor. None if there are too few times, or if a search found other values each time.
    """
    if not course:
        return None
    (*_, (_, last)) = course
    times, lines, metric = [at for at, _ in course], [each for _, each in course], last.reading.declared.metric
    if any(each.alike != last.alike for each in lines) or metric.discover:
        return None
    if last.centre is None:
        shares = Course.of_shares(times, [each.shares for each in lines if each.shares], [each.reading.repeats for each in lines])
        found = slope(shares, CYCLES[metric.period])
        return None if found is None else np.array([found.estimate, *found.interval(level)])
    found = slope(course_of(times, [each.reading for each in lines]), CYCLES[metric.period])
    if found is None:
        return None
    rises = np.full((3, len(last.labels)), _UNKNOWN)
    if MEAN in last.labels:
        distance = moved(metric)
        # No mean moves by more than the range in a period. Through few periods the interval may be wider.
        rises[:, 0] = [distance(min(max(float(each[0]), -1.0), 1.0)) for each in (found.estimate, *found.interval(level))]
    return rises
