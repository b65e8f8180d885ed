"""Publishing a large cube along one order of its segments: all reports, then by the first segment, then within it by the second.

Of any two such cells one lies in the other or they have no report in common, so they form a tree. The *rest* of a cell is what
no published cell within it has. Rests have nothing in common, a published cell is the sum of the rests in and below it, and each
rest is a cell less the largest published cells within it. So the rests span the same combinations as the cells, and a combination
that does not cancel out contains at least one rest that is not empty, as a whole. Hence nothing that can be computed tells of
fewer than `least` reports if and only if no rest has 1 to `least` - 1 of them. That is what is held here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable_aggregator.publish.breakdown import Words
    from deniable_aggregator.publish.suppression.cube import Cube

__all__ = ["choose"]


def choose(cube: Cube, least: int) -> dict[Words, bool]:
    """Tell of each cell of enough reports on the ladders of a cube's leaves whether to publish it.

    From the finest cells up: where the rest of a cell is too small, the smallest of the cells within it that has a rest of its
    own is withheld; the two rests together are more than enough.

    Parameters
    ----------
    cube
        Raw numbers of reports.
    least
        How many reports anything that is told must be about.
    """
    totals: dict[Words, int] = {}
    above: dict[Words, Words | None] = {}
    for leaf, n in zip(cube.leaves, map(int, cube.reports), strict=True):
        last = None
        for words in cube.breakdown.ladder(leaf):
            totals[words] = totals.get(words, 0) + n
            above[words] = last
            last = words
    text = cube.breakdown.text
    published = {words: True for words in totals if totals[words] >= least}
    within: dict[Words, list[Words]] = {words: [] for words in published}
    rest = {words: totals[words] for words in published}
    for words in published:
        parent = above[words]
        if parent is not None:
            within[parent].append(words)
    # A cell comes after the one that it lies in.
    for words in reversed(published):
        inside = within[words]
        rest[words] -= sum(totals[part] for part in inside)
        while 0 < rest[words] < least:
            part = min(inside, key=lambda part: (not rest[part], totals[part], text(part)))
            published[part] = False
            inside.remove(part)
            inside += within[part]
            rest[words] += rest[part]
    return published
