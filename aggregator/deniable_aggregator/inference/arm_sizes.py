"""Arm sizes: whether the arms of an experiment have as many reports as their declared split says, however often anybody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPREADS = (100.0, 10_000.0)  # of a Dirichlet law: large and small departures from the split


def p_value(
    # (looks, arms), of each arm so far, at each look, if each device is counted once; fractions are allowed
    reports: NDArray[np.float64],
    split: NDArray[np.float64],  # (arms,), the declared share of devices, with sum 1
) -> float:
    """Test whether devices were drawn as the split says."""
    # If the split is right and devices are independent, the p-value is below alpha at any look with probability alpha at most. At
    # each look the likelihood of a mixture of other splits is divided by that of the declared one. The mixture is that of two
    # Dirichlet laws around the declared split, one near it and one wide. Their mean is a martingale. So its maximum over all
    # looks exceeds 1 / alpha with probability alpha at most.
    # M. Lindon, A. Malek: Anytime-valid inference for multinomial count data. NeurIPS 2022.
    logs = [_log_ratio(reports, split, spread) for spread in _SPREADS]
    best = float(np.max(np.logaddexp(*logs) - np.log(len(logs)), initial=0.0))
    return min(1.0, float(np.exp(-best)))


def _log_ratio(reports: NDArray[np.float64], split: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
    """Return the logarithm of the likelihood ratio of one Dirichlet mixture, at each look."""
    of_each = np.sum(gammaln(spread * split + reports) - gammaln(spread * split) - reports * np.log(split), axis=1)
    return np.asarray(gammaln(spread) - gammaln(spread + reports.sum(axis=1)) + of_each, np.float64)
