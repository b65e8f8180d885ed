"""Tallies of Bloom filters, which need a regression unless each value has a bit of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.mechanisms.listed.unary import members
from deniable.mechanisms.texts.rappor import Bloom
from deniable_aggregator.decode.bloom.bloom_estimate import Fitted
from deniable_aggregator.decode.families.family import Counted
from deniable_aggregator.decode.families.law import BitLaw, Law, OwnBits
from deniable_aggregator.decode.families.pairs import independent_bits
from deniable_aggregator.decode.pools import hash_lookup
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.decode.tables import likelihood
from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally

    Integers = NDArray[np.int64]


class Filters(Counted[Bloom]):
    """A report has the noisy bits of a filter."""

    @property
    def foreseen(self) -> bool:
        """The error of a regression depends on all answers."""
        return self.mechanism.basic

    def estimate(self, tally: Tally, values: Sequence[int] | None, repeats: float, *, permanent: bool) -> Estimate:
        """Let the regression know of permanent responses, where there is one."""
        if permanent and not self.mechanism.basic:
            return self._fitted(tally, values, repeats, permanent=True)
        return super().estimate(tally, values, repeats, permanent=permanent)

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:
        """Count directly if each value has a bit of its own; otherwise estimate by regression on the bits."""
        return super().independent_estimate(tally, values) if self.mechanism.basic else self._fitted(tally, values)

    def _fitted(self, tally: Tally, values: Sequence[int] | None, repeats: float = 0.0, *, permanent: bool = False) -> Estimate:
        """Estimate by regression; `repeats` are reports of one permanent response."""
        mechanism = self.mechanism
        chosen = range(mechanism.domain_size) if values is None else values
        if not tally.n:
            return Supported(mechanism, 0, np.zeros(len(chosen), np.int64))
        from deniable_aggregator.decode.bloom import bloom_regression  # noqa: PLC0415 - only this decoder needs these slow imports

        density = 1 - (1 - 1 / mechanism.bits) ** mechanism.hashes
        design = bloom_design(mechanism, chosen)
        p, q, flip = float(mechanism.other), float(mechanism.one), float(mechanism.flip_permanent)
        fit = bloom_regression.fit(design, tally.counts, tally.reports, p, q, density=density, repeats=repeats, flip=flip)
        return Fitted(tally.n, fit, repeats, permanent)

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return the columns, if each value has a bit of its own."""
        return tally.counts[0] if self.mechanism.basic else super().supports(tally)

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for independent bits."""
        return independent_bits(p, q)

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Compare the bits with the filter of each value."""
        size = self.mechanism.layout.row_size
        rows, bits = kernels.widen(table[:, :size]).astype(np.int64), table[:, size:]
        masks = likelihood.masks(self.mechanism, values.tolist())
        return likelihood.bit_likelihood(rows, bits, masks, p=self.mechanism.other, q=self.mechanism.one)

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of filters, or of single bits."""
        return OwnBits(self.mechanism, values) if self.mechanism.basic else _FilterLaw(self.mechanism, values)


class _FilterLaw(BitLaw):
    def __init__(self, mechanism: Bloom, values: Sequence[int] | None) -> None:
        super().__init__(mechanism, values)
        self._design = bloom_design(mechanism, [int(value) for value in self.values]).tocsc()

    def bits(self, number: int) -> tuple[Integers, Integers]:
        """Return those of the value's filter in every cohort."""
        start, end = self._design.indptr[number : number + 2]
        rows, places = np.divmod(self._design.indices[start:end].astype(np.int64), self.layout.width)
        return rows, places


def bloom_design(mechanism: Bloom, values: Sequence[int]) -> csr_array:
    """Return the bits of every value's filter in every cohort, (cohorts * bits, values)."""
    from scipy.sparse import coo_array  # noqa: PLC0415 - only this decoder pays for it

    rows, columns = (places.astype(np.int32) for places in _filters(mechanism, values))  # half the memory of wider ones
    ones = np.ones(len(rows))
    design = coo_array((ones, (rows, columns)), shape=(mechanism.cohorts * mechanism.bits, len(values))).tocsr()
    design.data[:] = 1  # two hashes of one value may name the same bit
    return design


def _filters(mechanism: Bloom, values: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    family = mechanism.family
    if family is None:
        cells = [
            (cohort * mechanism.bits + bit, column)
            for column, value in enumerate(values)
            for cohort in range(mechanism.cohorts)
            for bit in members(mechanism.filter(cohort, value))
        ]
        table = np.array(cells, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]
    keys = hash_lookup.keys(values, mechanism.domain_size)
    numbers = np.arange(family.rows)[:, None]
    rows = numbers // mechanism.hashes * mechanism.bits + hash_lookup.hashes(family, numbers, keys)
    return rows.ravel().astype(np.int64), np.tile(np.arange(len(values)), family.rows)
