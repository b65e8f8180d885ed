"""Tallies without devices: drawn by the exact probabilities of cells and bits, in a time that does not grow with the people.

Each of three laws holds for some mechanisms, and is exact, joint over all cells:

* a report names a cell: with one probability a cell that supports the value, with a lower one any other. So some reports name a
  cell of the value's own, and the others any cell at all. `window` has this law for points, to which numbers are rounded before;
* a report has a row, and independent bits in it: two binomials for each bit;
* `subset`: the bits of a report depend on each other. The values are passed in order. Of the reports with r picks left among m
  values, Bin(., r / m) name this one. Those whose own value it is are drawn hypergeometrically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.errors import ParameterError
from deniable.exact.hashing import LinearFamily, LineFamily, PoolFamily
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.dbitflip import DBitFlip
from deniable.mechanisms.general_hadamard import GeneralHadamard
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.projective import Projective
from deniable.mechanisms.rappor import Bloom
from deniable.mechanisms.sampled_option import SampledOption, SampledPair
from deniable.mechanisms.sketch import Cms, Hcms
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.window import Window
from deniable_aggregator import decode, tally
from deniable_aggregator.decode import hash_lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

    Integers = NDArray[np.int64]

_MOST = 500_000_000
"""People drawn at once: the hypergeometric draws of numpy take fewer than 10^9. The tallies of more are added up."""


class Simulation:
    """Draws the tally of people who hold given values, each of whom sends one report.

    Raises
    ------
    ParameterError
        If the mechanism is for sets, or searches for values.
    """

    def __init__(
        self,
        mechanism: Mechanism,  # what the devices run
        values: Sequence[int] | None = None,  # the values that people hold, each in [0, domain_size); None for the whole domain
    ) -> None:
        if not isinstance(mechanism, FrequencyOracle | Window) or mechanism.searches:
            raise ParameterError("tallies are simulated of people who hold one of some given values", mechanism.name)
        self.mechanism: Any = mechanism
        self.layout = mechanism.layout
        self.values = np.arange(mechanism.domain_size) if values is None else np.array(values, object)
        bounds = mechanism.bounds()
        self.low, self.high = float(bounds.low), float(bounds.high)
        family = getattr(mechanism, "family", None)
        if isinstance(mechanism, Window):
            self._table = np.arange(mechanism.points)[:, None] + np.arange(mechanism.length)
        elif isinstance(mechanism, Bloom) and not mechanism.basic:
            chosen = [int(value) for value in self.values]
            self._design = decode.bloom_design(mechanism, chosen).tocsc()
        elif isinstance(family, PoolFamily):
            self._keys = hash_lookup.keys([int(value) for value in self.values], mechanism.domain_size)
        elif family is not None:
            self._places = _places(mechanism)[self.values.astype(np.int64)]
        elif self.layout.kind == "index":
            self._table = _supported_cells(mechanism)[self.values.astype(np.int64)]

    def draw(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Draw a tally of so many people for each value."""
        if held.sum() > _MOST:
            half = held // 2
            return tally.merge(self.draw(half, rng), self.draw(held - half, rng))
        if isinstance(self.mechanism, Subset):
            return _subset(self.mechanism, held, rng)
        if isinstance(self.mechanism, Window):
            held = self._rounded(held, rng)
        return self._cells(held, rng) if self.layout.kind == "index" else self._bits(held, rng)

    def cells(self, number: int, picks: Integers) -> Integers:
        """Return some of the cells that support the value of this number, each picked by its own number."""
        width = self.layout.width
        if isinstance(self.mechanism, Hcms):
            rows, coefficients = np.divmod(picks, width // 2)
            signs = _parity(coefficients & self._place(number, rows))
            return np.asarray(rows * width + 2 * coefficients + signs, np.int64)
        if hasattr(self, "_table"):
            return np.asarray(self._table[number, picks], np.int64)
        return picks * width + self._place(number, picks)

    @property
    def own_cells(self) -> int:
        """How many cells support a value."""
        if isinstance(self.mechanism, Hcms):
            return self.layout.rows * self.layout.width // 2
        return int(self._table.shape[1]) if hasattr(self, "_table") else self.layout.rows

    def bits(self, number: int) -> tuple[Integers, Integers]:
        """Return the rows and the places of all bits that stand for the value of this number."""
        rows = np.arange(self.layout.rows)
        if hasattr(self, "_design"):
            start, end = self._design.indptr[number : number + 2]
            own, places = np.divmod(self._design.indices[start:end].astype(np.int64), self.layout.width)
            return own, places
        if isinstance(self.mechanism, DBitFlip):
            first = np.array([self.mechanism.first(row) for row in range(len(rows))])
            places = (int(self.values[number]) - first) % self.mechanism.domain_size
            return rows[places < self.mechanism.buckets], places[places < self.mechanism.buckets]
        if isinstance(self.mechanism, Cms):
            return rows, self._place(number, rows)
        return rows, np.array([int(self.values[number])])

    def _rounded(self, held: Integers, rng: np.random.Generator) -> Integers:
        """Round numbers to points at random; return the people at each point."""
        steps, positions = self.mechanism.points - 1, self.mechanism.domain_size - 1
        points, parts = np.divmod(self.values.astype(np.int64) * steps, positions)
        upwards = rng.binomial(held, parts / positions)
        people = np.zeros(steps + 2, np.int64)  # one more: nobody at the greatest point is rounded upwards
        np.add.at(people, points, held - upwards)
        np.add.at(people, points + 1, upwards)
        return people[:-1]

    def _cells(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Let some reports name a cell that supports their value, and the others any cell."""
        size, every = self.own_cells, self.layout.rows * self.layout.width
        kept = rng.binomial(held, min((self.high - self.low) * size / self.layout.rows, 1.0))
        counts = _spread(int(held.sum() - kept.sum()), every, rng)
        for number in np.flatnonzero(kept).tolist():
            if kept[number] < size:
                np.add.at(counts, self.cells(number, rng.integers(0, size, kept[number])), 1)
            else:
                counts[self.cells(number, np.arange(size))] += _spread(int(kept[number]), size, rng)
        return tally.from_cells(self.layout, counts)

    def _bits(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Set each bit with the high probability where it is a report's own, else with the low one."""
        reports = np.zeros(self.layout.rows, np.int64)
        own = np.zeros((self.layout.rows, self.layout.width), np.int64)
        for number in np.flatnonzero(held).tolist():
            people = _spread(int(held[number]), self.layout.rows, rng)
            rows, places = self.bits(number)
            own[rows, places] += people[rows]  # the bits of one value differ
            reports += people
        counts = rng.binomial(own, self.high) + rng.binomial(reports[:, None] - own, self.low)
        return tally.Tally(self.layout, counts, reports)

    def _place(self, number: int, rows: Integers) -> Integers:
        """Hash the value of this number with the functions of some rows."""
        if not hasattr(self, "_keys"):
            return np.asarray(self._places[number, rows], np.int64)
        return np.asarray(hash_lookup.hashes(self.mechanism.family, rows, self._keys[number : number + 1]), np.int64)


def draw_sets(
    mechanism: Mechanism,  # `SampledOption` or `SampledPair`
    n: int,  # people, each of whom sends one report
    shares: NDArray[np.float64],  # (options,), the share of people who choose each option
    rng: np.random.Generator,  # where chance comes from
) -> tally.Tally:
    """Draw the tally of n people from a population in which some share chooses each option, independently of the others.

    Notes
    -----
    A report is about the options of one row, drawn at random. So what people choose is drawn of these alone.
    """
    assert isinstance(mechanism, SampledOption | SampledPair)  # noqa: S101 - no other mechanism is for sets
    layout, chances = mechanism.layout, np.ones((mechanism.layout.rows, 1))
    for share in np.asarray(shares)[np.array(mechanism.groups)].T:  # bit k of an index is the row's option k
        chances = np.hstack([chances * (1 - share[:, None]), chances * share[:, None]])
    held = rng.multinomial(_spread(n, layout.rows, rng), chances)
    named = rng.binomial(held, float(mechanism.keep - mechanism.other))
    named += rng.multinomial((held - named).sum(axis=1), np.full(layout.width, 1 / layout.width))
    return tally.from_cells(layout, named.ravel())


def _spread(people: int, places: int, rng: np.random.Generator) -> Integers:
    """Spread people over places, all alike."""
    if people < places:
        return np.bincount(rng.integers(0, places, people), minlength=places)
    return rng.multinomial(people, np.full(places, 1 / places))


def _parity(numbers: Any) -> Integers:
    """Return the parity of each number's bits."""
    return np.asarray(np.bitwise_count(numbers) & 1, np.int64)


def _places(mechanism: Any) -> Integers:
    """Hash each value with each function of a complete family; (values, rows)."""
    family, values = mechanism.family, np.arange(mechanism.domain_size)
    if isinstance(family, LinearFamily):
        g, rows = family.range_size, np.arange(family.rows)
        digits = (np.outer(values // g**i % g, rows // g**i % g) for i in range(family.digits))
        return np.asarray(sum(digits) % g, np.int64)
    assert isinstance(family, LineFamily)  # noqa: S101 - complete families are of two kinds
    y, x = np.divmod(values, family.width)
    products = np.array([[family.hash(row, int(each) * family.width) for row in range(family.rows)] for each in range(y[-1] + 1)])
    hashed: Integers = np.bitwise_xor(products[y], x[:, None])
    hashed[:, family.width] = y
    return hashed


def _supported_cells(mechanism: Any) -> Integers:
    """List the cells that support each value, of mechanisms without hash functions; (values, cells)."""
    values, columns = np.arange(mechanism.domain_size)[:, None], np.arange(mechanism.layout.width)
    supports: NDArray[np.bool_]
    if isinstance(mechanism, Hadamard):
        supports = _parity(values + 1 & columns) == 0
    elif isinstance(mechanism, GeneralHadamard):
        blocks, own = mechanism.slots(values)
        supports = (blocks == columns // mechanism.size) & (_parity(own & columns % mechanism.size) == 0)
    elif isinstance(mechanism, Projective):
        supports = _hyperplanes(mechanism)
    else:
        supports = values == columns
    return np.nonzero(supports)[1].reshape(len(values), -1)


def _hyperplanes(mechanism: Projective) -> NDArray[np.bool_]:
    """Return which points lie on each value's hyperplane; (values, points)."""
    q, t = mechanism.field.order, mechanism.dimension
    vectors = np.array([mechanism.vector(point) for point in range(mechanism.layout.width)])
    table = np.array([[mechanism.field.dot([a], [b]) for b in range(q)] for a in range(q)])
    digits = [vectors // q**i % q for i in range(t)]
    total = np.zeros((mechanism.domain_size, len(vectors)), np.int64)
    for i in range(t):
        product = table[digits[t - 1 - i][: mechanism.domain_size, None], digits[i]]
        total = (total + product) % q if q & 1 else total ^ product
    return np.asarray(total == 0)


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
