"""The Flask app."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_hex

from flask import Flask

from deniable.errors import ConfigurationError
from deniable_aggregator.store import connect
from deniable_server import dashboard, ingest, problem, query
from deniable_server.service import App, Service
from deniable_server.settings import Keys, Settings

__all__ = ["create_app"]


def create_app(settings: Settings | None = None) -> Flask:
    """Make the server, e.g. for ``gunicorn 'deniable_server:create_app()'``.

    Parameters
    ----------
    settings
        By default those of the environment.

    Raises
    ------
    ConfigurationError
        If a setting is unusable.
    RegistryError
        If the registry has faults.
    """
    settings = settings or Settings.from_environment()
    if not settings.redis_url:
        raise ConfigurationError("DENIABLE_REDIS_URL is not set; `deniable serve` brings a store of its own")
    client = connect(settings.redis_url)
    registries = settings.registries()
    envelopes = settings.envelopes(registries)
    apps = {name: App.of(registry, client, envelopes.get(name)) for name, registry in registries.items()}
    flask = Flask(__name__)
    secret = settings.secret or settings.read_keys or token_hex()
    flask.secret_key = sha256(b"deniable session" + secret.encode()).digest()
    flask.config.update(SESSION_COOKIE_HTTPONLY=True, SESSION_COOKIE_SAMESITE="Lax", SESSION_COOKIE_NAME="deniable")
    flask.extensions["deniable"] = Service(settings, apps, Keys(settings.ingest_keys), Keys(settings.read_keys))
    problem.register(flask)
    for part in (ingest, query, dashboard):
        flask.register_blueprint(part.blueprint)
    return flask
