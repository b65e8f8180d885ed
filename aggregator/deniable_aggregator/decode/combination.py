"""One estimate from several: for the values that versions of a metric have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

__all__ = ["Combined", "combine"]


@dataclass(frozen=True, eq=False)
class Combined:
    """The weighted mean of several estimates of the same values.

    Parameters
    ----------
    weights
        (estimates,), with sum 1: the weight of each, in inverse proportion to its variance for a value that nobody holds. They do
        not depend on the answers, so the mean is unbiased and its error exact.
    frequency
        (values,), the mean of the frequencies by these weights.
    stderr
        (values,), its standard error.
    Chance of estimates that differ at least as much if the true frequencies are the same in all (Cochran's Q of each value,
    Bonferroni over the values).

    References
    ----------
    W. G. Cochran: The combination of estimates from different experiments. Biometrics 10(1), 1954, sections 3 and 4.
    """

    weights: NDArray[np.float64]
    frequency: NDArray[np.float64]
    stderr: NDArray[np.float64]
    p_value: float
    _parts: tuple[tuple[Estimate, NDArray[np.intp]], ...]

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals from those of the estimates.

        Parameters
        ----------
        level
            Confidence, in (0, 1).
        simultaneous
            Whether the intervals of all values hold together (Bonferroni).

        Returns
        -------
        low, high : ndarray of float
            (values,) each.

        References
        ----------
        G. Y. Zou, A. Donner: Construction of confidence limits about effect measures: a general approach. Statistics in
        Medicine 27(10), 2008, section 2 (MOVER).
        """
        if simultaneous:
            level = 1 - (1 - level) / max(len(self.frequency), 1)
        below, above = np.zeros_like(self.frequency), np.zeros_like(self.frequency)
        for weight, (estimate, places) in zip(self.weights, self._parts, strict=True):
            low, high = (end[places] for end in estimate.interval(level))
            below += np.square(weight * (estimate.frequency[places] - low))
            above += np.square(weight * (high - estimate.frequency[places]))
        return self.frequency - np.sqrt(below), self.frequency + np.sqrt(above)


def combine(estimates: Sequence[Estimate], places: Sequence[Sequence[int]]) -> Combined:
    """Combine estimates that rest on different reports.

    Parameters
    ----------
    estimates
        Two or more, each with reports.
    places
        For each estimate, the places of the common values; in one order for all.

    Raises
    ------
    ParameterError
        If an estimate has no reports.
    """
    if not all(each.n for each in estimates):
        raise ParameterError("estimates that are combined have reports", [each.n for each in estimates])
    parts = tuple((each, np.asarray(some, np.intp)) for each, some in zip(estimates, places, strict=True))
    precision = np.array([1 / np.mean(np.square(each.absent_stderr[some])) for each, some in parts])
    weights = precision / precision.sum()
    frequency = np.array([each.frequency[some] for each, some in parts])
    variance = np.array([np.square(each.stderr[some]) for each, some in parts])
    spread = (np.square(frequency - (frequency / variance).sum(0) / (1 / variance).sum(0)) / variance).sum(0)
    least = float(np.min(chdtrc(len(parts) - 1, spread), initial=1.0))
    return Combined(
        weights=weights,
        frequency=weights @ frequency,
        stderr=np.sqrt(np.square(weights) @ variance),
        p_value=min(1.0, least * frequency.shape[1]),
        _parts=parts,
    )
