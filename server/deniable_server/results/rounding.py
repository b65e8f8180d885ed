"""How public results are rounded: an exact number tells whoever knows all others whether one person took part."""

from __future__ import annotations

from math import floor, isnan, log10
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deniable_aggregator.answer import digits

if TYPE_CHECKING:
    from deniable_aggregator.answer.model.number import NumberEstimate
    from deniable_aggregator.answer.model.series import Line, Point, Series
    from deniable_aggregator.answer.model.shares import ValueEstimate

_PART = 10  # of a standard error: estimates are multiples of it


def coarse_count(number: int) -> int:
    """Round a number of reports to two digits, and to tens below a hundred.

    Examples
    --------
    >>> coarse_count(12_345), coarse_count(987), coarse_count(57)
    (12000, 990, 60)
    """
    unit = 10 ** max(floor(log10(max(number, 1))) - 1, 1)
    return int(round(number / unit) * unit)


def step_of(stderr: float) -> float:
    """Return the step of estimates with a standard error: 1, 2 or 5 times a power of ten, a tenth of the error or more.

    Examples
    --------
    >>> step_of(0.0066), step_of(0.02)
    (0.001, 0.002)
    """
    if not stderr > 0 or isnan(stderr):
        return 0.0
    power = 10.0 ** floor(log10(stderr / _PART) + 1e-9)
    return next(power * times for times in (1, 2, 5, 10) if power * times >= stderr / _PART * (1 - 1e-9))


def coarse(number: float, step: float) -> float:
    """Round a number to a multiple of a step; without one, to two digits."""
    if isnan(number):
        return number
    return round(number / step) * step if step else float(f"{number:.2g}")


def coarse_ends(interval: tuple[float, float], step: float) -> tuple[float, float]:
    """Round the ends of an interval outwards, so that it holds at least as often."""
    if not step:
        return coarse(interval[0], step), coarse(interval[1], step)
    low, high = (digits.outwards(end / step, 0, up=at == 1) * step for at, end in enumerate(interval))
    return low, high


def coarse_number(number: NumberEstimate) -> NumberEstimate:
    """Round all that is estimated of a number, and leave out what is finer: parts of its range, and single values."""

    def rounded(value: float, interval: tuple[float, float]) -> tuple[float, tuple[float, float]]:
        step = step_of(digits.stderr(interval))
        return coarse(value, step), coarse_ends(interval, step)

    mean, interval = rounded(number.mean, number.interval)
    geometric = number.geometric_mean
    if geometric:
        value, between = rounded(geometric.value, geometric.interval)
        geometric = replace(geometric, value=value, interval=between)
    quantiles = []
    for quantile in number.quantiles:
        value, between = rounded(quantile.value, quantile.interval)
        quantiles.append(replace(quantile, value=value, interval=between))
    return replace(
        number,
        mean=mean,
        interval=interval,
        stderr=_PART * step_of(number.stderr),
        geometric_mean=geometric,
        quantiles=quantiles,
        sum=None,
        parts=[],
        values=[],
    )


def coarse_series(series: Series) -> Series:
    """Round a series, and leave out what is told of changes: it rests on numbers that are not rounded."""
    # Whether a period has no release, or one that is not shown, is not said.
    states = {"missing": "withheld"}
    periods = [replace(each, n=coarse_count(each.n), state=states.get(each.state, each.state)) for each in series.periods]
    return replace(series, says="", trend_says="", periods=periods, lines=[_line(line) for line in series.lines])


def _line(line: Line) -> Line:
    points = [None if point is None else _point(point) for point in line.points]
    return replace(line, points=points, change=None, trend=None, shifts=[], between=None)


def _point(point: Point) -> Point:
    step = step_of(digits.stderr(point.interval))
    return replace(
        point,
        estimate=coarse(point.estimate, step),
        interval=coarse_ends(point.interval, step),
        simultaneous=coarse_ends(point.simultaneous, step),
        n=coarse_count(point.n),
    )


def coarse_row(row: ValueEstimate) -> ValueEstimate:
    """Round all that is estimated of a value."""
    step = step_of(row.stderr)
    return replace(
        row,
        n=coarse_count(row.n),
        frequency=coarse(row.frequency, step),
        stderr=_PART * step,  # so many digits as the step has are written
        interval=coarse_ends(row.interval, step),
        simultaneous=coarse_ends(row.simultaneous, step),
        consistent=float("nan"),  # possible shares may be above what is estimated of each group
        count=float(coarse_count(round(abs(row.count)))) if not isnan(row.count) else row.count,
    )
