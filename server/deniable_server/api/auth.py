"""Bearer keys: a public one to send reports, secret ones to read estimates and to manage keys; and their rate limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable import upload_rules
from deniable_aggregator.process import logs
from deniable_server.access.roles import ROLES, why_unknown
from deniable_server.http.problem import ROUTE_SECONDS, Problem
from deniable_server.http.visit import visit
from deniable_server.service import service

if TYPE_CHECKING:
    from deniable_server.access.keys import Key
    from deniable_server.http.visit import Visit
    from deniable_server.service import App, Service


def app_by_ingest_key() -> App:
    """Return the app of the request's ingest key."""
    return _counted("ingest")[0]


def app_by_read_key() -> App:
    """Return the app of the request's read key, or admin key."""
    return _counted("read")[0]


def app_and_read_key() -> tuple[App, Key]:
    """Return the app of the request's read key, or admin key, and the key."""
    return _counted("read")


def app_by_admin_key() -> App:
    """Return the app of the request's admin key; refuse another key of the app with 403."""
    app, key = _counted("admin")
    if not key.opens("admin"):
        if key.role == "ingest":
            visit().actor = None  # an ingest key is public: it identifies nobody, and could fill the audit log
        raise admin_only()
    return app


def app_by_relay_key() -> App:
    """Return the app of the request's relay key. No limit of its address holds."""
    known = service()
    key = identify(known, visit(), "relay")
    known.limits.take(known.limits.due(known.limits.of_key(key.app, key.id)))
    return known.apps[key.app]


def upload_key(here: Visit) -> str:
    """Return the Idempotency-Key in a request, without a check; empty if there is none."""
    return str(here.environ.get("HTTP_IDEMPOTENCY_KEY", ""))


def admin_only() -> Problem:
    """Return the error that this requires an admin key."""
    return Problem(403, "admin_only", "this requires an admin key (deniable keys create --role admin)")


def bearer(here: Visit, whose: str) -> str:
    """Return the key in a request without checking it; refuse a request without one."""
    return upload_rules.bearer(here.environ.get("HTTP_AUTHORIZATION", ""), whose)


def identify(
    known: Service,
    here: Visit,  # the request
    role: str,  # What the key is for. For `admin` a known key of another role is returned, so that it can be answered with 403.
) -> Key:
    """Return the key of a request, and note in the visit whose it is; refuse an unknown key with 401, too many with 429.

    A key of an app that the store knows and this server does not serve gets 503.
    """
    here.role = role
    text = bearer(here, f"the app's {role} key")
    key = known.ring.find(text, *_accepted(role))
    if key is None:
        known.limits.stranger(here)  # stops guessing of keys before the store is asked for new ones
        key = find_anew(known, text, role)
    note(here, key)
    known.ring.note(key)
    return key


def find_anew(known: Service, text: str, role: str) -> Key:
    """Ask the store for a key; refuse one of an app that is not served with 503, and an unknown one with 401."""
    roles = _accepted(role)
    key = known.ring.find(text, *roles, anew=True)
    if key is None and (app := known.ring.unserved(text, *roles)):
        raise not_served(known, app)
    if key is None:
        raise Problem(401, "unknown_key", why_unknown(text, role))
    return key


def _accepted(role: str) -> tuple[str, ...]:
    return tuple(ROLES) if role == "admin" else (role,)


def not_served(known: Service, app: str) -> Problem:
    """Return the error that the key is good, and the app is not served now. Devices keep their reports."""
    # An ingest key is public, so what is wrong with the file is said to the operator only.
    detail = f"this server does not serve {app} yet: add its registry to DENIABLE_REGISTRY and start the server again"
    if app in known.off:
        detail = f"the registry of {app} cannot be used on this server now; `deniable doctor` there says why"
    return Problem(503, "app_not_served", detail, retry_after=ROUTE_SECONDS)


def note(here: Visit, key: Key) -> None:
    """Note whose key a request has."""
    logs.note(app=key.app)
    here.app, here.actor = key.app, f"key:{key.id}"


def _counted(role: str) -> tuple[App, Key]:
    known, here = service(), visit()
    key = identify(known, here, role)
    limits = known.limits
    limits.take(limits.due(limits.of(here, key.app, key.id)))
    return known.apps[key.app], key
