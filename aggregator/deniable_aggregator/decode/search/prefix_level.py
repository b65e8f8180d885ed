"""One level of a prefix tree's tally: supports, and frequencies cleared of what hash functions confuse.

Two prefixes collide in some rows of a level, and it is known in which. So what a frequent prefix adds to the supports of others
can be solved for. After that, only prefixes that were not cleared confuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from deniable.forecast import search
from deniable_aggregator.decode import squared_mass
from deniable_aggregator.decode.pools import hash_lookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms.texts.prefix import PrefixTree
    from deniable_aggregator.tally import Tally

_PLAIN = 128  # most prefixes that are cleared


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Frequencies of some values, each cleared of what the others add to its support."""

    frequency: NDArray[np.float64]  # (values,), unbiased
    covariance: NDArray[np.float64]  # (values, values), in the population that the respondents were drawn from
    absent_stderr: NDArray[np.float64]  # (values,), standard error if nobody held the value
    tail: NDArray[np.float64]  # (values,), binomial chance of this much support if nobody held the value
    stderr: float  # standard error of a value that is not listed and that nobody holds; nan without reports
    part: PrefixLevel  # what they were estimated from


@dataclass(frozen=True, eq=False)
class PrefixLevel:
    """The rows of a tally that belong to one level, or the first few of them."""

    mechanism: PrefixTree  # what the devices ran
    first: int  # number of the mechanism's row that is the first one here
    counts: NDArray[np.int64]  # (rows, width)
    reports: NDArray[np.int64]  # (rows,)

    @cached_property
    def n(self) -> int:
        """Number of reports."""
        return int(self.reports.sum())

    @cached_property
    def squares(self) -> float:
        """Estimated sum of f^2 over all prefixes."""
        return squared_mass(self.counts, self.reports, float(self.mechanism.p), float(self.mechanism.other))

    @property
    def freedom(self) -> int:
        """Cells that are free to vary: the largest number of values that can be estimated together."""
        return len(self.reports) * (self.mechanism.width - 1)

    @property
    def gain(self) -> float:
        """Difference of the probabilities that a report supports the true value, and another one."""
        return float(self.mechanism.p - self.mechanism.q)

    def sample(self, share: int) -> PrefixLevel:
        """Take one in `share` rows, and at least one."""
        rows = max(len(self.reports) // share, 1)
        return PrefixLevel(self.mechanism, self.first, self.counts[:rows], self.reports[:rows])

    def stderr(self, squares: float) -> float:
        """Compute the standard error of a prefix that nobody has, if the sum of f^2 of prefixes not cleared is `squares`."""
        return search.absent_stderr(self.mechanism, self.n, min(max(squares, 0.0), 1.0) / self.freedom)

    def noise(self, chance: float, stderr: float) -> float:
        """Compute the frequency that the estimate of a prefix that nobody has exceeds with probability `chance`."""
        return search.noise(chance, stderr, self.n, self.gain)

    def lookup(self, keys: NDArray[np.uint64], table: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Count the reports that support each key, by default in the tally itself."""
        return hash_lookup.lookup(self.mechanism.family, self.counts if table is None else table, keys, self.first)

    def cleared(self, keys: NDArray[np.uint64], frequency: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Subtract from the counts what prefixes add, (rows, width); and return an absent prefix's standard error."""
        added = np.zeros(self.counts.shape)
        rows = np.arange(len(self.reports))[:, None]
        np.add.at(added, (rows, self._hashes(keys)), np.broadcast_to(frequency, (len(rows), len(keys))))
        added -= frequency.sum() / self.mechanism.width
        added *= self._odds * self.reports[:, None]
        return self.counts - added, self.stderr(self.squares - float(np.square(frequency).sum()))

    def closer(
        self,
        keys: NDArray[np.uint64],  # of the prefixes
        chance: float,  # A prefix is significant if noise exceeds it with this probability only. Clearing more would fit noise.
    ) -> tuple[NDArray[np.float64], float]:
        """Estimate frequencies, (keys,), cleared of what significant prefixes add; and an absent one's standard error."""
        excess = self.lookup(keys) / self.n - float(self.mechanism.q)
        frequency, stderr = excess / self.gain, self.stderr(self.squares)
        hashes = self._hashes(keys)
        for _ in range(2):  # clearing the first ones makes more significant
            chosen = np.argsort(-frequency, kind="stable")[: min(self.freedom // 4, _PLAIN)]
            chosen = chosen[frequency[chosen] > self.noise(chance, stderr)]
            if not len(chosen):
                break
            added = self._added(hashes, chosen)
            solved = np.linalg.pinv(added[:, chosen], hermitian=True) @ excess[chosen]  # equal prefixes share
            frequency = (excess - solved @ added) / self.gain
            frequency[chosen] += solved
            stderr = self.stderr(self.squares - float(np.square(solved).sum()))
        return frequency, stderr

    def joint(self, keys: NDArray[np.uint64]) -> Joint:
        """Estimate the frequencies of values jointly, with their errors."""
        if not self.n:
            return Joint(np.zeros(0), np.zeros((0, 0)), np.zeros(0), np.zeros(0), float("nan"), self)
        hashes, support, everything = self._hashes(keys), self.lookup(keys), np.arange(len(keys))
        share = support / self.n
        inverse = np.linalg.pinv(self._added(hashes, everything), hermitian=True)
        frequency = inverse @ (share - float(self.mechanism.q))
        least, most = float(self.mechanism.other), float(self.mechanism.p)  # bounds of any value's share of support
        absent = np.clip(share - self.gain * frequency, least, most)
        # Reports are drawn independently, and each supports some of the values: this is the covariance of their shares.
        own = self.counts[np.arange(len(hashes))[:, None], hashes]
        both = np.array([(own * (hashes == hashes[:, one, None])).sum(axis=0) for one in everything]).reshape(inverse.shape)
        sampling = both / self.n - np.outer(share, share)
        rate = np.clip(np.maximum(share, absent), least, most)
        np.fill_diagonal(sampling, rate * (1 - rate))
        covariance = inverse @ (sampling / self.n) @ inverse.T
        spread = self.n * np.diag(covariance) / np.diag(sampling)
        squares = self.squares - float((np.square(frequency) - np.diag(covariance)).sum())
        confusion = min(max(squares, 0.0), 1.0) / self.freedom
        np.fill_diagonal(covariance, np.diag(covariance) + confusion)
        return Joint(
            frequency,
            covariance,
            np.sqrt(spread * absent * (1 - absent) / self.n + confusion),
            np.where(support > 0, betainc(np.maximum(support, 1), self.n - support + 1.0, absent), 1.0),
            self.stderr(squares),
            self,
        )

    @property
    def _odds(self) -> float:
        return float(self.mechanism.p - self.mechanism.other)

    def _hashes(self, keys: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Hash keys with every function; (rows, keys)."""
        rows = np.arange(self.first, self.first + len(self.reports))
        return hash_lookup.hashes(self.mechanism.family, rows[:, None], keys)

    def _added(self, hashes: NDArray[np.intp], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute what each chosen prefix adds to the share of support of each key; (chosen, keys)."""
        reports = self.reports.astype(np.float64)  # sums are exact, and twice as fast as of whole numbers
        collide = [reports @ (hashes == hashes[:, one, None]) / self.n for one in chosen]
        shape = len(chosen), hashes.shape[1]
        # `(p - other) (c - 1 / width)`, where c is the share of reports in whose rows the two collide.
        return self._odds * (np.array(collide, np.float64).reshape(shape) - 1 / self.mechanism.width)


def level_of(mechanism: PrefixTree, tally: Tally, level: int) -> PrefixLevel:
    """Return the part of a tally that belongs to a level."""
    numbers = mechanism.parts[level]
    rows = slice(numbers[0], numbers[-1] + 1)
    return PrefixLevel(mechanism, rows.start, tally.counts[rows], tally.reports[rows])
