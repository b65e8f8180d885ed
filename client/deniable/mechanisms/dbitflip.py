"""A few bits about a few of the values, noisy once and for good: for metrics that are recorded again and again."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import Bounds
from deniable.mechanisms.permanent import MAX_ROWS, Permanent, flips
from deniable.mechanisms.unary import members
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source

__all__ = ["DBitFlip"]

_BUCKETS = 8


@dataclass(frozen=True, kw_only=True)
class DBitFlip(Permanent):
    """dBitFlipPM: a device has a set of d values, the buckets, and says of each whether it is the answer; each bit is noisy.

    There is no second step: the noisy bits are kept, and every report of an answer is the same. So all reports of an answer tell
    no more than one, but whoever sees two that differ knows that the answer changed, and the first again tells of a return to an
    earlier one. Values outside the set share one response, and a change among them does not show: a device keeps at most d + 1.

    Of the k values a set has d in a row, the last followed by the first. Sets begin every gcd(d, k) values: the fewest for which
    each value is in as many sets as any other, a share d / k of them. The set is drawn once and is part of each report, so people
    hide only among those who share it.

    Parameters
    ----------
    buckets
        d: values that a device tells about, from 1 to k. The variance falls with k / d, and a device comes to keep more
        responses. With 1 a single bit depends on the answer, and has all of epsilon; with more there are two of them, and each
        has half. By default 8, which fill a byte and are more exact than 1 up to epsilon 3.5, or all values of a smaller domain.
    permanent
        Epsilon: nothing else is possible.

    Attributes
    ----------
    one, other : Fraction
        Probability that the bit of the answer, and that any other bit of the set, is 1.
    p, q : Fraction
        These, times the share of sets that have a given value.

    References
    ----------
    B. Ding, J. Kulkarni, S. Yekhanin: Collecting telemetry data privately. NIPS 2017.
    """

    name = "dbitflip"
    summary = "keep a noisy bit for each of a few of the values, whether it is the answer, and always report the same bits"
    options = ("buckets", "permanent")

    buckets: int = 0
    one: Fraction = None  # type: ignore[assignment] # set with the other parameters
    other: Fraction = None  # type: ignore[assignment]

    def _parameters(self) -> dict[str, Any]:
        k, given = self.domain_size, self.buckets
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= k:
            raise ParameterError(f"buckets is a whole number from 1 to the {k} values", given)
        d = given or min(k, _BUCKETS)
        if self._read_permanent(self.requested) != self.requested:
            raise ParameterError("dbitflip reports what it keeps: its permanent epsilon is epsilon", self.permanent)
        sets = k // gcd(d, k)
        if sets > MAX_ROWS:
            raise ParameterError(f"dbitflip has at most {MAX_ROWS} sets of buckets, so that many devices share each", sets)
        kept = weight(self.requested if d == 1 else self.requested / 2)
        one, other = Fraction(kept, kept + UNIT), Fraction(UNIT, kept + UNIT)
        ratio = Fraction(kept, UNIT) ** (1 if d == 1 else 2)
        return {
            "ratio": ratio,
            "permanent_ratio": ratio,
            "p": one * d / k,
            "q": other * d / k,
            "one": one,
            "other": other,
            "layout": Layout(sets, d, "bits"),
            "buckets": d,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """By how many values sets begin apart, and the probability of a flip."""
        return {"stride": gcd(self.buckets, self.domain_size), "flip": self.other}

    def first(self, row: int) -> int:
        """Return the first value of a set; the others follow it, around the domain."""
        return row * gcd(self.buckets, self.domain_size)

    @property
    def kept_responses(self) -> int:
        """How many permanent responses a device comes to keep at most: one for each bucket, and one for all other values."""
        return min(self.buckets + 1, self.domain_size)

    def response_key(self, row: int, value: int) -> int:
        """Name the permanent response of a value: its place in the set, or what follows the last place where it is not there."""
        return min((value - self.first(row)) % self.domain_size, self.buckets)

    def _bits(self, row: int, value: int) -> int:
        """Return the bits of a value before any noise: at most one is 1."""
        return 1 << self.response_key(row, value) & (1 << self.buckets) - 1

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's set, and which of its bits are flipped."""
        drawn = source.words(self.other.numerator, self.other.denominator, self.buckets, count)
        return list(zip(source.indices(self.layout.rows, count), drawn, strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Flip bits of the set."""
        row, drawn = noise
        return self.layout.pack(row, self._bits(row, value) ^ drawn)

    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the bits that are kept for a value."""
        return self._bits(row, value) ^ flips(source, self.other, self.buckets)

    def respond_instantly(self, row: int, kept: int, source: Source) -> bytes:  # noqa: ARG002 - there is no second step
        """Report the bits kept."""
        return self.layout.pack(row, kept)

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose bit is 1."""
        row, bits = self.layout.unpack(payload)
        return {(self.first(row) + place) % self.domain_size for place in members(bits)}

    def bounds(self) -> Bounds:
        """Bound the probability of a bucket's bit, of a device whose answer is in its set or not."""
        everywhere = self.layout.rows == 1
        return Bounds.of_bits(self.other, self.one, self.buckets, (1,) if everywhere else (0, 1), direct=everywhere)

    def variance(self, frequency: float, n: int) -> float:
        """Compute the exact variance of an estimated frequency over the randomness of the devices, their sets included.

        Parameters
        ----------
        frequency
            The share of the n respondents who hold the value, in [0, 1].
        n
            Reports.

        Notes
        -----
        With p and q the probabilities `one` and `other`, and s = d / k the share of sets that have a given value, it is
        ``(f ((p (1-p) / (p-q)^2 + 1) / s - 1) + (1-f) q (1-q) / (s (p-q)^2)) / n``. The decoder knows how many reports were about
        the value, and takes q of these for noise instead of q s n.
        """
        held, absent = (float(part) for part in self._variances())
        return (frequency * held + (1 - frequency) * absent) / n

    @property
    def mean_variance(self) -> Fraction:
        """Exact variance of one report's frequency estimate, averaged over the domain; the frequencies cancel out."""
        held, absent = self._variances()
        return (held + (self.domain_size - 1) * absent) / self.domain_size

    def _variances(self) -> tuple[Fraction, Fraction]:
        """Return the variance that one report adds of somebody who holds the value, and of somebody who does not."""
        share = Fraction(self.buckets, self.domain_size)
        square = self.one * (1 - self.one) / (self.one - self.other) ** 2  # that of `other` is the same
        return (square + 1) / share - 1, square / share
