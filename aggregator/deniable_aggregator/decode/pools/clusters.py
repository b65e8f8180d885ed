"""Clusters: the rows of a pool, whose hash functions are drawn independently, as a sample of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def stderr_of_mean(
    sums: NDArray[Any],  # (rows,)
    reports: NDArray[np.int64],  # (rows,)
) -> float:
    """Estimate the standard error of a mean over all reports from each row's sum; nan if fewer than two rows have reports."""
    # The hash functions of a row are drawn independently of those of others, so rows are a sample of clusters. Their spread has
    # all of the error: by devices, by who answers, and by what the functions confuse.
    # W. G. Cochran: Sampling techniques. Wiley, 3rd edition, 1977, section 6.3 (ratio estimates).
    n, rows = int(reports.sum()), int(np.count_nonzero(reports))
    if rows < 2:  # noqa: PLR2004
        return float("nan")
    spread = np.square(sums - reports * (sums.sum() / n)).sum()
    return float(np.sqrt(spread * rows / (rows - 1)) / n)
