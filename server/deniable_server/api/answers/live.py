"""``GET /api/v1/live`` and ``GET /api/v1/live/<id>``: everything that is counted, published or not, for admin keys.

Analysts see releases only. `deniable_server.pages.dashboard` shows the same on pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, jsonify, request

from deniable_aggregator.answer import live as measured
from deniable_server.api.answers.parameters import find_metric, level_asked, only_parameters
from deniable_server.api.audit_trail import kept
from deniable_server.api.auth import app_by_admin_key
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from flask import Response

blueprint = Blueprint("live", __name__)
blueprint.after_request(kept)


@blueprint.get("/api/v1/live")
def live() -> Response:
    """Return what is counted of every metric, what was refused, and all alarms."""
    asked()
    app = app_by_admin_key()
    only_parameters()
    return jsonify(measured.overview(app))


@blueprint.get("/api/v1/live/<id_>")
def metric(id_: str) -> Response:
    """Estimate one metric from everything that is counted, or from one ``period``; intervals at ``level``."""
    asked()
    app = app_by_admin_key()
    found = find_metric(app, id_)
    only_parameters("period", "level")
    return jsonify(measured.measure(app, found, request.args.get("period"), level_asked()))


def asked() -> None:
    """Mark this query for the audit log as one about live numbers."""
    visit().asked = {name: request.args[name] for name in ("period", "level") if name in request.args} | {"question": "live"}
