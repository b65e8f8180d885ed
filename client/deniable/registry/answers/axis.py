"""The axis of a number: its range, and the positions of numbers on it, as whole numbers."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import exp, isinf, log
from typing import Literal

from deniable.errors import ParameterError
from deniable.frozen import dataclass, field
from deniable.registry.answers.number import plain

FINEST = 1 << 16
"""An axis has at least so many steps. A number is rounded to the nearest of them."""

BINS = 16
"""Equal parts of an axis, where permanent responses are kept for a distribution."""

MOST_STEP_VALUES = 128
"""With more values, a step has no effect on estimates: they are closer than the points of a report."""

AS_FAR = 700.0
"""How far a logarithmic axis goes on beyond its end, as a logarithm: estimates of few reports may lie there, and stay finite."""

_MOST = 1 << 32  # steps


def read_number(written: object) -> Fraction:
    """Read a number of the registry as the decimal that was written, not as the nearest binary float."""
    rule = "write a whole number, or a decimal such as 0.5, below 2^1023"
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise ParameterError(rule, written)
    try:
        number = plain(Decimal(str(written)))
    except (InvalidOperation, ValueError):
        number = None
    if number is None or isinf(number):
        raise ParameterError(rule, written if isinstance(written, str | float) else f"a number of {written.bit_length()} bits")
    return Fraction(number)


@dataclass(frozen=True, slots=True)
class Axis:
    """The range of a number metric, from `low` to `high`.

    Position p stands for the number ``low + p / steps * (high - low)``. On a logarithmic scale it stands for
    ``low * (high / low) ** (p / steps)``. On a linear scale, every whole number has a position exactly if both ends are whole
    numbers less than 2^32 apart.
    """

    # low, high: the ends; low < high. On a logarithmic scale both are above 0.
    low: Fraction
    high: Fraction
    scale: Literal["linear", "log"] = "linear"  # "linear" or "log"
    steps: int = field(init=False)  # Number of steps from low to high. Positions are 0 to `steps`.
    _ends: tuple[int | Fraction, int | Fraction] = field(init=False, repr=False, compare=False)
    _line: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        length = self.high - self.low
        steps = FINEST
        if self.scale == "linear":
            steps = length.numerator * -(-FINEST // length.numerator) if length.numerator <= _MOST else _MOST
        slope, offset = steps / length, self.low * steps / length
        under = slope.denominator * offset.denominator
        object.__setattr__(self, "steps", steps)
        # Comparing with whole numbers is much faster than with fractions.
        object.__setattr__(self, "_ends", tuple(int(end) if end.denominator == 1 else end for end in (self.low, self.high)))
        object.__setattr__(self, "_line", (int(slope * under), int(offset * under), under))

    def position(
        self,
        number: float | Fraction,  # not nan
    ) -> int:
        """Return the position nearest to a number. A number out of range has that of the nearer end."""
        low, high = self._ends
        if number <= low:
            return 0
        if number >= high:
            return self.steps
        if self.scale == "log":
            return round(self.steps * self.share(float(number)))
        slope, offset, under = self._line
        top, bottom = number.as_integer_ratio()
        scale = 2 * under * bottom  # number * slope - offset, rounded, halves up
        return (2 * (top * slope - offset * bottom) + under * bottom) // scale

    def covers(self, number: float | Fraction) -> bool:
        """Return whether a number is within the range."""
        low, high = self._ends
        return low <= number <= high

    def share(self, number: float) -> float:
        """Return how far along the axis a number is: 0 at the low end, 1 at the high end."""
        low = float(self.low)
        return (log(number / low) if self.scale == "log" else number - low) / self.reach

    def number(self, share: float) -> float:
        """Return the number that is so far along the axis; `share` may lie outside of [0, 1]."""
        low, reach = float(self.low), self.reach
        if self.scale != "log":
            return low + share * reach
        least, most = -AS_FAR - min(log(low), 0.0), max(AS_FAR - max(log(low), 0.0), reach)
        return low * exp(min(max(share * reach, least), most))

    @property
    def reach(self) -> float:
        """Length of the axis: of a logarithmic one, the logarithm of how many times the high end is the low end."""
        low, high = float(self.low), float(self.high)
        return log(high / low) if self.scale == "log" else high - low
