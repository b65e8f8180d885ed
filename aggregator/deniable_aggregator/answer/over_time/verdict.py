"""What an arm of an experiment has shown: an effect, that none is as large as planned, or how many more reports decide."""

from __future__ import annotations

from math import ceil, isfinite
from typing import TYPE_CHECKING

from scipy.special import ndtri

from deniable.forecast.precision import variance_needed
from deniable.messages.plural import plural
from deniable_aggregator.answer.difference.sentence import planned_in_words
from deniable_aggregator.answer.figures import distance
from deniable_aggregator.answer.model.experiment import Verdict
from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.registry import Metric
    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering

_DIGITS = 2  # of a number of reports: it is rough


def verdict(
    comparison: Comparison,  # of two arms
    followed: ValueDiffering,  # the answer, or the mean, of which it is said
    metric: Metric,
) -> Verdict:
    """Say whether the experiment is decided, and what it takes if it is not."""
    assert comparison.experiment is not None  # noqa: S101 - they are arms
    planned = comparison.experiment.planned
    place = _place(metric)
    words = planned_in_words(planned, metric)
    if followed.differs:
        return Verdict("found", None, None, "Decided: an effect is found.")
    low, high = (place(distance(end, comparison.scale)) for end in followed.simultaneous)
    if -planned < low and high < planned:
        return Verdict("excluded", None, None, f"Decided: an effect as large as planned, {words}, is excluded.")
    begin = f"Undecided: an effect as large as planned, {words}, is neither found nor excluded."
    more = _more(comparison, followed, place)
    if more is None:
        return Verdict("undecided", None, None, begin)
    if not more:
        return Verdict("undecided", 0, 0, f"{begin} This many reports would find it in 80% of cases. Look again as more come in.")
    if metric.permanent:  # more reports of the same devices hardly help
        number = plural(more, "person")
        says = f"{begin} About {number} more in both arms together find it in 80% of cases. Devices keep their responses."
        return Verdict("undecided", more, None, says)
    periods = ceil(more / ((comparison.a.n + comparison.b.n) / len(comparison.b.included)))
    rate = f"That takes {plural(periods, f'more {metric.period}')}, if each brings as many people who have not reported before"
    number = plural(more, "more report")
    return Verdict(
        "undecided",
        more,
        periods,
        f"{begin} About {number} of other people, in both arms together, find it in 80% of cases. {rate}.",
    )


def _place(metric: Metric) -> Callable[[float], float]:
    """Return the function from a difference, or the logarithm of a ratio, to a share of the range, in which it was planned."""
    reach = float(len(metric.values) - 1) if metric.estimate else 1.0  # of positions, and of shares
    if metric.axis is not None:
        reach = metric.axis.reach
    return lambda difference: difference / reach


def _more(comparison: Comparison, followed: ValueDiffering, place: Callable[[float], float]) -> int | None:
    """Return about how many more reports of both arms find the planned difference in 80% of cases; None if it is not known."""
    assert comparison.experiment is not None  # noqa: S101 - the caller has looked
    # The error of each side alone, at a single look. With other people, its square goes as one over the reports.
    quantile = -2 * float(ndtri(tail(comparison.level)))
    sides = (followed.first_interval, followed.second_interval)
    ends = [[place(distance(end, comparison.scale)) for end in side] for side in sides]
    tests = comparison.experiment.comparisons * len([row for row in comparison.differences if row.value is not False])
    needed = variance_needed(comparison.experiment.planned, (1 - comparison.level) / tests)
    n = comparison.a.n + comparison.b.n
    more: float = n * (sum(((high - low) / quantile) ** 2 for low, high in ends) / needed - 1)
    if not isfinite(more):
        return None
    unit = int(10 ** max(len(str(ceil(more))) - _DIGITS, 0))
    return max(ceil(more / unit) * unit, 0)
