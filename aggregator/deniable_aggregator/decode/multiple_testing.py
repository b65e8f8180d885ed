"""Multiple testing: which of many hypotheses to reject, and how wide many intervals are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def holm(
    p_values: NDArray[np.float64],  # (tests,), each in [0, 1], or nan if unknown
    alpha: float,  # in (0, 1)
) -> NDArray[np.bool_]:
    """Reject so that any true hypothesis is rejected with probability alpha at most, under any dependence; (tests,)."""
    # S. Holm: A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6(2), 1979.
    order = np.argsort(p_values, kind="stable")
    rejected = np.zeros(len(p_values), np.bool_)
    rejected[order] = np.logical_and.accumulate(p_values[order] <= alpha / np.arange(len(p_values), 0, -1))
    return rejected


def holm_adjusted(
    p_values: NDArray[np.float64],  # (tests,), each in [0, 1], or nan if unknown
    weights: NDArray[np.float64] | None = None,  # (tests,), the share of alpha of each, positive; None: equal shares
) -> NDArray[np.float64]:
    """Return for each test the smallest alpha at which `holm` rejects it; nan of nan, which counts as no test."""
    # With weights it is the procedure of section 3 of Holm's paper, which controls the same error under any dependence.
    adjusted = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    shares = np.ones(len(p_values)) if weights is None else weights
    order = known[np.argsort(p_values[known] / shares[known], kind="stable")]
    left = np.cumsum(shares[order][::-1])[::-1]  # of this test and those after it
    steps = p_values[order] / shares[order] * left
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(
    p_values: NDArray[np.float64],  # (tests,), each in [0, 1], or nan if unknown
    alpha: float,  # in (0, 1)
) -> NDArray[np.bool_]:
    """Reject so that at most a share alpha of the rejected is true on average, if the tests are independent; (tests,)."""
    # Y. Benjamini, Y. Hochberg: Controlling the false discovery rate. JRSS B 57(1), 1995.
    from scipy.stats import false_discovery_control  # slow to import, and rarely needed

    adjusted = false_discovery_control(np.minimum(np.nan_to_num(p_values, nan=1.0), 1.0))
    return np.asarray(adjusted <= alpha, np.bool_)


def tail(level: float, intervals: int = 1) -> float:
    """Compute the error probability on each side of intervals that hold together with a confidence (Bonferroni)."""
    if not 0 < level < 1:
        raise ParameterError("level: write a confidence between 0 and 1", level)
    return (1 - level) / 2 / max(intervals, 1)
