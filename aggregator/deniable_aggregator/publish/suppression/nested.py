"""Publishing a large cube along one order of its segments: all reports, then by the first segment, then also by the second.

Any two such cells are nested or disjoint, so they form a tree. The *rest* of a cell is what no published cell within it has.
Rests are disjoint. A published cell is the sum of the rests in and below it, and each rest is a cell less the largest published
cells within it. So rests span the same combinations as cells. A combination that does not cancel out contains at least one whole
rest that is not empty. Hence the rule holds if and only if no rest has 1 to `least` - 1 reports, which is checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable_aggregator.publish.breakdown import Words
    from deniable_aggregator.publish.suppression.cube import Cube


def choose(
    cube: Cube,  # raw numbers of reports
    least: int,  # fewest reports that anything published may be about
    cells: frozenset[str] | None = None,  # the cells that may be published; None: all
) -> dict[Words, bool]:
    """Return, for each cell above a cube's leaves that has enough reports, whether to publish it."""
    totals: dict[Words, int] = {}
    above: dict[Words, Words | None] = {}
    for leaf, n in zip(cube.leaves, map(int, cube.reports), strict=True):
        last = None
        for words in cube.breakdown.ladder(leaf):
            totals[words] = totals.get(words, 0) + n
            above[words] = last
            last = words
    text = cube.breakdown.text
    published = {words: True for words in totals if totals[words] >= least and (cells is None or text(words) in cells)}
    within: dict[Words, list[Words]] = {words: [] for words in published}
    remainders = {words: totals[words] for words in published}
    for words in published:
        parent = above[words]
        while parent is not None and parent not in published:
            parent = above[parent]
        if parent is not None:
            within[parent].append(words)
    # This goes up from the finest cells, since a cell comes after the cell that contains it. If the rest of a cell is too small,
    # the smallest cell within it that has a rest of its own is withheld. The two rests together are large enough.
    for words in reversed(published):
        inside = within[words]
        remainders[words] -= sum(totals[part] for part in inside)
        while 0 < remainders[words] < least:
            part = min(inside, key=lambda part: (not remainders[part], totals[part], text(part)))
            published[part] = False
            inside.remove(part)
            inside += within[part]
            remainders[words] += remainders[part]
    return published
