"""The variance of the difference of two shares of one estimate: it decides which of two values is the more frequent one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.mechanisms import Mechanism
from deniable_aggregator.decode.bucket_estimate import Partial
from deniable_aggregator.decode.pair_support import pair_support
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.search.discovery import Discovery
from deniable_aggregator.decode.sets.option_estimate import OptionShares
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.families.pairs import PairSupport

    Floats = NDArray[np.float64]


def difference_variance(
    estimate: Estimate,  # with reports
    places: NDArray[np.intp],  # (rows,), of the values that are compared with all
) -> Floats:
    """Compute the variance of the difference of two shares if both are equal, (rows, values); where unknown, the greatest."""
    match estimate:
        case Panel():
            return difference_variance(estimate.independent, places) + _of_people(estimate, places)
        case Supported(mechanism=Mechanism() as mechanism, touched=None):
            pairs = pair_support(mechanism)
            return _score_variance(pairs, estimate.frequency, places) / (estimate.n * (pairs.p - pairs.q) ** 2)
        case Supported() | Partial():
            # Devices randomise what they say of each value apart from what they say of others, so what is left is that nobody
            # holds two. What two values in one block have in common with a third one only makes it greater.
            covariance = -_outer(estimate.plausible, places) / estimate.n
        case OptionShares():
            covariance = estimate.least_covariance(places)
        case Discovery():
            covariance = estimate.joint.covariance[places]
        case _:
            covariance = -_outer(estimate.stderr, places)
    variance = np.square(estimate.stderr)
    return np.asarray(np.maximum(variance[places, None] + variance - 2 * covariance, 0.0), np.float64)


def resolution(estimate: Estimate) -> Floats:
    """Return by how much one report changes each share, (values,); 0 of an estimate that is no count."""
    counts = estimate.independent if isinstance(estimate, Panel) else estimate
    if not isinstance(counts, Supported | Partial | OptionShares):
        return np.zeros(len(estimate.frequency))
    return np.asarray(1 / (np.maximum(counts.reports, 1) * counts.channel.gain), np.float64)


def _score_variance(pairs: PairSupport, frequency: Floats, places: NDArray[np.intp]) -> Floats:
    """Compute the variance of the difference of what a report supports, from what reports support."""
    # If both shares are equal, reports that support one value only are for either with the same chance (McNemar). So the variance
    # is the share of these reports. It is counted, not taken from estimates that are cut at 0, so the test holds for few reports.
    # Q. McNemar: Note on the sampling error of the difference between correlated proportions. Psychometrika 12(2), 1947.
    s = pairs.q + frequency * (pairs.p - pairs.q)
    own, other = s[places, None], s[None, :]
    both = np.clip(pairs.least_both(frequency[places, None], frequency[None, :]), 0.0, np.minimum(own, other))
    return np.asarray(own + other - 2 * both, np.float64)


def _of_people(panel: Panel, places: NDArray[np.intp]) -> Floats:
    """Compute the variance that a person's other reports add: of who the person is, and of the permanent response."""
    more = panel.repeats / panel.n
    if panel.permanent is None:
        shares = np.clip(panel.frequency, 0.0, 1.0)
        return np.asarray(more * (shares[places, None] + shares), np.float64)
    try:
        pairs = pair_support(panel.permanent, panel.permanent.permanent_support)
    except ParameterError:
        spread = np.sqrt(panel.shared)
        return np.asarray(more * np.square(spread[places, None] + spread), np.float64)
    return _score_variance(pairs, panel.frequency, places) * more / (pairs.p - pairs.q) ** 2


def _outer(column: Floats, places: NDArray[np.intp]) -> Floats:
    return np.asarray(column[places, None] * column, np.float64)
