"""``GET /healthz`` and ``GET /readyz``: whether the process lives, and whether it can take reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from flask import Blueprint, jsonify

from deniable_aggregator.store.errors import REASONS, StoreError, reason
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.uploads import health
from deniable_server.agreement import SHOWN, Agreement
from deniable_server.service import service

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from flask import Response

    from deniable_aggregator.store import Client
    from deniable_server.service import App

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def healthz() -> Response:
    """Answer that the process lives."""
    return jsonify(status="ok")


@blueprint.get("/readyz")
def readyz() -> tuple[Response, int]:
    """Return the state of each part, and whether reports of any app can be taken."""
    known = service()
    parts: dict[str, Any] = {}
    try:
        refusing = known.refusals()
    except StoreError as error:
        parts["store"], ready = _refused(reason(error)), False
    else:
        reasons = sorted(set(refusing.values()))
        parts["store"] = {"ok": True} if not reasons else _refused(reasons[0])
        if reasons and isinstance(known.client, Cluster):
            parts["store"]["servers"] = {about.name(cast("Client", server)): reason for server, reason in refusing.items()}
        # An app that cannot be served is no reason to refuse the uploads of others.
        served = [_app(app, refusing, parts) for app in known.apps.values()]
        ready = any(served) if served else not reasons
        for name, why in known.off.items():
            parts[f"registry:{name}"] = {"ok": False, "status": "fault", "off": True, "fault": why}
    status = "unavailable" if not ready else "ok" if all(part["ok"] for part in parts.values()) else "degraded"
    return jsonify(status=status, parts=parts), 200 if ready else 503


def _refused(reason: str) -> dict[str, Any]:
    detail = f"the store cannot be used: {REASONS[reason]}; this server's log says what to do"
    return {"ok": False, "reason": reason, "detail": detail}


def _app(app: App, refusing: Mapping[Hashable, str], parts: dict[str, Any]) -> bool:
    """Write the state of an app's parts into the answer; return whether its reports can be taken."""
    backlog, worker, limit = f"backlog:{app.name}", f"worker:{app.name}", service().settings.max_backlog
    try:
        if app.store.place in refusing:
            parts[backlog] = {"ok": False, "reason": refusing[app.store.place]}
            return False
        state = health.read(app.store)
    except StoreError as error:
        parts[backlog] = {"ok": False, "reason": reason(error)}
        return False
    parts[backlog] = {"ok": state.backlog < limit, "batches": state.backlog, "limit": limit}
    # Reports can be taken while nobody counts them, so these are only shown.
    parts[worker] = {
        "ok": bool(state.workers) or not state.backlog,
        "workers": state.workers,
        "lag_seconds": state.lag,
        "dead_letters": state.dead,
        "held_up": state.held_up,
    }
    parts[f"registry:{app.name}"] = _registry(app)
    return state.backlog < limit


def _registry(app: App) -> dict[str, Any]:
    """Return which registries processes have loaded, beside the file."""
    try:
        agreement = Agreement.of(app.store, app.source)
    except StoreError as error:  # its user may lack this right
        return {"ok": True, "reason": reason(error)}
    return {
        "ok": agreement.status != "fault",
        "status": agreement.status,
        "agrees": not agreement.differing,
        "on_disk": agreement.on_disk[:SHOWN] or None,
        "fault": agreement.fault or None,
        "processes": [
            {"role": role, "loaded": digest, "number": number}
            for (role, digest), number in Counter((each.role, each.digest[:SHOWN]) for each in agreement.running).items()
        ],
    }
