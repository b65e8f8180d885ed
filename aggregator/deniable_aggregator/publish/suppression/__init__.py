"""Which cells may be published together, so that nothing computed from them is about few reports only.

The rule: **every weighted sum of published tallies, unless it cancels out, contains at least `least` reports**. It holds for a
single cell, for the difference of any two cells, nested or not, and for a withheld cell that margins would reveal. Weights are
any numbers: the difference of two single reports reveals as much as both, so checking sums of leaves would not be enough.

It is assumed that everybody knows which combinations of segments have no report. This is the safe assumption: the choice of cells
stays safe with that knowledge, and less knowledge reveals less.

Cells are checked one after the other, coarse before fine and large before small: first all reports, then margins. A cell is
published if the rule still holds with it. One pass is enough: a cell that breaks the rule still breaks it when more cells are
published. So at the end no withheld cell could be added. The exception are cells whose check would take too long; they are
withheld, too. Cubes that are too large for this are published along one order of their segments
(`deniable_aggregator.publish.suppression.nested`).

References
----------
L. H. Cox (1980), Suppression methodology and statistical disclosure control, Journal of the American Statistical Association 75.
D. E. Denning, P. J. Denning, M. D. Schwartz (1979), The tracker: a threat to statistical database security, ACM TODS 4(1).
M. Fischetti, J. J. Salazar (2001), Solving the cell suppression problem on tabular data, Management Science 47(7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.publish.suppression import nested
from deniable_aggregator.publish.suppression.difference import Difference, Verdict
from deniable_aggregator.publish.suppression.span import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.publish.breakdown import Words
    from deniable_aggregator.publish.suppression.cube import Cube

__all__ = ["MAX_LEAVES", "publishable"]

MAX_LEAVES = 500
"""Combinations with reports above which a cube is published along one order of its segments."""
MAX_ALL_LEAVES = 10_000
"""The same, for the cubes of all options of a set together."""
MAX_MEMBERSHIPS = 100_000
"""The same, for pairs of a cell and a leaf in it."""
MAX_ROUNDS = 12
"""Linear programs that are solved for one cell at most."""
MAX_ALL_ROUNDS = 60
"""The same, for a cube."""
MAX_ALL_EXCHANGES = 10_000
"""Exchanges of a pivot for all cells of a cube at most: they take a few seconds. A cube of 300 leaves needs some 2,000."""

log = logging.getLogger("deniable.publisher")


def publishable(
    # Raw numbers of reports, of each part that estimates rest on: one cube of all reports, or one of each option of a set. Two
    # parts have no report in common, or what is estimated from them is not the same.
    cubes: Sequence[Cube],
    least: int,  # fewest reports that anything published may be about; 1 or less withholds only empty cells
) -> frozenset[str]:
    """Choose the cells of a metric that may be published together. The same cubes always give the same cells."""
    # A cell is published if the rule holds for it in each cube. The cubes are judged one after the other, each with the cells
    # that the last ones left. To withhold a cell never breaks the rule, so it holds in the first cubes, too.
    cells: frozenset[str] | None = None
    many = sum(len(cube.leaves) for cube in cubes) > MAX_ALL_LEAVES
    for cube in cubes:
        verdicts = _judged(cube, least, cells, many=many)
        undecided = sum(verdict is Verdict.OPEN for verdict in verdicts.values())
        if undecided:
            log.warning("%d cells took too long to check and are withheld: %r", undecided, cube)
        cells = frozenset(cube.breakdown.text(words) for words, verdict in verdicts.items() if verdict is Verdict.SAFE)
        if not cells:
            break
    return cells or frozenset()


def _judged(cube: Cube, least: int, cells: frozenset[str] | None, *, many: bool) -> dict[Words, Verdict]:
    """Judge the cells that have enough reports; in too large a cube, only those along one order of its segments."""
    if not many and len(cube.leaves) <= MAX_LEAVES and cube.memberships <= MAX_MEMBERSHIPS:
        verdicts = _any_order(cube, least, cells)
        if verdicts is not None:
            return verdicts
    return {words: Verdict.SAFE if safe else Verdict.UNSAFE for words, safe in nested.choose(cube, least, cells).items()}


def _any_order(cube: Cube, least: int, cells: frozenset[str] | None) -> dict[Words, Verdict] | None:
    """Judge the cells that have enough reports; None in the very unlikely case that the prime lowers the rank."""
    breakdown, candidates = cube.breakdown, cube.cells()
    if cells is not None:
        candidates = {words: members for words, members in candidates.items() if breakdown.text(words) in cells}
    totals = {words: int(cube.reports[members].sum()) for words, members in candidates.items()}
    enough = sorted(
        (words for words in candidates if totals[words] >= least),
        key=lambda words: (*breakdown.depth(words), -totals[words], breakdown.text(words)),
    )
    order = np.argsort(-cube.reports, kind="stable")
    column = np.empty_like(order)
    column[order] = np.arange(len(order))
    rows = {words: column[candidates[words]] for words in enough}
    reports = cube.reports[order]
    heavy = int((reports >= least).sum())
    span, rounds, exchanges = Span(len(reports), heavy), MAX_ALL_ROUNDS, MAX_ALL_EXCHANGES
    verdicts: dict[Words, Verdict] = {}
    for words, members in rows.items():
        remainder = span.remainder(members)
        if span.harmless(remainder):
            verdicts[words] = Verdict.SAFE
        elif exchanges:
            difference = Difference(*span.light(), remainder[heavy:], reports[heavy:], least)
            verdicts[words] = difference.verdict(min(rounds, MAX_ROUNDS), exchanges)
            rounds -= difference.rounds
            exchanges -= difference.exchanges
        else:
            verdicts[words] = Verdict.OPEN
        if verdicts[words] is Verdict.SAFE:
            span.add(remainder)
    return verdicts if span.sound([members for words, members in rows.items() if verdicts[words] is Verdict.SAFE]) else None
