"""The Flask app."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flask import Flask, request
from flask.sessions import SecureCookieSessionInterface
from itsdangerous import URLSafeTimedSerializer
from werkzeug.middleware.proxy_fix import ProxyFix

from deniable.registry.text import visible
from deniable.wire.headers import SHARED
from deniable_aggregator.store import Store
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.outage import Outage
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.room import Room
from deniable_aggregator.store.values.sessions import Sessions
from deniable_server import sources
from deniable_server.access.key_ring import Ring
from deniable_server.access.keys import Key
from deniable_server.access.rate_limits import Limits
from deniable_server.access.sealing_keys import Opener
from deniable_server.api import audit_trail, health, script
from deniable_server.api.uploads import ingest, pools
from deniable_server.api.uploads.door import Door
from deniable_server.http import gate, problem, trace
from deniable_server.http.json_answers import JSONAnswers
from deniable_server.prometheus import counted
from deniable_server.service import App, Service, service
from deniable_server.settings import Keys, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from flask import Request, Response
    from flask.sessions import SecureCookieSession, SessionMixin

log = logging.getLogger("deniable.server")

_STORE_SECONDS = 3.0  # an upload uses the store once or twice, and a device gives up after ten seconds


def create_app(
    settings: Settings | None = None,  # by default from the environment
) -> Flask:
    """Make the server, e.g. for `gunicorn 'deniable_server:create_app()'`; an unusable setting or registry raises."""
    settings = settings or Settings.from_environment()
    client = settings.opened(_STORE_SECONDS)
    durability = settings.promise
    room = Room()
    apps = {name: App.of(source, Store(client, name, durability, room)) for name, source in sources.inherited(settings).items()}
    for name, app in apps.items():
        if app.envelope and not app.envelope.is_fresh(datetime.now(UTC).date()):
            log.warning(
                "the signed registry of %s was valid until %s: devices do not use it any more", name, app.envelope.valid_until
            )
    outage = Outage(settings.redis_url, user="server" if settings.serves == "all" else settings.serves, role="server")
    try:
        about.ping(client)
        settings.check(client, durability)
    except StoreError as error:  # the server starts all the same: the store is checked again before it is used
        outage.failed("", error)
    opener = Opener.read("" if settings.serves == "query" else settings.sealing_keys)
    for app in apps.values():
        if settings.serves != "query" and (lack := opener.lacks(app.declared)):
            log.warning("%s; until then its relay keeps them", lack)
    flask = _Server(__name__)
    flask.jinja_options = Flask.jinja_options | {"finalize": _printable}
    flask.config.update(SESSION_COOKIE_HTTPONLY=True, SESSION_COOKIE_SAMESITE="Lax", SESSION_COOKIE_NAME="deniable")
    if settings.serves != "ingest":  # a server for uploads only has no sessions, and must not know the secret of cookies
        flask.session_interface = _Sessions()
    roles = {"ingest": Keys(settings.ingest_keys), "read": Keys(settings.read_keys)}
    fixed = [Key(app, role, digest) for role, keys in roles.items() for app, digest in keys]
    ring = Ring([app.store for app in apps.values()], fixed, outage=outage)
    known = Service(settings, apps, client, ring, Limits(client, settings), Sessions(client), opener, outage)
    flask.extensions["deniable"] = known
    trace.register(flask)  # first, so that every request has a number
    answered = counted.register(flask, known)
    problem.register(flask, outage, settings.serves)
    gate.register(flask, settings)
    audit_trail.register(flask, apps, *_history(settings))
    for part in parts(settings.serves, settings.about):
        flask.register_blueprint(part.blueprint)
    if settings.trusted_proxies:
        # Only these two headers: hosts, ports and prefixes are not used.
        flask.wsgi_app = ProxyFix(  # type: ignore[method-assign]
            flask.wsgi_app, x_for=settings.trusted_proxies, x_proto=settings.trusted_proxies, x_host=0
        )
    if settings.serves != "query":
        flask.extensions["deniable.door"] = Door(known, answered, flask.wsgi_app)
    return flask


def _history(settings: Settings) -> tuple[Callable[[App], None], ...]:
    """Return what notes the questions of a registry for everybody, where they have public results."""
    if settings.about != "results" or settings.serves == "ingest":
        return ()
    from deniable_server.results import history  # noqa: PLC0415 - as below

    return (history.note,)


def parts(serves: str, about: str) -> tuple[ModuleType, ...]:
    """Import what answers requests: modules with a blueprint each."""
    if serves == "ingest":
        return (health, ingest, pools, script)
    # Decoding queries needs libraries that a server for uploads only does without.
    from deniable_server.api import keys, openapi, pipeline  # noqa: PLC0415
    from deniable_server.api.answers import live, metrics, questions, rows  # noqa: PLC0415
    from deniable_server.pages import dashboard  # noqa: PLC0415
    from deniable_server.privacy import about as public  # noqa: PLC0415
    from deniable_server.results import history  # noqa: PLC0415
    from deniable_server.results import page as results  # noqa: PLC0415

    reading = (
        health,
        metrics,
        rows,
        questions,
        live,
        pipeline,
        keys,
        openapi,
        dashboard,
        *([public] if about != "off" else []),
        *([results, history] if about == "results" else []),
    )
    return reading if serves == "query" else (ingest, pools, script, *reading)


class _Server(Flask):
    """Flask for synchronous functions only. It would check this for each of them at each request."""

    json_provider_class = JSONAnswers

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return func


def _printable(value: Any) -> Any:
    """Prepare a text for a page, before it is escaped; HTML is left alone."""
    return visible(value, keep="\n\t") if type(value) is str else value


class _Sessions(SecureCookieSessionInterface):
    """The session's cookie. Over https browsers send it over https only. Devices do not have it."""

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if request.path in SHARED:  # looking for a cookie takes longer than checking a report
            return self.make_null_session(app)
        if self.get_cookie_name(app) not in request.cookies:
            return self.session_class()
        try:
            return super().open_session(app, request)
        except StoreError:  # without the store nobody is signed in
            return self.session_class()

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        with suppress(StoreError):
            super().save_session(app, session, response)

    def get_signing_serializer(self, app: Flask) -> URLSafeTimedSerializer:  # noqa: ARG002
        """Sign with a secret from the store, so that no setting can be guessed from a cookie."""
        options = {"key_derivation": self.key_derivation, "digest_method": self.digest_method}
        return URLSafeTimedSerializer(
            service().sessions.secret(), salt=self.salt, serializer=self.serializer, signer_kwargs=options
        )

    def get_cookie_secure(self, app: Flask) -> bool:  # noqa: ARG002
        return service().settings.secure_cookie == "always" or request.is_secure
