"""An estimate: what a sum of randomised reports says of a population, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import betaincinv, ndtri

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

__all__ = ["Estimate"]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Unbiased frequencies of every value of a domain.

    An estimate may be negative or above 1: it is unbiased, and clipping it would make every sum and comparison of estimates
    wrong. Clip for display only.

    Parameters
    ----------
    mechanism
        What the devices ran.
    n
        Reports.
    support
        int64 array (domain_size,): reports that support each value.
    """

    mechanism: Mechanism
    n: int
    support: NDArray[np.int64]

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value, ``(support / n - q) / (p - q)``; nan where there are no reports."""
        return self._debias(self._share)

    @property
    def count(self) -> NDArray[np.float64]:
        """Unbiased number of respondents with each value; 0 where there are no reports."""
        p, q = self.mechanism.p, self.mechanism.q
        # n q is exact as a fraction; the float difference below loses nothing to a rounded q.
        return np.asarray((self.support - float(self.n * q)) / float(p - q), np.float64)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from.

        ``sqrt(s (1-s) / n) / (p - q)`` with s = q + f (p - q), f the estimate brought into [0, 1].
        """
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        s = q + self._plausible * (p - q)
        return np.sqrt(s * (1 - s) / self._n) / (p - q)

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the respondents themselves: the randomness of the devices alone."""
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        f = self._plausible
        return np.sqrt((f * p * (1 - p) + (1 - f) * q * (1 - q)) / self._n) / (p - q)

    def interval(
        self,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        target: Literal["population", "respondents"] = "population",
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals.

        Parameters
        ----------
        level
            Confidence, in (0, 1).
        simultaneous
            Whether all intervals together hold with this confidence (Bonferroni), instead of each on its own.
        target
            ``"population"``: the share in the population that the respondents were drawn from. The support is binomial, and
            the interval is Clopper and Pearson's, brought through the line that debiases: it covers at least at the stated
            level at every n. ``"respondents"``: the share among those who answered; narrower, by the normal approximation.

        Returns
        -------
        low, high : ndarray of float
            (domain_size,) each; nan where there are no reports.

        Raises
        ------
        ParameterError
            If the level is not in (0, 1).

        References
        ----------
        C. J. Clopper, E. S. Pearson: The use of confidence or fiducial limits. Biometrika 26(4), 1934.
        """
        if not 0 < level < 1:
            raise ParameterError("a confidence level lies between 0 and 1", level)
        tail = (1 - level) / 2 / (self.mechanism.domain_size if simultaneous else 1)
        if target == "respondents":
            reach = -ndtri(tail) * self.respondents_stderr
            return self.frequency - reach, self.frequency + reach
        c, n = self.support.astype(np.float64), self.n
        if not n:
            return self.frequency, self.frequency
        with np.errstate(invalid="ignore"):  # at 0 and n the quantile is not defined, and the bound is the edge
            low = np.where(c > 0, betaincinv(c, n - c + 1, tail), 0.0)
            high = np.where(c < n, betaincinv(c + 1, n - c, 1 - tail), 1.0)
        return self._debias(low), self._debias(high)

    @property
    def _n(self) -> float:
        return self.n or np.nan

    @cached_property
    def _share(self) -> NDArray[np.float64]:
        return self.support / self._n

    @property
    def _plausible(self) -> NDArray[np.float64]:
        return np.clip(self.frequency, 0.0, 1.0)

    def _debias(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        p, q = float(self.mechanism.p), float(self.mechanism.q)
        return (share - q) / (p - q)
