"""Tallies of hashed values, or prefixes of them: a row for each function, of a complete family or of a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.errors import ParameterError
from deniable.exact.hashing import LinearFamily, LineFamily, PoolFamily
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.texts.prefix import PrefixTree
from deniable.mechanisms.texts.sketch import Sketch
from deniable_aggregator.decode.families.family import Counted, Shares
from deniable_aggregator.decode.families.law import BitLaw, CellLaw, Law, parity
from deniable_aggregator.decode.families.pairs import PairSupport, affine, lines
from deniable_aggregator.decode.families.transforms import walsh_hadamard
from deniable_aggregator.decode.pools import hash_lookup, pool
from deniable_aggregator.decode.pools.pieces import pieces
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.mechanisms.listed.local_hash import LocalHash
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

    Integers = NDArray[np.int64]


class Hashed(Counted[FrequencyOracle]):
    """Each value has one place in each row. Families are linear, of lines, or pools."""

    mechanism: LocalHash | Sketch

    @property
    def mixed(self) -> bool:
        """A complete family counts exactly. A pool confuses values."""
        return not isinstance(self.mechanism.family, PoolFamily)

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:
        """Add up the places of each value. Of what a pool confuses, some is known, and the rest is part of the error."""
        if self.mixed:
            return super().independent_estimate(tally, values)
        chosen = range(self.mechanism.domain_size) if values is None else values
        if not tally.n:
            return Supported(self.mechanism, 0, np.zeros(len(chosen), np.int64))
        assert isinstance(self.mechanism, Sketch)  # noqa: S101 - only sketches have pools
        return pool.estimate(pool.PoolCells(self.mechanism, self.places(tally), tally.reports), chosen)

    def places(self, tally: Tally) -> NDArray[np.int64]:
        """Return the reports that support each place of each row."""
        return tally.counts

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Sum, for each value, its place in each row."""
        family = self.mechanism.family
        if isinstance(family, LinearFamily):
            return _linear_sums(family, self.places(tally), self.mechanism.domain_size)
        if isinstance(family, LineFamily):
            return _line_sums(family, self.places(tally), self.mechanism.domain_size)
        return super().supports(tally)

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for complete families."""
        family, size = self.mechanism.family, self.mechanism.domain_size
        if isinstance(family, LinearFamily):
            # A function that gives two values one cell gives this cell to their whole line.
            elements = np.arange(family.width)
            through = lines(np.outer(elements, elements) % family.width, affine(size, family.width, family.digits))
            return PairSupport(p, q, held=p * q, aligned=p * q, unrelated=q * q, lines=through)
        if not isinstance(family, LineFamily):
            raise ParameterError(
                "mechanism: choose one with a complete family of hash functions, of which pairs of values are counted",
                self.mechanism.name,
            )
        assert isinstance(self.mechanism, Sketch)  # noqa: S101 - only sketches have lines
        # Each two values share a cell in one of the rows. In the others their cells differ, and are supported independently.
        order = range(family.width)
        products = np.array([[family.hash(a, b * family.width) for b in order] for a in order])
        other, one = float(self.mechanism.other), 1 / family.rows
        return PairSupport(
            p,
            q,
            held=one * p + (1 - one) * p * other,
            aligned=one * p + (1 - one) * other**2,
            unrelated=one * other + 2 * one * p * other + (1 - 3 * one) * other**2,
            lines=lines(products, affine(size, family.width, 2)),
        )

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of hashed cells."""
        return _Cells(self.mechanism, values)


class HashedBits(Hashed):
    """A report has a bit for each place of its row."""

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of hashed bits."""
        return _Bits(self.mechanism, values)


class HashedSigns(Hashed):
    """A report has one sign of the Hadamard transform of its row."""

    def places(self, tally: Tally) -> NDArray[np.int64]:
        """Return the supports: place j has those whose sign of the drawn coefficient is its own."""
        # They are half of (reports + transform of the difference).
        rows, width = self.mechanism.family.rows, self.mechanism.family.width
        signs, places = tally.counts.reshape(rows, width, 2), np.empty((rows, width), np.int64)
        for piece in pieces(rows, width):
            transform = walsh_hadamard(signs[piece, :, 0] - signs[piece, :, 1])
            places[piece] = (tally.reports[piece, None] + transform) // 2
        return places

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of signs."""
        return _Signs(self.mechanism, values)


class Levels(Shares[PrefixTree]):
    """Some rows are about each level."""

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:  # noqa: ARG002
        """Refuse: the reports are about prefixes."""
        raise ParameterError(
            "mechanism: use deniable_aggregator.decode.search.discovery for one that searches for values", self.mechanism.name
        )

    def pairs(self, p: float, q: float) -> PairSupport:  # noqa: ARG002
        """Refuse: the functions are a pool."""
        raise ParameterError(
            "mechanism: choose one with a complete family of hash functions, of which pairs of values are counted",
            self.mechanism.name,
        )


class _Hashes:
    """The place of each value in each row."""

    def __init__(self, mechanism: Any, values: NDArray[Any]) -> None:
        self._family = mechanism.family
        if isinstance(self._family, PoolFamily):
            self._keys = hash_lookup.keys([int(value) for value in values], mechanism.domain_size)
        else:
            self._table = _complete(self._family, mechanism.domain_size)[values.astype(np.int64)]

    def place(self, number: int, rows: Integers) -> Integers:
        """Hash the value of this number with the functions of some rows."""
        if isinstance(self._family, PoolFamily):
            return np.asarray(hash_lookup.hashes(self._family, rows, self._keys[number : number + 1]), np.int64)
        return np.asarray(self._table[number, rows], np.int64)


class _Cells(CellLaw):
    def __init__(self, mechanism: Mechanism, values: Sequence[int] | None) -> None:
        super().__init__(mechanism, values)
        self._hashes = _Hashes(mechanism, self.values)

    @property
    def own_cells(self) -> int:
        """One in each row."""
        return self.layout.rows

    def cells(self, number: int, picks: Integers) -> Integers:
        """Return the value's place in some rows."""
        return picks * self.layout.width + self._hashes.place(number, picks)


class _Signs(_Cells):
    @property
    def own_cells(self) -> int:
        """One for each coefficient."""
        return self.layout.rows * self.layout.width // 2

    def cells(self, number: int, picks: Integers) -> Integers:
        """Return the value's sign of some coefficients."""
        rows, coefficients = np.divmod(picks, self.layout.width // 2)
        signs = parity(coefficients & self._hashes.place(number, rows))
        return np.asarray(rows * self.layout.width + 2 * coefficients + signs, np.int64)


class _Bits(BitLaw):
    def __init__(self, mechanism: Mechanism, values: Sequence[int] | None) -> None:
        super().__init__(mechanism, values)
        self._hashes = _Hashes(mechanism, self.values)

    def bits(self, number: int) -> tuple[Integers, Integers]:
        """Return one in each row."""
        rows = np.arange(self.layout.rows)
        return rows, self._hashes.place(number, rows)


def _complete(family: LinearFamily | LineFamily, domain_size: int) -> Integers:
    """Hash each value with each function of a complete family; (values, rows)."""
    values = np.arange(domain_size)
    if isinstance(family, LinearFamily):
        g, rows = family.range_size, np.arange(family.rows)
        digits = (np.outer(values // g**i % g, rows // g**i % g) for i in range(family.digits))
        return np.asarray(sum(digits) % g, np.int64)
    y, x = np.divmod(values, family.width)
    products = np.array([[family.hash(row, int(each) * family.width) for row in range(family.rows)] for each in range(y[-1] + 1)])
    hashed: Integers = np.bitwise_xor(products[y], x[:, None])
    hashed[:, family.width] = y
    return hashed


def _linear_sums(family: LinearFamily, counts: NDArray[np.int64], d: int) -> NDArray[np.int64]:
    """Sum, over all functions of a linear family, the cell that each value hashes to."""
    # Summing rows x domain look-ups would cost g^t d. The hash is linear, so one digit is folded at a time, from the tally T[a,
    # s] towards S[v] = sum over a of T[a, <a, v>]. This takes t rounds of g^(t+2) additions, for any domain.
    g = family.range_size
    folded = counts.reshape(-1, g * g)  # (values so far x hash functions left, digit of a x cell)
    digit, cell = np.arange(g)[:, None], np.arange(g)[None, :]
    values = 1
    for place in range(family.digits):
        last = place == family.digits - 1
        cells = cell[:, :1] if last else cell  # the last round needs only the cell that the whole hash names
        digits = -(-d // values) if last else g
        shifted = np.empty((digits, len(folded), cells.shape[1]), np.int64)
        for v in range(digits):
            shifted[v] = folded[:, digit * g + (cells + digit * v) % g].sum(axis=1)
        values *= digits
        folded = shifted.reshape(-1, 1 if last else g * g)
    return folded[:d, 0]


def _line_sums(family: LineFamily, cells: NDArray[np.int64], d: int) -> NDArray[np.int64]:
    """Sum, over all lines through each point, the cell of that line."""
    width = family.width
    ys = np.arange(-(-d // width))
    xs = np.arange(width)
    total = np.repeat(cells[width, ys], width)
    # Row a holds value (x, y) in cell x + a y. The multiples of a are laid out once, so this is one gather for each row.
    for row in range(width):
        products = np.fromiter((family.hash(row, int(y) * width) for y in ys), np.int64, len(ys))
        total += cells[row][xs[None, :] ^ products[:, None]].ravel()
    return total[:d]
