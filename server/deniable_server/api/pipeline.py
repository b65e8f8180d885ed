"""``GET /api/v1/pipeline``: batches that wait, and workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flask import Blueprint, jsonify

from deniable_aggregator.alarms import watcher
from deniable_aggregator.store.uploads import health
from deniable_server.api.auth import app_by_read_key

if TYPE_CHECKING:
    from flask import Response

blueprint = Blueprint("pipeline", __name__)


@blueprint.get("/api/v1/pipeline")
def pipeline() -> Response:
    """Return how much waits, and which workers live."""
    app = app_by_read_key()
    state, checked = health.read(app.store), watcher.checked(app.store)
    return jsonify(
        app=app.name,
        trial=app.trial,
        workers=state.workers,
        backlog=state.backlog,
        pending=state.pending,
        lag_seconds=state.lag,
        dead_letters=state.dead,
        looked=datetime.fromtimestamp(checked, UTC) if checked else None,
    )
