"""Fetches the served registry: a restriction of the app's own. It must be signed, and must never be older.

This runs in the sending thread. An answer that is no registry at all, such as the login page of a hotel's network, changes
nothing. An answer that claims to be a registry but breaks a rule ends sending until the app's next start.

A registry whose days are over changes nothing either. A device that has no other goes on with the one that it has, and with what
any earlier one had turned off or down.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Protocol

from deniable.errors import DeniableError, ServedRegistryError
from deniable.frozen import replace
from deniable.messages.log import log
from deniable.messages.notice import warn_once
from deniable.messages.reasons import FAILURES, SERVED
from deniable.served_registry.cache import Cache
from deniable.served_registry.restrictions import Restriction
from deniable.served_registry.signature import FILE, MAX_BYTES, Envelope, check_installed, check_public_key, refusal
from deniable.source import jitter
from deniable.transport.failures import failure
from deniable.transport.http import Http
from deniable.wire import addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deniable.registry import Registry
    from deniable.transport.dsn import Dsn

_DAY = 86_400.0
_HOUR = 3_600.0
_TIMEOUT = 10.0
_OK = 200


class Get(Protocol):
    """Requests a document; raises an error if there was no answer."""

    def __call__(self, url: str, headers: Mapping[str, str], timeout: float) -> tuple[int, bytes | None]:
        """Return the status and the body; None instead of a body larger than an envelope."""


class HttpGet:
    """`Get` over HTTP, from a sending thread."""

    def __call__(self, url: str, headers: Mapping[str, str], timeout: float) -> tuple[int, bytes | None]:
        """Send one request. It is cut after `timeout` seconds in all."""
        # Without compression, so that the size of the answer is known.
        sent = {"Accept-Encoding": "identity", **headers}
        status, _, body = Http()("GET", url, sent, timeout, largest=MAX_BYTES, total=timeout)
        return status, body


class Fetcher:
    """Fetches a served registry and has it used. Each call returns the seconds until the next call."""

    def __init__(
        self,
        dsn: Dsn,  # the server
        public_key: str,  # the key that the app pins, base64
        bundled: Registry,  # the app's own registry
        directory: Path | None,  # the app's own directory, where the last good envelope is kept; None to keep it in memory
        *,
        use: Callable[[Registry], None],  # called with a registry to use from now on
        refuse: Callable[[str], None],  # called with the reason why nothing may be sent any more
        get: Get | None = None,  # replaces HTTP, for tests
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),  # the day (UTC), for tests
    ) -> None:
        check_installed()
        check_public_key(public_key)
        self._dsn = dsn
        self._public_key = public_key
        self._bundled = bundled
        self._cache = Cache(directory)
        self._use = use
        self._refuse = refuse
        self._get = get or HttpGet()
        self._today = today
        self._current: Envelope | None = None
        self._narrowed = False  # whether earlier envelopes count, too, because the present one is no longer fresh
        self._refused = False
        # Results of the attempts: `used`, `unchanged`, `unreachable`, `status`, `no_registry`, `expired`, `refused`. Results of
        # the kept envelope: `cache_used`, `cache_ignored`, `cache_unwritable`.
        self.counts: Counter[str] = Counter()

    def __call__(self) -> float:
        """Use the kept registry, if it is newer, then ask the server for a newer one; return the seconds until the next call."""
        if self._refused:
            return _DAY
        self._use_kept()
        try:
            good = self._fetch()
        except Exception as error:  # noqa: BLE001 - any error of a registry ends sending
            self._refused = True
            self.counts["refused"] += 1
            self._refuse(str(error) if isinstance(error, DeniableError) else f"{FILE} cannot be used: {type(error).__name__}")
            return _DAY
        self._narrow()
        return (_DAY if good else _HOUR) * (0.9 + jitter(0.2))

    def _use_kept(self) -> None:
        """Use the kept registry if it is newer than the present one. Its faults end nothing: it may have been damaged here."""
        readable = self._cache.refresh()
        if self._cache.envelope == self._current and readable:
            return
        try:
            self._use(self._cached())
        except Exception as error:  # noqa: BLE001 - the present registry stays in use
            log.debug("deniable: the kept registry is ignored: %s", type(error).__name__)
            self.counts["cache_ignored"] += 1
        else:
            self._current, self._narrowed = self._cache.envelope, False
            self.counts["cache_used"] += 1

    def _cached(self) -> Registry:
        revision, envelope = self._cache.revision, self._cache.envelope
        if envelope is None:
            raise refusal(f"the file of revision {revision} cannot be read", ...)
        registry = self._checked(envelope)
        if registry.revision != revision:
            raise refusal(f"the file of revision {revision} holds revision {registry.revision}", ...)
        return registry

    def _fetch(self) -> bool:
        """Ask the server; return whether it answered properly."""
        # The request is always the same. If it depended on what was served before, it could tell devices apart.
        headers = {"Authorization": f"Bearer {self._dsn.key}", "Accept": "application/json"}
        try:
            status, body = self._get(f"{self._dsn.url}{addresses.REGISTRY}", headers, _TIMEOUT)
        except Exception as error:  # noqa: BLE001 - whatever it is, there was no answer
            log.debug("deniable: no registry from %s: %s", self._dsn.url, type(error).__name__)
            self.counts["unreachable"] += 1
            reason = failure(error)
            warn_once(self._dsn.url, reason, FAILURES[reason].words())
            return False
        if status != _OK:
            return self._decline("status", f"status {status}")
        envelope = None if body is None else Envelope.read(body)
        if envelope is None:
            return self._decline("no_registry")
        return self._take(envelope)

    def _decline(self, reason: str, facts: str = "") -> bool:
        """Count an answer that changes nothing, and say why once; return False."""
        self.counts[reason] += 1
        warn_once("served registry", reason, SERVED[reason].words(facts))
        return False

    def _take(self, envelope: Envelope) -> bool:
        """Use an envelope; return whether it is fresh. One that is not changes nothing, whatever it says."""
        registry = self._checked(envelope)
        if not envelope.is_fresh(self._today()):
            return self._decline("expired", f"on {envelope.valid_until}")
        self._cache.refresh()  # another process may have kept a newer one
        known = self._cache.envelope
        if registry.revision < self._cache.revision:
            raise refusal(f"revision: write {self._cache.revision} or more, which was served before", registry.revision)
        if registry.revision == self._cache.revision and known and known.text != envelope.text and self._sound(known):
            raise refusal(f"revision {registry.revision} was published before with another text: raise the revision", ...)
        if self._current is not None and envelope.text == self._current.text and not self._outlives(envelope):
            self.counts["unchanged"] += 1
            return True
        self._use(registry)
        self._current, self._narrowed = envelope, False
        self.counts["used"] += 1
        if not self._cache.keep(registry.revision, envelope):
            self.counts["cache_unwritable"] += 1
        return True

    def _outlives(self, envelope: Envelope) -> bool:
        """Return whether an envelope of the present text is valid for longer than the present one."""
        assert self._current is not None  # noqa: S101 - the caller has looked
        until = self._current.valid_until
        return until is not None and (envelope.valid_until is None or envelope.valid_until > until)

    def _narrow(self) -> None:
        """When the present registry is no longer fresh, turn off and down whatever any known one had."""
        if self._current is None or self._narrowed or self._current.is_fresh(self._today()):
            return
        registry = self._checked(self._current)
        metrics = registry.metrics
        # Whoever runs the server may hold a newer one back, to have devices report what was turned off before.
        for envelope in self._cache.earlier():
            if restriction := self._sound(envelope):
                metrics = restriction.limited(metrics)
        self._use(replace(registry, metrics=metrics))
        self._narrowed = True

    def _sound(self, envelope: Envelope) -> Restriction | None:
        """Read the restriction of a kept envelope; None if it was damaged."""
        try:
            return self._read(envelope)
        except ServedRegistryError:
            return None

    def _read(self, envelope: Envelope) -> Restriction:
        """Read the restriction of an envelope. The text is read only after its signature was checked."""
        envelope.verify(self._public_key)
        return Restriction.read(envelope.text)

    def _checked(self, envelope: Envelope) -> Registry:
        """Return the registry of an envelope, if it may be used."""
        return self._read(envelope).applied(self._bundled)
