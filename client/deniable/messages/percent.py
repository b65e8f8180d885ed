"""How a bound on a probability is written, and what a percentage may have meant where a share is needed."""

from __future__ import annotations

from math import ceil

_HUNDRED = 100
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


def meant_percent(
    value: object,  # what stands where a share is needed, such as 3
    unit: str = "%",  # what a hundredth is called
) -> str:
    """Ask whether a number meant hundredths, to end an error with; empty if it did not.

    Examples
    --------
    >>> meant_percent(3), meant_percent(3.5, " points"), meant_percent(0.2)
    ('; did you mean 0.03 (3%)?', '; did you mean 0.035 (3.5 points)?', '')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < _HUNDRED:
        return ""
    return f"; did you mean {value / _HUNDRED:g} ({value:g}{unit if value != 1 or unit == '%' else ' point'})?"
