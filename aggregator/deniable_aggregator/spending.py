"""How much was spent on one report at most, by questions about cells.

A question about a cell costs every report in it the same. Questions that have a report in common add up (sequential
composition); those about disjoint cells do not (parallel composition): nobody's report is in both. So what counts is the report,
anywhere in the cell that is asked about, on which the most was spent. No cell that was asked about need name it: cells that
overlap have reports in common.

A report is in one leaf, a value of every segment. The values of a segment differ only by which of the words asked about they lie
in, so of those that lie in the same ones a single one is looked at, and each combination of these, in one array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.breakdown import Breakdown, Words

__all__ = ["Spend", "affordable", "most"]


class Spend(NamedTuple):
    """What a question has cost.

    Parameters
    ----------
    cell
        Every report in it.
    moment
        Unix time in seconds.
    cost
        Millionths of a nat.
    """

    cell: str
    moment: int
    cost: int


def most(breakdown: Breakdown | None, spends: Sequence[Spend], cell: str, since: int) -> int:
    """Return the most that was spent on any one report of a cell.

    Parameters
    ----------
    breakdown
        What the cells are of; None where that is not known for sure: then each question may have touched any report.
    spends
        Of questions about one period.
    cell
        Where the report may be.
    since
        Unix time up to which what was spent is forgotten.

    Returns
    -------
    int
        Millionths of a nat.
    """
    counted = [each for each in spends if each.moment > since]
    if breakdown is None:
        return sum(each.cost for each in counted)
    costs = dict[str, int]()
    for each in counted:
        costs[each.cell] = costs.get(each.cell, 0) + each.cost
    boxes = {breakdown.words(asked): cost for asked, cost in costs.items()}
    kinds = list(_kinds(breakdown, breakdown.words(cell), boxes))
    depth = np.zeros([len(each) for each in kinds], np.int64)
    for words, cost in boxes.items():
        inside = [[word in kind for kind in each] for word, each in zip(words, kinds, strict=True)]
        depth[np.ix_(*(np.array(each, bool) for each in inside))] += cost
    return int(depth.max())


def _kinds(breakdown: Breakdown, cell: Words, boxes: dict[Words, int]) -> Iterator[list[frozenset[str | None]]]:
    """Go through the segments: the kinds of values in the cell, by the words asked about that they lie in."""
    for place, (name, values) in enumerate(breakdown.values.items()):
        asked = {words[place] for words in boxes}
        chains = ({None, *breakdown.chain(name, value)} for value in values)
        yield list({frozenset(asked & chain) for chain in chains if cell[place] in chain})


def affordable(
    breakdown: Breakdown | None, spends: Sequence[Spend], cell: str, most_before: int, *, now: int, window: int
) -> int | None:
    """Return from when on no report of a cell has had more than so much within the window before.

    Parameters
    ----------
    breakdown, spends, cell
        As for `most`.
    most_before
        Millionths of a nat.
    now
        Unix time in seconds.
    window
        Seconds.

    Returns
    -------
    int or None
        Unix time, not before now; None if it is below 0.
    """
    if most_before < 0:
        return None
    # What is forgotten never comes back: so search by halves.
    moments = [now, *sorted({each.moment + window for each in spends if each.moment + window > now})]
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        if most(breakdown, spends, cell, moments[middle] - window) <= most_before:
            high = middle
        else:
            low = middle + 1
    return moments[low]
