"""What answers about withheld cells tell beyond a release, computed over all sets of reports from which the same one follows."""

from __future__ import annotations

from functools import cache
from itertools import combinations, permutations, product
from math import exp, log

import pytest

from deniable_aggregator.publish import suppression
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.suppression.cube import Cube

LEAST = 3
EPSILON = 0.5  # of each answer
LINE = Breakdown({"platform": ("linux", "macos", "windows")})
TABLE = Breakdown({"platform": ("linux", "macos"), "plan": ("free", "paid")})
CASES = [(LINE, 8), (TABLE, 6)]


def cells(breakdown):
    words = product(*((None, *values) for values in breakdown.values.values()))
    return [breakdown.text(each) for each in words]


@cache
def flipped(counts):
    """Compute the law of permute-and-flip, which `central_noise.most` has, by going through all orders."""
    law, orders = [0.0] * len(counts), list(permutations(range(len(counts))))
    for order in orders:
        left = 1 / len(orders)
        for place in order:
            chance = exp(EPSILON / 2 * (counts[place] - max(counts)))
            law[place] += left * chance
            left *= 1 - chance
    return law


def loss(one, other):
    """Compute the largest logarithm by which one answer can be likelier under some numbers than under others."""
    if len(one) == 1:  # discrete Laplace: reached far out, on either side
        return EPSILON * abs(one[0] - other[0])
    return max(log(a / b) for a, b in zip(flipped(one), flipped(other), strict=True))


def releases(breakdown, reports):
    """Group all sets of so many reports by what is published of them; each with the totals of all cells."""
    leaves = [breakdown.text(words) for words in product(*breakdown.values.values())]
    by_release = {}
    for counts in product(range(reports + 1), repeat=len(leaves)):
        if sum(counts) == reports:
            cube = Cube.of(breakdown, dict(zip(leaves, counts, strict=True)))
            totals = {cell: cube.total(cell) for cell in cells(breakdown)}
            published = suppression.publishable([cube], LEAST)
            key = frozenset((cell, totals[cell]) for cell in published)
            by_release.setdefault(key, []).append((counts, totals))
    return by_release


def losses(breakdown, reports, answers):
    """Go through pairs of sets of one release: in how many reports they differ, and what some answers tell of which it is."""
    for published, sets in releases(breakdown, reports).items():
        withheld = [cell for cell in cells(breakdown) if cell not in dict(published)]
        for (one, first), (other, second) in permutations(sets, 2):
            moved = sum(abs(a - b) for a, b in zip(one, other, strict=True)) // 2
            for question in answers(withheld):
                yield moved, question, sum(loss(tuple(map(first.get, each)), tuple(map(second.get, each))) for each in question)


def single(withheld):
    """Ask one question: for each withheld cell, and among each two or three."""
    return [[each] for size in (1, 2, 3) for each in combinations(withheld, size)]


def together(withheld):
    """Ask two questions."""
    questions = [each for size in (1, 2) for each in combinations(withheld, size)]
    return combinations(questions, 2)


@pytest.mark.slow("goes through all pairs of sets of one release")
@pytest.mark.parametrize(("breakdown", "reports"), CASES)
@pytest.mark.parametrize("answers", [single, together])
def test_answers_tell_what_they_cost(breakdown, reports, answers):
    """Answers are at most e^(k epsilon) times as likely, where k reports are in other cells: in all, what was paid."""
    seen = set()
    for moved, question, loss in losses(breakdown, reports, answers):
        assert loss <= moved * EPSILON * len(question) + 1e-9
        seen.add(moved)
    assert len(seen) > 1


def test_answers_about_disjoint_cells_add_up():
    """A report that is in one withheld cell or in another changes both numbers: it is not enough to pay for the dearer one."""
    worst = max(
        loss for moved, question, loss in losses(LINE, 8, together) if moved == 1 and all(len(each) == 1 for each in question)
    )
    assert worst == pytest.approx(2 * EPSILON)


def test_a_choice_pays_for_a_report_that_is_elsewhere():
    """A choice is nearly e^epsilon times as likely where one report is in another cell; half the noise would not do."""
    worst = max(loss for moved, question, loss in losses(LINE, 8, single) if moved == 1 and len(question[0]) > 1)
    assert 0.5 * EPSILON < worst <= EPSILON
