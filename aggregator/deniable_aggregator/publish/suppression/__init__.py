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
M. Fischetti, J. J. Salazar (2001), Solving the cell suppression problem on tabular data with linear constraints, Management
Science 47(7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.publish.suppression import nested
from deniable_aggregator.publish.suppression.difference import Difference, Verdict
from deniable_aggregator.publish.suppression.span import Span

if TYPE_CHECKING:
    from deniable_aggregator.publish.breakdown import Words
    from deniable_aggregator.publish.suppression.cube import Cube

__all__ = ["MAX_LEAVES", "publishable"]

MAX_LEAVES = 500
"""Combinations with reports above which a cube is published along one order of its segments."""
MAX_MEMBERSHIPS = 100_000
"""The same, for pairs of a cell and a leaf in it."""
MAX_ROUNDS = 12
"""Linear programs that are solved for one cell at most."""
MAX_ALL_ROUNDS = 60
"""The same, for a cube."""
MAX_ALL_EXCHANGES = 10_000
"""Exchanges of a pivot for all cells of a cube at most: they take a few seconds. A cube of 300 leaves needs some 2,000."""

log = logging.getLogger("deniable.publisher")


def publishable(cube: Cube, least: int) -> frozenset[str]:
    """Choose the cells of a cube that may be published together. The same cube always gives the same cells.

    Parameters
    ----------
    cube
        Raw numbers of reports.
    least
        Fewest reports that anything published may be about; 1 or less withholds only empty cells.
    """
    verdicts = _judged(cube, least)
    undecided = sum(verdict is Verdict.OPEN for verdict in verdicts.values())
    if undecided:
        log.warning("%d cells took too long to check and are withheld: %r", undecided, cube)
    return frozenset(cube.breakdown.text(words) for words, verdict in verdicts.items() if verdict is Verdict.SAFE)


def _judged(cube: Cube, least: int) -> dict[Words, Verdict]:
    """Judge every cell with enough reports; in too large a cube, only cells along one order of its segments."""
    if len(cube.leaves) <= MAX_LEAVES and cube.memberships <= MAX_MEMBERSHIPS:
        verdicts = _any_order(cube, least)
        if verdicts is not None:
            return verdicts
    return {words: Verdict.SAFE if safe else Verdict.UNSAFE for words, safe in nested.choose(cube, least).items()}


def _any_order(cube: Cube, least: int) -> dict[Words, Verdict] | None:
    """Judge every cell with enough reports; None in the very unlikely case that the prime lowers the rank."""
    breakdown, found = cube.breakdown, cube.cells()
    totals = {words: int(cube.reports[members].sum()) for words, members in found.items()}
    enough = sorted(
        (words for words in found if totals[words] >= least),
        key=lambda words: (*breakdown.depth(words), -totals[words], breakdown.text(words)),
    )
    order = np.argsort(-cube.reports, kind="stable")
    column = np.empty_like(order)
    column[order] = np.arange(len(order))
    rows = {words: column[found[words]] for words in enough}
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
