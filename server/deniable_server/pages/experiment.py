"""What a page says of experiments: how each arm differs from the base, however often anybody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.refusal import Refusal
from deniable_server.pages import compared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.model.comparison import Comparison
    from deniable_aggregator.answer.select import Published

_MOST = 8  # arms of a metric


class Said(NamedTuple):
    """What is said of an arm."""

    sentence: str  # how it differs from the base
    # a, b: the segments of the base and of the arm
    a: str
    b: str
    sizes: str  # a warning if arms have other sizes than declared, else empty


def said(published: Sequence[Published], period: str | None, level: float) -> list[Said]:
    """Compare the arms of each experiment of a metric with their base, as far as they are published, in words."""
    found = []
    for a, b in list(pairs(published[0]))[:_MOST]:
        try:
            comparison = compare(published, a, b, period=period, level=level)
        except Refusal:
            continue
        if comparison.differences:
            sizes = comparison.experiment.sizes if comparison.experiment else None
            found.append(Said(_sentence(comparison, published[0].length), a, b, sizes.says if sizes else ""))
    return found


def pairs(version: Published) -> Iterator[tuple[str, str]]:
    """Name the base and an arm, as segments: each arm of each experiment of a metric."""
    registry = version.app.registry
    for name in version.declared.metric.segments:
        experiment = registry.experiments.get(name)
        if experiment:
            for value in registry.segments.get(name, ()):
                if value != experiment.base:
                    yield f"{name}={experiment.base}", f"{name}={value}"


def _sentence(comparison: Comparison, length: str) -> str:
    """Say in which value the arm differs most, or is furthest apart if none differs."""
    rows = zip(comparison.differences, compared.shown(comparison, length).rows, strict=True)
    told = [(each, row) for each, row in rows if each.value is not False]
    differing = [pair for pair in told if pair[0].differs]
    arm, base = (side.name.partition("=")[2] for side in (comparison.b, comparison.a))
    if differing:
        first, row = min(differing, key=lambda pair: pair[0].p_value)
    else:
        first, row = max(told, key=lambda pair: abs(pair[0].difference))
    mean = first.value is None
    sizes = f"{row.difference}, {row.between}{'' if mean else ' points'}"
    apart = f"{'Mean' if mean else row.label}: {row.second} with {arm}, {row.first} with {base} ({sizes})."
    if not differing:
        return f"{arm} and {base} do not differ beyond chance so far. {'Furthest apart is ' if len(told) > 1 else ''}{apart}"
    more = len(differing) - 1
    others = f" {more} more {'value differs' if more == 1 else 'values differ'}." if more else ""
    return f"{apart}{others}"
