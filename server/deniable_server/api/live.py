"""``GET /api/v1/live`` and ``GET /api/v1/live/<id>``: what is counted, published or not, for who holds an admin key.

Analysts see releases only. `deniable_server.pages.dashboard` shows the same on pages.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, g, jsonify, request

from deniable.errors import ParameterError
from deniable.registry.period import bounds
from deniable_aggregator import tally
from deniable_aggregator.alarms import watcher
from deniable_aggregator.alarms.checks import about, influence
from deniable_aggregator.counting import faults
from deniable_aggregator.publish import counted
from deniable_aggregator.store import refused_reports
from deniable_server.api.audit_trail import kept
from deniable_server.api.auth import app_by_admin_key
from deniable_server.api.query import LEVEL, declared, description, estimated, level_asked, only_parameters
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flask import Response

    from deniable_aggregator.alarms.watcher import Alarm
    from deniable_server.service import App, Question

__all__ = ["asked", "blueprint", "measure", "overview"]

blueprint = Blueprint("live", __name__)
blueprint.after_request(kept)


@blueprint.get("/api/v1/live")
def live() -> Response:
    """Tell what is counted of every metric, what was refused, and which alarms stand."""
    asked()
    app = app_by_admin_key()
    only_parameters()
    return jsonify(overview(app))


@blueprint.get("/api/v1/live/<id_>")
def metric(id_: str) -> Response:
    """Estimate one metric from all that is counted, or from one ``period``; intervals at ``level``."""
    asked()
    app = app_by_admin_key()
    question = declared(app, id_)
    only_parameters("period", "level")
    return jsonify(measure(app, question, request.args.get("period"), level_asked()))


def asked() -> None:
    """Have the audit log tell this query from one of what was published, whatever else its parameters say."""
    g.asked = {name: request.args[name] for name in ("period", "level") if name in request.args} | {"question": "live"}


def overview(app: App) -> dict[str, Any]:
    """Tell what is counted of every metric of an app, and what was refused in the last days.

    Returns
    -------
    dict
        The ``metrics``, each described, with the reports counted (``n``), those of them that are in no release yet
        (``unpublished``) and those ``refused`` by reason; what was ``refused`` of no metric that is declared; the ``backlog`` of
        batches that are not counted yet; the ``alarms``; and the ``faults`` of workers, by what fails.
    """
    reasons = refused_reports.read(app.store)
    metrics = [_counted(app, question, reasons) for question in _shown(app)]
    return {
        "app": app.name,
        "live": True,
        "trial": app.trial,
        "backlog": app.store.backlog(),
        "refused": reasons.get(("", 0), {}),
        "metrics": metrics,
        "alarms": _alarms(app, app.versions.values()),
        "faults": faults.present(app.store),
    }


def measure(app: App, question: Question, period: str | None = None, level: float = LEVEL) -> dict[str, Any]:
    """Estimate a metric from what is counted of one period or, if none is given, of all; of the latest where responses are kept.

    Returns
    -------
    dict
        As one of the metrics of `overview`, but ``n`` is of what the estimates rest on; the ``periods`` of which anything is
        counted, and ``counts`` by period and segment; the estimates, as of what was published; and the ``alarms``.

    Raises
    ------
    Problem
        400, if the period is none of the metric's.
    """
    if period is not None:
        try:
            bounds(period, question.metric.period)
        except ParameterError as error:
            raise Problem(400, "period", error.rule) from None
    layout = question.mechanism.layout
    strata = [stratum for some in counted.strata(app.store, question.definition).values() for stratum in some]
    if period is None and question.metric.kept:  # as of what was published: copies of one response are not pooled
        period = max((stratum.period for stratum in strata), default=None)
    tallies = dict(zip(strata, app.store.tallies.each(layout, strata), strict=True))
    chosen = [each for stratum, each in tallies.items() if period in (None, stratum.period)]
    return _counted(app, question, refused_reports.read(app.store)) | {
        "level": level,
        "period": period,
        "periods": sorted({stratum.period for stratum in strata}),
        "counts": [{"period": at.period, "segment": at.segment or None, "n": each.n} for at, each in tallies.items()],
        "alarms": _alarms(app, [question]),
        **estimated(question, tally.merge(tally.empty(layout), *chosen), level),
    }


def _counted(app: App, question: Question, reasons: dict[tuple[str, int], dict[str, int]]) -> dict[str, Any]:
    layout, metric = question.mechanism.layout, question.metric
    periods = counted.strata(app.store, question.definition)
    return description(app, question) | {
        "live": True,
        "n": app.store.read(layout, [stratum for some in periods.values() for stratum in some]).n,
        "unpublished": counted.unpublished(app.store, question),
        "refused": reasons.get((metric.id, metric.version), {}),
    }


def _shown(app: App) -> list[Question]:
    """List the highest version of each metric, each followed by the others of which anything is counted."""
    return [
        each
        for latest in app.questions.values()
        for each in app.versions_of(latest.metric.id)
        if each is latest or counted.strata(app.store, each.definition)
    ]


def _alarms(app: App, questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Describe the alarms that stand, the latest of each metric first."""
    by_definition = {question.definition: question for question in questions}
    found = watcher.alarms(app.store, list(by_definition))
    return [_described(by_definition[definition], each) for definition, some in found.items() for each in some]


def _described(question: Question, found: Alarm) -> dict[str, Any]:
    metric = question.metric
    return {
        "metric": metric.id,
        "version": metric.version,
        "test": found.test,
        "p_value": found.p_value,
        "period": found.period,
        "segment": found.segment or None,
        "n": round(about(found.n)),
        "what": found.what,
        "values": [] if metric.open else [metric.label(place) for place in found.values],
        "influence": influence(question.mechanism),
        "since": datetime.fromtimestamp(found.since, UTC).isoformat(),
    }
