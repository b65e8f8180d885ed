"""Subset selection: report a set of a fixed number of values that is likely to contain the truth."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import TwoSided, mean_variance
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.listed.unary import members
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source


class Subset(TwoSided):
    """Report a set of w values. A set with the truth is e^eps times as likely as one without.

    w has the least exact variance; it is near d / (e^eps + 1). No mechanism for d values is more exact at any epsilon. A report
    has one bit for each value.

    References
    ----------
    M. Ye, A. Barg: Optimal schemes for discrete distribution estimation. IEEE Trans. Inf. Theory 64(8), 2018, section III.
    """

    name = "subset"
    summary = "name a fixed number of values, the true one more likely among them"

    size: int

    def _parameters(self) -> dict[str, Any]:
        d, true_weight = self.domain_size, weight(self.requested)
        best = d * UNIT // (true_weight + UNIT)
        size = min((w for w in (best, best + 1) if 1 <= w < d), key=lambda w: mean_variance(*_support(d, w, true_weight), d))
        p, q = _support(d, size, true_weight)
        return {
            "ratio": Fraction(true_weight, UNIT),
            "p": p,
            "q": q,
            "layout": Layout(1, d, "bits"),
            "size": size,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The number of values in the set, and the probability that the true one is among them."""
        return {"size": self.size, "keep": self.p}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's set as distances from the true value. Distance 0 is the truth."""
        coins = source.bits(self.p.numerator, self.p.denominator, count)
        # A set with the truth has one other element less. The truth is the lowest bit.
        others = source.subsets(self.domain_size - 1, [self.size - (coin & 1) for coin in coins])
        return [chosen << 1 | coin & 1 for chosen, coin in zip(others, coins, strict=True)]

    def respond(self, value: int, noise: Any) -> bytes:
        """Turn the distances into values by rotating the set around the domain."""
        d = self.domain_size
        rotated = noise << value
        return ((rotated | rotated >> d) & ((1 << d) - 1)).to_bytes(self.layout.payload_size, "little")  # type: ignore[no-any-return]

    def supported(self, payload: bytes) -> set[int]:
        """Return the values of the set."""
        return members(self.layout.unpack(payload)[1])

    def bounds(self) -> Bounds:
        """Return the bounds of a value's probability. Every report has the same number of values."""
        ones = (self.size, Fraction(1)), (self.domain_size - self.size, Fraction(0))
        return Bounds(self.q, self.p, (ones,), direct=True)


def _support(d: int, w: int, true_weight: int) -> tuple[Fraction, Fraction]:
    total = w * true_weight + (d - w) * UNIT
    p = Fraction(w * true_weight, total)
    return p, (p * (w - 1) + (1 - p) * w) / (d - 1)
