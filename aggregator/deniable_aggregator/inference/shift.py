"""Shifts: a share or a mean that lies beyond what the periods before and chance explain, seen as periods close."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from deniable_aggregator.inference.between import FEWEST_PAIRS, between, correlations
from deniable_aggregator.inference.slope import TURNOVERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from deniable_aggregator.inference.between import Between
    from deniable_aggregator.inference.slope import Course

    Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

_FALSE, _PERIODS = 0.05, 200
"""Chance that so many periods have a false shift, in any of the values."""
_WINDOWS = (1, 2, 4, 8, 16)
_PAST = 56  # periods before a window: of days, eight of each weekday
_FEWEST = 4  # periods before a window
MEMORY = _PAST + 2 * _WINDOWS[-1]
"""Whether a period has a shift depends on so many periods before it, and on no other."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One shift of one value."""

    value: int  # its place
    # begins, seen: the periods between which it lies, as places in the course: it is the mean of these that differs
    begins: int
    seen: int
    size: float  # by how much
    # low, high: its interval. It holds together with those of all other shifts in 200 periods.
    low: float
    high: float
    single: bool  # whether it is of one period alone so far: that may be an unusual one, and no lasting change


class _Contrast(NamedTuple):
    """A window less the periods before it: ``sum of weights * estimates`` over these rows of a course."""

    begins: int
    seen: int
    rows: slice
    weights: NDArray[np.float64]


class _Sized(NamedTuple):
    """A contrast with its estimate for each value, and the ends of that."""

    contrast: _Contrast
    size: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Errors:
    """The errors of a course."""

    course: Course
    # below, above: (periods, values), squares of the distances from an estimate to the ends of its interval
    below: NDArray[np.float64]
    above: NDArray[np.float64]
    people: NDArray[np.float64]  # (periods,), the least number of devices
    # shared, fresh: (periods, values), the variance that all reports of a person share, and the rest of the variance of an
    # estimate
    shared: NDArray[np.float64]
    fresh: NDArray[np.float64]
    distance: float  # how far apart what two persons share may be
    skew: float  # what skewness adds to a quantile, by Cornish and Fisher

    @classmethod
    def of(cls, course: Course, ends: Ends, level: float, distance: float) -> _Errors:
        below, above = (np.square(end - course.estimates) for end in ends)
        people = np.array(course.reports, np.float64) / (1 + np.array(course.repeats, np.float64))
        one = np.square(course.stderr)
        shared = np.minimum(course.shared, one * people[:, None])
        z = -float(ndtri((1 - level) / 2))
        return cls(course, below, above, people, shared, one - shared / people[:, None], distance, (z - 1 / z) / 6)

    def at_quantile(self, shared: NDArray[np.float64], people: float) -> NDArray[np.float64]:
        """Return the variance of a symmetric error that reaches as far as the skewed one of so many people."""
        unlike = np.sqrt(np.maximum(1 - 4 * shared / self.distance**2, 0.0))
        return np.asarray(np.square(np.sqrt(shared) + self.skew * self.distance * unlike / np.sqrt(people)), np.float64)


def confidence(hypotheses: int) -> float:
    """Return the confidence of the intervals from which the shifts are found, of so many hypotheses about shares."""
    return 1 - _FALSE / (_PERIODS * len(_WINDOWS) * hypotheses)


def shifts(
    course: Course,  # periods that are closed
    ends: Ends,  # (periods, values) each, the intervals of all estimates
    level: float,  # the `confidence` of these
    *,
    cycle: int = 1,  # only periods so many apart, or a multiple of it, are alike: 7 for days
    least: float = 0.0,  # shifts that may be smaller than this do not count
    distance: float = 1.0,  # how far apart what two persons share may be: 1 for shares, more if responses are kept
) -> list[Shift]:
    """Find the shifts of a course, by the period in which each is seen."""
    # With each period, the means of the last 1, 2, 4, 8 and 16 are compared with that of up to 56 before. So whether there is a
    # shift does not depend on what comes later, nor on what was long ago. The intervals of all periods make that of the
    # difference (MOVER). They are so wide that those of all values and windows in 200 periods hold together with 95%
    # (Bonferroni). There is a shift where the interval is beyond `least`. It is a new one unless one of the 16 periods before had
    # one in this direction.
    #
    # If the same devices answer in many periods, errors of periods go together, and drift as devices are replaced. How many are
    # is not known. So each interval is as wide as at the worst of all rates, as that of a slope is. And what few people share is
    # skewed, over however many periods they answer. So their part of the error is taken at its quantile (Cornish and Fisher), as
    # if some held the value and the others did not.
    #
    # Periods also differ by more than chance. How much, the periods before a window tell (`between`). That variance is added, as
    # if differences of neighbouring periods were correlated by 0, 1/4 or 1/2, whichever is worst, with Student's quantile. Where
    # fewer than 8 pairs of periods tell it, there is no shift.
    # G. Y. Zou, A. Donner: Construction of confidence limits about effect measures. Statistics in Medicine 27(10), 2008.
    # E. A. Cornish, R. A. Fisher: Moments and cumulants in the specification of distributions. Rev. Int. Stat. Inst. 5(4), 1938.
    errors = _Errors.of(course, ends, level, distance)
    seen_shifts: list[Shift] = []
    known: dict[int, Between] = {}  # before a window, by its first row
    last: dict[tuple[int, bool], int] = {}
    places: dict[tuple[int, bool], int] = {}
    for seen, contrasts in groupby(_contrasts(course, cycle), attrgetter("seen")):
        looked = []
        for contrast in contrasts:
            begins = contrast.begins
            if begins not in known:
                known[begins] = usual(course, slice(contrast.rows.start, begins), cycle)
            if known[begins].pairs >= FEWEST_PAIRS:
                looked.append(_sized(errors, contrast, known[begins], level))
        for shift in _plainest(looked, least):
            direction = shift.value, shift.size > 0
            if seen - last.get(direction, -_PERIODS) > _WINDOWS[-1]:
                places[direction] = len(seen_shifts)
                seen_shifts.append(shift)
            elif any(_lasts(each, seen_shifts[places[direction]], least) for each in looked):
                seen_shifts[places[direction]] = replace(seen_shifts[places[direction]], single=False)
            last[direction] = seen
    return seen_shifts


def _contrasts(course: Course, cycle: int) -> Iterator[_Contrast]:
    """Compare each window with the periods before it; of each of its periods only with those that are alike."""
    times, reports = np.array(course.times), np.array(course.reports, np.float64)
    for seen in range(len(times)):
        for window in _WINDOWS:
            begins = seen - window + 1
            first = max(begins - _PAST, 0)
            if begins - first < max(window, _FEWEST):
                continue
            own, before = reports[begins : seen + 1], reports[first:begins]
            alike = (times[begins : seen + 1, None] - times[first:begins]) % cycle == 0
            if not alike.any(axis=1).all():
                continue
            own = own / own.sum()
            before = (own[:, None] * alike * before / (alike @ before)[:, None]).sum(axis=0)
            yield _Contrast(begins, seen, slice(first, seen + 1), np.concatenate([-before, own]))


def usual(course: Course, rows: slice, cycle: int = 1) -> Between:
    """Estimate by how much some periods of a course differ beyond chance."""
    reports = np.array(course.reports, np.float64)[rows]
    # The mean over the periods: what an estimate that is high by chance says of its own error is too much.
    one = reports @ (np.square(course.stderr[rows]) * reports[:, None]) / reports.sum()
    return between(np.array(course.times)[rows], course.estimates[rows], one / reports[:, None], cycle)


def _sized(errors: _Errors, contrast: _Contrast, before_it: Between, level: float) -> _Sized:
    """Estimate a contrast for each value."""
    rows, weights = contrast.rows, contrast.weights
    size, wider = weights @ errors.course.estimates[rows], _drift(errors, contrast)
    own, before = np.square(np.maximum(weights, 0.0)), np.square(np.minimum(weights, 0.0))
    below, above = errors.below[rows], errors.above[rows]
    chance = (1 - level) / 2
    student, normal = float(stdtrit(before_it.degrees, 1 - chance)), -float(ndtri(chance))
    times = np.array(errors.course.times)[rows]
    differ = student**2 * before_it.variance * max(float(weights @ each @ weights) for each in correlations(times))
    reaches = (own @ below + before @ above, own @ above + before @ below)
    down, up = (np.sqrt(np.square(student / normal * wider) * each + differ) for each in reaches)
    return _Sized(contrast, size, size - down, size + up)


def _drift(errors: _Errors, contrast: _Contrast) -> NDArray[np.float64]:
    """Return by what factor the error of each value is larger than that of independent periods, at the worst turnover."""
    rows, weights, people = contrast.rows, contrast.weights, errors.people[contrast.rows]
    times, reports = np.array(errors.course.times)[rows], np.array(errors.course.reports, np.float64)[rows]
    together = np.outer(weights, weights) / np.maximum(people[:, None], people)
    by_gap = np.bincount(abs(times[:, None] - times).ravel(), together.ravel())
    worst = float(((1 - np.array(TURNOVERS)[:, None]) ** np.arange(len(by_gap)) @ by_gap).max())
    # Both are those of all periods: an estimate that is high by chance has a large fresh error, beside which little is shared.
    each_fresh = errors.fresh[rows] * people[:, None]
    fresh, shared = reports @ each_fresh / reports.sum() * by_gap[0], reports @ errors.shared[rows] / reports.sum()
    alone = fresh + shared * by_gap[0]
    skewed = errors.at_quantile(shared, people.min())
    return np.asarray(np.sqrt((fresh + skewed * worst) / np.where(alone > 0, alone, np.nan)), np.float64)


def _plainest(looked: list[_Sized], least: float) -> Iterator[Shift]:
    """Return of each value the window that is furthest beyond chance, if any is."""
    if not looked:
        return
    size, low, high = (np.array([getattr(each, name) for each in looked]) for name in ("size", "low", "high"))
    reach = np.where(size > 0, size - low, high - size)
    plain = np.where((low > least) | (high < -least), np.abs(size) / reach, 0.0)
    for value in np.flatnonzero(plain.max(axis=0) > 0):
        at = int(plain[:, value].argmax())
        contrast = looked[at].contrast
        yield Shift(
            value=int(value),
            begins=contrast.begins,
            seen=contrast.seen,
            size=float(size[at, value]),
            low=float(low[at, value]),
            high=float(high[at, value]),
            single=contrast.begins == contrast.seen,
        )


def _lasts(later: _Sized, shift: Shift, least: float) -> bool:
    """Return whether periods after a shift was seen lie beyond chance in its direction, without it."""
    value = shift.value
    beyond = later.low[value] > least if shift.size > 0 else later.high[value] < -least
    return later.contrast.begins > shift.seen and bool(beyond)
