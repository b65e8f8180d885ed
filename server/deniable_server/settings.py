"""What a server is told by its environment; a bad value stops the start and names itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deniable import registry
from deniable.errors import ConfigurationError
from deniable.report import MAX_BODY_BYTES, MAX_INFLATED_BYTES
from deniable.signature import Envelope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Registry

__all__ = ["Keys", "Settings"]

_HOURS = 3600


class Keys:
    """Which app a key opens. Only digests are kept, and they are compared in constant time.

    Parameters
    ----------
    pairs
        ``app:key`` texts, separated by commas.
    """

    def __init__(self, pairs: str) -> None:
        self._apps: list[tuple[bytes, str]] = []
        for pair in filter(None, (part.strip() for part in pairs.split(","))):
            app, colon, key = pair.partition(":")
            if not colon or not app or len(key) < 8:  # noqa: PLR2004
                raise ConfigurationError(f"a key is written app:key, with at least 8 characters of key; got {app!r}:...")
            self._apps.append((sha256(key.encode()).digest(), app))

    def app(self, key: str) -> str | None:
        """Return the app that a key opens, or None."""
        digest = sha256(key.encode()).digest()
        found = None
        for known, app in self._apps:
            if compare_digest(known, digest):
                found = app
        return found

    def __repr__(self) -> str:
        return f"<keys of {', '.join(app for _, app in self._apps) or 'no app'}>"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server. Each is read from ``DENIABLE_<NAME>``.

    Parameters
    ----------
    redis_url
        ``redis://``, ``rediss://`` or ``unix://``.
    registry
        Path of metrics.toml; several, one for each app, are joined by ``:``.
    signed_registry
        Path of what ``deniable registry sign`` made of it, to be handed to devices; several are joined alike. Empty for none.
    ingest_keys, read_keys
        ``app:key``, separated by commas. Ingest keys are public, read keys are not.
    dashboard
        ``key``: pages ask for a read key; ``open``: whoever reaches the server may look (for loopback).
    secret
        Signs the dashboard's session cookie; derived from the read keys when empty, so that all processes agree.
    max_backlog
        Batches that may wait to be counted before uploads are refused.
    max_body_bytes, max_inflated_bytes
        Largest upload as sent, and after decompression.
    idempotency_ttl
        Seconds for which an upload may be repeated safely.
    grace
        Seconds after a period's end in which its reports are still taken; devices may have been offline.
    clock_skew
        Seconds by which a device's clock may be ahead.
    """

    redis_url: str = ""
    registry: str = ""
    signed_registry: str = ""
    ingest_keys: str = field(default="", repr=False)
    read_keys: str = field(default="", repr=False)
    dashboard: Literal["key", "open"] = "key"
    secret: str = field(default="", repr=False)
    max_backlog: int = 10_000
    max_body_bytes: int = MAX_BODY_BYTES
    max_inflated_bytes: int = MAX_INFLATED_BYTES
    idempotency_ttl: int = 72 * _HOURS
    grace: int = 72 * _HOURS
    clock_skew: int = 1 * _HOURS

    def __post_init__(self) -> None:
        if self.dashboard not in ("key", "open"):
            raise ConfigurationError(f"DENIABLE_DASHBOARD is key or open; got {self.dashboard!r}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings.

        Raises
        ------
        ConfigurationError
            Naming the variable, the rule and the value.
        """
        given: dict[str, str | int] = {}
        for each in fields(cls):
            variable = f"DENIABLE_{each.name.upper()}"
            text = environment.get(variable)
            if text is None:
                continue
            if isinstance(each.default, int):
                if not text.isdecimal() or not int(text):
                    raise ConfigurationError(f"{variable} is a whole number above 0; got {text!r}")
                given[each.name] = int(text)
            else:
                given[each.name] = text
        return cls(**given)  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """Return the settings as environment variables, for a process to be started with them."""
        return {f"DENIABLE_{each.name.upper()}": str(getattr(self, each.name)) for each in fields(self)}

    def registries(self) -> dict[str, Registry]:
        """Load the registry of each app.

        Raises
        ------
        ConfigurationError
            If there is none, or two are for one app.
        RegistryError
            With the faults of a file.
        """
        loaded: dict[str, Registry] = {}
        for path in filter(None, self.registry.split(os.pathsep)):
            each = registry.load(path)
            if each.app in loaded:
                raise ConfigurationError(f"DENIABLE_REGISTRY names one registry for each app; {each.app} has two")
            loaded[each.app] = each
        if not loaded:
            raise ConfigurationError("DENIABLE_REGISTRY is not set: it names the metrics.toml to serve")
        return loaded

    def envelopes(self, registries: Mapping[str, Registry]) -> dict[str, Envelope]:
        """Read the signed registry of each app that has one. Whether the signature is right is for devices to say.

        Parameters
        ----------
        registries
            By app. What devices are told must be what their reports are checked against.

        Raises
        ------
        ConfigurationError
            If a file cannot be read, holds another registry than the one served, or is for no app of this server.
        RegistryError
            With the faults of a file.
        """
        found: dict[str, Envelope] = {}
        for path in filter(None, self.signed_registry.split(os.pathsep)):
            try:
                envelope = Envelope.read(Path(path).read_bytes())
            except OSError as error:
                raise ConfigurationError(f"DENIABLE_SIGNED_REGISTRY names readable files; {error}") from None
            if envelope is None:
                raise ConfigurationError(
                    f"DENIABLE_SIGNED_REGISTRY names files that `deniable registry sign` made; {path} is none"
                )
            signed = registry.parse(envelope.text, path)
            if signed.app in found:
                raise ConfigurationError(f"DENIABLE_SIGNED_REGISTRY names one file for each app; {signed.app} has two")
            if not signed.revision:
                raise ConfigurationError(f"a registry that is handed to devices has a revision; {path} has none")
            if registries.get(signed.app) != signed:
                raise ConfigurationError(
                    f"{path} holds another registry than this server's for {signed.app}: sign its metrics.toml again"
                )
            found[signed.app] = envelope
        return found
