"""Reports with the same bits as those of the Python client of google/rappor, for deployments that move to deniable.

A report has three steps. `bloom` hashes a word into the Bloom filter of its cohort, by MD5. `permanent` replaces bits for good
with probability f, by HMAC-SHA256 with the device's secret (permanent randomised response). `instantaneous` adds fresh noise by p
and q (instantaneous randomised response). The first two are deterministic and not private. Only the result of `instantaneous`
may leave the device.

Other clients differ. C++ cuts f to 128ths and p, q to 256ths. Java rounds f to 128ths. Both mix the metric's name into the
permanent noise. C++ has the same Bloom filter. Java uses two bytes of the MD5 for each hash, so its bits are different. To
decode reports of the C++ client, give `Params` the probabilities that it really applies.

References
----------
U. Erlingsson, V. Pihur, A. Korolova: RAPPOR: Randomized Aggregatable Privacy-Preserving Ordinal Response. CCS 2014.
github.com/google/rappor, commit a13fa96: client/python/rappor.py.
"""

from __future__ import annotations

import hashlib
import hmac
from fractions import Fraction
from math import ceil, inf, isfinite, log1p
from types import MappingProxyType
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.frozen import dataclass, field
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.source import Source

MAX_PERMANENT_BITS = 32
"""Bits of the widest permanent response: HMAC-SHA256 has 32 bytes, and each decides one bit."""

_MAX_BITS = 256  # a hash is one byte
_MAX_HASHES = 16  # bytes of an MD5
_MAX_COHORTS = 1 << 32  # a cohort is hashed as 4 bytes
_F_STEPS = 128  # f is compared with 7 bits
_DRAW_STEPS = 1 << 53  # p and q are compared with a float of 53 random bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Parameters of a collection, with the original's names; raise `ParameterError` if a parameter is out of its range."""

    bits: int  # k: bits of a report, from 1 to 256; permanent responses have at most `MAX_PERMANENT_BITS`
    hashes: int  # h: hash functions of the Bloom filter, from 1 to 16
    cohorts: int  # m: cohorts, each with its own hash functions, from 1 to 2^32. (The C++ and Java clients need a power of two.)
    # prob_p, prob_q: probability that a 0 of the permanent response is reported as 1, and that a 1 is: `0 <= p < q <= 1`. A
    # number or text is read as the written decimal.
    prob_p: Fraction
    prob_q: Fraction
    prob_f: Fraction  # probability that a bit of the permanent response is replaced by a fair coin, in [0, 127/128]
    # effective_p, effective_q: the p and q that the client applies, such as ceil(2^53 p) / 2^53: it compares a float of 53 random
    # bits with the float p
    effective_p: Fraction = field(init=False, repr=False, compare=False)
    effective_q: Fraction = field(init=False, repr=False, compare=False)
    # The f that the client applies, ceil(128 f) / 128: it compares 7 random bits with 128 f.
    effective_f: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, letter, most in (("bits", "k", _MAX_BITS), ("hashes", "h", _MAX_HASHES), ("cohorts", "m", _MAX_COHORTS)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
                raise ParameterError(f"{name} ({letter}): write a whole number from 1 to {most}", number)
        for name, steps in (("p", _DRAW_STEPS), ("q", _DRAW_STEPS), ("f", _F_STEPS)):
            exact = _exact(f"prob_{name}", getattr(self, f"prob_{name}"))
            object.__setattr__(self, f"prob_{name}", exact)
            # The original uses the float nearest to the decimal, so this does, too.
            object.__setattr__(self, f"effective_{name}", Fraction(ceil(Fraction(float(exact)) * steps), steps))
        if self.effective_p >= self.effective_q:
            raise ParameterError(
                f"prob_q: write more than prob_p = {float(self.prob_p)}, or a report says nothing about a bit", float(self.prob_q)
            )
        if self.effective_f == 1:
            raise ParameterError(
                "prob_f: write 127/128 or less; beyond it the client applies 1, and nothing is left", float(self.prob_f)
            )

    @property
    def p_star(self) -> Fraction:
        """Probability that a bit is reported as 1 if it is 0 in the Bloom filter."""
        return self.effective_p + (self.effective_q - self.effective_p) * self.effective_f / 2

    @property
    def q_star(self) -> Fraction:
        """Probability that a bit is reported as 1 if it is 1 in the Bloom filter."""
        return self.effective_q - (self.effective_q - self.effective_p) * self.effective_f / 2

    @property
    def epsilon_one_time(self) -> float:
        """Largest privacy loss of one report in nats, ``h ln(q* (1 - p*) / (p* (1 - q*)))``. Less if Bloom filters overlap."""
        # Erlingsson et al. 2014, section 3.2.
        p, q = self.p_star, self.q_star
        return self.hashes * _log_ratio(q * (1 - p), p * (1 - q))

    @property
    def epsilon_permanent(self) -> float:
        """Privacy loss of any number of reports of one word in nats, ``2 h ln((1 - f/2) / (f/2))``; infinite if f is 0."""
        # Erlingsson et al. 2014, section 3.1.
        return 2 * self.hashes * _log_ratio(1 - self.effective_f / 2, self.effective_f / 2)


def bloom(
    word: bytes,  # any bytes; text as UTF-8
    cohort: int,  # in [0, m)
    params: Params,
) -> int:
    """Hash a word into the Bloom filter of its cohort, with 1 to h of k bits set. Deterministic and not private."""
    if isinstance(cohort, bool) or not isinstance(cohort, int) or not 0 <= cohort < params.cohorts:
        raise ParameterError(f"cohort: write a whole number from 0 to {params.cohorts - 1}", cohort)
    bits = 0
    for bit in _hashes(_checked(word), cohort, params):
        bits |= 1 << bit
    return bits


def positions(word: bytes, params: Params) -> list[int]:
    """Hash a word in every cohort, as in a row of a map file: m x h numbers, cohort by cohort."""
    # Bit i of cohort j is j k + i + 1. A cohort may have a number twice.
    k = params.bits
    _checked(word)
    return [cohort * k + bit + 1 for cohort in range(params.cohorts) for bit in _hashes(word, cohort, params)]


def permanent(
    bloom_bits: int,  # in [0, 2^k)
    # Random bytes that never leave the device and never change. Each metric needs its own: else equal filters would have equal
    # noise.
    secret: bytes,
    params: Params,
) -> int:
    """Replace each bit with probability f by a coin, always in the same way for the same bits and secret. Never send it."""
    if params.bits > MAX_PERMANENT_BITS:
        raise ParameterError(f"bits: write {MAX_PERMANENT_BITS} or less; HMAC-SHA256 gives one byte for each", params.bits)
    _check_bits("bloom_bits", bloom_bits, params)
    digest = hmac.digest(secret, bloom_bits.to_bytes(4, "big"), "sha256")
    limit = int(params.effective_f * _F_STEPS)
    coins = replaced = 0
    for i, byte in enumerate(digest[: params.bits]):
        coins |= (byte & 1) << i
        replaced |= (byte >> 1 < limit) << i
    return bloom_bits & ~replaced | coins & replaced


def instantaneous(
    prr: int,  # the permanent response, in [0, 2^k)
    params: Params,
    source: Source = OS,
) -> int:
    """Draw a report from a permanent response: a 0 becomes 1 with probability `effective_p`, and a 1 stays with `effective_q`."""
    # As in the original there are k draws for zeros and k for ones, bit 0 first, for any bits. Files have a report with the
    # highest bit first.
    _check_bits("prr", prr, params)
    zeros, ones = (
        int(source.bits(probability.numerator, probability.denominator, params.bits)[::-1], 2)
        for probability in (params.effective_p, params.effective_q)
    )
    return zeros & ~prr | ones & prr


def encode(word: bytes, cohort: int, secret: bytes, params: Params, source: Source = OS) -> int:
    """Make a report of a word, in [0, 2^k), by `bloom`, `permanent` and `instantaneous`."""
    return instantaneous(permanent(bloom(word, cohort, params), secret, params), params, source)


def _hashes(word: bytes, cohort: int, params: Params) -> list[int]:
    digest = hashlib.md5(cohort.to_bytes(4, "big") + word, usedforsecurity=False).digest()
    k = params.bits
    return [byte % k for byte in digest[: params.hashes]]


def _exact(name: str, value: object) -> Fraction:
    rule = f"{name}: write a number in [0, 1]"
    if isinstance(value, bool) or (isinstance(value, float) and not isfinite(value)):
        raise ParameterError(rule, value)
    try:
        exact = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise ParameterError(rule, value) from None
    if not 0 <= exact <= 1:
        raise ParameterError(rule, value)
    return exact


def _log_ratio(high: Fraction, low: Fraction) -> float:
    """Compute ln(high / low), high >= low, from the difference, so that a loss near 0 keeps its digits."""
    return log1p(float((high - low) / low)) if low else inf


def _checked(word: object) -> bytes:
    if not isinstance(word, bytes):
        raise ParameterError(f"a word must be bytes, or a text as UTF-8; this is of type {type(word).__name__}", ...)
    return word


def _check_bits(name: str, bits: object, params: Params) -> None:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits < 1 << params.bits:
        raise ParameterError(f"{name} must be a whole number in [0, 2^{params.bits}); this is of type {type(bits).__name__}", ...)


def _preset(bits: int, hashes: int, cohorts: int, p: str, q: str, f: str) -> Params:
    return Params(bits=bits, hashes=hashes, cohorts=cohorts, prob_p=Fraction(p), prob_q=Fraction(q), prob_f=Fraction(f))


PRESETS: Mapping[str, Params] = MappingProxyType(
    {
        "UMA_RAPPOR_TYPE": _preset(32, 2, 128, "0.25", "0.75", "0.5"),
        "SAFEBROWSING_RAPPOR_TYPE": _preset(8, 2, 128, "0.25", "0.75", "0.5"),
        "COARSE_RAPPOR_TYPE": _preset(8, 2, 128, "0.25", "0.75", "0.5"),
        "ETLD_PLUS_ONE_RAPPOR_TYPE": _preset(128, 2, 128, "0.25", "0.75", "0.5"),
        "LOW_FREQUENCY_UMA_RAPPOR_TYPE": _preset(32, 2, 128, "0.25", "0.75", "0.25"),
        "LOW_FREQUENCY_SAFEBROWSING_RAPPOR_TYPE": _preset(8, 2, 128, "0.25", "0.75", "0.25"),
        "LOW_FREQUENCY_ETLD_PLUS_ONE_RAPPOR_TYPE": _preset(128, 2, 128, "0.25", "0.75", "0.25"),
        "PYTHON_DEFAULT": _preset(16, 2, 64, "0.5", "0.75", "0.5"),
        "DEMO": _preset(32, 1, 64, "0.25", "0.75", "0.5"),
        "REGTEST_EPS_1_1": _preset(8, 2, 128, "0.39", "0.61", "0.45"),
        "REGTEST_EPS_1_5": _preset(8, 2, 128, "0.225", "0.775", "0"),
    }
)
"""Parameters in use, by name.

The ``*_RAPPOR_TYPE`` are Chrome's (components/rappor/public/rappor_parameters.h, 2016). The others are from the original's Python
client, demo and regression tests. Chrome hashes with CityHash instead of MD5, so only the parameters are the same. A map file of
this module does not decode Chrome's reports.
"""
