"""What a page says of experiments: how each arm differs from the base, however often anybody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.measure.comparison import compare
from deniable_aggregator.measure.refusal import Refusal
from deniable_server.pages import chart, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.measure.comparison import Comparison
    from deniable_server.service import App

__all__ = ["sentences"]

_MOST = 8  # arms of a metric


def sentences(app: App, asked: Sequence[Declared], period: str | None, level: float) -> list[str]:
    """Compare the arms of each experiment of a metric with their base, as far as they are published, in words."""
    found = []
    for a, b in list(_pairs(app, asked[0]))[:_MOST]:
        try:
            compared = compare(app, asked, a, b, period=period, level=level)
        except Refusal:
            continue
        if compared.differences:
            found.append(_sentence(compared))
    return found


def _pairs(app: App, declared: Declared) -> Iterator[tuple[str, str]]:
    for name in declared.metric.segments:
        experiment = app.registry.experiments.get(name)
        if experiment:
            for value in app.registry.segments.get(name, ()):
                if value != experiment.base:
                    yield f"{name}={experiment.base}", f"{name}={value}"


def _sentence(compared: Comparison) -> str:
    """Say in which value the arm differs most."""
    rows = [each for each in compared.differences if each.value is not False]
    differing = [each for each in rows if each.differs]
    arm, base = (side.name.partition("=")[2] for side in (compared.b, compared.a))
    if not differing:
        return f"{arm} and {base} do not differ beyond chance so far."
    first = min(differing, key=lambda each: each.p_value)
    more = len(differing) - 1
    others = f" {more} more {'value differs' if more == 1 else 'values differ'}." if more else ""
    if first.value is None:
        low, high = first.interval
        reach = (first.second / high, first.second / low) if compared.scale == "log" else (low, high)
        was, is_ = (number.written(each, reach, compared.unit) for each in (first.first, first.second))
        by = number.apart((low, high), reach, compared.scale, compared.unit)
        return f"Mean: {is_} with {arm}, {was} with {base} ({by})."
    low, high = first.simultaneous
    error = (high - low) / 4
    was, is_, *ends = (chart.share(each, error) for each in (first.first, first.second, low, high))
    points = " to ".join(end.removesuffix("%") for end in ends)
    return f"{first.label}: {is_} with {arm}, {was} with {base} ({points} points).{others}"
