"""``/api/v1/keys``: what only an admin key may ask: which keys the app has, and that one is refused from now on.

Keys are made with `deniable keys create` alone: an answer that holds a new key would pass whatever stands between here and there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Blueprint, Response, g, jsonify

from deniable_server.access.keys import KeyStore
from deniable_server.api.auth import app_by_admin_key
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from deniable_server.service import App

__all__ = ["blueprint"]

blueprint = Blueprint("admin", __name__)

log = logging.getLogger("deniable.keys")


@blueprint.get("/api/v1/keys")
def keys() -> Response:
    """List the keys of the key's app that the store has, without what opens anything."""
    app = app_by_admin_key()
    return jsonify(app=app.name, keys=[key.told() for key in _store(app).all()])


@blueprint.delete("/api/v1/keys/<id_>")
def revoke(id_: str) -> Response:
    """Forget a key of the key's app; it may be the key that asks."""
    app = app_by_admin_key()
    if not _store(app).revoke(id_, actor=g.actor):
        raise Problem(404, "no_such_key", f"the store has no key of {app.name} with this id")
    log.warning("key %s of %s was revoked over HTTP", id_, app.name)
    return Response(status=204)


def _store(app: App) -> KeyStore:
    return KeyStore(app.store)
