"""Tallies without devices: drawn by the exact probabilities of cells and bits, so that 100,000 reports take milliseconds.

Each of three laws holds for some mechanisms, and is exact, joint over all cells:

* a report names a cell: with one probability a cell that supports the value, with a lower one any other. So some reports name a
  cell of the value's own, and the others any cell at all;
* a report has a row, and independent bits in it: two binomials for each bit;
* `subset`: the bits of a report depend on each other. The values are passed in order. Of the reports with r picks left among m
  values, Bin(., r / m) name this one. Those whose own value it is are drawn hypergeometrically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable import mechanisms
from deniable.exact.hashing import LinearFamily, LineFamily
from deniable.mechanisms.dbitflip import DBitFlip
from deniable.mechanisms.general_hadamard import GeneralHadamard
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.projective import Projective
from deniable.mechanisms.rappor import Bloom
from deniable.mechanisms.sketch import Cms, FastLocalHash, Hcms
from deniable.mechanisms.subset import Subset
from deniable_aggregator import tally
from deniable_aggregator.decode import hash_lookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

KEYS = 1 << 64


class Simulation:
    """Draws the tally of people who hold given values.

    Parameters
    ----------
    mechanism
        Of a domain whose values are all estimated; or of all 64-bit keys, of which `values` are drawn anew for each tally.
    values
        How many values are estimated.
    """

    def __init__(self, mechanism: Any, values: int) -> None:
        self.mechanism, self.values, self.layout = mechanism, values, mechanism.layout
        bounds = mechanism.bounds()
        self.low, self.high = float(bounds.low), float(bounds.high)
        self.pool = mechanism.domain_size == KEYS
        if not self.pool and self.layout.kind == "index":
            self.cells = supported_cells(mechanism)
        elif not self.pool and not isinstance(mechanism, Subset):
            self.own = own_places(mechanism)

    def draw(self, held: Integers, rng: np.random.Generator) -> tuple[tally.Tally, list[int] | None]:
        """Draw a tally, and the candidates with which it is decoded; None for the whole domain."""
        people = np.repeat(np.arange(self.values), held)
        if self.pool:
            keys = rng.integers(0, KEYS, self.values, np.uint64, endpoint=False)
            rows = rng.integers(0, self.layout.rows, len(people))
            places = self._hashed(keys[people], rows)
            counted = self._signs(rows, *places, rng) if self.layout.kind == "index" else self._bits(rows, places, rng)
            return counted, keys.tolist()
        if isinstance(self.mechanism, Subset):
            return _subset(self.mechanism, held, rng), None
        if self.layout.kind == "index":
            return self._indices(held, rng), None
        rows = rng.integers(0, self.layout.rows, len(people))
        return self._bits(rows, [self.own[people, rows]], rng), None

    def _indices(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Let some reports name a cell that supports their value, and the others any cell."""
        rows, width, size = self.layout.rows, self.layout.width, self.cells.shape[1]
        kept = rng.binomial(held, (self.high - self.low) * size / rows)
        values = np.repeat(np.arange(self.values), kept)
        named = self.cells[values, rng.integers(0, size, len(values))]
        others = rng.integers(0, rows * width, held.sum() - len(values))
        counts = np.bincount(named, minlength=rows * width) + np.bincount(others, minlength=rows * width)
        return tally.from_cells(self.layout, counts)

    def _bits(self, rows: Integers, places: list[Integers], rng: np.random.Generator) -> tally.Tally:
        """Set each bit with the high probability where it is a report's own, else with the low one."""
        width, reports = self.layout.width, np.bincount(rows, minlength=self.layout.rows)
        own = np.zeros(self.layout.rows * width, np.int64)
        for number, place in enumerate(places):
            first = np.logical_and.reduce([place != other for other in places[:number]] + [place >= 0])
            own += np.bincount((rows * width + place)[first], minlength=len(own))
        own = own.reshape(-1, width)
        counts = rng.binomial(own, self.high) + rng.binomial(reports[:, None] - own, self.low)
        return tally.Tally(self.layout, counts, reports)

    def _hashed(self, keys: NDArray[np.uint64], rows: Integers) -> list[Integers]:
        """Hash the keys of all reports with the functions of their rows."""
        family, half = self.mechanism.family, np.uint64(32)
        hashes = getattr(self.mechanism, "hashes", 1)
        found = []
        for number in range(hashes):
            a, b, c = hash_lookup.multipliers(family)[rows * hashes + number].T
            high = (a * (keys >> half) + b * (keys & np.uint64(0xFFFFFFFF)) + c) >> half
            found.append((high * np.uint64(family.width) >> half).astype(np.int64))
        return found

    def _signs(self, rows: Integers, places: Integers, rng: np.random.Generator) -> tally.Tally:
        """Draw the reports of a pool that name a cell of a row."""
        mechanism, width = self.mechanism, self.layout.width
        if isinstance(mechanism, Hcms):
            coefficients = rng.integers(0, width // 2, len(rows))
            flips = rng.random(len(rows)) >= float(mechanism.p)
            cells = 2 * coefficients + (parity(coefficients & places) ^ flips)
        else:
            true = rng.random(len(rows)) < self.high - self.low
            cells = np.where(true, places, rng.integers(0, width, len(rows)))
        return tally.from_cells(self.layout, np.bincount(rows * width + cells, minlength=self.layout.rows * width))


def parity(numbers: Integers) -> Integers:
    """Return the parity of each number's bits."""
    return (np.bitwise_count(numbers) & 1).astype(np.int64)


def places(mechanism: Any) -> Integers:
    """Hash each value with each function of a complete family; (values, rows)."""
    family, values = mechanism.family, np.arange(mechanism.domain_size)
    if isinstance(family, LinearFamily):
        g, rows = family.range_size, np.arange(family.rows)
        return sum(np.outer(values // g**i % g, rows // g**i % g) for i in range(family.digits)) % g  # type: ignore[return-value]
    assert isinstance(family, LineFamily)
    y, x = np.divmod(values, family.width)
    products = np.array([[family.hash(row, int(each) * family.width) for row in range(family.rows)] for each in range(y[-1] + 1)])
    hashed = products[y] ^ x[:, None]
    hashed[:, family.width] = y
    return hashed


def supported_cells(mechanism: Any) -> Integers:
    """List the cells that support each value; (values, cells)."""
    rows, width = mechanism.layout.rows, mechanism.layout.width
    values, columns = np.arange(mechanism.domain_size)[:, None], np.arange(width)
    if isinstance(mechanism, (LocalHash, FastLocalHash)):
        return places(mechanism) + np.arange(rows) * width
    if isinstance(mechanism, Hcms):
        coefficients = np.arange(width // 2)
        signs = 2 * coefficients + parity(coefficients & places(mechanism)[:, :, None])
        return (signs + np.arange(rows)[:, None] * width).reshape(len(values), -1)
    if isinstance(mechanism, Hadamard):
        supports = parity(values + 1 & columns) == 0
    elif isinstance(mechanism, GeneralHadamard):
        blocks, own = mechanism.slots(values)
        supports = (blocks == columns // mechanism.size) & (parity(own & columns % mechanism.size) == 0)
    elif isinstance(mechanism, Projective):
        supports = _hyperplanes(mechanism)
    else:
        supports = values == columns
    return np.nonzero(supports)[1].reshape(len(values), -1)


def _hyperplanes(mechanism: Projective) -> NDArray[np.bool_]:
    """Return which points lie on each value's hyperplane; (values, points)."""
    q, t = mechanism.field.order, mechanism.dimension
    vectors = np.array([mechanism._vector(point) for point in range(mechanism.layout.width)])
    table = np.array([[mechanism.field.dot([a], [b]) for b in range(q)] for a in range(q)])
    digits = [vectors // q**i % q for i in range(t)]
    total = np.zeros((mechanism.domain_size, len(vectors)), np.int64)
    for i in range(t):
        product = table[digits[t - 1 - i][: mechanism.domain_size, None], digits[i]]
        total = (total + product) % q if q & 1 else total ^ product
    return total == 0


def own_places(mechanism: Any) -> Integers:
    """Return the bit of each value in each row, or -1 where it has none; (values, rows)."""
    values = np.arange(mechanism.domain_size)[:, None]
    if isinstance(mechanism, Cms):
        return places(mechanism)
    if isinstance(mechanism, DBitFlip):
        first = np.array([mechanism.first(row) for row in range(mechanism.layout.rows)])
        place = (values - first) % mechanism.domain_size
        return np.where(place < mechanism.buckets, place, -1)
    assert mechanism.layout.rows == 1
    assert not isinstance(mechanism, Bloom) or mechanism.basic
    return values


def _subset(mechanism: Subset, held: Integers, rng: np.random.Generator) -> tally.Tally:
    d, size, n = mechanism.domain_size, mechanism.size, int(held.sum())
    naming = rng.binomial(held, float(mechanism.p))  # reports that name their own value
    leaving = [held - naming, naming]
    # Reports by the picks left among the others: those whose own value is still to come, by whether they name it; and the rest.
    ahead = np.zeros((2, size + 1), np.int64)
    ahead[0, size], ahead[1, size - 1] = leaving[0].sum(), leaving[1].sum()
    behind, picks, counts = np.zeros(size + 1, np.int64), np.arange(size + 1), naming.copy()
    for value in range(d):
        at = np.flatnonzero(ahead.any(axis=0) | (behind > 0))
        near = slice(at[0], at[-1] + 1)  # picks left are spread over a few numbers
        left = picks[near]
        moved = np.zeros(len(left), np.int64)
        for kind in (0, 1):
            if leaving[kind][value]:
                gone = rng.multivariate_hypergeometric(ahead[kind, near], leaving[kind][value], method="marginals")
                ahead[kind, near] -= gone
                moved += gone
        groups = [(behind, d - value)] + [(ahead[kind], d - value - 1) for kind in (0, 1)]
        for group, values in groups:
            if values and group[near].any():
                named = rng.binomial(group[near], np.minimum(left / values, 1.0))
                counts[value] += named.sum()
                group[near] -= named
                group[near.start - 1 if near.start else 0 : near.stop - 1] += named if near.start else named[1:]
        behind[near] += moved
    return tally.Tally(mechanism.layout, counts[None, :], np.array([n]))


def make(name: str, d: int, epsilon: float) -> Simulation:
    """Make the simulation of a mechanism by name; with `-pool`, of its random functions over all 64-bit keys."""
    base, pool, _ = name.partition("-pool")
    options = {} if base == "coin" else {"epsilon": epsilon}
    return Simulation(mechanisms.make(base, domain_size=KEYS if pool else d, **options), d)
