"""Of how few reports a cell tells besides others, judged against every set of leaves."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable_aggregator.publish.suppression.difference import Difference, Verdict
from deniable_aggregator.publish.suppression.span import Span


@st.composite
def tables(draw):
    """Rows over a few leaves, and reports of each."""
    leaves = draw(st.integers(2, 7))
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=leaves, max_size=leaves), min_size=1, max_size=5))
    return np.array(rows), np.array(draw(st.lists(st.integers(1, 9), min_size=leaves, max_size=leaves)))


def fewest_with_the_last(rows: np.ndarray, reports: np.ndarray) -> int:
    """Return the fewest reports that the last row with some of the others tells of, by trying every set of leaves.

    It tells of no other leaf than those of a set if and only if it lies in the span of the others there.
    """
    answers = np.array(list(product((0, 1), repeat=len(reports))))
    outside = rows[None] * (1 - answers[:, None])
    within = np.linalg.matrix_rank(outside.astype(float)) == np.linalg.matrix_rank(outside[:, :-1].astype(float))
    return int((answers @ reports)[within].min())


@given(tables(), st.integers(2, 30))
@settings(max_examples=100, deadline=None)
def test_a_verdict_is_right(table, least):
    """Whether a row tells of few reports besides the others is judged as by trying every set."""
    rows, reports = table
    span = Span(rows.shape[1], 0)
    for row in rows[:-1]:
        span.add(span.remainder(np.flatnonzero(row)))
    remainder = span.remainder(np.flatnonzero(rows[-1]))
    if remainder.any():
        fewest = fewest_with_the_last(rows, reports)
        verdict = Difference(*span.light(), remainder, reports, least).verdict(50, 10_000)
        assert verdict is (Verdict.UNSAFE if fewest < least else Verdict.SAFE)


def margins(leaves: np.ndarray) -> np.ndarray:
    """One row to each margin that leaves one segment open."""
    columns = [np.delete(leaves, place, axis=1) for place in range(leaves.shape[1])]
    return np.vstack([(words == line).all(axis=1).astype(int) for words in columns for line in np.unique(words, axis=0)])


@pytest.mark.parametrize(
    ("shape", "number", "seed"), [((4, 5), 8, 5), pytest.param((4, 5), 31, 1, marks=pytest.mark.campaign), ((2, 3, 2), 4, 1)]
)
def test_a_verdict_is_right_to_the_report(shape, number, seed):
    """A row that tells of m reports besides the others is safe for a threshold of m and not for one of m + 1."""
    rng = np.random.default_rng(seed)
    every = np.array(list(product(*map(range, shape))))
    programs = set()
    for _ in range(number):
        leaves = every[rng.choice(len(every), 11, replace=False)]
        rows = rng.permutation(margins(leaves))
        reports = rng.integers(1, 9, len(leaves))
        span = Span(len(leaves), 0)
        for count, row in enumerate(rows):
            remainder = span.remainder(np.flatnonzero(row))
            if count > 3 and remainder.any():
                fewest = fewest_with_the_last(rows[: count + 1], reports)
                for least, right in ((fewest, Verdict.SAFE), (fewest + 1, Verdict.UNSAFE)):
                    difference = Difference(*span.light(), remainder, reports, least)
                    assert difference.verdict(50, 10_000) is right
                    programs.add((right, difference.rounds > 0))
            span.add(remainder)
    # Some of both needed linear programs.
    assert shape != (4, 5) or {(Verdict.UNSAFE, True), (Verdict.SAFE, True)} <= programs


def test_a_prime_that_divides_too_much_is_noticed(monkeypatch):
    """Rows that depend on each other modulo the prime only are told from rows that do."""
    monkeypatch.setattr("deniable_aggregator.publish.suppression.span.PRIME", 2)
    cells = [np.array(pair) for pair in ((0, 1), (1, 2), (0, 2))]
    span = Span(3, 0)
    for members in cells:
        span.add(span.remainder(members))
    assert span.rank == 2
    assert not span.sound(cells)
    assert span.sound(cells[:2])
