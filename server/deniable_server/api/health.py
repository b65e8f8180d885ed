"""``GET /healthz`` and ``GET /readyz``: whether the process lives, and whether it can take reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, jsonify

from deniable_aggregator.store import health, room, writable
from deniable_aggregator.store.errors import StoreError
from deniable_server.service import service

if TYPE_CHECKING:
    from flask import Response

__all__ = ["blueprint"]

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def healthz() -> Response:
    """Answer that the process lives."""
    return jsonify(status="ok")


@blueprint.get("/readyz")
def readyz() -> tuple[Response, int]:
    """Return the state of each part, and whether reports can be taken."""
    settings, apps = service().settings, service().apps.values()
    parts: dict[str, Any] = {"store": {"ok": True}}
    try:
        for app in apps:
            state, limit = health.read(app.store), settings.max_backlog
            parts[f"backlog:{app.name}"] = {"ok": state.backlog < limit, "batches": state.backlog, "limit": limit}
            # reports can be taken while nobody counts them, so these are only shown
            told = {"workers": state.workers, "lag_seconds": state.lag, "dead_letters": state.dead}
            parts[f"worker:{app.name}"] = {"ok": True} | told
            if settings.serves != "query":
                app.store.ensure()
        writable.probe(service().client, service().apps)  # queries are written down, too
        if settings.serves != "query" and room.is_full(service().client):
            parts["store"] = {"ok": False, "reason": "full"}
    except StoreError as error:
        parts["store"] = {"ok": False, "reason": writable.reason(error)}
    ready = all(part["ok"] for part in parts.values())
    return jsonify(status="ok" if ready else "unavailable", parts=parts), 200 if ready else 503
