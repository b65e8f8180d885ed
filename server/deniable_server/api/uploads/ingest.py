"""Ingest: ``POST /v1/reports`` takes a batch, checks all its reports, and appends it to the stream once.

``GET /v1/registry`` sends the signed registry to devices.
"""

from __future__ import annotations

import msgspec
from flask import Blueprint, Response

from deniable.wire import addresses
from deniable_server.api.auth import app_by_ingest_key
from deniable_server.api.uploads import intake
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit
from deniable_server.service import service

blueprint = Blueprint("ingest", __name__)


@blueprint.post(addresses.REPORTS)
def reports() -> Response:
    """Take a batch of reports."""
    # 202 with the numbers accepted and rejected; rejected reports need not be sent again. If an upload is repeated with the same
    # Idempotency-Key, it gets the same numbers with `duplicate` true, and is not counted again.
    return Response(msgspec.json.encode(intake.take(service(), visit())), 202, content_type="application/json")


@blueprint.get(addresses.REGISTRY)
def registry() -> Response:
    """Send the signed registry: complete, and the same bytes for every device."""
    envelope = app_by_ingest_key().envelope
    if envelope is None:
        raise Problem(404, "no_signed_registry", "this server has no signed registry for devices, which use the one in their app")
    return Response(envelope.write(), mimetype="application/json")
