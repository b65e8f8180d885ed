"""Likelihoods: against the exact distribution of payloads, against products over bits, and read from a file."""

from __future__ import annotations

import numpy as np
import pytest

from deniable import mechanisms, proof
from deniable.errors import ParameterError, PayloadError
from deniable_aggregator.decode.tables.likelihood import bit_likelihood, other_rates, pack
from deniable_aggregator.decode.tables.payload_likelihood import likelihood
from deniable_aggregator.rappor.columns import BitColumn, read


@pytest.mark.parametrize("name", [name for name in mechanisms.names() if name != "rappor"])
def test_likelihood_is_the_exact_distribution(name):
    """Of every payload that a mechanism can send, the likelihoods are in the ratios that walking all draws finds."""
    size = 2 if name in ("binary", "coin") else 3
    mechanism = mechanisms.make(name, domain_size=size, epsilon="1.2")
    check_exact(mechanism, range(size))


@pytest.mark.parametrize("options", [{}, {"bits": 4, "hashes": 2, "cohorts": 2}])
def test_likelihood_of_rappor_is_the_exact_distribution(options):
    """A Bloom filter's report has the likelihoods of its bits, whatever the cohort."""
    check_exact(mechanisms.make("rappor", domain_size=3, epsilon="1.2", **options), range(3))


@pytest.mark.parametrize(("d", "buckets"), [(3, 1), (4, 2), (5, 3)])
def test_likelihood_of_sets_is_the_exact_distribution(d, buckets):
    """A report about a set of values has the likelihoods of its bits, and says nothing of values outside the set."""
    check_exact(mechanisms.make("dbitflip", domain_size=d, epsilon="1.2", buckets=buckets), range(d))


def check_exact(mechanism, values):
    masses = [proof.distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in values]
    payloads = sorted(masses[0])
    exact = np.array([[float(mass[payload]) for mass in masses] for payload in payloads])
    chances = likelihood(mechanism, b"".join(payloads))
    assert np.allclose(chances, exact / exact.max(axis=1, keepdims=True), rtol=1e-5)
    fewer = likelihood(mechanism, b"".join(payloads), [1])
    assert np.array_equal(fewer, np.ones((len(payloads), 1)))


def test_bit_likelihood_is_a_product_over_the_bits():
    """Candidates and the column of the others have the product of their bits' probabilities, without padding."""
    rng = np.random.default_rng(1)
    width, p, q = 11, 0.2, 0.7
    masks = np.array([[0b10000000011, 0b00110000000], [0b1, 0b10000000011]])
    reports, cohorts = rng.integers(0, 1 << width, 50), rng.integers(0, 2, 50)
    rates = rng.uniform(p, q, (2, width))
    packed = np.stack([pack(row, width) for row in masks.tolist()])
    chances = bit_likelihood(cohorts, pack(reports.tolist(), width), packed, p=p, q=q, other=rates)
    for report, cohort, row in zip(reports, cohorts, chances, strict=True):
        ones = np.array([[q if mask >> bit & 1 else p for bit in range(width)] for mask in masks[cohort]] + [rates[cohort]])
        exact = np.where([report >> bit & 1 for bit in range(width)], ones, 1 - ones).prod(axis=1)
        assert row == pytest.approx(exact / exact.max(), rel=1e-5)


def test_others_rates_are_what_the_known_strings_leave():
    """From expected counts the rates of the unknown strings come out exactly; with nobody left they are the cohort's."""
    rng = np.random.default_rng(2)
    width, p, q = 13, 0.25, 0.75
    masks = rng.integers(0, 2, (4, 3, width)).astype(np.uint8)
    unknown = rng.uniform(p, q, (4, width))
    shares = np.array([0.5, 0.2, -0.01])  # what is not there may be estimated negative
    known = np.einsum("jvb,v->jb", p + (q - p) * masks, np.maximum(shares, 0))
    reports = np.full(4, 10**9)
    counts = np.rint((known + 0.3 * unknown) * reports[:, None]).astype(np.int64)
    packed = np.packbits(masks, axis=2, bitorder="little")
    assert other_rates(counts, reports, packed, shares, p=p, q=q) == pytest.approx(unknown, abs=1e-7)
    rates = other_rates(counts, reports, packed, np.array([0.5, 0.5, 0.0]), p=p, q=q)
    assert rates == pytest.approx(np.clip(counts / reports[:, None], p, q))
    few = other_rates(rng.integers(0, 5, (4, width)), np.full(4, 4), packed, shares, p=p, q=q)
    assert p <= few.min() <= few.max() <= q  # however far chance takes the counts


def test_a_report_that_no_device_could_send_is_refused():
    """Payloads are checked before they are compared with values."""
    mechanism = mechanisms.make("grr", domain_size=3, epsilon=1)
    with pytest.raises(PayloadError):
        likelihood(mechanism, b"\x00\x03")
    with pytest.raises(ParameterError, match="a candidate is outside the domain, or there is none: give numbers from 0 to 2"):
        likelihood(mechanism, b"\x00", [3])
    with pytest.raises(ParameterError, match="at most 65536 values"):
        likelihood(mechanisms.make("grr", domain_size=70_000, epsilon=1), b"\x00\x00\x00")
    texts = mechanisms.make("fast_local_hash", domain_size=1 << 200, epsilon=1)
    with pytest.raises(ParameterError, match="at most 65536 values"):  # however few are asked for: each text may be supported
        likelihood(texts, texts.randomize(1), [1])


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"cohorts": np.array([0, 2])}, r"cohort = 2: write a whole number from 0 to 1"),
        ({"cohorts": np.array([0])}, r"reports have the shapes \(1,\) and \(2, 1\), filters \(2, 3, 1\): give "),
        ({"p": 0.5}, r"p and q = \(0\.5, 0\.5\): write probabilities with p below q"),
        ({"other": np.full((2, 9), 0.5)}, r"rates of the others have the shape \(2, 9\): give \(2, width\)"),
    ],
)
def test_bit_likelihood_checks_what_it_is_given(change, rule):
    """Shapes, cohorts and probabilities that do not agree are refused."""
    arguments = {
        "cohorts": np.array([0, 1]),
        "bits": np.zeros((2, 1), np.uint8),
        "masks": np.zeros((2, 3, 1), np.uint8),
        "p": 0.25,
        "q": 0.5,
    }
    with pytest.raises(ParameterError, match=rule):
        bit_likelihood(**arguments | change)


COLUMNS = [
    BitColumn(bits="bits1", width=12, cohort="cohort1", cohorts=4),
    BitColumn(bits="export", width=1),
]
HEAD = "device,cohort1,bits1,export\r\n"


def test_reports_are_read():
    """Digits and hexadecimal numbers are the same bits, the last digit being bit 0; columns may stand in any order."""
    lines = [HEAD, "a,3,100000000101,1\r\n", "\r\n", "b,0,0x805,true\r\n", 'c,1,"0X005",false\r\n']
    (cohorts, bits), (none, export) = read(lines, COLUMNS)
    assert cohorts.tolist() == [3, 0, 1]
    assert none.tolist() == [0, 0, 0]
    assert bits.tolist() == [[0b101, 0b1000], [0b101, 0b1000], [0b101, 0]]
    assert export.tolist() == [[1], [1], [0]]


def test_no_reports_are_read_as_none():
    """A file of headings alone has arrays of the right shape."""
    (cohorts, bits), _ = read([HEAD], COLUMNS)
    assert (cohorts.shape, bits.shape) == ((0,), (0, 2))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: the headings are '': write 'bits1' once among them"),
        (["cohort1,bits1,bits1,export"], "line 1: the headings are 'cohort1,bits1,bits1,export': write 'bits1' once among them"),
        ([HEAD, "a,4,0x0,1"], r"line 2: cohort1 = '4': write a whole number from 0 to 3"),
        ([HEAD, "a,-1,0x0,1"], "line 2: cohort1 = '-1': write a whole number"),
        ([HEAD, "a,0,0x0,1", "a,0,0x0"], "line 3: the line has 3 fields: write 4, as many as headings"),
        ([HEAD, "a,0,10101,1"], "line 2: bits1 = '10101': write 12 digits 0 or 1, highest bit first, or 0x"),
        (
            [HEAD, "a,0,0x1000,1"],
            r"'0x1000': write 12 digits 0 or 1, highest bit first, or 0x and a hexadecimal number below 2\^12",
        ),
        ([HEAD, "a,0,0x-1,1"], "line 2: bits1"),
        ([HEAD, "a,0,0x1_0,1"], "line 2: bits1"),
        ([HEAD, "a,0,0x0,yes"], "line 2: export = 'yes': write 1 digits 0 or 1"),
        ([HEAD, 'a,0,"0x0"1,1'], "line 2: .*: write comma-separated values"),
    ],
)
def test_a_malformed_line_is_named(lines, message):
    """The error tells the line, the rule and what stands there."""
    with pytest.raises(ParameterError, match=message):
        read(lines, COLUMNS)


@pytest.mark.parametrize("fault", [{"width": 0}, {"cohorts": 0}, {"cohorts": 2}])
def test_a_column_is_checked(fault):
    """A column has bits, and a heading for its cohort where there are several."""
    with pytest.raises(ParameterError):
        BitColumn(**{"bits": "bits", "width": 1} | fault)
