"""The sentence that a metric's page begins with: what its reports say, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_server.pages import chart, figures, number_page

if TYPE_CHECKING:
    from deniable.registry.types import Type
    from deniable_aggregator.answer.measurement import Estimates, ValueEstimate


def headline(measured: Estimates, kind: Type) -> str:
    """Say what reports say of a metric; nothing where they tell nothing."""
    if measured.number is not None:
        view = number_page.view(measured.number)
        return "" if view is None else _of_number(view.first, positions=not measured.number.unit)
    detected = [
        row for row in measured.estimates if row.detected and row.value is not False
    ]  # the share of no mirrors that of yes
    if not detected:
        return ""
    ranked = chart.order(detected, by_estimate=True)
    if ranked[0].value is True:
        return f"{_share(ranked[0])} of people say yes, between {_ends(ranked[0].interval, ranked[0])}."
    return _of_values(ranked[0], ranked[1:], "option" if kind.options else "answer")


def _of_number(first: number_page.Figure, *, positions: bool) -> str:
    what = {"Median": "Half of the answers are below", "Mean": "The mean is"}.get(first.name, f"The {first.name.lower()} is")
    return f"{what} {'position ' if positions else ''}{first.value}, between {first.low} and {first.high}."


def _of_values(top: ValueEstimate, others: list[ValueEstimate], noun: str) -> str:
    share = f"{_share(top)} of people, between {_ends(top.simultaneous, top)}"
    near = [row for row in others if row.simultaneous[1] >= top.simultaneous[0]]
    if not near:
        return f"{top.label} is the most frequent {noun}: {share}."
    rivals = near[0].label if len(near) == 1 else f"{len(near)} others"
    return f"{top.label} may be the most frequent {noun}: {share}. It cannot be told from {rivals}."


def _share(row: ValueEstimate) -> str:
    return figures.share(row.frequency, row.stderr)


def _ends(interval: tuple[float, float], row: ValueEstimate) -> str:
    low, high = (min(max(end, 0.0), 1.0) for end in interval)
    return figures.share_range((low, high), row.stderr, "and")
