"""Noisy bits about a few of the values, drawn once and kept, for metrics that are recorded repeatedly."""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.frozen import dataclass
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.listed.unary import members
from deniable.mechanisms.permanent import Permanent, flips
from deniable.wire.layout import MAX_ROWS, Layout

if TYPE_CHECKING:
    from deniable.source import Source

_BUCKETS = 8


@dataclass(frozen=True, kw_only=True)
class DBitFlip(Permanent):
    """dBitFlipPM: a device has a set of d values, the buckets, and reports a noisy bit for each: whether it is the answer.

    There is no second step: the noisy bits are kept, and all reports of one answer are equal. So they have the loss of one. But
    two different reports show that the answer changed, and an earlier report again shows that it returned. Values outside the set
    share one response, so a change among them does not show. A device keeps at most d + 1 responses.

    A set has d consecutive values of the k values; the first value follows the last. Sets begin every gcd(d, k) values. These
    are the fewest sets for which every value is in the same number of sets, a share d / k of them. The set is drawn once, and
    each report shows it. So a device hides only among those that share it.

    Parameters
    ----------
    buckets
        d: number of values of a set, from 1 to k. With more, the variance falls as k / d, and a device keeps more responses. With
        1, a single bit depends on the answer and has the whole epsilon. With more, two bits do, and each has half. The default
        is 8, or all values of a smaller domain. 8 bits fill a byte, and up to epsilon 3.5 they are more exact than 1.
    permanent
        Must be epsilon.

    Attributes
    ----------
    one, other : Fraction
        Probability that the bit of the answer is 1, and that any other bit of the set is 1.
    p, q : Fraction
        `one` and `other`, times the share of sets that have a given value.

    References
    ----------
    B. Ding, J. Kulkarni, S. Yekhanin: Collecting telemetry data privately. NIPS 2017.
    """

    name = "dbitflip"
    summary = "keep a noisy bit for each of a few of the values, whether it is the answer, and always report the same bits"
    part = "value"
    options = ("buckets", "permanent")

    buckets: int = 0
    one: Fraction = None  # type: ignore[assignment] # set with the other parameters
    other: Fraction = None  # type: ignore[assignment]

    def _parameters(self) -> dict[str, Any]:
        k, buckets = self.domain_size, self.buckets
        if isinstance(buckets, bool) or not isinstance(buckets, int) or not 0 <= buckets <= k:
            raise ParameterError(f"buckets: write a whole number from 1 to the {k} values", buckets)
        d = buckets or min(k, _BUCKETS)
        if self._read_permanent(self.requested) != self.requested:
            raise ParameterError("permanent: write epsilon; dbitflip reports what it keeps", self.permanent)
        sets = k // gcd(d, k)
        if sets > MAX_ROWS:
            raise ParameterError(
                f"dbitflip would have {sets} sets of buckets: use fewer values or buckets, so that there are {MAX_ROWS} at most",
                ...,
            )
        true_weight = weight(self.requested if d == 1 else self.requested / 2)
        one, other = Fraction(true_weight, true_weight + UNIT), Fraction(UNIT, true_weight + UNIT)
        ratio = Fraction(true_weight, UNIT) ** (1 if d == 1 else 2)
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
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """For each step from one set to the next, the sets that have its values."""
        sets = self.layout.rows
        covering = self.buckets * sets // self.domain_size
        return tuple(tuple(sorted((place - back) % sets for back in range(covering))) for place in range(sets))

    @property
    def constants(self) -> dict[str, Any]:
        """The number of values from one set's beginning to the next, and the probability of a flip."""
        return {"stride": gcd(self.buckets, self.domain_size), "flip": self.other}

    def first(self, row: int) -> int:
        """Return the first value of a set. The others follow it around the domain."""
        return row * gcd(self.buckets, self.domain_size)

    @property
    def kept_responses(self) -> int:
        """Most permanent responses of a device: one for each bucket, and one for all other values."""
        return min(self.buckets + 1, self.domain_size)

    def response_key(self, row: int, value: int) -> int:
        """Return the key of a value's permanent response: its place in the set, or d if it is not in the set."""
        return min((value - self.first(row)) % self.domain_size, self.buckets)

    def _bits(self, row: int, value: int) -> int:
        """Return the bits of a value without noise. At most one is 1."""
        return 1 << self.response_key(row, value) & (1 << self.buckets) - 1

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's set, and the bits to be flipped."""
        flipped = source.words(self.other.numerator, self.other.denominator, self.buckets, count)
        return list(zip(source.indices(self.layout.rows, count), flipped, strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Flip bits of the set."""
        row, flipped = noise
        return self.layout.pack(row, self._bits(row, value) ^ flipped)

    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the bits that are kept for a value."""
        return self._bits(row, value) ^ flips(source, self.other, self.buckets)

    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:  # noqa: ARG002 - there is no second step
        """Report the kept bits."""
        return self.layout.pack(row, response)

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose bit is 1."""
        row, bits = self.layout.unpack(payload)
        return {(self.first(row) + place) % self.domain_size for place in members(bits)}

    def bounds(self) -> Bounds:
        """Return the bounds of the probability of a bucket's bit. The answer is in the set or not."""
        everywhere = self.layout.rows == 1
        return Bounds.of_bits(self.other, self.one, self.buckets, (1,) if everywhere else (0, 1), direct=everywhere)

    def variance(
        self,
        frequency: float,  # the share of the n respondents who hold the value, in [0, 1]
        n: int,  # reports
    ) -> float:
        """Compute the exact variance of an estimated frequency over the randomness of the devices, including their sets."""
        # Let p and q be `one` and `other`, and s = d / k the share of sets that have a given value. The variance is `(f ((p (1-p)
        # / (p-q)^2 + 1) / s - 1) + (1-f) q (1-q) / (s (p-q)^2)) / n`. The decoder knows how many reports have a bit for the
        # value. It subtracts q times this number as noise, not q s n.
        held, absent = (float(part) for part in self._variances)
        return (frequency * held + (1 - frequency) * absent) / n

    @property
    def permanent_support(self) -> tuple[Fraction, Fraction]:
        """Probability that the bits kept support the true value, and another one: they are the report."""
        return self.p, self.q

    def permanent_variance(self, frequency: float) -> float:
        """Compute the variance of one report: all of it is of the bits kept, and of the set."""
        return self.variance(frequency, 1)

    @property
    def _variances(self) -> tuple[Fraction, Fraction]:
        share = Fraction(self.buckets, self.domain_size)
        square = self.one * (1 - self.one) / (self.one - self.other) ** 2  # `other` gives the same
        return (square + 1) / share - 1, square / share
