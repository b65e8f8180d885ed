"""What a query costs: what takes more than a few seconds is refused before anything is read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deniable_aggregator.answer.model.number import QUANTILE_NAMES
from deniable_aggregator.answer.refusal import QueryTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.reading import LineOptions

MOST_VALUES = 400_000
"""What is estimated in no longer than a few seconds."""
# Values that take as long as one candidate, one search, one distribution, and one of its quantiles with its bands
_CANDIDATE, _SEARCH, _FIT, _BAND = 20, 40_000, 1_500, 900
# and as long as one value that is compared, as one cell of a tally that is read
_COMPARED, _READ = 10, 0.02
_FURTHER = 6  # times as many places are looked at of a quantile that is compared


def check(
    estimated: Sequence[Declared],  # of each tally that is estimated
    read: Sequence[Declared],  # of each release that is read
    options: LineOptions,
    *,
    compared: bool,  # whether values are compared
) -> None:
    """Raise `QueryTooLarge` if the estimates of these tallies take too long."""
    bands = sum(_bands(each, options, compared=compared) for each in estimated)
    costs = Counter[str]()
    for declared in estimated:
        # What is searched for is compared with nothing.
        times = _COMPARED if compared and not declared.metric.discover else 1
        costs[declared.metric.id] += _bands(declared, options, compared=compared) + _values(declared, options) * times
    others = sum(costs.values()) - bands
    reading = sum(_READ * each.layout.rows * each.layout.width for each in read)
    if bands + others + reading <= MOST_VALUES:
        return
    ((slowest, _),) = costs.most_common(1)
    rule = f"this would take too long to estimate{f', {slowest} most of all' if len(costs) > 1 else ''}"
    if bands > others + reading:
        raise QueryTooLarge(
            f"{rule}, because of the quantiles: ask for a shorter range of time or fewer segments, filter value by one quantile, "
            "such as p50, or by the mean alone"
        )
    raise QueryTooLarge(f"{rule}: ask for a shorter range of time, fewer metrics, or fewer segments")


def _bands(declared: Declared, options: LineOptions, *, compared: bool) -> int:
    """Return how many values take as long as the quantiles of one tally."""
    names = options.of_number(declared.metric) if declared.metric.estimate else ()
    quantiles = sum(name in QUANTILE_NAMES and options.keeps(name) for name in names)
    return _FIT + _BAND * quantiles * (_FURTHER if compared else 1) if quantiles else 0


def _values(declared: Declared, options: LineOptions) -> int:
    """Return how many values take as long as all else that is estimated of one tally."""
    metric = declared.metric
    if metric.discover:
        return _SEARCH
    if metric.estimate:
        return len(options.of_number(metric))
    return _CANDIDATE * len(declared.candidates) if metric.open else metric.domain_size
