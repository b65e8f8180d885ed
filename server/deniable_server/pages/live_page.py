"""Pages of what is counted, published or not. The routes let admins see them only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request
from msgspec.structs import asdict

from deniable.messages import reasons
from deniable_aggregator.answer import live
from deniable_aggregator.answer.model.fields import Span, days_of
from deniable_aggregator.publish import release
from deniable_aggregator.store.uploads import health as store_health
from deniable_server.api.answers.parameters import find_metric
from deniable_server.http import paging
from deniable_server.pages import metric_page
from deniable_server.pages.frame import doubt, page
from deniable_server.pages.list_page import MOST_ROWS
from deniable_server.pages.parts import strip

if TYPE_CHECKING:
    from flask import Response

    from deniable_server.service import App


def overview(app: App) -> Response:
    """Show what is counted of each metric, `MOST_ROWS` of them on each ``page``."""
    counted = live.overview(app)
    part = paging.part(counted.metrics, MOST_ROWS)
    waits = [app.awaited(app.versions[metric.id, metric.version]) for metric in part.items]
    return page(
        "live.html", app=app, doubt=doubt(app), live=counted, awaited=waits, metrics=part.items, page=part.page, pages=part.pages
    )


def health(app: App) -> Response:
    """Show whether the pipeline runs, what was refused and why, and what looks made up."""
    counted = live.overview(app)
    by_metric = {f"{each.id} version {each.version}": each.refused for each in counted.metrics}
    refused = [
        (name or "metrics that are not declared", code, n, reasons.of_refusal(code))
        for name, codes in sorted({**by_metric, "": counted.refused}.items())
        for code, n in sorted(codes.items())
    ]
    return page(
        "health.html",
        app=app,
        doubt=doubt(app),
        lights=strip.lights(app, release.summaries(app.store), strip.refused_lately(app)),
        state=store_health.read(app.store),
        live=counted,
        refused=refused,
    )


def metric(app: App, id_: str) -> Response:
    """Show one metric, from everything that is counted or from one ``period``."""
    period = request.args.get("period") or None
    measured = live.measure(app, find_metric(app, id_), period)
    spans = [Span(name, name) for name in measured.periods]
    # What the template shows of releases. What is counted has none.
    included = spans if measured.period is None else [Span(measured.period, measured.period)]
    facts = asdict(measured) | {
        "name": id_,
        "versions": [],
        "merged": None,
        "earlier": [],
        "periods": spans,
        "included": included,
        "days": days_of(included, measured.period_length),
        "segments": [],
        "segment": None,
        "warnings": [],
        "updated": None,
    }
    return metric_page.page_of(app, measured, facts, period=period)
