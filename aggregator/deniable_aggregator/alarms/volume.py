"""Sudden volume: a period, or a segment's share of one, unlike those before it.

How many people answer follows no distribution that a mechanism would give, so this is a rule and not a test: it has no p-value,
and a product that takes off breaks it as a flood of made-up reports does. It is robust: one strange period hardly moves it.
"""

from __future__ import annotations

from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LEAST_PERIODS", "sudden"]

LEAST_PERIODS = 7
"""Periods that there must have been before."""

_LONGEST = 60  # periods looked back on
_LEAST_REPORTS = 1000
_TIMES = 2.0
_DEVIATIONS = 8.0
_LEAST_DEVIATION = 0.1  # in logarithms: where traffic was all but constant
_TO_SIGMA = 1.4826  # of the median absolute deviation of a normal distribution


def sudden(before: Sequence[float], now: float, reports: int) -> float | None:
    """Tell how many times as large as usual something is, if that is far out of the ordinary.

    Parameters
    ----------
    before
        Reports of the periods before, in order; or the odds of a segment in each.
    now
        The same of this one, which may not be over: only too many are told of.
    reports
        Reports that it rests on.

    Returns
    -------
    float or None
        How many times the median, if that is more than twice, and more than eight robust standard deviations of the logarithm
        away; None otherwise, and where fewer than 7 periods or 1,000 reports say too little.
    """
    known = [log(each) for each in before[-_LONGEST:] if each > 0]
    if len(known) < LEAST_PERIODS or reports < _LEAST_REPORTS or now <= 0:
        return None
    usual = median(known)
    deviation = max(_TO_SIGMA * median(abs(each - usual) for each in known), _LEAST_DEVIATION)
    times = now / exp(usual)
    return times if times > _TIMES and log(now) - usual > _DEVIATIONS * deviation else None
