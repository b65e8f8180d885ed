"""One level of a prefix tree's tally: supports, and frequencies cleared of what the hash functions confuse.

Two prefixes collide in some of a level's rows, and which ones is known. So what a frequent prefix adds to the supports of others
can be solved for, and only prefixes that are not accounted for still confuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, ndtri

from deniable_aggregator.decode import hash_lookup, squared_mass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms.prefix import PrefixTree
    from deniable_aggregator.tally import Tally

__all__ = ["Joint", "Part", "part_of"]

_PLAIN = 128  # prefixes at most that others are cleared of
_FINE = 256  # cleared counts are whole numbers of this part of a report


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Frequencies of some values, each cleared of what the others add to its support.

    Attributes
    ----------
    frequency : ndarray of float
        (values,), unbiased.
    covariance : ndarray of float
        (values, values), in the population that the respondents were drawn from.
    absent_stderr : ndarray of float
        (values,), standard error if nobody held the value.
    tail : ndarray of float
        (values,), binomial chance of so much support if nobody held the value.
    stderr : float
        Standard error of a value that is not listed and that nobody holds; nan without reports.
    part : Part
        What they were estimated from.
    """

    frequency: NDArray[np.float64]
    covariance: NDArray[np.float64]
    absent_stderr: NDArray[np.float64]
    tail: NDArray[np.float64]
    stderr: float
    part: Part


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a tally that belong to one level, or the first few of them.

    Parameters
    ----------
    mechanism
        What the devices ran.
    first
        Row of the mechanism that is the first one here.
    counts
        int64 array (rows, width).
    reports
        int64 array (rows,).
    """

    mechanism: PrefixTree
    first: int
    counts: NDArray[np.int64]
    reports: NDArray[np.int64]

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
        """Cells that are free to vary: so many values at most could be told apart at once."""
        return len(self.reports) * (self.mechanism.width - 1)

    @property
    def gain(self) -> float:
        """How much more likely a report supports the true value than another."""
        return float(self.mechanism.p - self.mechanism.q)

    def some(self, share: int) -> Part:
        """Take one of `share` rows, and one at least."""
        rows = max(len(self.reports) // share, 1)
        return Part(self.mechanism, self.first, self.counts[:rows], self.reports[:rows])

    def stderr(self, squares: float) -> float:
        """Compute the standard error of a prefix that nobody has, where those not accounted for have this sum of f^2."""
        q = float(self.mechanism.q)
        return float(np.sqrt(q * (1 - q) / self.n / self.gain**2 + min(max(squares, 0.0), 1.0) / self.freedom))

    def noise(self, chance: float, stderr: float) -> float:
        """Compute the frequency that the estimate of a prefix that nobody has exceeds by chance.

        The normal quantile, with the first term that minds the skewness of few supports.

        References
        ----------
        E. A. Cornish, R. A. Fisher: Moments and cumulants in the specification of distributions. Revue de l'Institut
        International de Statistique 5(4), 1938.
        """
        z = -float(ndtri(chance))
        return z * stderr + max(z * z - 1, 0.0) / (6 * self.n * self.gain)

    def lookup(self, keys: NDArray[np.uint64], table: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Count the reports that support each key, by default by the tally itself."""
        return hash_lookup.lookup(self.mechanism.family, self.counts if table is None else table, keys, self.first)

    def cleared(self, keys: NDArray[np.uint64], frequency: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
        """Take what prefixes add away from the counts.

        Returns
        -------
        table : ndarray of int64
            (rows, width), to be looked up for what has the most support.
        stderr : float
            Standard error that is left, of a prefix that nobody has.
        """
        added = np.zeros(self.counts.shape)
        rows = np.arange(len(self.reports))[:, None]
        np.add.at(added, (rows, self._hashes(keys)), np.broadcast_to(frequency, (len(rows), len(keys))))
        added -= frequency.sum() / self.mechanism.width
        added *= self._odds * self.reports[:, None]
        table = np.rint(_FINE * (self.counts - added)).astype(np.int64)
        return table, self.stderr(self.squares - float(np.square(frequency).sum()))

    def closer(self, keys: NDArray[np.uint64], chance: float) -> tuple[NDArray[np.float64], float]:
        """Estimate frequencies, cleared of what those add that are plainly there.

        Parameters
        ----------
        keys
            Of the prefixes.
        chance
            What noise exceeds with this probability is plainly there. To clear of more would be to fit noise.

        Returns
        -------
        frequency : ndarray of float
            (keys,).
        stderr : float
            Standard error that is left, of a prefix that nobody has.
        """
        excess = self.lookup(keys) / self.n - float(self.mechanism.q)
        frequency, stderr = excess / self.gain, self.stderr(self.squares)
        hashes = self._hashes(keys)
        for _ in range(2):  # when the first are accounted for, more are plain
            chosen = np.argsort(-frequency, kind="stable")[: min(self.freedom // 4, _PLAIN)]
            chosen = chosen[frequency[chosen] > self.noise(chance, stderr)]
            if not len(chosen):
                break
            added = self._added(hashes, chosen)
            solved = np.linalg.pinv(added[:, chosen], hermitian=True) @ excess[chosen]  # what no row tells apart shares
            frequency = (excess - solved @ added) / self.gain
            frequency[chosen] += solved
            stderr = self.stderr(self.squares - float(np.square(solved).sum()))
        return frequency, stderr

    def joint(self, keys: NDArray[np.uint64]) -> Joint:
        """Estimate the frequencies of values together, with their errors."""
        if not self.n:
            return Joint(np.zeros(0), np.zeros((0, 0)), np.zeros(0), np.zeros(0), float("nan"), self)
        hashes, support, everything = self._hashes(keys), self.lookup(keys), np.arange(len(keys))
        share = support / self.n
        inverse = np.linalg.pinv(self._added(hashes, everything), hermitian=True)
        frequency = inverse @ (share - float(self.mechanism.q))
        least, most = float(self.mechanism.other), float(self.mechanism.p)  # of any value's share, whoever holds it
        absent = np.clip(share - self.gain * frequency, least, most)
        # Reports are drawn independently, each of them supports some of the values: the covariance of their shares.
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
        rows = range(self.first, self.first + len(self.reports))
        return np.array([hash_lookup.hashes(self.mechanism.family, row, keys) for row in rows]).reshape(len(rows), len(keys))

    def _added(self, hashes: NDArray[np.intp], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute by how much each of the chosen prefixes adds to the share of support of all; (chosen, keys).

        ``(p - other) (c - 1 / width)``, where c is the share of reports in whose rows the two collide.
        """
        collide = [self.reports @ (hashes == hashes[:, one, None]) / self.n for one in chosen]
        shape = len(chosen), hashes.shape[1]
        return self._odds * (np.array(collide, np.float64).reshape(shape) - 1 / self.mechanism.width)


def part_of(mechanism: PrefixTree, tally: Tally, level: int) -> Part:
    """Return the part of a tally that belongs to a level."""
    rows = slice(*mechanism.first_rows[level : level + 2])
    return Part(mechanism, rows.start, tally.counts[rows], tally.reports[rows])
