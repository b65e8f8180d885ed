"""The lead: how many reports show that one value is the most frequent one. The test is that of the leaders."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from deniable_aggregator.decode.bucket_estimate import Partial
from deniable_aggregator.decode.families import family_of
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.sets.options import option_shares
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.inference.leaders import Leaders
from deniable_aggregator.planning.precision import POWER
from deniable_aggregator.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric
    from deniable_aggregator.decode.estimate import Estimate

    Floats = NDArray[np.float64]

_MOST = 1 << 50  # reports that nobody has


def lead_shown(
    metric: Metric,  # as declared
    mechanism: Mechanism,  # what the devices run
    values: int,  # how many values are estimated; 0 where it is not known
    lead: float,  # by how much the first value is above the second, above 0
    second: float,  # the share of the second value
    level: float,  # confidence of the test
) -> int | None:
    """Compute the fewest reports that show with `POWER` that the first value leads; None where it is not known, or none do."""
    if values < 2 or mechanism.searches:  # noqa: PLR2004
        return None
    shares = population(values, lead, second, options=metric.kind.options)
    if _power(metric, mechanism, shares, _MOST, level) is None:
        return None

    def enough(n: int) -> bool:
        return (_power(metric, mechanism, shares, n, level) or 0.0) >= POWER

    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def population(
    values: int,
    # lead, second: as for `lead_shown`
    lead: float,
    second: float,
    *,
    options: bool,  # whether they are options of a set, whose shares need not sum to 1
) -> Floats:
    """Return the shares of values, of which the first leads the second, and all others are equal.

    The second has its share as far as that is possible: no other has more, and all are 1 together. Other options of a set have
    the share of the second.
    """
    if options:
        return np.array([min(second + lead, 1.0), *[second] * (values - 1)])
    second = min(max(second, (1 - lead) / values), (1 - lead) / 2)
    others = (1 - lead - 2 * second) / max(values - 2, 1)
    return np.array([second + lead, second, *[others] * (values - 2)])


def _power(metric: Metric, mechanism: Mechanism, shares: Floats, n: int, level: float) -> float | None:
    """Bound the probability that the first value is found to lead; None where it is not known."""
    expected = _expected(metric, mechanism, shares, n)
    if expected is None:
        return None
    tests = Leaders(Panel(n, expected, metric.together - 1) if metric.together > 1 else expected, level)
    # The first value must be above each other one. The chance that one of these tests fails is at most the sum of all chances.
    if len(tests.order) < len(shares) or tests.order[0] != 0:  # too few reports to be about all values, or to differ
        return 0.0
    missed = float(ndtr(tests.needed - tests.ahead_by).sum())
    return 1 - missed if isfinite(missed) else 0.0


def _expected(metric: Metric, mechanism: Mechanism, shares: Floats, n: int) -> Estimate | None:
    """Return the estimate of n reports that are as they are on average; None if the decoder counts no support."""
    if metric.kind.options:
        layout = mechanism.layout
        silent = Tally(layout, np.zeros((layout.rows, layout.width), np.int64), np.full(layout.rows, n // layout.rows))
        options = option_shares(mechanism, silent)
        return replace(options, n=n, support=_support(shares, options.covering, options.channel.q, options.channel.gain))
    family = family_of(mechanism)
    nobody = family.nobody(len(shares), n) if family.foreseen else None
    if not isinstance(nobody, Supported | Partial):
        return None
    support = _support(shares, nobody.reports, nobody.channel.q, nobody.channel.gain)
    if isinstance(nobody, Supported) and nobody.touched is not None:  # each holder adds as much to it as to the support
        return replace(nobody, support=support, touched=nobody.touched + support)
    return replace(nobody, support=support)


def _support(shares: Floats, reports: NDArray[np.int64], q: float, gain: float) -> NDArray[np.int64]:
    return np.asarray(np.rint(reports * (q + shares * gain)), np.int64)
