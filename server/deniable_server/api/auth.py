"""Bearer keys: a public one to send reports, secret ones to read estimates and to manage keys; and their rate limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import g, request

from deniable_aggregator.process import logs
from deniable_server.access.roles import ROLES, why_unknown
from deniable_server.http.problem import Problem
from deniable_server.service import App, service

if TYPE_CHECKING:
    from deniable_aggregator.store.limit import Limit

__all__ = ["admin_only", "app_by_admin_key", "app_by_ingest_key", "app_by_read_key", "bearer", "upload_key", "uploader"]


def app_by_ingest_key() -> App:
    """Return the app of the request's ingest key."""
    return _counted("ingest")


def app_by_read_key() -> App:
    """Return the app of the request's read key, or admin key."""
    return _counted("read")


def uploader() -> tuple[App, list[Limit]]:
    """Return the app of the request's ingest key, and the limits that the request is still to be counted for."""
    return _app("ingest", upload=True)


def app_by_admin_key() -> App:
    """Return the app of the request's admin key.

    Raises
    ------
    Problem
        403 for another key of an app; 401 for an unknown key.
    """
    app = _counted("admin")
    if not g.key.opens("admin"):
        if g.key.role == "ingest":
            g.actor = None  # an ingest key is public: it identifies nobody, and could fill the audit log
        raise admin_only()
    return app


def upload_key() -> str:
    """Return the Idempotency-Key in the request, without a check; empty if there is none."""
    return str(request.environ.get("HTTP_IDEMPOTENCY_KEY", ""))  # looking up a missing header is faster here


def admin_only() -> Problem:
    """Return the error that this requires an admin key."""
    return Problem(403, "admin_only", "this requires an admin key (deniable keys create --role admin)")


def bearer(whose: str) -> str:
    """Return the key in the request, without a check.

    Parameters
    ----------
    whose
        Name of the required key, in words.

    Raises
    ------
    Problem
        401, if there is none.
    """
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    text = text.strip()
    if kind.lower() != "bearer" or not text:
        raise Problem(401, "missing_key", f"the request carries the header Authorization: Bearer with {whose}")
    return text


def _counted(role: str) -> App:
    app, limits = _app(role)
    service().limits.take(limits)
    return app


def _app(role: str, *, upload: bool = False) -> tuple[App, list[Limit]]:
    g.role = role
    text = bearer(f"the app's {role} key")
    known = service()
    ring, limits = known.ring, known.limits
    roles = ROLES if role == "admin" else (role,)  # a key of another role is answered differently
    key = ring.find(text, *roles)
    if key is None:
        limits.stranger()  # stops guessing of keys before the store is asked for new ones
        key = ring.find(text, *roles, anew=True)
    if key is None:
        raise Problem(401, "unknown_key", why_unknown(text, role))
    logs.note(app=key.app)
    g.app, g.actor, g.key = key.app, f"key:{key.id}", key
    app = known.apps[key.app]
    counts_for = limits.of(app.name, key.id, app.store.partition(upload_key()) if upload else None)
    ring.note(key)
    return app, counts_for
