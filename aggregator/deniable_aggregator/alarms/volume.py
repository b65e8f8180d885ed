"""Sudden volume: a period, or a segment's share of one, unlike earlier periods.

No mechanism determines how many people answer, so this is a rule and not a test. It has no p-value. A product that suddenly grows
breaks it as a flood of made-up reports does. It is robust: one strange period hardly changes it.
"""

from __future__ import annotations

from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_PERIODS = 7
"""Fewest earlier periods."""

_LONGEST = 60  # earlier periods that are compared
_LEAST_REPORTS = 1000
_TIMES = 2.0
_DEVIATIONS = 8.0
_LEAST_DEVIATION = 0.1  # in logarithms: for almost constant traffic
_TO_SIGMA = 1.4826  # of the median absolute deviation of a normal distribution


def sudden(
    before: Sequence[float],  # reports of the earlier periods, in order; or the odds of a segment in each
    now: float,  # the same for this period, which may not be over: only high numbers matter
    reports: int,  # number of reports behind it
) -> float | None:
    """Return the ratio of a number to its usual median, if that is far out of the ordinary."""
    # It is so above 2, if its logarithm is more than eight robust standard deviations away. Fewer than 7 periods or 1,000 reports
    # tell nothing.
    known = [log(each) for each in before[-_LONGEST:] if each > 0]
    if len(known) < LEAST_PERIODS or reports < _LEAST_REPORTS or now <= 0:
        return None
    usual = median(known)
    deviation = max(_TO_SIGMA * median(abs(each - usual) for each in known), _LEAST_DEVIATION)
    times = now / exp(usual)
    return times if times > _TIMES and log(now) - usual > _DEVIATIONS * deviation else None
