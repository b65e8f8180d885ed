"""The share of answers within a range of a number, from a sum of randomised reports: unbiased, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.mechanisms.window import Window
from deniable_aggregator import decode
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.numbers.mean import Mean, mean, point_scores
from deniable_aggregator.decode.numbers.order import order
from deniable_aggregator.decode.numbers.profile import cell_chances, value_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Target
    from deniable_aggregator.tally import Tally

    Floats = NDArray[np.float64]

_CLOSE = 1e-9  # steps: places so close to a point are the point
_REACH = 1.96  # standard errors that ramps are chosen for, whatever the level: the estimate does not depend on it
_STEEP = 3  # times as steep as a ramp: between values scores may rise so fast, because nothing lies there
_ENOUGH = 20  # reports on the cells whose scores are largest: of fewer, their variance is not known
_MOSTLY = 0.7  # of the length of an interval, from which on answers near the ends of the range make it long
_LONGEST = 4  # a ramp is at most so many times shorter than the axis


@dataclass(frozen=True, eq=False)
class RangeShare:
    """The share of answers in a range of the axis."""

    # What it was rounded to: values that answers can have, both included; equal parts of the axis; or nothing, at points.
    of: Literal["values", "parts", "points"]
    # low, high: where it begins and ends, after rounding; 0 and 1 at the ends of the axis
    low: float
    high: float
    n: int  # reports
    share: float  # unbiased, so it may lie outside of [0, 1]; nan without reports
    stderr: float  # its standard error in the population that the respondents were drawn from
    blur: float  # answers closer to an end than this may count on either side of it; 0 where the ends are exact
    # least, most: what is surely in the range counts in the first, what may be in it counts in the second
    least: Mean | None
    most: Mean | None
    middle: Mean | None = None  # of which `share` is; None where it is that of `least`

    @property
    def is_blurred(self) -> bool:
        """Whether the interval is long because answers lie near the ends of the range, and not by chance."""
        if self.of != "points" or self.least is None or self.most is None:
            return False
        low, high = self.interval()
        return self.most.place - self.least.place >= _MOSTLY * (high - low)

    def interval(self, level: float = 0.95, *, target: Target = "population") -> tuple[float, float]:
        """Compute a confidence interval: from the low end for what is surely in the range to the high end for what may be."""
        if self.least is None or self.most is None:
            reach = -float(ndtri(tail(level))) * self.stderr
            return self.share - reach, self.share + reach
        low, high = (each.interval(level, target=target)[end] for end, each in enumerate((self.least, self.most)))
        if self.middle is not None:
            # By chance the two ends may lie closer together than those of the share itself, and beside it.
            own = self.middle.interval(level, target=target)
            low, high = min(low, own[0]), max(high, own[1])
        return min(low, self.share), max(high, self.share)


class ExactEnds(NamedTuple):
    """At which places of the axis a range may end without blur. It depends on nothing that was answered but the number."""

    of: Literal["values", "parts", "points"]  # as of `RangeShare`
    places: tuple[float, ...]
    blur: float  # answers closer than this to any other end may count on either side of it


def exact_ends(
    mechanism: Mechanism,
    n: int,  # reports
    values: Sequence[float] = (),  # as `range_share` takes them
    *,
    parts: bool = False,  # whether reports name equal parts of the axis; else the mechanism is a window
) -> ExactEnds:
    """Return at which places a range may end without blur."""
    if parts:
        size = mechanism.domain_size
        return ExactEnds("parts", tuple(part / size for part in range(1, size)), 0.0)
    mechanism = cast("Window", mechanism)
    blur = (ramp_length(mechanism, n) + 1) / (mechanism.points - 1)
    known = np.asarray(values, np.float64)
    if _tells_values(mechanism, n):
        places = values[:-1]
    else:
        places = [values[at - 1] for at in range(1, len(values)) if _rise(mechanism, n, known, at) is not None]
    return ExactEnds("values" if places else "points", tuple(places), blur)


def range_share(
    mechanism: Mechanism,  # `Window`, or a frequency oracle over equal parts of the axis
    tally: Tally,
    low: float,  # above this place; below 0: from the beginning
    high: float,  # at or below this place; 1 or more: to the end
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
    permanent: bool = False,  # whether devices keep their permanent responses
    # places of the only values that answers can have, in order; none if anywhere. Only a window uses them.
    values: Sequence[float] = (),
) -> RangeShare:
    """Estimate the share of answers within a range."""
    tally.check_decoder(mechanism)
    if low >= high:
        raise ParameterError("range: let it end above where it begins", f"{low} to {high}")
    if not isinstance(mechanism, Window):
        return _of_parts(mechanism, tally, low, high, repeats=repeats, permanent=permanent)
    if len(values):
        of_values = _of_values(mechanism, tally, (low, high), repeats, np.asarray(values, np.float64))
        if of_values is not None:
            return of_values
    steps, ramp = mechanism.points - 1, ramp_length(mechanism, tally.n)
    least, middle, most = (
        mean(mechanism, tally, repeats=repeats, scores=scores.tolist()) for scores in _scores(steps, low, high, ramp)
    )
    ends, blur = (max(low, 0.0), min(high, 1.0)), (ramp + 1) / steps
    return RangeShare("points", *ends, tally.n, middle.place, middle.stderr, blur, least, most, middle)


# Without values


def _scores(steps: int, low: float, high: float, ramp: int) -> tuple[Floats, Floats, Floats]:
    """Return three scores of the points: of answers surely within a range, of about those, and of all that may be within."""
    # An answer between two points was rounded to one of them, so it scores between the two. The first scores are above 0 for
    # nothing outside of the range, and the last are 1 for all within, wherever between points answers and ends are. So the true
    # share is between their means, for every population. They rise and fall over several points: the noise of a steep score is
    # large. Those in the middle rise around each end. Of ranges that join they add up.
    (least_low, middle_low, most_low), (least_high, middle_high, most_high) = _above(steps, low, ramp), _above(steps, high, ramp)
    return (
        np.minimum(least_low, 1 - most_high),
        middle_low - middle_high,
        np.minimum(most_low, 1 - least_high),
    )


def _above(steps: int, place: float, ramp: int) -> tuple[Floats, Floats, Floats]:
    """Return the same three scores of answers above a place."""
    points = np.arange(steps + 1)
    if place < 0 or place >= 1:  # numbers beyond the axis were reported as its ends
        constant = np.full(steps + 1, float(place < 0))
        return constant, constant, constant
    least = np.clip((points - ceil(place * steps - _CLOSE)) / ramp, 0.0, 1.0)
    most = np.clip((points - floor(place * steps + _CLOSE)) / ramp + 1, 0.0, 1.0)
    # At the low end of the axis there is nothing below, and often many answers are there.
    return least, least if place * steps <= _CLOSE else (least + most) / 2, most


@lru_cache(maxsize=1024)
def ramp_length(mechanism: Window, n: int) -> int:
    """Return over how many points the scores of a range rise, for the shortest interval where answers lie evenly."""
    # It depends on nothing that was answered, so the interval holds as if it were fixed.
    steps = mechanism.points - 1
    ramps = range(1, max(steps // _LONGEST, 1) + 1)

    def width(ramp: int) -> float:
        scores = np.clip((np.arange(steps + 1) - steps / 2) / ramp + 0.5, 0.0, 1.0)
        _, variances = point_scores(mechanism, tuple(scores.tolist()))
        return (ramp + 1) / steps + _REACH * sqrt((float(variances.mean()) + float(scores.var())) / max(n, 1))

    return min(ramps, key=width)


# With values, or with parts


def _of_values(mechanism: Window, tally: Tally, ends: tuple[float, float], repeats: float, values: Floats) -> RangeShare | None:
    """Estimate the share of the values in a range, which is exact; None if there are too few reports for so many values."""
    first, last = (int(np.searchsorted(values, end + _CLOSE, side="right")) for end in ends)
    if first == last:
        raise ParameterError("range: choose one with a value in it", f"{ends[0]} to {ends[1]}")
    within, n = (float(values[first]), float(values[last - 1])), tally.n
    rises = [_rise(mechanism, n, values, place) for place in (first, last)]
    if rises[0] is not None and rises[1] is not None:
        share = mean(mechanism, tally, repeats=repeats, scores=(rises[0] - rises[1]).tolist())
        return RangeShare("values", *within, n, share.place, share.stderr, 0.0, share, share)
    if not _tells_values(mechanism, n):
        return None
    starts = sorted({0, first, last} - {len(values)})
    shares, stderr = value_shares(cell_chances(mechanism, values), tally.counts[0].astype(np.float64), starts, repeats)
    at = starts.index(first)
    return RangeShare("values", *within, n, float(shares[at]), float(stderr[at]), 0.0, None, None)


def _tells_values(mechanism: Window, n: int) -> bool:
    """Return whether there are enough reports to tell values that lie close to each other."""
    return n * float(mechanism.outside) * (mechanism.blocks + 1) >= _ENOUGH


def _rise(mechanism: Window, n: int, values: Floats, place: int) -> Floats | None:
    """Return scores of the points: 0 for the values before a place, and 1 for the others; None if they rise too steeply."""
    steps = mechanism.points - 1
    if place in (0, len(values)):
        return np.full(steps + 1, float(place == 0))
    begin, end = ceil(values[place - 1] * steps - _CLOSE), floor(values[place] * steps + _CLOSE)
    if end - begin < max(1, ramp_length(mechanism, n) / _STEEP):
        return None
    return np.asarray(np.clip((np.arange(steps + 1) - begin) / (end - begin), 0.0, 1.0), np.float64)


def _of_parts(mechanism: Mechanism, tally: Tally, low: float, high: float, *, repeats: float, permanent: bool) -> RangeShare:
    """Add the shares of the equal parts of the axis that a range is rounded to: at least one."""
    size = mechanism.domain_size
    first, last = (min(max(round(end * size), 0), size) for end in (low, high))
    if first == last:
        first = min(int((low + high) / 2 * size), size - 1)
        last = first + 1
    position = order(
        mechanism,
        decode.estimate(mechanism, tally, repeats=repeats, permanent=permanent),
        repeats=repeats,
        permanent=permanent,
    )
    ends = first / size, last / size
    if position is None:
        return RangeShare("parts", *ends, 0, float("nan"), float("nan"), 0.0, None, None)
    if last - first == size:
        return RangeShare("parts", *ends, tally.n, 1.0, 0.0, 0.0, None, None)
    parts = np.arange(size)
    share, stderr = position.sum(((parts >= first) & (parts < last)).astype(np.float64))
    return RangeShare("parts", *ends, tally.n, share, stderr, 0.0, None, None)
