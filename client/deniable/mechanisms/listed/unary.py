"""Unary encodings: one bit for each value, each bit randomised independently."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import TwoSided
from deniable.mechanisms.bounds import Bounds
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source


def members(bits: int) -> set[int]:
    """Return the positions of the ones."""
    return {i for i in range(bits.bit_length()) if bits >> i & 1}


def draw(source: Source, p: Fraction, q: Fraction, width: int, count: int) -> list[tuple[int, bool]]:
    """Draw `count` times: `width` bits, each 1 with probability q, and one coin that is 1 with probability p."""
    words = source.words(q.numerator, q.denominator, width, count)
    coins = source.bits(p.numerator, p.denominator, count)
    return [(word, coin == ord("1")) for word, coin in zip(words, coins, strict=True)]


def place(value: int, noise: tuple[int, bool]) -> int:
    """Replace a value's bit by the drawn coin."""
    bits, coin = noise
    mask = 1 << value
    bits |= mask
    if not coin:
        bits ^= mask
    return bits


class Unary(TwoSided):
    """Every bit is 1 with probability q, but the true value's bit with probability p.

    Two values differ in two bits, so the worst likelihood ratio is p (1 - q) / (q (1 - p)).
    """

    @abstractmethod
    def _bits(self) -> tuple[Fraction, Fraction]:
        """Return p and q, exactly."""

    def _parameters(self) -> dict[str, Any]:
        p, q = self._bits()
        return {
            "ratio": p * (1 - q) / (q * (1 - p)),
            "p": p,
            "q": q,
            "layout": Layout(1, self.domain_size, "bits"),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The probabilities of a 1 for the true value and for any other."""
        return {"one": self.p, "other": self.q}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's bits as for no value, and the coin for the true value's bit."""
        return draw(source, self.p, self.q, self.domain_size, count)

    def respond(self, value: int, noise: Any) -> bytes:
        """Replace the true value's bit by the coin."""
        return place(value, noise).to_bytes(self.layout.payload_size, "little")

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose bit is 1."""
        return members(self.layout.unpack(payload)[1])

    def bounds(self) -> Bounds:
        """Return the bounds of the probability of a value's bit."""
        return Bounds.of_bits(self.q, self.p, self.domain_size, direct=True)


class Sue(Unary):
    """Symmetric unary encoding, also known as basic one-time RAPPOR: every bit keeps the truth with odds e^(eps/2).

    References
    ----------
    U. Erlingsson, V. Pihur, A. Korolova: RAPPOR. CCS 2014, section 2.
    """

    name = "sue"
    summary = "a bit for each value, every bit flipped with the same small probability"

    def _bits(self) -> tuple[Fraction, Fraction]:
        true_weight = weight(self.requested / 2)
        return Fraction(true_weight, true_weight + UNIT), Fraction(UNIT, true_weight + UNIT)


class Oue(Unary):
    """Optimised unary encoding: the true value's bit is a fair coin, every other bit is 1 with odds e^-eps.

    Best for domains of some hundred values, for which a bit for each value is not too much to send.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha. USENIX Security 2017, section 4.2.
    """

    name = "oue"
    summary = "a bit for each value: a fair coin for the true one, a rare 1 for all others"

    def _bits(self) -> tuple[Fraction, Fraction]:
        true_weight = weight(self.requested)
        return Fraction(1, 2), Fraction(UNIT, true_weight + UNIT)
