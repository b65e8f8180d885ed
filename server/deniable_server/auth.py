"""Bearer keys: a public one to send reports, a secret one to read estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from deniable_server.problem import Problem
from deniable_server.service import App, service

if TYPE_CHECKING:
    from deniable_server.settings import Keys

__all__ = ["app_by_ingest_key", "app_by_read_key"]


def app_by_ingest_key() -> App:
    """Return the app whose ingest key the request carries."""
    return _app(service().ingest_keys, "ingest")


def app_by_read_key() -> App:
    """Return the app whose read key the request carries."""
    return _app(service().read_keys, "read")


def _app(keys: Keys, role: str) -> App:
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not key:
        raise Problem(401, "missing_key", f"the request carries the header Authorization: Bearer with the app's {role} key")
    name = keys.app(key.strip())
    if name is None or name not in service().apps:
        raise Problem(401, "unknown_key", f"the {role} key is not known here; check for a typo, and that it was not revoked")
    return service().apps[name]
