"""The relay's settings, from options and environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORTEST_KEY = 8

VARIABLES: dict[str, str] = {
    "DENIABLE_RELAY_REGISTRY": "metrics.toml",
    "DENIABLE_RELAY_SERVER": "",
    "DENIABLE_RELAY_INGEST_KEY": "",
    "DENIABLE_RELAY_SERVER_KEY": "",
    "DENIABLE_RELAY_DATA": "relay",
    "DENIABLE_RELAY_BIND": "127.0.0.1:8090",
    "DENIABLE_RELAY_UPLOADS": "60",
    "DENIABLE_RELAY_REPORTS": "20",
    "DENIABLE_RELAY_TRUSTED_PROXIES": "0",
}
"""The variables that the relay reads, with their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a relay is told."""

    registry: Path  # metrics.toml of the app, as it ships
    server: str  # URL of the server, without a path
    ingest_key: str  # of devices; it is in every copy of the app
    server_key: str  # the relay's own key of the server; it is secret
    data: Path  # folder of the file of pools
    bind: str  # address that the relay answers at, host:port
    uploads: int  # that an address may send in a minute; 0 for no limit
    reports: int  # of one pool that an address may send in a day; 0 for no limit
    trusted_proxies: int  # in front of the relay, whose X-Forwarded-For is believed

    @classmethod
    def of(
        cls,
        options: Mapping[str, str | None],  # of the command line, by name; they go before variables
        environment: Mapping[str, str] = os.environ,
    ) -> Settings:
        """Read the settings; raise `ConfigurationError` for one that is missing or unusable."""

        def text(name: str, about: str = "") -> str:
            variable = f"DENIABLE_RELAY_{name.upper()}"
            value = options.get(name) or environment.get(variable) or VARIABLES[variable]
            if not value:
                source = f"--{name.replace('_', '-')} or {variable}" if name in options else variable
                raise ConfigurationError(f"{variable} is missing: give {source}, {about}")
            return value

        def key(name: str, about: str) -> str:
            value = text(name, about)
            if len(value) < _SHORTEST_KEY or not value.isascii() or not value.isprintable():
                raise ConfigurationError(f"DENIABLE_RELAY_{name.upper()}: write at least {_SHORTEST_KEY} printable characters")
            return value

        def number(name: str) -> int:
            value = text(name)
            if not value.isdecimal():
                raise ConfigurationError(f"DENIABLE_RELAY_{name.upper()} = {value!r}: write a whole number, 0 for none")
            return int(value)

        def address(name: str) -> str:
            value = text(name)
            host, _, port = value.rpartition(":")
            if not host or not port.isdecimal():
                raise ConfigurationError(f"DENIABLE_RELAY_{name.upper()} = {value!r}: write host:port, such as 127.0.0.1:8090")
            return value

        server = text("server", "the address of the server, such as https://telemetry.example.org").rstrip("/")
        if not server.startswith(("https://", "http://")):
            raise ConfigurationError(f"DENIABLE_RELAY_SERVER = {server!r}: write an address, https://host or http://host:port")
        return cls(
            registry=Path(text("registry")),
            server=server,
            ingest_key=key("ingest_key", "the key in the DSN of devices"),
            server_key=key("server_key", "the key that `deniable keys create --role relay` printed"),
            data=Path(text("data")),
            bind=address("bind"),
            uploads=number("uploads"),
            reports=number("reports"),
            trusted_proxies=number("trusted_proxies"),
        )
