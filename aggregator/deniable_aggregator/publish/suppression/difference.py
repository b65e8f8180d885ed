"""The fewest reports that a cell reveals, together with other cells.

Let w be the cell's row and V the rows of known cells, over leaves with few reports. Somebody who knows them can compute w + v for
every v in the span of V. This sum reveals the leaves where it is not 0. The question is whether any w + v reveals fewer than
`least` reports.

A *circuit* is a set of leaves on which no v cancels w. Every w + v reveals a leaf of each circuit. So

* a *flow* through circuits that takes no more of a leaf than it has reports is a lower bound of the reports revealed.
  For a table of two segments, circuits are the paths through a graph, and the largest flow is the fewest reports;
* a set of leaves that meets every circuit contains the leaves of some w + v. The lightest such set is approximated by a linear
  program, to which circuits are added as needed. Its bound is a flow, checked in whole numbers. Its solution suggests leaves,
  which are checked in exact arithmetic;
* if neither decides, sets are tried one after the other, each with one more leaf of a circuit that the last one missed.

After a number of linear programs, tries or exchanges of a pivot the verdict stays open. Nearly all time goes into exchanges.

References
----------
L. R. Ford, D. R. Fulkerson (1956), Maximal flow through a network, Canadian Journal of Mathematics 8.
E. Moreno-Centeno, R. M. Karp (2013), The implicit hitting set approach, Operations Research 61(2).
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.publish.suppression.span import PRIME, clear

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BOUNDLESS = 1 << 40  # reports of a leaf that may be revealed
_FINE = 1 << 20  # parts of a report
_SLACK = 1e-6
_TRIES = 200  # sets of leaves that are tried


class Verdict(Enum):
    """Whether a cell reveals too few reports."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    OPEN = "open"
    """Not decided within the allowed effort."""


class _TooLongError(Exception):
    """All exchanges were used before the cell was decided."""


class Difference:
    """A cell to be checked against cells that are known."""

    def __init__(
        self,
        known: NDArray[np.int64],  # (rows, leaves): a basis of what is known, modulo the prime, in reduced echelon form
        pivots: NDArray[np.intp],  # the columns that are 1 in one of these rows each and 0 in the others
        cell: NDArray[np.int64],  # (leaves,): the cell's row, 0 at the pivots. Not 0 everywhere.
        reports: NDArray[np.int64],  # (leaves,): reports of each leaf, all below `least`
        least: int,  # fewest reports that a combination may reveal
    ) -> None:
        rows = np.vstack([known, cell])
        used = np.flatnonzero(rows.any(axis=0))
        rows, place = rows[:, used], np.zeros(rows.shape[1], np.intp)
        # Leaves whose columns are multiples of each other are in the same combinations, so they are merged.
        first = rows[(rows != 0).argmax(axis=0), np.arange(used.size)]
        inverses = {number: pow(number, -1, PRIME) for number in map(int, np.unique(first))}
        scaled = rows * np.array([inverses[int(number)] for number in first], np.int64) % PRIME
        self._rows, inverse = np.unique(scaled, axis=1, return_inverse=True)
        place[used] = inverse.reshape(-1)
        weights = np.bincount(place[used], reports[used], self._rows.shape[1]).astype(np.int64)
        self._basis = place[pivots]
        self._least = least
        self._weights = np.where(weights < least, weights, _BOUNDLESS)
        self._circuits: list[NDArray[np.intp]] = []
        # Linear programs that were solved, and pivots that were exchanged.
        self.rounds, self.exchanges, self._most_exchanges = 0, 0, 0

    def verdict(self, rounds: int, exchanges: int) -> Verdict:
        """Decide, with at most so many linear programs and exchanges."""
        self._most_exchanges = exchanges
        try:
            return self._decide(rounds)
        except _TooLongError:
            return Verdict.OPEN

    def _decide(self, rounds: int) -> Verdict:
        verdict = self._pack(self._weights.copy(), 1)
        while verdict is Verdict.OPEN and self.rounds < rounds:
            self.rounds += 1
            met = self._cover()
            if met is None:
                return Verdict.SAFE
            # Circuits of the leaves with the least cover, and combinations of the leaves with the most.
            known = len(self._circuits)
            room = np.where(self._weights < self._least, np.rint((1 - met) * _FINE), _BOUNDLESS).astype(np.int64)
            verdict = self._pack(room, 0)
            self._circuits[known:] = [circuit for circuit in self._circuits[known:] if met[circuit].sum() < 1 - _SLACK]
            if verdict is Verdict.OPEN and len(self._circuits) == known:
                return self._try_sets()
        return verdict

    def _try_sets(self) -> Verdict:
        """Try sets of leaves until one reveals too few reports, none is left, or too many were tried."""
        # For each leaf: revealed (0), undecided (1), or not revealed (2), because of its weight or because sets with it were
        # tried.
        left = [np.where(self._weights < self._least, 1, 2)]
        for _ in range(_TRIES):
            if not left:
                return Verdict.SAFE
            room = left.pop()
            self._exchange(room)
            revealed = np.flatnonzero(self._rows[-1])
            last = revealed[room[revealed].argmax()]
            if not room[last]:
                return Verdict.UNSAFE
            weight = int(self._weights[room == 0].sum())
            for leaf in (*self._basis[np.flatnonzero(self._rows[:-1, last])], last):
                if room[leaf] == 1 and weight + self._weights[leaf] < self._least:
                    more, room = room.copy(), room.copy()
                    more[leaf], room[leaf] = 0, 2
                    left.append(more)
        return Verdict.OPEN

    def _pack(self, room: NDArray[np.int64], worth: int) -> Verdict:
        """Collect circuits that use no more of a leaf than its room, those with the largest bottleneck first."""
        bound = 0
        while True:
            self._exchange(room)
            revealed = np.flatnonzero(self._rows[-1])
            if self._weights[revealed].sum() < self._least:
                return Verdict.UNSAFE
            last = revealed[room[revealed].argmax()]
            if not room[last]:
                return Verdict.OPEN
            circuit = np.append(self._basis[np.flatnonzero(self._rows[:-1, last])], last)
            self._circuits.append(circuit)
            flow = int(room[circuit].min())
            bound += worth * flow
            if bound >= self._least or flow >= _BOUNDLESS // 2:
                return Verdict.SAFE
            room[circuit] -= flow

    def _exchange(self, room: NDArray[np.int64]) -> None:
        """Eliminate in the order of room, until no exchange of a pivot gives more (the greedy basis of a matroid)."""
        while self._basis.size:
            offered = np.where(self._rows[:-1] != 0, room, -1).max(axis=1)
            gaining = np.flatnonzero(offered > room[self._basis])
            if not gaining.size:
                return
            for row in map(int, gaining):
                best = int(np.where(self._rows[row] != 0, room, -1).argmax())
                if room[best] > room[self._basis[row]]:
                    if self.exchanges == self._most_exchanges:
                        raise _TooLongError
                    self.exchanges += 1
                    clear(self._rows, row, best)
                    self._basis[row] = best

    def _cover(self) -> NDArray[np.float64] | None:
        """Cover the circuits with parts of leaves at the least cost; None if this is proved to be above `least` - 1 reports."""
        from scipy.optimize import linprog  # noqa: PLC0415 - slow to import, and most cubes do not need it
        from scipy.sparse import csr_array  # noqa: PLC0415

        free = np.flatnonzero(self._weights < self._least)
        meets = np.zeros((len(self._circuits), self._weights.size), np.int64)
        for row, circuit in zip(meets, self._circuits, strict=True):
            row[circuit] = 1
        meets, reports = meets[:, free], self._weights[free]
        solved = linprog(reports, csr_array(-meets), -np.ones(len(meets)), method="highs")
        met = np.zeros(self._weights.size)
        if solved.x is None:
            return met
        # The solver's bound is proved in whole numbers: by flows through circuits of leaves that are large enough.
        flows = np.floor(-solved.ineqlin.marginals * _FINE).clip(0).astype(np.int64)
        load = flows @ meets
        excess = max((Fraction(int(a), int(b) * _FINE) for a, b in zip(load, reports, strict=True)), default=Fraction(1))
        if Fraction(int(flows.sum()), _FINE) / max(excess, Fraction(1)) > self._least - 1:
            return None
        met[free] = solved.x.clip(0, 1)
        return met
