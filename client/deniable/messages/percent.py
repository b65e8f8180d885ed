"""How a bound on a probability is written."""

from __future__ import annotations

from math import ceil

_STEPS = 1000  # of a share: tenths of a percent


def percent(share: float) -> str:
    """Write a probability in tenths of a percent, rounded up. Less than a hundred-thousandth is written as 0.

    Examples
    --------
    >>> percent(0.75), percent(0.70001), percent(0.9999)
    ('75.0%', '70.1%', '100%')
    """
    tenths = min(_STEPS, ceil(round(share * _STEPS, 2)))
    return "100%" if tenths == _STEPS else f"{tenths / 10:.1f}%"
