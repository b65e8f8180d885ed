"""Bearer keys: a public one to send reports, a secret one to read estimates; and how often each may be used."""

from __future__ import annotations

from flask import request

from deniable_server.problem import Problem
from deniable_server.service import App, service

__all__ = ["app_by_ingest_key", "app_by_read_key"]


def app_by_ingest_key() -> App:
    """Return the app whose ingest key the request carries."""
    return _app("ingest")


def app_by_read_key() -> App:
    """Return the app whose read key, or admin key, the request carries."""
    return _app("read")


def _app(role: str) -> App:
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    text = text.strip()
    if kind.lower() != "bearer" or not text:
        raise Problem(401, "missing_key", f"the request carries the header Authorization: Bearer with the app's {role} key")
    ring, limits = service().ring, service().limits
    key = ring.find(text, role)
    if key is None:
        limits.stranger()  # who tries keys is stopped before the store is asked for new ones
        key = ring.find(text, role, anew=True)
    if key is None:
        raise Problem(401, "unknown_key", f"the {role} key is not known here; check for a typo, and that it was not revoked")
    limits.request(key.app, key.id)
    ring.note(key)
    return service().apps[key.app]
