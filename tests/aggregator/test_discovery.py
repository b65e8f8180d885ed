"""Discovery: what is common is found, what is published of it is unbiased, and nothing is found where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from deniable.errors import ParameterError
from deniable.forecast.search import foreseen, needed
from deniable.mechanisms.texts.prefix import Pem, TreeHist
from deniable.mechanisms.texts.prefix import extend as extend_one
from deniable.proof import distribution
from deniable.registry import Metric, text
from deniable_aggregator import tally
from deniable_aggregator.decode.pools import hash_lookup
from deniable_aggregator.decode.search import discovery
from deniable_aggregator.decode.search.discovery import discover, extend
from deniable_aggregator.decode.search.prefix_level import level_of

WORDS = {"the": 0.3, "then": 0.12, "naïve": 0.1, "東京": 0.08, "deniability": 0.07, "x": 0.06}


def collect(mechanism, answers):
    """Count the reports of real devices."""
    return tally.count(mechanism.layout, b"".join(map(mechanism.randomize, answers)))


def simulate(mechanism, values, counts, rng):
    """Draw a tally of so many holders of each value from the exact probabilities, faster than devices do."""
    held = np.repeat(np.arange(len(values)), counts)
    rows = rng.integers(mechanism.rows, size=len(held))
    levels = np.searchsorted(mechanism.first_rows, rows, side="right") - 1
    keys = np.array([[mechanism.key(level, v) for v in values] for level in range(len(mechanism.lengths))], np.uint64)[
        levels, held
    ]
    a, b, c = hash_lookup.multipliers(mechanism.family)[rows].T
    high = (a * (keys >> np.uint64(32)) + b * (keys & np.uint64(0xFFFFFFFF)) + c) >> np.uint64(32)
    cells = (high * np.uint64(mechanism.width) >> np.uint64(32)).astype(np.int64)
    shifts = np.where(rng.random(len(held)) < float(mechanism.p), 0, rng.integers(1, mechanism.width, size=len(held)))
    numbers = rows * mechanism.width + (cells + shifts) % mechanism.width
    return tally.from_cells(mechanism.layout, np.bincount(numbers, minlength=mechanism.rows * mechanism.width))


def expected(mechanism, frequencies, reports):
    """Return the tally of `each` reports in every row, as frequent as they are expected to be."""
    cells = np.zeros((mechanism.rows, mechanism.width))
    for row in range(mechanism.rows):
        for value, frequency in frequencies.items():
            cells[row, mechanism.place(row, value)] += frequency
    cells = float(mechanism.other) + float(mechanism.p - mechanism.other) * cells
    return tally.from_cells(mechanism.layout, np.rint(reports * cells).astype(np.int64).ravel())


def test_simulated_reports_have_the_exact_law():
    """Reports drawn by numpy, on which tests of accuracy rest, are distributed as enumeration says, by chi-square."""
    mechanism = Pem(domain_size=8, epsilon=1, rows=5, step=1, start=1)
    n = 200_000
    counted = simulate(mechanism, [3], np.array([n]), np.random.default_rng(0)).cells
    masses = distribution(lambda tape: mechanism.randomize(3, source=tape))
    means = n * np.array([float(masses[bytes([cell])]) for cell in range(len(counted))])
    assert ((counted - means) ** 2 / means).sum() < 75  # 19 degrees of freedom: a tail of 1e-8


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=5), st.integers(0, (1 << 20) - 1))
def test_extend(keys, chunk):
    """The array form gives the keys that devices compute."""
    extended = extend(np.array(keys, np.uint64), np.array([chunk], np.uint64))
    assert extended.tolist() == [extend_one(key, chunk) for key in keys]


@pytest.mark.parametrize("length", [1, 2])
def test_texts_are_tried_and_nothing_else(length):
    """All numbers of up to two bytes that write a text are tried, and no other number is."""

    def writes(number):
        try:
            return bool(text.decode(number, length))
        except ParameterError:
            return False

    tried = discovery._texts(*discovery._read(0, 0), 8 * length, last=True)
    assert tried.tolist() == [number for number in range(1 << 8 * length) if writes(number)]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4), st.integers(1, 12))
def test_no_text_is_left_out(word, step):
    """Cut into steps of any width, each step of any text is among those that are tried after the one before."""
    number = text.encode(word, 16)
    for since in range(0, 128, step):
        width = min(step, 128 - since)
        left = 128 - since - width
        tried = discovery._texts(*discovery._read(number >> left + width, since), width, last=not left)
        assert (number >> left) & ((1 << width) - 1) in tried


def test_words_are_found():
    """Words of any script and length, one the beginning of another, are found with what they have, from real reports."""
    mechanism = Pem(domain_size=text.domain_size(16), epsilon=4)
    n = 60_000
    answers = [text.encode(word, 16) for word, share in WORDS.items() for _ in range(int(n * share))]
    others = [text.encode(f"{number:x}", 16) for number in range(n - len(answers))]
    discovered = discover(mechanism, collect(mechanism, answers + others), text=True)
    there = {
        text.decode(v, 16): f
        for v, f, yes in zip(discovered.values, discovered.frequency, discovered.detected(1e-6), strict=True)
        if yes
    }
    assert there.keys() == WORDS.keys()
    assert list(discovered.frequency) == sorted(discovered.frequency, reverse=True)
    for word, share in WORDS.items():
        at = discovered.values.index(text.encode(word, 16))
        assert abs(discovered.frequency[at] - share) < 5 * discovered.stderr[at]
    unfound, error = discovered.unallocated
    assert abs(unfound - (1 - sum(WORDS.values()))) < 5 * error
    assert 0.005 < discovered.detection_frequency() < min(WORDS.values())
    assert discovered.n == n == discovered.n_confirm + sum(level.reports for level in discovered.levels)
    assert [level.length for level in discovered.levels] == list(range(16, 129, 8))


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("cls", [Pem, TreeHist])
@pytest.mark.parametrize("epsilon", [1, 6])
def test_nothing_is_found_where_all_differ(cls, epsilon):
    """If no two people answer the same, nothing is detected, nearly all is unallocated, and it is known what would be found."""
    rng = np.random.default_rng(1)
    mechanism = cls(domain_size=1 << 32, epsilon=epsilon)
    values = rng.choice(1 << 32, 2000, replace=False).tolist()
    discovered = discover(mechanism, simulate(mechanism, values, np.ones(2000, int), rng))
    assert not discovered.detected(1e-4).any()
    others, error = discovered.unallocated
    assert abs(others - 1) <= 5 * error  # exactly 1 where nothing is found
    assert discovered.detection_frequency() > 0.02


def test_few_supports_are_no_discovery():
    """With many cells two reports for one value are no wonder among so many, though their normal tail says so."""
    rng = np.random.default_rng(2)
    mechanism = Pem(domain_size=1 << 20, epsilon=8)
    false = 0
    for _ in range(10):
        values = rng.choice(1 << 20, 200, replace=False).tolist()
        discovered = discover(mechanism, simulate(mechanism, values, np.ones(200, int), rng))
        false += bool((discovered.frequency[discovered.detected()] > 0).any())
    assert false <= 3


@pytest.mark.parametrize("cls", [Pem, TreeHist])
@pytest.mark.parametrize("n", [0, 1, 2, 30])
def test_next_to_no_reports(cls, n):
    """With hardly a report, or none, there is an answer, and it is that nothing is known."""
    mechanism = cls(domain_size=1 << 16, epsilon=1)
    discovered = discover(mechanism, collect(mechanism, [7] * n), text=True)
    assert not discovered.detected().any()
    assert len(discovered.interval()[0]) == len(discovered.values) == len(discovered.count)
    assert np.isnan(discovered.unallocated).all() == (discovered.n_confirm == 0)
    assert np.isnan(discovered.detection_frequency()) or discovered.detection_frequency() > 0.3


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(("cls", "rows", "epsilon"), [(Pem, 0, 1), (Pem, 128, 3), (TreeHist, 256, 2)])
def test_errors_are_as_stated(cls, rows, epsilon):
    """Of what the search selected, the estimates are unbiased, with the standard errors stated, even with few rows."""
    rng = np.random.default_rng(3)
    values = rng.choice(1 << 24, 200, replace=False).tolist()
    counts = np.floor(6000 / np.arange(1, 201) ** 1.2).astype(int)
    mechanism = cls(domain_size=1 << 24, epsilon=epsilon, rows=rows, step=8, start=8)
    truth = dict(zip(values, counts / counts.sum(), strict=True))
    errors, remainders = [], []
    for _ in range(12):
        discovered = discover(mechanism, simulate(mechanism, values, counts, rng), keep=20)
        errors += ((discovered.frequency - [truth.get(v, 0) for v in discovered.values]) / discovered.respondents_stderr).tolist()
        unfound, error = discovered.unallocated
        remainders.append((unfound - 1 + sum(truth.get(v, 0) for v in discovered.values)) / error)
    assert abs(np.mean(errors)) < 6 / np.sqrt(len(errors))
    assert abs(np.mean(np.square(errors)) - 1) < 6 * np.sqrt(2 / len(errors))
    assert np.mean(np.square(remainders)) < 4


def test_collisions_are_cleared():
    """Without noise, listed values are estimated exactly however few the rows; on their own they would not be."""
    mechanism = Pem(domain_size=1 << 32, epsilon=2, rows=64)
    truth = {123: 0.5, 1 << 31: 0.2, 77777: 0.2, 5: 0.1, 99: 0.0}
    part = level_of(mechanism, expected(mechanism, truth, 10**9), len(mechanism.lengths) - 1)
    keys = np.array([mechanism.key(3, value) for value in truth], np.uint64)
    assert np.allclose(part.joint(keys).frequency, list(truth.values()), atol=1e-6)
    alone = (part.lookup(keys) / part.n - float(mechanism.q)) / part.gain
    assert np.abs(alone - list(truth.values())).max() > 0.03
    frequency, _ = part.closer(keys, 1e-6)
    assert np.allclose(frequency, list(truth.values()), atol=1e-6)
    table, _ = part.cleared(keys, frequency)
    left = part.lookup(keys, table) / part.n - float(mechanism.q)
    assert np.abs(left).max() < 1e-6


def test_a_part_counts_what_is_supported():
    """A level's look-up finds, for each value, the reports of its rows whose payload supports it by definition."""
    mechanism = TreeHist(domain_size=64, epsilon=1, rows=30, step=2, start=2)
    payloads = [mechanism.randomize(value % 64) for value in range(300)]
    counted = tally.count(mechanism.layout, b"".join(payloads))
    for level in range(len(mechanism.lengths)):
        plain = np.zeros(64, np.int64)
        for payload in payloads:
            if mechanism.level(mechanism.layout.unpack(payload)[0]) == level:
                plain[list(mechanism.supported(payload))] += 1
        keys = np.array([mechanism.key(level, value) for value in range(64)], np.uint64)
        assert level_of(mechanism, counted, level).lookup(keys).tolist() == plain.tolist()


def test_what_cannot_be_told_apart_is_no_crash():
    """With so few rows that values collide in all of them, there is a result all the same."""
    mechanism = Pem(domain_size=1 << 8, epsilon=1, rows=5, step=2, start=2)
    discovered = discover(mechanism, collect(mechanism, [3] * 3000))
    assert len(discovered.values) <= 1


@pytest.mark.parametrize("cls", [Pem, TreeHist])
def test_domains_that_are_no_power_of_two(cls):
    """Only values of the domain are tried, and the last of them is found."""
    mechanism = cls(domain_size=1001, epsilon=4, step=3, start=4)
    discovered = discover(mechanism, collect(mechanism, [1000] * 4000 + list(range(1000))))
    assert discovered.values[0] == 1000
    assert discovered.detected()[0]
    assert max(discovered.values) <= 1000
    assert discovered.levels[-1].candidates <= 1001


def test_the_same_tally_gives_the_same(monkeypatch):
    """Twice, and with numpy in place of compiled code, the same is found with the same figures."""
    rng = np.random.default_rng(4)
    mechanism = Pem(domain_size=1 << 24, epsilon=3, rows=200)
    counted = simulate(mechanism, [1, 2, 3], np.array([900, 500, 300]), rng)
    first = discover(mechanism, counted, keep=8)
    second = discover(mechanism, counted, keep=8)
    monkeypatch.setattr(hash_lookup, "_kernel", lambda: None)
    third = discover(mechanism, counted, keep=8)
    assert first.values[:3] == (1, 2, 3)
    for other in (second, third):
        assert other.values == first.values
        assert other.levels == first.levels
        assert np.array_equal(other.frequency, first.frequency)


def test_tree_hist_keeps_what_stands_out():
    """Where pem keeps a number of prefixes, most of them noise, tree_hist keeps the few above the noise of all."""
    rng = np.random.default_rng(5)
    values, counts = [10**9, 2 * 10**9, 3 * 10**9], np.array([8000, 5000, 3000])
    survivors = {}
    for cls in (Pem, TreeHist):
        mechanism = cls(domain_size=1 << 32, epsilon=3)
        discovered = discover(mechanism, simulate(mechanism, values, counts, rng), keep=32)
        survivors[cls] = [level.survivors for level in discovered.levels]
        assert set(discovered.values[:3]) == set(values)
        assert all(level.threshold > 0 for level in discovered.levels)
    assert survivors[Pem] == [32] * 3
    assert max(survivors[TreeHist]) <= 4


@pytest.mark.parametrize(("bits", "n", "runs"), [(16, 1000, 12), pytest.param(24, 3000, 16, marks=pytest.mark.campaign)])
def test_detection_frequency_is_where_half_is_found(bits, n, runs):
    """Values at the stated frequency are detected about half of the time."""
    rng = np.random.default_rng(6)
    mechanism = Pem(domain_size=1 << bits, epsilon=3, start=8)
    hits = 0
    share = discover(mechanism, simulate(mechanism, list(range(n)), np.ones(n, int), rng)).detection_frequency()
    for _ in range(runs):
        values = rng.choice(1 << bits, n, replace=False).tolist()
        counts = np.ones(n, int)
        counts[0] = round(share * n)
        discovered = discover(mechanism, simulate(mechanism, values, counts, rng))
        hits += any(v == values[0] and yes for v, yes in zip(discovered.values, discovered.detected(), strict=True))
    assert binom.ppf(0.003, runs, 0.5) <= hits <= binom.isf(0.0003, runs, 0.5)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("kind", ["key", "string"])
@pytest.mark.parametrize("cls", [Pem, TreeHist])
def test_what_is_foreseen_is_what_the_search_says(cls, kind):
    """Before any report comes, it is known how frequent a value must be to be found; backwards, how many reports that takes."""
    rng = np.random.default_rng(8)
    values = [text.encode(f"{number:03}", 3) if kind == "string" else number for number in range(1000)]
    metric = Metric(
        id="a", type=kind, values=(), discover=True, mechanism=cls.name, epsilon="2", max_length=3 * (kind == "string")
    )
    mechanism, n = cls(domain_size=1 << (24 if kind == "string" else 64), epsilon=2), 60_000
    discovered = discover(mechanism, simulate(mechanism, values, np.full(1000, n // 1000), rng), text=kind == "string")
    share = foreseen(metric, mechanism, n)
    assert share == pytest.approx(discovered.detection_frequency(), rel=0.1)
    assert needed(metric, mechanism, share) == pytest.approx(n, rel=0.02)
    assert np.isnan(foreseen(metric, mechanism, 2))


@pytest.mark.campaign
@pytest.mark.parametrize(("cls", "n"), [(Pem, 300), (TreeHist, 1000)])
def test_detection_frequency_of_few_reports(cls, n):
    """Where a value's own reports are most of its error, it is still half detected at the stated frequency."""
    rng = np.random.default_rng(7)
    mechanism = cls(domain_size=1 << 16, epsilon=3, start=8, step=8)
    share = discover(mechanism, simulate(mechanism, list(range(n)), np.ones(n, int), rng)).detection_frequency()
    counts = np.ones(n - round(share * n) + 1, int)
    counts[0] = round(share * n)
    hits = 0
    for _ in range(75):
        values = rng.choice(1 << 16, len(counts), replace=False).tolist()
        discovered = discover(mechanism, simulate(mechanism, values, counts, rng))
        hits += any(v == values[0] and yes for v, yes in zip(discovered.values, discovered.detected(), strict=True))
    assert 0.3 < hits / 75 < 0.7


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"keep": 0}, "keep = 0: write a whole number of at least 1"),
        ({"keep": True}, "keep = .*: write a whole number of at least 1"),
        ({"alpha": 0}, "alpha = 0: write a probability of error between 0 and 1"),
        ({"text": True}, "bits = 15: write a multiple of 8"),
    ],
)
def test_bad_parameters(options, rule):
    """A parameter out of range is refused with the rule and the value."""
    mechanism = Pem(domain_size=1 << 15, epsilon=1)
    with pytest.raises(ParameterError, match=rule):
        discover(mechanism, tally.empty(mechanism.layout), **options)


def test_tallies_of_another_mechanism_are_refused():
    """A tally of another layout is refused."""
    mechanism = Pem(domain_size=1 << 15, epsilon=1)
    other = Pem(domain_size=1 << 15, epsilon=3)
    with pytest.raises(ParameterError, match=r"the layout = .*: decode with pem a tally of "):
        discover(mechanism, tally.empty(other.layout))
