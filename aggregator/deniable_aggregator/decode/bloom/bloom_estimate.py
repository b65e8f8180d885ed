"""An estimate from a regression on the bits of Bloom filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.decode.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.decode.bloom.bloom_regression import Fit


@dataclass(frozen=True, eq=False)
class Fitted(Estimate):
    """Frequencies and errors from a regression."""

    n: int  # reports
    fit: Fit  # the regression
    repeats: float = 0.0  # how many other reports of its permanent response a report has beside it, as in the regression
    permanent: bool = False  # whether the devices keep their permanent responses

    @property
    def frequency(self) -> NDArray[np.float64]:
        """Share of each value; nan where there are no reports."""
        return self.fit.frequency

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        return self.fit.stderr

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the answers: without the variance of sampling people."""
        return np.sqrt(np.maximum(np.square(self.stderr) - super().shared / self._people, 0.0))

    @property
    def shared(self) -> NDArray[np.float64]:
        """Variance that all reports of a person share: of who the person is; where responses are kept, at most all of it."""
        return np.square(self.stderr) * self._people if self.permanent else super().shared

    @property
    def _people(self) -> float:
        return (self.n or np.nan) / (1 + self.repeats)

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return self.fit.absent_stderr

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value, given the others."""
        return self.fit.p_value

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that no candidate accounts for, and its standard error; nan where not known."""
        return self.fit.unallocated, self.fit.unallocated_stderr
