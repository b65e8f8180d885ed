"""What is said first of a metric: of shares which value leads, of a number its median if it is resolved, or its mean."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer import figures

if TYPE_CHECKING:
    from deniable_aggregator.answer.model.fields import Days
    from deniable_aggregator.answer.model.metric import Estimates
    from deniable_aggregator.answer.model.number import NumberEstimate


class Figure(NamedTuple):
    """A figure of a number."""

    name: str  # what it is, such as `Median`
    value: float
    interval: tuple[float, float]
    is_quantile: bool = False


def headline(
    measured: Estimates,
    days: Days | None,  # that it covers
    level: float,  # of the intervals
) -> str:
    """Say what reports of some days say of a metric; nothing where they tell nothing."""
    says = _sentence(measured, level)
    return f"{figures.days(days)}, {figures.within(says)}" if says and days else says


def _sentence(measured: Estimates, level: float) -> str:
    number = measured.number
    if number is None:
        return measured.leading.says if measured.leading else ""
    listed = figures_of(number)
    return in_words(number, listed[0], level) if listed else ""


def in_words(number: NumberEstimate, figure: Figure, level: float) -> str:
    """Say what a figure of a number is, with its interval."""
    place = "" if number.unit else "position "
    low, high = figures.number_ends(figure.interval, number.unit)
    return f"The {figure.name.lower()} is {place}{written(number, figure)} ({figures.interval(level)} {low} to {high})."


def written(number: NumberEstimate, figure: Figure) -> str:
    """Write a figure of a number with its unit."""
    if not figure.is_quantile:
        return figures.number(figure.value, figure.interval, number.unit)
    return quantile_measure(number).one_sided(figure.value, figure.interval)


def quantile_measure(number: NumberEstimate) -> figures.Measure:
    """Return what the quantiles of a number are written by."""
    return figures.Measure(is_share=False, unit=number.unit, range=number.range, is_quantile=True)


def figures_of(number: NumberEstimate) -> list[Figure]:
    """Return the figures of a number as far as they are possible; first the median if it is resolved. None without reports."""
    geometric = number.geometric_mean
    if isnan(geometric.value if geometric else number.mean):
        return []
    medians = [each for each in number.quantiles if each.share == 0.5 and each.resolved]  # noqa: PLR2004
    listed = [Figure("Median", each.value, each.interval, is_quantile=True) for each in medians]
    if geometric:
        listed.append(_possible(number, "Geometric mean", geometric.value, geometric.interval))
    if not isnan(number.mean):
        listed.append(_possible(number, "Mean", number.mean, number.interval))
    if number.sum is not None:
        listed.append(Figure("Sum over the answers", *number.sum))
    return listed


def _possible(number: NumberEstimate, name: str, value: float, interval: tuple[float, float]) -> Figure:
    value, low, high = (figures.possible(each, number.range) for each in (value, *interval))
    return Figure(name, value, (low, high))
