"""Randomised response with two coins."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import TwoSided
from deniable.mechanisms.bounds import Bounds
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source

_TRUTH = 2


class Coin(TwoSided):
    """Randomised response with two coins: on heads tell the truth, on tails answer what a second coin says.

    The true answer is given with probability 3/4, so epsilon is ln 3. If P_B is the share of "yes" among the answers, the share
    among people is P_A = 2 P_B - 1/2. With a larger epsilon it still spends ln 3.

    References
    ----------
    S. L. Warner: Randomized response. JASA 60(309), 1965.
    C. Dwork, A. Roth: The algorithmic foundations of differential privacy, 2014, section 3.2.
    """

    name = "coin"
    summary = "two coins: the truth on heads, and on tails what a second coin says"

    def _parameters(self) -> dict[str, Any]:
        if self.domain_size != 2:  # noqa: PLR2004
            raise ParameterError("domain_size: write 2; the coin mechanism answers yes or no", self.domain_size)
        if weight(self.requested) < 3 * UNIT:
            raise ParameterError("epsilon: write 1.0986122886681098, or remove it; the coin mechanism spends ln 3", self.epsilon)
        return {"ratio": Fraction(3), "p": Fraction(3, 4), "q": Fraction(1, 4), "layout": Layout(1, 2, "index")}

    @property
    def constants(self) -> dict[str, Any]:
        """Empty: both coins are fair."""
        return {}

    @property
    def mirrored(self) -> bool:
        """Always True: a report names one of two values."""
        return True

    def noise(self, source: Source, count: int) -> list[Any]:
        """Toss both coins of each report."""
        first, second = source.bits(1, 2, count), source.bits(1, 2, count)
        return [_TRUTH if truth == ord("1") else answer - ord("0") for truth, answer in zip(first, second, strict=True)]

    def respond(self, value: int, noise: Any) -> bytes:
        """Return the truth, or what the second coin says."""
        return self.layout.pack(0, value if noise == _TRUTH else noise)

    def supported(self, payload: bytes) -> set[int]:
        """Return the answer given."""
        return {self.layout.unpack(payload)[1]}

    def bounds(self) -> Bounds:
        """Return the bounds of an answer's probability."""
        return Bounds(self.q, self.p, direct=True)
