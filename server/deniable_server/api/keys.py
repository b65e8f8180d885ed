"""``/api/v1/keys``: listing and revoking keys, for admin keys only.

Only `deniable keys create` makes keys: a new key in an answer would pass through every proxy on the way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Blueprint, Response, jsonify

from deniable_server.access.keys import KeyStore
from deniable_server.api.auth import app_by_admin_key
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from deniable_server.service import App

blueprint = Blueprint("admin", __name__)

log = logging.getLogger("deniable.keys")


@blueprint.get("/api/v1/keys")
def keys() -> Response:
    """List the app's keys in the store, without their secrets."""
    app = app_by_admin_key()
    return jsonify(app=app.name, keys=[key.public() for key in _store(app).all()])


@blueprint.delete("/api/v1/keys/<id_>")
def revoke(id_: str) -> Response:
    """Delete a key of the app. It may be the key of this request."""
    app = app_by_admin_key()
    if not _store(app).revoke(id_, actor=visit().actor or ""):
        raise Problem(404, "no_such_key", f"the store has no key of {app.name} with this id")
    log.warning("key %s of %s was revoked over HTTP", id_, app.name)
    return Response(status=204)


def _store(app: App) -> KeyStore:
    return KeyStore(app.store)
