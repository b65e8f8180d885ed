"""Visitors of pages: everybody if pages are open, else people who signed in with a key; and the app that they may see."""

from __future__ import annotations

from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, NoReturn

from flask import abort, redirect, request, session, url_for

from deniable_server.api.auth import admin_only
from deniable_server.http.problem import ROUTE_SECONDS, Problem, written
from deniable_server.http.visit import visit
from deniable_server.service import service

if TYPE_CHECKING:
    from deniable_server.access.keys import Key
    from deniable_server.service import App


def app_shown() -> App:
    """Return the app to show: the chosen one if pages are open, else the app of the visitor's key."""
    apps = service().apps
    if pages_are_open():
        name = request.args.get("app") or next(iter(apps))
        if name in service().off:
            why = f"{name} is off until its registry is mended, and devices keep their reports: {service().off[name]}"
            raise Problem(503, "app_not_served", why, retry_after=ROUTE_SECONDS)
        if name not in apps:
            raise Problem(404, "unknown_app", "No app of this name is counted here.")
        visit().app, visit().actor = name, "open"
        return apps[name]
    name = session.get("app", "")
    key = service().sessions.key(name, session.get("number", "")) if name in apps else None
    if key is None or not service().ring.holds(name, key, "read"):  # it was revoked meanwhile
        _ask_for_key()
    here = visit()
    here.app, here.actor, here.holder = name, f"key:{key}", key
    if request.args.get("app", name) != name:  # whether there is such an app is not told
        raise Problem(
            403, "other_app", f"You are signed in to {name}. To see another app, sign out and sign in with its read key."
        )
    return apps[name]


def owned_app() -> App:
    """Return the app to show to a visitor with its admin key."""
    app = app_shown()
    if not is_owner(app):
        raise admin_only()
    return app


def is_owner(app: App) -> bool:
    """Return whether the visitor signed in with the app's admin key."""
    return not pages_are_open() and service().ring.holds(app.name, visit().holder, "admin")


def key_of(app: App) -> Key:
    """Return the key with which the visitor signed in to the app that is shown; refuse a visitor of open pages, who has none."""
    if pages_are_open():
        detail = (
            "these pages are open to everybody, and a budget is of a key: ask POST /api/v1/metrics/{id}/withheld with a read key"
        )
        raise Problem(403, "no_key", detail)
    key = service().ring.held(app.name, visit().holder, "read")
    if key is None:  # it was revoked a moment ago
        _ask_for_key()
    return key


def pages_are_open() -> bool:
    """Return whether pages are open to everybody."""
    return service().settings.dashboard == "open"


def _ask_for_key() -> NoReturn:
    """Redirect to the login form, and remember the page. Tell a program, which sends a key, where keys are taken."""
    if request.headers.get("Authorization", "").lower().startswith("bearer "):  # a browser behind a proxy may send Basic
        detail = "pages take no key in a header: ask GET /api/v1/query?metrics=...&format=csv, or another address below /api/v1"
        abort(written(Problem(401, "not_signed_in", detail)))
    session.pop("app", None)
    session["page"] = request.full_path.rstrip("?")
    abort(redirect(url_for(".login"), 303))


def sign_in(key: Key) -> str:
    """Begin a session for a key; return the page that the visitor asked for."""
    page = session.get("page") or url_for(".index")
    sign_out()  # the session has a new number: whoever planted a cookie before knows nothing of it
    session.update(app=key.app, number=service().sessions.open(key.app, key.id))
    service().ring.note(key)
    return page


def sign_out() -> None:
    """End the session in the store, so that a copy of the cookie is worthless."""
    if session.get("app") in service().apps:
        service().sessions.close(session["app"], session.get("number", ""))
    session.clear()


def token() -> str:
    """Return the session's secret. Only our own forms contain it."""
    if "token" not in session:
        session["token"] = token_urlsafe(24)
    return str(session["token"])


def is_signed_in() -> bool:
    """Return whether a session is open."""
    return not pages_are_open() and "app" in session


def from_our_form() -> bool:
    """Return whether the request comes from a form of this session."""
    return "token" in session and compare_digest(request.form.get("token", "").encode(), token().encode())


def remembered() -> dict[str, Any]:
    """Return the parameters that links repeat: the app, if pages are open and there are several."""
    has_choice = pages_are_open() and len(service().apps) > 1
    return {"app": request.args["app"]} if has_choice and request.args.get("app") in service().apps else {}
