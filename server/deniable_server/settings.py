"""The server's settings, from environment variables. An invalid value stops the start, and the error names the variable."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_type_hints

from deniable import registry
from deniable.errors import ConfigurationError, DeniableError
from deniable.limits import admission
from deniable.registry import published
from deniable.served_registry.restrictions import Restriction
from deniable.served_registry.signature import Envelope
from deniable.wire.report import MAX_BODY_BYTES, MAX_INFLATED_BYTES
from deniable_aggregator.commands.options import opened
from deniable_aggregator.process import logs
from deniable_aggregator.store.server import durability as durability_
from deniable_aggregator.store.server.replicas import NUMBER, TIMEOUT
from deniable_server import rates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deniable.registry import Registry
    from deniable_aggregator.store import Client

PROCESSES = "WEB_CONCURRENCY"
"""The variable of the number of processes. gunicorn reads it, too."""
DEFAULT_PROCESSES = "2"

_HOURS = 3600
_SHORTEST_KEY = 8
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_NAME = r"[a-z0-9._-]+|\[[0-9a-f:.]+\]"
_HOST = re.compile(rf"({_NAME})(:[0-9]{{1,5}})?", re.IGNORECASE)  # as in requests
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?|https?://\[[0-9a-f:]+\](:[0-9]+)?")  # as browsers write it


class Keys:
    """The app of each key. Only digests are kept, and they are compared in constant time."""

    def __init__(
        self,
        pairs: str,  # `app:key` texts, separated by commas
    ) -> None:
        self._apps: list[tuple[bytes, str]] = []
        owners: dict[bytes, str] = {}
        for pair in filter(None, (part.strip() for part in pairs.split(","))):
            app, colon, key = pair.partition(":")
            if not colon or not app or len(key) < _SHORTEST_KEY:
                got = f"{app!r}:..." if colon else "one without a colon"  # this may be a key
                raise ConfigurationError(f"{got} is no key: write app:key, with at least {_SHORTEST_KEY} characters of key")
            digest = sha256(key.encode()).digest()
            owner = owners.setdefault(digest, app)
            if owner != app:
                raise ConfigurationError(f"{owner} and {app} have the same key, which opens one app only: give each app its own")
            self._apps.append((digest, app))

    def app(self, key: str) -> str | None:
        """Return the app of a key, or None."""
        digest = sha256(key.encode()).digest()
        owner = None
        for known, app in self._apps:
            if compare_digest(known, digest):
                owner = app  # no break: how long it takes does not tell which key it was
        return owner

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield the apps, each with the SHA-256 of a key."""
        return ((app, digest) for digest, app in self._apps)

    def __repr__(self) -> str:
        return f"<keys of {', '.join(app for _, app in self._apps) or 'no app'}>"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server. Each is read from ``DENIABLE_<NAME>``."""

    redis_url: str = ""  # as `deniable_aggregator.store.connect` takes it
    # Path of metrics.toml, or of the folder of published registries; several, one for each app, are joined by `:`.
    registry: str = ""
    # Path of the signed registry for devices, from `deniable registry sign`; several are joined in the same way. Empty for none.
    signed_registry: str = ""
    # `ingest`: uploads and signed registries; `query`: the query API and the dashboard; `all`. Two separate servers can use store
    # users with fewer permissions.
    serves: Literal["all", "ingest", "query"] = "all"
    # ingest_keys, read_keys: `app:key`, separated by commas, beside keys from `deniable keys`. Ingest keys are public, read keys
    # are not.
    ingest_keys: str = field(default="", repr=False)
    read_keys: str = field(default="", repr=False)
    # Files of private keys from `deniable registry keygen --sealing`, joined by `:`, with which reports from a relay are opened.
    sealing_keys: str = field(default="", repr=False)
    # `key`: pages ask for a read key; `open`: everybody who reaches the server may read (for loopback).
    dashboard: Literal["key", "open"] = "key"
    # `public`: the page `/about` tells everybody what is asked and how it is randomised, and nothing that was collected;
    # `results`: `/results` also shows what is published of public metrics; `off`: there are no such pages.
    about: Literal["off", "public", "results"] = "off"
    # Names under which open pages are shown, beside those of loopback, separated by commas: `telemetry.lan,192.0.2.7`. Under
    # other names they are refused, because a foreign page could make the browser fetch them (DNS rebinding).
    hosts: str = ""
    # `auto`: the dashboard's session cookie is Secure if the page came over https; `always`: it always is, even if neither this
    # server nor a trusted proxy sees https.
    secure_cookie: Literal["auto", "always"] = "auto"
    # Opens `/metrics`, which covers all apps; at least 8 characters. Empty: there are no metrics.
    metrics_key: str = field(default="", repr=False)
    # Number of proxies in front of this server whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    trusted_proxies: int = field(default=0, metadata={"least": 0})
    # rate_limit_key, rate_limit_source: requests allowed for a key, and for an address: `600/minute`, or `off`. All devices of an
    # app share its ingest key. A device sends one batch a minute, or a hundred reports at once; many devices may share an
    # address.
    rate_limit_key: str = "300000/minute"
    rate_limit_source: str = "600/minute"
    rate_limit_login: str = "10/minute"  # attempts to sign in to the dashboard that an address may make
    stored_limit_source: str = "16MB/minute"  # bytes in the store that uploads of an address may take: `16MB/minute`, or `off`
    # Web origins whose pages may send reports and read the registry, separated by commas; `*` for any, empty for none.
    cors_origins: str = "*"
    # What an upload that was answered has survived: `memory`, `everysec`, `always` or `replicated`.
    durability: durability_.Name = "everysec"
    # With `replicated`, how many replicas each primary has: those of them that could be elected must have an upload.
    replicas: int = NUMBER
    # Seconds after which a replica that was away cannot be elected. Until then uploads wait for it.
    replica_timeout: int = TIMEOUT
    max_backlog: int = 10_000  # batches that may wait to be counted before uploads are refused
    # max_body_bytes, max_inflated_bytes: largest upload as sent, and after decompression
    max_body_bytes: int = MAX_BODY_BYTES
    max_inflated_bytes: int = MAX_INFLATED_BYTES
    idempotency_ttl: int = 72 * _HOURS  # seconds for which an upload may be repeated safely
    clock_skew: int = 1 * _HOURS  # seconds by which a device's clock may be ahead
    # log_level, log_format: the lowest level logged, `debug`, `info` (with a line for each request), `warning` or above; and the
    # format, `console` for people or `json` for programs
    log_level: logs.Level = logs.LogSettings().level
    log_format: logs.Format = logs.LogSettings().format

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            words = get_args(kind)
            if words and getattr(self, name) not in words:
                rule = f"write {', '.join(words[:-1])} or {words[-1]}"
                raise ConfigurationError(f"DENIABLE_{name.upper()} = {getattr(self, name)!r}: {rule}")
        if 0 < len(self.metrics_key) < _SHORTEST_KEY:
            raise ConfigurationError(
                f"DENIABLE_METRICS_KEY has {len(self.metrics_key)} characters: write at least {_SHORTEST_KEY}"
            )
        self._check_names()
        for limit in ("rate_limit_key", "rate_limit_source", "rate_limit_login"):
            rates.parse(f"DENIABLE_{limit.upper()}", getattr(self, limit))
        rates.parse_volume("DENIABLE_STORED_LIMIT_SOURCE", self.stored_limit_source)
        for keys in ("ingest_keys", "read_keys"):
            try:
                Keys(getattr(self, keys))
            except ConfigurationError as error:
                raise ConfigurationError(f"DENIABLE_{keys.upper()}: {error}") from None

    def _check_names(self) -> None:
        for origin in self.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigurationError(
                    f"DENIABLE_CORS_ORIGINS has {origin!r}: write *, or origins such as https://shop.example"
                )
        for name in self._hosts:
            if not re.fullmatch(_NAME, name):
                raise ConfigurationError(
                    f"DENIABLE_HOSTS has {name!r}: write names or addresses without a port, such as telemetry.lan"
                )

    @property
    def log_settings(self) -> logs.LogSettings:
        """The settings of logs."""
        return logs.LogSettings(self.log_level, self.log_format)

    @property
    def promise(self) -> durability_.Durability:
        """What an upload that was answered has survived. Each call makes one that has not seen the store yet."""
        return durability_.Durability(self.durability, self.replicas, self.replica_timeout)

    def opened(self, timeout: float) -> Client:
        """Make a client of the store, without connecting; ConfigurationError if none is named, or its URL is invalid."""
        if not self.redis_url:
            raise ConfigurationError("DENIABLE_REDIS_URL is not set; `deniable serve` brings a store of its own")
        return opened(self.redis_url, timeout=timeout)

    def check(self, client: Client, promise: durability_.Durability) -> None:
        """Check that the store keeps the promise; ConfigurationError if not."""
        if self.serves != "query":  # a server for queries only has promised nothing about uploads
            promise.check(client)

    @property
    def origins(self) -> frozenset[str]:
        """The web origins of `cors_origins`."""
        return frozenset(filter(None, (origin.strip() for origin in self.cors_origins.split(","))))

    @property
    def _hosts(self) -> frozenset[str]:
        return frozenset(filter(None, (name.strip().lower() for name in self.hosts.split(","))))

    def answers_to(
        self,
        host: str,  # as in a request's Host header, with or without a port
    ) -> bool:
        """Return whether open pages are shown under a name."""
        match = _HOST.fullmatch(host)
        return match is not None and match[1].lower() in _LOOPBACK | self._hosts

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings; an error names the variable, the rule and the value."""
        values: dict[str, str | int] = {}
        for setting in fields(cls):
            variable = f"DENIABLE_{setting.name.upper()}"
            text = environment.get(variable)
            if text is None:
                continue
            if isinstance(setting.default, int):
                least = setting.metadata.get("least", 1)
                if not text.isdecimal() or int(text) < least:
                    raise ConfigurationError(f"{variable} = {text!r}: write a whole number of at least {least}")
                values[setting.name] = int(text)
            else:
                values[setting.name] = text
        return cls(**values)  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """Return the settings as environment variables for another process."""
        return {f"DENIABLE_{each.name.upper()}": str(getattr(self, each.name)) for each in fields(self)}

    @property
    def registry_paths(self) -> list[str]:
        """The paths of the registries; ConfigurationError if there is none."""
        paths = published.paths(self.registry)
        if not paths:
            raise ConfigurationError("DENIABLE_REGISTRY is not set: it names the metrics.toml to serve")
        return paths

    def registries(self) -> dict[str, Registry]:
        """Load the registry of each app; a RegistryError has all errors of a file, and why a metric would be off in an app."""
        return admission.load_all(os.pathsep.join(self.registry_paths))

    def envelopes(
        self,
        registries: Mapping[str, Registry],  # By app. What is signed must be what they say.
    ) -> tuple[dict[str, Envelope], dict[str, DeniableError]]:
        """Read the signed registry of each app that has one; return them, and why others cannot be used.

        Both are by app. An error of a file that is of no known app is under an empty name: any app without a signed registry may
        have meant it. Devices check the signature.
        """
        envelopes: dict[str, Envelope] = {}
        errors: dict[str, DeniableError] = {}
        for path in published.paths(self.signed_registry):
            try:
                envelope = Envelope.read(Path(path).read_bytes())
            except OSError as error:
                errors[""] = ConfigurationError(f"DENIABLE_SIGNED_REGISTRY names readable files; {error}")
                continue
            if envelope is None:
                rule = "DENIABLE_SIGNED_REGISTRY names files that `deniable registry sign` made"
                errors[""] = ConfigurationError(f"{rule}; {path} is none")
                continue
            try:
                signed = Restriction.read(envelope.text)
            except DeniableError as error:
                errors[""] = error
                continue
            if signed.app in envelopes:
                raise ConfigurationError(f"DENIABLE_SIGNED_REGISTRY names one file for each app; {signed.app} has two")
            envelopes[signed.app] = envelope
            served = registries.get(signed.app)
            if served is None or Restriction.of(registry.load(served.file)) != signed:
                rule = f"{path} says something else than this server's registry for {signed.app}"
                errors[signed.app] = ConfigurationError(f"{rule}: sign its metrics.toml again")
        return envelopes, errors


def processes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes that gunicorn runs."""
    text = environment.get(PROCESSES, DEFAULT_PROCESSES)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"{PROCESSES} = {text!r}: write a whole number of at least 1")
    return int(text)


VARIABLES: dict[str, str] = {f"DENIABLE_{each.name.upper()}": str(each.default) for each in fields(Settings)}
"""Variables that a server reads, with the defaults."""
