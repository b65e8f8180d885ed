"""Bands of quantiles by a chi-square profile: which places can hold a quantile, whatever the rest of the distribution is.

They do not rest on a smooth fit. So they hold where many answers are equal: defaults, zeros, whole numbers.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls
from scipy.special import chdtri

from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms.window import Window

_FIRM = 1e3  # weight of the rows that fix sums, over the greatest other entry
_LEAST = 1e-12  # of a probability, where reports were made up
_ADDED = 4  # reports
_PEAK, _OVER, _ASIDE = 0.05, 1.5, 3  # a peak: mass of two points, times the mean of pairs beside it, points to either side


def cell_chances(mechanism: Window, places: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of each cell for answers at some places of the axis, in [0, 1]; (places, cells)."""
    cells, points = np.arange(mechanism.layout.width), np.arange(mechanism.points)[:, None]
    within = (cells >= points) & (cells < points + mechanism.length)
    chances = np.where(within, float(mechanism.inside), float(mechanism.outside))
    steps = mechanism.points - 1
    at = np.asarray(places, np.float64) * steps
    lower = np.clip(np.floor(at + 1e-9).astype(np.int64), 0, steps)
    part = np.clip(at - lower, 0.0, 1.0)[:, None]
    return np.asarray((1 - part) * chances[lower] + part * chances[np.minimum(lower + 1, steps)])


class Profile:
    """How badly the reports fit to a share of answers at or below a place, for all places that answers may have."""

    def __init__(
        self,
        chances: NDArray[np.float64],  # (places, cells), the probability of each cell for an answer at each place
        counts: NDArray[np.float64],  # (cells,), the reports that name each
        start: NDArray[np.float64],  # (places,), a first fit. Only the weights of the cells come from it.
        repeats: float = 0.0,  # how many other reports the device of a report has made, on average, at most
    ) -> None:
        self.places, self._n, self._repeats = len(chances), counts.sum(), repeats
        shares = counts / self._n
        for _ in range(2):  # the weights are those of the fit
            weights = np.sqrt(self._n / np.maximum(start @ chances, _LEAST))
            self._rows, self._right = chances.T * weights[:, None], shares * weights
            start, self._least = self._solve(np.ones((1, self.places)), np.ones(1))
        self.cumulative = np.cumsum(start)  # of the best fit, at or below each place
        self._distances: dict[tuple[int, float], float] = {}

    def _solve(self, sums: NDArray[np.float64], totals: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Fit shares that are not negative and have these sums; return them, and the squared distance."""
        firm = _FIRM * self._rows.max()
        solution, _ = nnls(np.vstack([self._rows, firm * sums]), np.append(self._right, firm * totals), maxiter=20 * self.places)
        return solution, float(np.sum((self._rows @ solution - self._right) ** 2))

    def distance(self, place: int, share: float) -> float:
        """Return by how much the reports fit worse if this share of answers lies at or below the place of this index."""
        # If it is right, this is about chi-square with one degree of freedom.
        # Where devices made several reports each, the share of those who answered varies by `a (1 - a) repeats / n` more. Near
        # the best fit the distance is a square over a variance. So that is added to its variance.
        key = place, share
        if key not in self._distances:
            sums = np.zeros((2, self.places))
            sums[0, : place + 1] = sums[1, place + 1 :] = 1.0
            worse = max(self._solve(sums, np.array([share, 1 - share]))[1] - self._least, 0.0)
            away = abs(float(self.cumulative[place]) - share)
            shared = share * (1 - share) * self._repeats / self._n
            self._distances[key] = worse * away**2 / (away**2 + worse * shared) if shared and away else worse
        return self._distances[key]

    def quantile(self, share: float, level: float) -> tuple[int, int, int]:
        """Return the indices of a quantile's place in the best fit, and of the first and the last place that can hold it."""
        limit, last = float(chdtri(1, 2 * tail(level))), self.places - 1
        middle = min(int(np.searchsorted(self.cumulative, share)), last)

        def not_below(place: int) -> bool:
            return place >= middle or self.distance(place, share) <= limit

        def above(place: int) -> bool:
            return place == last or (self.cumulative[place] > share and self.distance(place, share) > limit)

        return middle, _first(0, middle, not_below), _first(middle, last, above)

    def error(self, share: float) -> float:
        """Return the standard error of the share of answers up to its quantile; infinite where none or all is as likely."""
        # The reports are asked how much worse the nearer of none and all fits at the quantile. That distance is a square over a
        # variance. Of a share above a half the place before the quantile is taken: beyond it there are answers.
        middle = min(int(np.searchsorted(self.cumulative, share)), self.places - 1)
        place, nearer = (middle, 0.0) if share <= 1 / 2 else (middle - 1, 1.0)
        if place < 0:  # all answers are at the low end
            return 0.0
        worse = self.distance(place, nearer)
        own = (float(self.cumulative[place]) - nearer) ** 2 / worse if worse else float("inf")
        return sqrt(own + share * (1 - share) * self._repeats / self._n)

    def allows(self, place: int, share: float, most: float) -> bool:
        """Return whether the reports fit worse by so much at most if a place holds the quantile."""
        middle = min(int(np.searchsorted(self.cumulative, share)), self.places - 1)
        if place < middle:
            return self.distance(place, share) <= most
        # As in `near`: a place holds the quantile if no more than the share lies at or below the one before.
        return place == middle or self.cumulative[place - 1] <= share or self.distance(place - 1, share) <= most

    def near(self, share: float, most: float) -> tuple[int, NDArray[np.float64]]:
        """Return the first place that can hold a quantile, and of it and those after it by how much the reports fit worse."""
        # No place is in it of which that is more than `most`. Further places never fit better.
        last = self.places - 1
        middle = min(int(np.searchsorted(self.cumulative, share)), last)
        below, above = [0.0], list[float]()
        while len(below) <= middle and (worse := self.distance(middle - len(below), share)) <= most:
            below.append(worse)
        # The place after one holds the quantile if no more than the share lies at or below that one.
        for place in range(middle, last):
            worse = self.distance(place, share) if self.cumulative[place] > share else 0.0
            if worse > most:
                break
            above.append(worse)
        return middle - len(below) + 1, np.array([*reversed(below), *above])


def value_shares(
    chances: NDArray[np.float64],  # (values, cells), the probability of each cell for each value
    counts: NDArray[np.float64],  # (cells,), the reports that name each
    starts: Sequence[int],  # the first value of each group
    repeats: float = 0.0,  # as for `Profile`
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate the share of each value, or of neighbours together, without bias: shares and standard errors, (groups,)."""
    # Each report has a score for each value, whose mean is 1 for answers of that value and 0 for others. The scores are those of
    # least squares, weighted as for equally common values.
    n, weighted = counts.sum(), chances / chances.mean(axis=0)
    scores = np.add.reduceat(np.linalg.solve(weighted @ chances.T, weighted), starts)
    shares = scores @ counts / n
    held = np.clip(shares, 0.0, 1.0)
    # Few reports may all say the same by chance. So a few of evenly spread answers are added for the variance.
    cells = (counts + _ADDED * chances.mean(axis=0)) / (n + _ADDED)
    total = scores**2 @ cells - (scores @ cells) ** 2
    # Nor do they vary less than the device's own noise, whatever the answers are.
    least = (scores**2 @ chances.T - (scores @ chances.T) ** 2).min(axis=1)
    variance = (np.maximum(total, least) + held * (1 - held) * repeats) / n
    return shares, np.sqrt(np.maximum(variance, 0.0))


def band_of_points(
    profile: Profile,  # of the points
    fitted: NDArray[np.float64],  # (points,), the distribution that is shown
    # share, level: the share of the answers below the quantile, and the confidence
    share: float,
    level: float,
) -> tuple[float, float]:
    """Return the band of a quantile as places on the axis, where answers may lie between points."""
    # An answer between two points was rounded to one of them. So the band goes half a point beyond the first and the last point.
    # It goes a whole point beyond where the shown distribution has a peak there: the peak may be one answer between two points.
    _, first, final = profile.quantile(share, level)
    return around(fitted, first)[0], around(fitted, final)[1]


def around(
    fitted: NDArray[np.float64],  # (points,), the distribution that is shown
    point: int,
) -> tuple[float, float]:
    """Return between which places on the axis the answers may lie that were rounded to a point."""
    steps = len(fitted) - 1
    low = point - (1.0 if _peak(fitted, point - 1) else 0.5)
    high = point + (1.0 if _peak(fitted, point) else 0.5)
    return max(low, 0.0) / steps, min(high, float(steps)) / steps


def _peak(fitted: NDArray[np.float64], lower: int) -> bool:
    """Return whether a point and the next one hold much more than the pairs beside them."""
    pairs = np.convolve(np.pad(fitted, _ASIDE + 1), [1.0, 1.0], "valid")  # from the pair that is _ASIDE + 1 below on
    at = lower + _ASIDE + 1
    beside = (pairs[at - _ASIDE] + pairs[min(at + _ASIDE, len(pairs) - 1)]) / 2
    return bool(pairs[at] > max(_PEAK, _OVER * beside))


def _first(first: int, last: int, holds: Callable[[int], bool]) -> int:
    """Return the first whole number that something holds for, as it does from there on; at most `last`."""
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if holds(middle) else (middle + 1, last)
    return first
