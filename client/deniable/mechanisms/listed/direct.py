"""Randomised response: the truth with the largest probability that epsilon allows, else another value."""

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

_TRUE = ord("1")


def shifts(source: Source, true_weight: int, size: int, count: int, unit: int = UNIT) -> list[int]:
    """Draw shifts of an index modulo `size`: shift 0 has weight `true_weight`, every other shift has weight `unit`."""
    keep = source.bits(true_weight, true_weight + (size - 1) * unit, count)
    # If 0 has not come up, one of the shifts 1 to `size - 1` is drawn uniformly. A uniform draw that includes 0 would tell the
    # truth more often than declared.
    others = source.indices(size - 1, count)
    return [0 if digit == _TRUE else other + 1 for digit, other in zip(keep, others, strict=True)]


class Grr(TwoSided):
    """Generalised randomised response: the truth with probability e^eps / (e^eps + d - 1), else another value uniformly.

    Best for small domains, d < 3 e^eps + 2.

    References
    ----------
    P. Kairouz, K. Bonawitz, D. Ramage: Discrete distribution estimation under local privacy. ICML 2016, section 3.
    """

    name = "grr"
    summary = "tell the truth with odds e^epsilon, or name another value at random"

    _true_weight: int
    _ring: tuple[bytes, ...]  # the payloads of all values, twice in a row, so that a shift needs no modulo

    def _parameters(self) -> dict[str, Any]:
        true_weight, d = weight(self.requested), self.domain_size
        total = true_weight + (d - 1) * UNIT
        layout = Layout(1, d, "index")
        return {
            "ratio": Fraction(true_weight, UNIT),
            "p": Fraction(true_weight, total),
            "q": Fraction(UNIT, total),
            "layout": layout,
            "_true_weight": true_weight,
            "_ring": tuple(layout.pack(0, value) for value in range(d)) * 2,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The probability of the truth."""
        return {"keep": self.p}

    @property
    def mirrored(self) -> bool:
        """Whether there are only two values: a report names one of them."""
        return self.domain_size == 2  # noqa: PLR2004

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw the shift of each answer around the domain."""
        return shifts(source, self._true_weight, self.domain_size, count)

    def respond(self, value: int, noise: Any) -> bytes:
        """Shift the value around the domain."""
        return self._ring[value + noise]  # type: ignore[no-any-return]

    def supported(self, payload: bytes) -> set[int]:
        """Return the reported value."""
        return {self.layout.unpack(payload)[1]}

    def bounds(self) -> Bounds:
        """Return the bounds of a value's probability."""
        return Bounds(self.q, self.p, direct=True)


class Binary(Grr):
    """Randomised response to a yes-or-no question: the truth with odds e^eps. No mechanism for two values is more exact.

    References
    ----------
    P. Kairouz, S. Oh, P. Viswanath: Extremal mechanisms for local differential privacy. JMLR 17, 2016, theorem 5.
    """

    name = "binary"
    summary = "tell the truth with odds e^epsilon, or say the opposite"

    def _parameters(self) -> dict[str, Any]:
        if self.domain_size != 2:  # noqa: PLR2004
            raise ParameterError("domain_size: write 2; binary randomized response answers yes or no", self.domain_size)
        return super()._parameters()
