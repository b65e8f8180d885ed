"""The sentence that a metric's page begins with: what its reports say, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_server.pages import chart, number

if TYPE_CHECKING:
    from deniable_aggregator.answer.model.metric import Estimates
    from deniable_aggregator.answer.model.shares import ValueEstimate


def headline(measured: Estimates) -> str:
    """Say what reports say of a metric; nothing where they tell nothing."""
    if measured.number is not None:
        drawn = number.shown(measured.number)
        return "" if drawn is None else _of_number(drawn.first, positions=not measured.number.unit)
    found = [row for row in measured.estimates if row.detected]
    if measured.type == "boolean":
        yes = next((row for row in found if row.value is True), None)
        return "" if yes is None else f"{_share(yes)} of people say yes, between {_ends(yes.interval, yes)}."
    if not found:
        return ""
    ranked = chart.order(found, by_estimate=True)
    return _first(ranked[0], ranked[1:], "option" if measured.type == "set" else "answer")


def _of_number(first: number.Figure, *, positions: bool) -> str:
    what = {"Median": "Half of the answers are below", "Mean": "The mean is"}.get(first.name, f"The {first.name.lower()} is")
    return f"{what} {'position ' if positions else ''}{first.value}, between {first.low} and {first.high}."


def _first(top: ValueEstimate, others: list[ValueEstimate], kind: str) -> str:
    share = f"{_share(top)} of people, between {_ends(top.simultaneous, top)}"
    near = [row for row in others if row.simultaneous[1] >= top.simultaneous[0]]
    if not near:
        return f"{top.label} is the most frequent {kind}: {share}."
    rivals = near[0].label if len(near) == 1 else f"{len(near)} others"
    return f"{top.label} may be the most frequent {kind}: {share}. It cannot be told from {rivals}."


def _share(row: ValueEstimate) -> str:
    return chart.share(row.frequency, row.stderr)


def _ends(ends: tuple[float, float], row: ValueEstimate) -> str:
    low, high = (chart.share(min(max(end, 0.0), 1.0), row.stderr) for end in ends)
    return f"{low.removesuffix('%')} and {high}"
