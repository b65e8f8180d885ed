"""What the list of an app's metrics shows: those that were searched for, each with a preview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from deniable_server.pages import chart, number_page
from deniable_server.pages.metric_page import described, estimated

if TYPE_CHECKING:
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.metric import Latest

MOST_CARDS = 48  # on one page of a list of metrics
_PREVIEW_ROWS = 4
_PREVIEW_BARS = 64


def matching(app: AppMetrics, text: str, type_: str) -> list[str]:
    """Return the metrics of a type with a text in their id, description or owner; without either, all."""
    words = text.casefold().split()
    metrics = ((id_, declared.metric) for id_, declared in app.highest.items())
    return [
        id_
        for id_, metric in metrics
        if (not type_ or metric.type == type_)
        and all(word in f"{id_} {metric.description} {metric.owner}".casefold() for word in words)
    ]


def types(app: AppMetrics) -> list[str]:
    """Name the types of the app's metrics."""
    return sorted({declared.metric.type for declared in app.highest.values()})


def card(app: AppMetrics, measured: Latest) -> dict[str, Any]:
    """Describe a metric, with its largest values, or with all values if they are ordered."""
    number = None if measured.number is None else number_page.view(measured.number)
    facts = asdict(measured) | described(app, measured) | {"rows": (), "bars": (), "peak": None, "number": number}
    rows, kind = estimated(measured), app.versions[measured.id, measured.version].metric.kind
    if not rows:
        return facts
    largest = chart.order(rows, by_estimate=True)
    if kind.ordered and _PREVIEW_ROWS < len(rows) <= _PREVIEW_BARS:
        return facts | {"bars": chart.bars(rows), "peak": chart.chart(largest[:1], over=rows).rows[0]}
    top = largest[:_PREVIEW_ROWS] if kind.ranked or kind.ordered else rows
    return facts | {"rows": chart.chart(top).rows}
