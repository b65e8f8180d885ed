"""With a relay: how much more each report may say if it hides among others, and so how many fewer are needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from deniable import mechanisms
from deniable_aggregator.accounting.crowds.crowd import Crowd
from deniable_aggregator.planning.outlook import of_mechanisms

if TYPE_CHECKING:
    from deniable.registry import Metric
    from deniable_aggregator.planning.outlook import Terms

DELTA = 1e-8
"""The delta of central figures, unless a registry declares one."""

_STEP = 20  # local epsilons are looked at in parts of a nat
_MOST_LOCAL = 8  # nats; beyond it a report alone says nearly all
_MOST = 1 << 22  # reports
_CLOSE = 1.02  # numbers of reports are found so closely


class Ways(NamedTuple):
    """Reports that an error needs if the server shall learn no more than a central epsilon of each."""

    alone: int | None  # without a relay: each report has this epsilon; None if there is no such number
    mixed: int | None  # with a relay; None if up to four million are not enough
    local: float  # the epsilon of a report then, for anyone who sees it alone


def largest_local(metric: Metric, reports: int, central: float, delta: float = DELTA) -> float:
    """Return the largest local epsilon, in steps of 0.05, of which a crowd of so many leaves no more than a central epsilon."""

    def holds(twentieths: int) -> bool:
        mechanism = mechanisms.of(replace(metric, epsilon=f"{twentieths / _STEP:g}"))
        return Crowd.of(mechanism, reports).delta(central) <= delta

    low, high = max(1, int(central * _STEP)), _MOST_LOCAL * _STEP
    while high - low > 1:  # it is enough at `low`, where the local epsilon is no larger
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low / _STEP


def ways(
    metric: Metric,  # its epsilon does not matter
    terms: Terms,  # with the error, and without a number of users
    central: float,
    delta: float = DELTA,
) -> Ways:
    """Return how many reports an error of a share needs with a relay and without one, at the same central epsilon."""

    def needed(epsilon: float) -> int | None:
        return of_mechanisms(replace(metric, epsilon=f"{epsilon:g}"), terms, names=(metric.mechanism,))[0].users

    def are_enough(reports: int) -> bool:
        number = needed(largest_local(metric, reports, central, delta))
        return number is not None and number <= reports

    low, high = 1.0, 64.0
    while high <= _MOST and not are_enough(int(high)):
        low, high = high, 2 * high
    alone = needed(central)
    if high > _MOST:
        return Ways(alone, None, central)
    while high > _CLOSE * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if are_enough(int(middle)) else (middle, high)
    return Ways(alone, int(high), largest_local(metric, int(high), central, delta))
