"""Thinning: leaving some reports out of a tally, drawn at random.

A random part of exchangeable reports is as good a sample as the whole, so a thinned tally is decoded like any other; and given
how many reports it has, it tells nothing more of how many there were. So a number of reports is published by publishing a tally
that was thinned by a random number of them: nothing that is computed from it can tell the true number better than its own.

Where reports are bits, a tally does not say which bits were set together. There each cell is thinned on its own, by as many
reports: each has exactly the law that it would have, and what is decoded cell by cell is none the wiser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.source import OS
from deniable_aggregator.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.source import Source

__all__ = ["thin"]


def thin(tally: Tally, left_out: int, source: Source = OS) -> Tally:
    """Leave reports out of a tally, each set of that many with the same probability.

    Parameters
    ----------
    tally
        It stays as it is.
    left_out
        Reports to leave out, in [0, n].
    source
        Where chance comes from.

    Raises
    ------
    ParameterError
        If there are not so many.
    """
    if not 0 <= left_out <= tally.n:
        raise ParameterError("a tally is thinned by at most the reports that it has", left_out)
    counts, reports = tally.counts.copy(), tally.reports.copy()
    if tally.layout.kind == "index":
        _withdraw(counts.reshape(-1), left_out, source)
        return Tally(tally.layout, counts, counts.sum(axis=1))
    before = reports.copy()
    _withdraw(reports, left_out, source)
    for row in np.flatnonzero(before - reports):
        _lower(counts[row], int(before[row]), int(before[row] - reports[row]), source)
    return Tally(tally.layout, counts, reports)


def _withdraw(cells: NDArray[np.int64], number: int, source: Source) -> None:
    """Take things out of their cells, one after another, each that is left with the same probability."""
    for _ in range(number):
        ends = np.cumsum(cells)
        cells[np.searchsorted(ends, source.below(int(ends[-1])), side="right")] -= 1


def _lower(cells: NDArray[np.int64], reports: int, number: int, source: Source) -> None:
    """Take reports out of cells that each count those with a property; in every cell, independently, as if at random."""
    for left in range(reports, reports - number, -1):
        cells -= np.array(source.indices(left, len(cells)), np.int64) < cells
