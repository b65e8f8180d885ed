"""Reports left out of a tally: every set of that many with the same probability."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest

from deniable.errors import ParameterError
from deniable.layout import Layout
from deniable.proof import distribution
from deniable_aggregator import tally
from deniable_aggregator.thinning import thin


def _tally(layout, counts, reports=None):
    counts = np.array(counts, np.int64)
    return tally.Tally(layout, counts, counts.sum(axis=1) if reports is None else np.array(reports, np.int64))


def _law(counted, left_out):
    return distribution(lambda source: thin(counted, left_out, source).cells.astype(">i8").tobytes())


@pytest.mark.parametrize("left_out", [0, 1, 2, 3])
def test_every_set_of_reports_is_left_out_alike(left_out):
    """Of a tally of indices, the law of what is left is that of leaving out any set of so many reports."""
    counts = [[2, 0, 1], [1, 0, 2]]
    names = [place for place, count in enumerate(np.ravel(counts)) for _ in range(count)]
    expected: Counter[bytes] = Counter()
    for chosen in combinations(range(len(names)), left_out):
        left = np.ravel(np.array(counts, ">i8")).copy()
        for each in chosen:
            left[names[each]] -= 1
        expected[left.tobytes()] += 1
    law = _law(_tally(Layout(2, 3, "index"), counts), left_out)
    assert law == {cells: Fraction(count, comb(len(names), left_out)) for cells, count in expected.items()}


def test_each_cell_of_bits_has_its_law():
    """Of a tally of bits, the reports of the rows, and every cell given them, are hypergeometric."""
    law = _law(_tally(Layout(2, 2, "bits"), [[2, 1], [0, 1]], [3, 1]), 2)
    rows: Counter[tuple[int, int]] = Counter()
    given: dict[tuple[int, int], Counter[int]] = {}
    for written, chance in law.items():
        first, *_, one, other = (int(cell) for cell in np.frombuffer(written, ">i8"))
        rows[one, other] += chance
        given.setdefault((one, other), Counter())[first] += chance
    assert rows == {(1, 1): Fraction(3, 6), (2, 0): Fraction(3, 6)}
    assert given[1, 1] == {0: Fraction(1, 3) / 2, 1: Fraction(2, 3) / 2}
    assert given[2, 0] == {1: Fraction(2, 3) / 2, 2: Fraction(1, 3) / 2}


@pytest.mark.parametrize("layout", [Layout(1, 2, "index"), Layout(3, 5, "index"), Layout(2, 9, "bits")], ids=str)
def test_what_is_left_is_a_tally_of_so_many_fewer(layout):
    """What is left has as many reports fewer, none of its cells is negative or above its row, and the first stays as it was."""
    counts = np.arange(layout.rows * layout.width).reshape(layout.rows, layout.width)
    whole = _tally(layout, counts, None if layout.kind == "index" else np.full(layout.rows, counts.max() + 3))
    before = whole.cells.copy()
    for left_out in (0, 1, whole.n // 2, whole.n):
        part = thin(whole, left_out)
        assert part.n == whole.n - left_out
        assert (part.counts >= 0).all()
        assert (part.counts <= part.reports[:, None]).all()
        assert (part.cells <= before).all()
    assert np.array_equal(whole.cells, before)


@pytest.mark.parametrize("left_out", [-1, 4])
def test_no_more_than_there_are(left_out):
    """Leaving out fewer than none or more than all is refused."""
    with pytest.raises(ParameterError, match="at most the reports"):
        thin(_tally(Layout(1, 2, "index"), [[1, 2]]), left_out)
