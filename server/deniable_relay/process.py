"""The process of a relay: gunicorn with one worker, whose threads share the file of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication

from deniable import registry
from deniable.errors import ConfigurationError
from deniable.transport.http import HttpPost
from deniable.wire import addresses
from deniable_relay.app import Web, create_app
from deniable_relay.forwarding import Forwarder
from deniable_relay.limits import Limits
from deniable_relay.pools import FILE, Pools
from deniable_relay.uploads import Reader

if TYPE_CHECKING:
    from flask import Flask

    from deniable.registry import Registry
    from deniable_relay.settings import Settings

_THREADS = 16  # that wait for one commit
_CONFIG = {
    "workers": 1,  # one process has the file
    "worker_class": "gthread",
    "threads": _THREADS,
    "accesslog": None,  # it would have addresses
    "loglevel": "warning",
    "control_socket_disable": True,
    "limit_request_line": 2048,
    "limit_request_fields": 32,
    "limit_request_field_size": 4096,
}


class _Relay(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    def __init__(self, settings: Settings, declared: Registry) -> None:
        self._settings, self._declared = settings, declared
        super().__init__()

    def load_config(self) -> None:
        for name, value in _CONFIG.items():
            self.cfg.set(name, value)
        self.cfg.set("bind", self._settings.bind)
        self.cfg.set("worker_exit", lambda _server, worker: worker.app.end())

    def load(self) -> Flask:
        """Open the file and begin to forward, in the worker's process."""
        settings = self._settings
        self._pools = Pools(settings.data / FILE)
        self._forwarder = Forwarder(
            self._declared.app, self._pools, HttpPost(f"{settings.server}{addresses.POOLS}"), settings.server_key
        )
        self._forwarder.start()
        limits = Limits(settings.uploads, settings.reports)
        web = Web(settings.ingest_key, Reader(self._declared), self._pools, self._forwarder, limits)
        return create_app(web, settings.trusted_proxies)

    def end(self) -> None:
        """End forwarding, and close the file."""
        self._forwarder.stop()
        self._pools.close()


def serve(settings: Settings) -> Any:
    """Serve until the process is ended; raise `DeniableError` if the registry names no relay, or the folder can not be used."""
    declared = registry.load(settings.registry)
    if declared.relay is None:
        raise ConfigurationError(f"{settings.registry} has no [relay]: nothing is sealed, so there is nothing to mix")
    try:
        settings.data.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{settings.data} can not be used: {error.strerror}") from None
    _Relay(settings, declared).run()
