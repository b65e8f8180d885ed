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


@dataclass(frozen=True, eq=False)
class Combined:
    """The weighted mean of several estimates of the same values."""

    # W. G. Cochran: The combination of estimates from different experiments. Biometrics 10(1), 1954, sections 3 and 4.

    # (estimates,), with sum 1: the weight of each, in inverse proportion to its variance for a value that nobody holds. They do
    # not depend on the answers, so the mean is unbiased and its error exact.
    weights: NDArray[np.float64]
    frequency: NDArray[np.float64]  # (values,), the mean of the frequencies by these weights
    stderr: NDArray[np.float64]  # (values,), its standard error
    # Chance of estimates that differ at least as much if the true frequencies are the same in all (Cochran's Q of each value,
    # Bonferroni over the values, of which two that are mirrored in each estimate are one). Of people who are in several estimates
    # it is too large, if anything.
    p_value: float
    _parts: tuple[tuple[Estimate, NDArray[np.intp]], ...]
    _common: NDArray[np.float64]

    @property
    def reports(self) -> NDArray[np.int64]:
        """(values,), how many reports each frequency rests on."""
        return np.asarray(np.sum([estimate.reports[places] for estimate, places in self._parts], axis=0), np.int64)

    def interval(
        self,
        level: float = 0.95,  # confidence, in (0, 1)
        *,
        simultaneous: bool = False,  # whether the intervals of all values hold together (Bonferroni)
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals, (values,) each, from those of the estimates."""
        # G. Y. Zou, A. Donner: Construction of confidence limits about effect measures. Statistics in Medicine 27(10), 2008.
        if simultaneous:
            level = 1 - (1 - level) / _hypotheses(self._parts)
        below, above = [], []
        for weight, (estimate, places) in zip(self.weights, self._parts, strict=True):
            low, high = (end[places] for end in estimate.interval(level))
            below.append(weight * (estimate.frequency[places] - low))
            above.append(weight * (high - estimate.frequency[places]))
        low, high = (np.sqrt(_sum(np.array(reach), self._common)) for reach in (below, above))
        return self.frequency - low, self.frequency + high


def combine(
    estimates: Sequence[Estimate],  # two or more, each with reports
    places: Sequence[Sequence[int]],  # for each estimate, the places of the common values; in one order for all
    # (estimates, estimates), the greatest probability that a report of each, both drawn at random, are of one device; None if no
    # device has reports in two of them. The diagonal is not used: each estimate knows its own.
    overlap: NDArray[np.float64] | None = None,
) -> Combined:
    """Combine estimates that rest on different reports."""
    if not all(each.n for each in estimates):
        raise ParameterError("an estimate has no reports: combine only those that have some")
    parts = tuple((each, np.asarray(positions, np.intp)) for each, positions in zip(estimates, places, strict=True))
    precision = np.array([1 / np.mean(np.square(each.absent_stderr[positions])) for each, positions in parts])
    weights = precision / precision.sum()
    frequency = np.array([each.frequency[positions] for each, positions in parts])
    variance = np.array([np.square(each.stderr[positions]) for each, positions in parts])
    shared = np.array([each.shared[positions] for each, positions in parts])
    common = np.zeros((len(parts), *variance.shape))
    if overlap is not None:
        common = overlap[:, :, None] * np.sqrt(shared[:, None] * shared) / np.sqrt(variance[:, None] * variance)
    common[np.diag_indices(len(parts))] = 1.0
    spread = (np.square(frequency - (frequency / variance).sum(0) / (1 / variance).sum(0)) / variance).sum(0)
    least = float(np.min(chdtrc(len(parts) - 1, spread), initial=1.0))
    return Combined(
        weights=weights,
        frequency=weights @ frequency,
        stderr=np.sqrt(_sum(weights[:, None] * np.sqrt(variance), common)),
        p_value=min(1.0, least * _hypotheses(parts)),
        _parts=parts,
        _common=common,
    )


def _hypotheses(parts: Sequence[tuple[Estimate, NDArray[np.intp]]]) -> int:
    """Return how many hypotheses there are about the common values."""
    return 1 if all(each.mirrored for each, _ in parts) else max(len(parts[0][1]), 1)


def _sum(errors: NDArray[np.float64], common: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up errors (estimates, values) as variances, with their correlations (estimates, estimates, values)."""
    return np.asarray(np.einsum("iv,ijv,jv->v", errors, common, errors), np.float64)
