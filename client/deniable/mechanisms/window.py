"""Window: generalised randomised response with a window of cells, for numbers and other ordered answers.

One report tells of the mean and of the whole distribution. Which one it tells better depends on the length of the window.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, exact, weight
from deniable.frozen import dataclass
from deniable.mechanisms.base import Scored
from deniable.mechanisms.bounds import Bounds
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source

_TRUE = ord("1")
_LENGTH = 16  # cells of a block for means: with more, the variance at epsilon 1 falls by less than 0.1%
_STEPS = 128  # about so many steps from the least point to the greatest for distributions
_TILTS = 16


def for_mean(epsilon: float | str | Fraction) -> dict[str, int]:
    """Return the options for means: round(0.8 e^(epsilon / 3)) blocks of 16."""
    # At epsilon 2 to 6 the worst-case variance is 8 to 10% above the optimum. No other option that we tried is better by 1%.
    return {"blocks": max(1, (8 * weight(exact(epsilon) / 3) + 5 * UNIT) // (10 * UNIT)), "length": _LENGTH}


def for_distribution(epsilon: float | str | Fraction) -> dict[str, int]:
    """Return the options for distributions and quantiles: 1 + floor(e^(epsilon / 2)) blocks, and about 129 points."""
    blocks = min(_STEPS, 1 + weight(exact(epsilon) / 2) // UNIT)
    return {"blocks": blocks, "length": (2 * _STEPS + blocks) // (2 * blocks)}


@dataclass(frozen=True, kw_only=True)
class Window(Scored):
    """A report names a cell: one within a window around the answer with larger odds, any other with smaller ones.

    The domain is ordered: value v stands for the share ``v / (domain_size - 1)`` of the range. There are fewer *points* than
    values: K w + 1 points for K blocks of w cells. A value between two points is rounded to one of them at random, so that its
    mean is kept. Point i has the cells i to i + w - 1 as its window. With W = e^epsilon, each of these cells is named with
    probability W / Z, and each of the other K w with probability 1 / Z.

    A report of a value is a mixture of the reports of two points. So its likelihood ratio is that of points: rounding costs no
    privacy.

    Parameters
    ----------
    blocks
        K, at least 1. With 0, blocks and length are those for a mean.
    length
        w, at least 1.

    Attributes
    ----------
    points : int
        K w + 1.
    inside, outside : Fraction
        Probability of a cell of the window, and of any other cell.
    tilt : Fraction
        By how much the score of a cell rises within a block. Any tilt is unbiased; this one has the least worst variance.

    Notes
    -----
    The score of a cell is ``(G (j div w - K/2) + tilt (j mod w - (w-1)/2) + K w / 2) / (K w)``. Here G = Z / (W - 1), and j is
    the cell. With K = 1 and w = 1 the mechanism is that of Duchi et al.; with a long window it is like the piecewise mechanism.

    With K = 1 and many cells, the variance of a score is nearly the same for every answer. With E = e^epsilon it is
    ``((E + 7) / (3 (E + 1)) + 2 (E + 3) / ((E - 1) (E + 1)) + 4 / (E - 1)^2) / 4``. That of a mean of n reports is the n-th
    part, plus the variance of the answers if those who answer are a sample.

    References
    ----------
    J. Duchi, M. Jordan, M. Wainwright: Minimax optimal procedures for locally private estimation. JASA 113(521), 2018, section 4.

    N. Wang and others: Collecting and analyzing multidimensional data. ICDE 2019, section III.

    Z. Li and others: Estimating numerical distributions under local differential privacy. SIGMOD 2020, section 5.
    """

    name = "window"
    summary = "name a part of the range: one near the answer with odds e^epsilon, any other with odds 1"
    options = sizeless = ("blocks", "length")

    blocks: int = 0
    length: int = 0
    points: int = 0
    inside: Fraction = Fraction(0)
    outside: Fraction = Fraction(0)
    _true_weight: int = 0
    _ring: tuple[bytes, ...] = ()  # the payloads of all cells, twice in a row, so that a shift needs no modulo

    def _parameters(self) -> dict[str, Any]:
        if not self.blocks and not self.length:
            self._set(**for_mean(self.requested))
        for name in self.options:
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ParameterError(f"{name}: write a whole number of at least 1", number)
        true_weight, w, steps = weight(self.requested), self.length, self.blocks * self.length
        total = w * (true_weight + self.blocks * UNIT)
        layout = Layout(1, steps + w, "index")
        return {
            "ratio": Fraction(true_weight, UNIT),
            "layout": layout,
            "points": steps + 1,
            "inside": Fraction(true_weight, total),
            "outside": Fraction(UNIT, total),
            "_true_weight": true_weight,
            "_ring": tuple(layout.pack(0, cell) for cell in range(layout.width)) * 2,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The blocks, their length, and the probability that a report names a cell of the window."""
        return {"blocks": self.blocks, "length": self.length, "keep": self.length * self.inside}

    @property
    def _agreed(self) -> str:
        return f"{self.blocks} {self.length}"

    @property
    def says(self) -> str:
        """What one report says, in words."""
        near = float(self.length * self.inside)
        return (
            f"A report names one of {self.layout.width} parts, in order from the least answer to the greatest. With probability "
            f"{near:.3f} it is one of the {self.length} around your answer, else any of the others, each as likely."
        )

    @property
    def answers(self) -> str:
        """The domain, in words."""
        return f"{self.domain_size} numbers evenly over the range"

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw, for each report, the rounding and the shift around the ring of cells."""
        w, steps = self.length, self.points - 1
        keep = source.bits(self._true_weight, self._true_weight + self.blocks * UNIT, count)
        # Both shifts are drawn for every report, though one is used. So the time of the draw does not tell which.
        insides, outsides = source.indices(w, count), source.indices(steps, count)
        rounding = source.indices(self.domain_size - 1, count)
        return [(r, a if digit == _TRUE else w + b) for r, digit, a, b in zip(rounding, keep, insides, outsides, strict=True)]

    def respond(self, value: int, noise: Any) -> bytes:
        """Round the value to a point, and shift the first cell of its window."""
        rounding, shift = noise
        return self._ring[(value * (self.points - 1) + rounding) // (self.domain_size - 1) + shift]  # type: ignore[no-any-return]

    def window_of(self, payload: bytes) -> tuple[Fraction, Fraction]:
        """Return which part of a range a payload speaks for, as shares of it."""
        cell, points = self.layout.unpack(payload)[1], self.blocks * self.length
        return Fraction(max(0, cell - self.length + 1), points), Fraction(min(cell, points), points)

    @property
    def telling(self) -> Fraction:
        """The probability of a cell in the window of one of two answers. The windows of the least and the greatest are apart."""
        return self.length * (self.inside + self.outside)

    def bounds(self) -> Bounds:
        """Return the probability of a cell outside the window, and of one inside."""
        return Bounds(self.outside, self.inside)

    def quantities(self, value: int) -> tuple[Fraction, ...]:
        """Return how far along the range a value is, between 0 and 1. Its mean is estimated."""
        return (Fraction(value, self.domain_size - 1),)

    def scores(self, payload: bytes) -> tuple[Fraction, ...]:
        """Return the score of the cell that a payload names."""
        return (self.cell_scores[self.layout.unpack(payload)[1]],)

    @property
    def influence(self) -> Fraction:
        """The score of the last cell."""
        return self.cell_scores[-1]

    @cached_property
    def tilt(self) -> Fraction:
        """The multiple of 1/16 from 0 to 1 with the least worst variance."""
        return min((Fraction(s, _TILTS) for s in range(_TILTS + 1)), key=lambda tilt: self._worst(self._scores(tilt)))

    @cached_property
    def cell_scores(self) -> tuple[Fraction, ...]:
        """The score of each cell. The mean score of the reports of a value is its share of the range."""
        steps = self.points - 1
        return tuple(score / steps for score in self._scores(self.tilt))

    @property
    def worst_variance(self) -> Fraction:
        """The largest variance of one score: for the value with the largest, and as much as answers between 0 and 1 can vary."""
        return self.worst_noise + Fraction(1, 4)

    @cached_property
    def worst_noise(self) -> Fraction:
        """The variance of one score, for the value with the largest."""
        return self._worst([score * (self.points - 1) for score in self.cell_scores]) / (self.points - 1) ** 2

    def score_variance(self, share: float) -> float:
        """Compute the variance of one score for an answer so far along the range; `share` is in [0, 1]."""
        steps = self.points - 1
        at = min(int(share * steps), steps - 1)
        part = share * steps - at
        squares = self._mean_squares
        return float((1 - part) * squares[at] + part * squares[at + 1] - (at + part) ** 2) / steps**2

    @cached_property
    def _mean_squares(self) -> tuple[float, ...]:
        """The mean of the squared score at each point, in squared steps."""
        return tuple(map(float, self._squares([score * (self.points - 1) for score in self.cell_scores])))

    def _scores(self, tilt: Fraction) -> list[Fraction]:
        """Compute scores in steps between points."""
        w, gain = self.length, 1 / (self.inside - self.outside)
        middle, half = Fraction(self.points - 1, 2), Fraction(self.blocks, 2)
        return [gain * (cell // w - half) + tilt * (cell % w - Fraction(w - 1, 2)) + middle for cell in range(self.layout.width)]

    def _squares(self, scores: list[Fraction]) -> list[Fraction]:
        """Compute the mean of the squared score at each point."""
        w, squares = self.length, [score * score for score in scores]
        everywhere, within = self.outside * sum(squares), sum(squares[:w], Fraction(0))
        means = []
        for point in range(self.points):
            means.append(everywhere + (self.inside - self.outside) * within)
            if point + w < len(squares):
                within += squares[point + w] - squares[point]
        return means

    def _worst(self, scores: list[Fraction]) -> Fraction:
        """Compute the largest variance, in squared steps. Between points a and b it is (1-u) a + u b + u (1-u)."""
        at = [square - point * point for point, square in enumerate(self._squares(scores))]
        largest = max(at)
        for a, b in pairwise(at):
            u = min(max((1 + b - a) / 2, Fraction(0)), Fraction(1))
            largest = max(largest, (1 - u) * a + u * b + u * (1 - u))
        return largest
