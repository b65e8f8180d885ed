"""``GET /api/v1/pipeline``: what becomes of reports on their way, and what looks made up among them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, jsonify

from deniable_aggregator import pulse, watch
from deniable_aggregator.alarm import about, influence
from deniable_server.auth import app_by_read_key

if TYPE_CHECKING:
    from flask import Response

    from deniable_aggregator.watch import Alarm
    from deniable_server.service import App, Question

__all__ = ["alarms", "blueprint"]

blueprint = Blueprint("pipeline", __name__)


@blueprint.get("/api/v1/pipeline")
def pipeline() -> Response:
    """Tell what waits, who works on it, and which alarms stand."""
    app = app_by_read_key()
    felt, looked = pulse.feel(app.store), watch.looked(app.store)
    return jsonify(
        app=app.name,
        workers=felt.workers,
        backlog=felt.backlog,
        pending=felt.pending,
        lag_seconds=felt.lag,
        dead_letters=felt.dead,
        looked=_moment(looked) if looked else None,
        alarms=[each for found in alarms(app).values() for each in found],
    )


def alarms(app: App) -> dict[str, list[dict[str, Any]]]:
    """Describe the alarms of the metrics that have any, the latest first."""
    found = watch.alarms(app.store, {id_: question.fingerprint for id_, question in app.questions.items()})
    return {id_: [_described(app.questions[id_], each) for each in some] for id_, some in found.items()}


def _described(question: Question, found: Alarm) -> dict[str, Any]:
    metric = question.metric
    return {
        "metric": metric.id,
        "test": found.test,
        "p_value": found.p_value,
        "period": found.period,
        "segment": found.segment or None,
        "n": round(about(found.n)),
        "what": found.what,
        "values": [] if metric.open else [metric.label(place) for place in found.values],
        "influence": influence(question.mechanism),
        "since": _moment(found.since),
    }


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
