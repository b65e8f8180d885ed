"""What the Python client of google/rappor does, bit for bit.

`vectors/google_rappor.json` was written by the original itself (commit a13fa96, unchanged, under Python 2.7.18), run over a
grid of words, cohorts and parameters. Its random numbers were scripted: draw i of a vector is the upper 53 bits of SHA-256 of
``"<seed> <i>"``, over 2^53. In order, its lists are:

- ``bloom``: for each word and cohort, the bits of the h hashes;
- ``noise_bytes``: how many of the 256 values of a byte of the HMAC replace the bit, by f;
- ``turns``: the least draw (in 2^-53) that does not set a bit, by p;
- ``permanent``: k, f, number of the secret, bits, response;
- ``instantaneous``: k, p, q, bits, seed, report;
- ``reports``: (k, h, m, p, q, f), number of the word, cohort, number of the secret, seed, Bloom filter, response, report;
- ``files``: what its tools wrote, for `tests/aggregator/test_google_files.py`.
"""

from __future__ import annotations

import json
from fractions import Fraction
from hashlib import md5, sha256
from math import exp, inf
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.mechanisms.texts import google_rappor
from deniable.mechanisms.texts.google_rappor import PRESETS, Params
from deniable.proof import Tape
from deniable.source import Source

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "google_rappor.json").read_text("utf-8"))
WORDS = [bytes.fromhex(word) for word in VECTORS["words"]]
SECRETS = [bytes.fromhex(secret) for secret in VECTORS["secrets"]]


def params(k=16, h=2, m=1 << 32, p="0.5", q="0.75", f="0.5"):
    return Params(bits=k, hashes=h, cohorts=m, prob_p=p, prob_q=q, prob_f=f)


class Script(Source):
    """The draws of a vector."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.draws = 0

    def bernoulli(self, num: int, den: int) -> bool:
        draw = int(sha256(f"{self.seed} {self.draws}".encode()).hexdigest(), 16) >> 203
        self.draws += 1
        return draw * den < num << 53

    def below(self, n: int) -> int:
        raise AssertionError(n)


class Cycle(Source):
    """Repeats three random numbers, anew for each mask, as the mock of the original's own test does."""

    def bernoulli(self, num: int, den: int) -> bool:
        raise AssertionError((num, den))

    below = bernoulli

    def bits(self, num: int, den: int, count: int) -> bytes:
        return b"".join(
            b"1" if (Fraction(0), Fraction(6, 10), Fraction(0))[i % 3] < Fraction(num, den) else b"0" for i in range(count)
        )


@pytest.mark.parametrize("vector", VECTORS["bloom"], ids=lambda v: f"k{v['k']}-h{v['h']}")
def test_bloom_filters(vector):
    """Each word sets the bits in each cohort that the original sets, whatever its bytes."""
    collection = params(vector["k"], vector["h"])
    for word, by_cohort in zip(WORDS, vector["bits"], strict=True):
        for cohort, bits in zip(VECTORS["cohorts"], by_cohort, strict=True):
            expected = sum(1 << bit for bit in {int(bit) for bit in bits.split()})
            assert google_rappor.bloom(word, cohort, collection) == expected


@pytest.mark.parametrize("vector", VECTORS["bloom"], ids=lambda v: f"k{v['k']}-h{v['h']}")
def test_positions_are_those_of_the_bloom_filters(vector):
    """A map row has h numbers for each cohort, counted from 1 and a filter's width apart, in the order of the hashes."""
    k, h = vector["k"], vector["h"]
    for word, by_cohort in zip(WORDS, vector["bits"], strict=True):
        row = google_rappor.positions(word, params(k, h, m=4))
        assert len(row) == 4 * h
        for cohort in (0, 1, 2):
            expected = [cohort * k + int(bit) + 1 for bit in by_cohort[cohort].split()]
            assert row[cohort * h : (cohort + 1) * h] == expected


def test_effective_f_is_the_share_of_bytes_that_replace():
    """The probability of replacement is counted over all 256 bytes, not what was asked for."""
    assert len(VECTORS["noise_bytes"]) > 100
    for f, noisy in VECTORS["noise_bytes"].items():
        if noisy == 256:
            with pytest.raises(ParameterError, match="127/128"):
                params(f=f)
        else:
            assert params(f=f).effective_f == Fraction(noisy, 256)
            assert params(f=f).prob_f == Fraction(f)


def test_effective_p_and_q_are_where_the_draws_turn():
    """A draw of 53 bits sets a bit below the same limit as in the original, so no draw can tell the two apart."""
    for text, turn in VECTORS["turns"].items():
        if Fraction(text) < 1:
            assert params(p=text, q="1").effective_p == Fraction(turn, 1 << 53)
        if Fraction(text) > 0:
            assert params(p="0", q=text).effective_q == Fraction(turn, 1 << 53)


def test_permanent_responses():
    """The same bits and secret give the response of the original."""
    assert len(VECTORS["permanent"]) > 1000
    for k, f, secret, bits, response in VECTORS["permanent"]:
        assert google_rappor.permanent(bits, SECRETS[secret], params(k, f=f)) == response


def test_instantaneous_responses():
    """The same draws give the report of the original, and as many are taken."""
    for k, p, q, bits, seed, report in VECTORS["instantaneous"]:
        source = Script(seed)
        assert google_rappor.instantaneous(bits, params(k, p=p, q=q, f="0"), source) == report
        assert source.draws == 2 * k


def test_whole_reports():
    """A word goes the whole way to the report of the original."""
    for numbers, word, cohort, secret, seed, filter_, response, report in VECTORS["reports"]:
        collection = params(*numbers)
        assert google_rappor.bloom(WORDS[word], cohort, collection) == filter_
        assert google_rappor.permanent(filter_, SECRETS[secret], collection) == response
        assert google_rappor.encode(WORDS[word], cohort, SECRETS[secret], collection, Script(seed)) == report


def test_the_example_of_the_original_s_own_test():
    """The one report that its own test suite fixes."""
    assert google_rappor.encode(b"abc", 0, b"secret", params(m=64), Cycle()) == 64493


@pytest.mark.parametrize("f", ["0", "0.01", "0.25", "0.45", "0.5", "0.99"])
@pytest.mark.parametrize(("p", "q"), [("0.25", "0.75"), ("0.39", "0.61"), ("0", "1")])
def test_p_star_and_q_star_by_enumeration(monkeypatch, p, q, f):
    """Over all 256 bytes of the HMAC and all draws, a bit is reported as 1 with probability p* or q* exactly."""
    collection = params(1, p=p, q=q, f=f)
    for bit, expected in ((0, collection.p_star), (1, collection.q_star)):
        total = Fraction(0)
        for byte in range(256):
            monkeypatch.setattr(google_rappor.hmac, "digest", lambda *_, byte=byte: bytes([byte]) * 32)
            response = google_rappor.permanent(bit, b"", collection)
            walk = []
            while walk is not None:
                tape = Tape(walk)
                total += google_rappor.instantaneous(response, collection, tape) * Fraction(*tape.chance) / 256
                walk = tape.next()
        assert total == expected


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 127), st.integers(1, 16))
def test_epsilons_bound_the_likelihood_ratios(a, b, f, h):
    """Both losses are logarithms of the worst ratio over h bits that are set for one word and h for the other."""
    p, q = sorted((Fraction(a, 10**6 + 1), Fraction(b, 10**6 + 1)))
    assume(p != q)
    collection = params(h=h, p=p, q=q, f=Fraction(f, 128))
    p, q = collection.p_star, collection.q_star
    assert 0 < collection.p_star < collection.q_star < 1
    assert exp(collection.epsilon_one_time / h) == pytest.approx(float(q / p) * float((1 - p) / (1 - q)), rel=1e-9)
    half = collection.effective_f / 2
    assert exp(collection.epsilon_permanent / h) == pytest.approx(float((1 - half) / half) ** 2, rel=1e-9)
    assert collection.epsilon_one_time <= collection.epsilon_permanent * (1 + 1e-12)


def test_epsilons_without_noise_are_infinite():
    """No permanent noise, or no noise at all, protects nothing in the long run, or at all."""
    assert params(f="0").epsilon_permanent == inf
    assert params(p="0", q="1", f="0").epsilon_one_time == inf
    assert params(p="0", q="1", f="0.5").epsilon_one_time == pytest.approx(params(f="0.5").epsilon_permanent)


@pytest.mark.parametrize(
    ("name", "one_time", "permanent"),
    [
        ("UMA_RAPPOR_TYPE", 2.0433, 4.3944),
        ("LOW_FREQUENCY_UMA_RAPPOR_TYPE", 3.1538, 7.7836),
        ("PYTHON_DEFAULT", 1.0743, 4.3944),
        ("REGTEST_EPS_1_5", 4.9470, inf),
    ],
)
def test_presets_have_the_known_losses(name, one_time, permanent):
    """The losses of well-known parameters are those of the literature; f = 0.45 is applied as 58/128."""
    assert PRESETS[name].epsilon_one_time == pytest.approx(one_time, abs=1e-4)
    assert PRESETS[name].epsilon_permanent == pytest.approx(permanent, abs=1e-4)
    assert PRESETS["REGTEST_EPS_1_1"].effective_f == Fraction(58, 128)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"k": 0}, r"bits \(k\) = 0: write a whole number from 1 to 256"),
        ({"k": 257}, r"bits \(k\) = 257: write a whole number from 1 to 256"),
        ({"k": 16.0}, r"bits \(k\) = 16\.0: write a whole number from 1 to 256"),
        ({"k": True}, r"bits \(k\) = true: write a whole number from 1 to 256"),
        ({"h": 0}, r"hashes \(h\) = 0: write a whole number from 1 to 16"),
        ({"h": 17}, r"hashes \(h\) = 17: write a whole number from 1 to 16"),
        ({"m": 0}, r"cohorts \(m\) = 0: write a whole number from 1 to 4294967296"),
        ({"m": 2**32 + 1}, r"cohorts \(m\)"),
        ({"p": -0.1}, r"prob_p = -0\.1: write a number in \[0, 1\]"),
        ({"q": "1.1"}, r"prob_q = '1\.1': write a number in \[0, 1\]"),
        ({"q": float("nan")}, r"prob_q = nan: write a number in \[0, 1\]"),
        ({"q": "inf"}, r"prob_q = 'inf': write a number in \[0, 1\]"),
        ({"q": True}, r"prob_q = true: write a number in \[0, 1\]"),
        ({"q": "1/0"}, r"prob_q = '1/0': write a number in \[0, 1\]"),
        ({"f": "half"}, r"prob_f = 'half': write a number in \[0, 1\]"),
        ({"f": 1}, r"prob_f = 1\.0: write 127/128 or less; beyond it the client applies 1, and nothing is left"),
        ({"f": "0.993"}, r"prob_f = 0\.993: write 127/128 or less; beyond it the client applies 1, and nothing is left"),
        ({"q": "0.5"}, r"prob_q = 0\.5: write more than prob_p = 0\.5, or a report says nothing about a bit"),
        (
            {"p": "0.75", "q": "0.5"},
            r"prob_q = 0\.5: write more than prob_p = 0\.75, or a report says nothing about a bit",
        ),
        (
            {"p": "0.5", "q": "0.50000000000000000001"},
            r"prob_q = 0\.5: write more than prob_p = 0\.5, or a report says nothing about a bit",
        ),
    ],
)
def test_bad_parameters_are_named(changed, rule):
    """Each bad parameter is refused with its rule and value."""
    with pytest.raises(ParameterError, match=rule):
        params(**changed)


def test_parameters_are_the_decimals_written():
    """A float is read as the decimal that it prints as."""
    assert params(p=0.1, q=0.3, f=0.45) == params(p="0.1", q="0.3", f="0.45")
    assert params(p=0.1).prob_p == Fraction(1, 10)


def test_wider_reports_have_no_permanent_response():
    """Beyond 32 bits there is a Bloom filter, but the HMAC is too short for its noise."""
    assert google_rappor.bloom(b"foo", 0, params(33)) > 0
    with pytest.raises(ParameterError, match="bits = 33: write 32 or less; HMAC-SHA256 gives one byte for each"):
        google_rappor.permanent(0, b"secret", params(33))


@pytest.mark.parametrize("function", [google_rappor.permanent, google_rappor.instantaneous])
@pytest.mark.parametrize("bits", [-1, 256, 54321, 54321.5, "54321", True])
def test_bits_out_of_range_are_refused_and_not_repeated(function, bits):
    """The message says what bits must be; it does not have the answer in it."""
    arguments = (b"secret", params(8)) if function is google_rappor.permanent else (params(8),)
    with pytest.raises(ParameterError, match=r"whole number in \[0, 2\^8\)") as caught:
        function(bits, *arguments)
    assert "54321" not in str(caught.value)


def test_words_are_bytes():
    """Text must be encoded by the caller, and is not repeated."""
    for function in (
        lambda word: google_rappor.bloom(word, 0, params()),
        lambda word: google_rappor.positions(word, params(m=1)),
    ):
        with pytest.raises(ParameterError, match="bytes") as caught:
            function("confidential")
        assert "confidential" not in str(caught.value)


@pytest.mark.parametrize("cohort", [-1, 64, 1.0, True])
def test_a_cohort_is_one_of_them(cohort):
    """The original counts cohort -1 as the last one; here it is refused."""
    with pytest.raises(ParameterError, match="from 0 to 63"):
        google_rappor.bloom(b"v1", cohort, params(m=64))


@given(st.binary(max_size=40), st.integers(1, 256), st.integers(1, 16), st.integers(0, 1000))
def test_bloom_filters_by_definition(word, k, h, cohort):
    """Bit number i is set if one of the first h bytes of MD5(cohort, word) is i modulo k."""
    digest = md5(bytes([0, 0, cohort >> 8, cohort & 255]) + word).digest()
    bits = google_rappor.bloom(word, cohort, params(k, h))
    assert {i for i in range(k) if bits >> i & 1} == {byte % k for byte in digest[:h]}
    assert bits >> k == 0
