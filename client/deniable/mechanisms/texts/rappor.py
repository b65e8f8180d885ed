"""RAPPOR: a Bloom filter of the value with permanent noise, and fresh noise in each report."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, exact, weight
from deniable.exact.hashing import PoolFamily, data, key
from deniable.frozen import dataclass, replace
from deniable.mechanisms.base import two_sided
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.permanent import Permanent, flips, flips_of_all, second_flip
from deniable.mechanisms.texts import google_rappor
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.source import Source

_BASIC = 1024  # most values of a domain whose values each have a bit
_GOOGLE = ("bits", "hashes", "cohorts", "prob_p", "prob_q", "prob_f")
_BITS, _HASHES, _COHORTS = 32, 2, 128  # Chrome's; enough bits that no unlisted string is taken for a candidate


@dataclass(frozen=True, kw_only=True)
class Bloom(Permanent):
    """Report the bits of a Bloom filter, each with independent noise. A device that keeps permanent responses uses one cohort."""

    bits: int = 0
    hashes: int = 0
    cohorts: int = 0
    # one, other: probability that a bit of the value's filter is reported as 1, and that any other bit is. (q* and p* in the
    # literature.)
    one: Fraction = None  # type: ignore[assignment] # set with the other parameters
    other: Fraction = None  # type: ignore[assignment]
    flip_permanent: Fraction = Fraction(0)  # probability that the permanent response has a bit of the filter flipped
    family: PoolFamily | None = None  # the hash functions of all cohorts, cohort by cohort; None if no pool is used

    @abstractmethod
    def filter(self, cohort: int, value: int) -> int:
        """Return the Bloom filter of a value in a cohort, as an integer."""

    @property
    def canonical(self) -> str:
        """All that device and decoder must agree on. It includes the permanent response, which no decoder needs."""
        # The order is part of the fingerprint: the hashes come before the permanent ratio.
        return f"{super(Permanent, self).canonical} {self.hashes} {self.permanent_ratio}"

    @property
    def basic(self) -> bool:
        """Whether each value has its own bit. Then decoding needs no regression."""
        return self.cohorts == self.hashes == 1 and self.bits == self.domain_size

    def _claims(self, one: Fraction, other: Fraction) -> dict[str, Any]:
        """Compute the ratio, p, q and the layout from the bits' probabilities."""
        # A report supports the values all of whose bits are 1. This plain definition is for proofs. The decoder makes better use
        # of the bits.
        p, q = self._support(one, other)
        return {
            "ratio": (one * (1 - other) / (other * (1 - one))) ** self.hashes,
            "p": p,
            "q": q,
            "one": one,
            "other": other,
            "layout": Layout(self.cohorts, self.bits, "bits"),
        }

    def _support(self, one: Fraction, other: Fraction) -> tuple[Fraction, Fraction]:
        hit = Fraction(0) if self.basic else Fraction(1, self.bits)
        return one**self.hashes, (hit * one + (1 - hit) * other) ** self.hashes

    @property
    def permanent_support(self) -> tuple[Fraction, Fraction]:
        """Probability that all bits of the true value are kept as 1, and all of another one."""
        return self._support(1 - self.flip_permanent, self.flip_permanent)

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's cohort, its ones for an empty filter, and the places where a 1 of the filter is copied."""
        one, other = self.one, self.other
        copied = (one - other) / (1 - other)
        ones = source.words(other.numerator, other.denominator, self.bits, count)
        copies = source.words(copied.numerator, copied.denominator, self.bits, count)
        return list(zip(source.indices(self.cohorts, count), ones, copies, strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Add the ones of the filter at the drawn places."""
        cohort, ones, copies = noise
        return self.layout.pack(cohort, ones | copies & self.filter(cohort, value))

    def supported(self, payload: bytes) -> set[int]:
        """Return the values all of whose bits are 1."""
        cohort, bits = self.layout.unpack(payload)
        return {value for value in range(self.domain_size) if not self.filter(cohort, value) & ~bits}

    def bounds(self) -> Bounds:
        """Return the bounds of a bit's probability. Hash functions may collide, so a filter has 1 to `hashes` ones."""
        return Bounds.of_bits(self.other, self.one, self.bits, range(1, self.hashes + 1), direct=self.basic)

    def support(self, value: int, true: int) -> Fraction:
        """Compute the probability that all bits of `value` are 1 in a report of `true`."""
        total = Fraction(0)
        for cohort in range(self.cohorts):
            ones, true_ones = self.filter(cohort, value), self.filter(cohort, true)
            total += self.one ** (ones & true_ones).bit_count() * self.other ** (ones & ~true_ones).bit_count()
        return total / self.cohorts

    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the noisy filter that is kept for a value."""
        return self.filter(row, value) ^ flips(source, self.flip_permanent, self.bits)


@dataclass(frozen=True, kw_only=True)
class Rappor(Bloom):
    """RAPPOR with exact probabilities and its own hash family.

    With h hashes, a bit keeps the truth with odds e^(epsilon / 2h) in a report, and with odds e^(permanent / 2h) in the permanent
    response. A report is a noisy copy of the permanent response. If none is kept, reports are independent, and each has the loss
    epsilon.

    Small domains have *basic* RAPPOR, with a bit for each value. Others have cohorts, each with its own Bloom filter.

    Parameters
    ----------
    bits
        Bits of the Bloom filter; 32 by default, or a bit for each value of a domain of up to 1,024.
    hashes
        Bits that a value sets; by default 2. The epsilon is divided among them, so 1 is more exact. But with few bits, a common
        string that is no candidate may be taken for a candidate that shares some of its bits.
    cohorts
        Sets of hash functions; by default 128. A device uses one of them.
    permanent
        Privacy loss of the permanent response in nats, not less than epsilon; by default twice epsilon.

    References
    ----------
    U. Erlingsson, V. Pihur, A. Korolova: RAPPOR. CCS 2014, sections 2 and 3.
    """

    name = "rappor"
    summary = "set some bits of a Bloom filter by the value, flip every bit at random"
    options = ("bits", "hashes", "cohorts", "permanent")

    _true_weight: int = 0
    _flip: Fraction = Fraction(0)
    family: PoolFamily = None  # type: ignore[assignment]

    def _parameters(self) -> dict[str, Any]:
        basic = not (self.bits or self.hashes or self.cohorts) and self.domain_size <= _BASIC
        defaults = (self.domain_size, 1, 1) if basic else (_BITS, _HASHES, _COHORTS)
        for name, default in zip(("bits", "hashes", "cohorts"), defaults, strict=True):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ParameterError(f"{name}: write a whole number above 0", number)
            self._set(**{name: number or default})
        if self.hashes > self.bits:
            raise ParameterError(
                f"a Bloom filter of {self.bits} bits cannot have {self.hashes} hashes: use fewer hashes, or more bits", ...
            )
        permanent = self._read_permanent()
        true_weight, permanent_weight = (weight(epsilon / (2 * self.hashes)) for epsilon in (self.requested, permanent))
        if true_weight == UNIT:
            raise ParameterError("epsilon: write more, or use fewer hashes; each bit needs at least 2^-32 nats", self.epsilon)
        flip_permanent = Fraction(UNIT, permanent_weight + UNIT)
        return self._claims(Fraction(true_weight, true_weight + UNIT), Fraction(UNIT, true_weight + UNIT)) | {
            "permanent_ratio": Fraction(permanent_weight, UNIT) ** (2 * self.hashes),
            "_true_weight": true_weight,
            "flip_permanent": flip_permanent,
            "_flip": second_flip(flip_permanent, Fraction(UNIT, true_weight + UNIT)),
            "family": PoolFamily(self.name, self.cohorts * self.hashes, self.bits),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The filter, and the probabilities of a flip, in one step and in two."""
        return {
            "hashes": self.hashes,
            "family": None if self.basic else self.family.constants,
            "flip": self.other,
            "flip_permanent": self.flip_permanent,
            "flip_again": self._flip,
        }

    @property
    def telling(self) -> Fraction:
        """The probability that a report favours one of two answers; 1 if a value has several bits, or shares its own."""
        return two_sided(self) if self.basic else Fraction(1)

    # Zeros and ones are flipped with the same probability, so one draw for each bit is enough.

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's cohort, and the bits to be flipped."""
        flips = source.words(UNIT, self._true_weight + UNIT, self.bits, count)
        return list(zip(source.indices(self.cohorts, count), flips, strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Flip bits of the filter."""
        cohort, flips = noise
        return self.layout.pack(cohort, flips ^ self.filter(cohort, value))

    def filter(self, cohort: int, value: int) -> int:
        """Return the Bloom filter of a value in a cohort."""
        if self.basic:
            return 1 << value
        value = key(value, self.domain_size)
        bits = 0
        for number in range(cohort * self.hashes, (cohort + 1) * self.hashes):
            bits |= 1 << self.family.hash(number, value)
        return bits

    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:
        """Flip some of the kept bits."""
        (report,) = self.respond_to_all([(row, response)], source)
        return report

    def respond_to_all(self, responses: Sequence[tuple[int, int]], source: Source) -> Iterable[bytes]:
        """Flip some of the kept bits of each."""
        noise = flips_of_all(source, self._flip, self.bits, len(responses))
        return [self.layout.pack(row, response ^ flip) for (row, response), flip in zip(responses, noise, strict=True)]


@dataclass(frozen=True, kw_only=True)
class GoogleRappor(Bloom):
    """RAPPOR with the hash, the cohorts, the probabilities and the effective f of the Python client of google/rappor.

    It is for a deployment that moves to deniable: reports of its old clients and ours are decoded together. It needs their
    parameters, and an epsilon that is not below the loss of these. A value is hashed as its bytes without the zeros at the end;
    for a text these are its UTF-8.

    Parameters
    ----------
    preset
        Name of a set of parameters in `deniable.mechanisms.texts.google_rappor.PRESETS`. Given parameters replace those of the
        set.
    bits, hashes, cohorts
        k, h and m.
    prob_p, prob_q, prob_f
        p, q and f. If f is 0, the permanent response is the filter itself, and the loss of all reports has no bound.
    permanent
        Not below the loss of f, which is the default.

    See Also
    --------
    deniable.mechanisms.texts.google_rappor.permanent : The permanent response of such a client.
    """

    name = "google_rappor"
    summary = "set some bits of a Bloom filter by the value, replace bits at random as google/rappor does"
    options = ("preset", *_GOOGLE, "permanent")

    preset: str = ""
    prob_p: float | str | None = None
    prob_q: float | str | None = None
    prob_f: float | str | None = None
    params: google_rappor.Params = None  # type: ignore[assignment] # set with the other parameters

    def _parameters(self) -> dict[str, Any]:
        params = self._params()
        one, other = params.q_star, params.p_star
        if one == 1 or other == 0:
            rule = "write probabilities that leave no bit certain, with p* above 0 and q* below 1"
            raise ParameterError(f"p* = {float(other)}, q* = {float(one)}: {rule}")
        self._set(bits=params.bits, hashes=params.hashes, cohorts=params.cohorts)
        claims = self._claims(one, other)
        if log(claims["ratio"]) > float(self.requested):
            rule = f"epsilon: write {log(claims['ratio']):.6g} or more, which these parameters spend in a report"
            raise ParameterError(rule, float(self.requested))
        if self.permanent and exact(self.permanent) < params.epsilon_permanent:
            spent = params.epsilon_permanent
            rule = f"permanent: write {spent:.6g} or more, which this prob_f spends in all reports of an answer"
            raise ParameterError(rule, self.permanent)
        half = params.effective_f / 2
        return claims | {
            "permanent": params.epsilon_permanent,
            "permanent_ratio": ((1 - half) / half) ** (2 * params.hashes) if half else None,
            "requested_permanent": exact(self.permanent) if self.permanent else Fraction(0),
            "prob_p": str(params.prob_p),
            "prob_q": str(params.prob_q),
            "prob_f": str(params.prob_f),
            "flip_permanent": half,  # a bit that is replaced by a fair coin is flipped with half the probability
            "params": params,
        }

    def _params(self) -> google_rappor.Params:
        parameters = {name: getattr(self, name) for name in _GOOGLE if getattr(self, name) not in (None, 0, "")}
        parameters |= {name: getattr(self, name) for name in ("prob_p", "prob_f") if getattr(self, name) == 0}
        if not self.preset:
            missing = [name for name in _GOOGLE if name not in parameters]
            if missing:
                rule = f"google_rappor lacks {', '.join(missing)}: write a preset, or all of {', '.join(_GOOGLE)}"
                raise ParameterError(rule, ...)
            return google_rappor.Params(**parameters)
        if self.preset not in google_rappor.PRESETS:
            raise ParameterError(f"preset: write one of {', '.join(google_rappor.PRESETS)}", self.preset)
        return replace(google_rappor.PRESETS[self.preset], **parameters)

    @property
    def constants(self) -> dict[str, Any]:
        """The filter, and the probabilities of its bits, in one step and in two."""
        return {
            "hashes": self.hashes,
            "one": self.one,
            "other": self.other,
            "flip_permanent": self.flip_permanent,
            "one_again": self.params.effective_q,
            "other_again": self.params.effective_p,
        }

    @property
    def basic(self) -> bool:
        """Always False: values have no bits of their own."""
        return False

    def filter(self, cohort: int, value: int) -> int:
        """Return the Bloom filter of a value in a cohort, by MD5."""
        return google_rappor.bloom(data(value, self.domain_size), cohort, self.params)

    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:
        """Draw each bit: a 1 with probability q if the kept bit is 1, and with probability p if it is 0."""
        return self.layout.pack(row, google_rappor.instantaneous(response, self.params, source))
