"""Fetches the served registry. It must be signed, must never be older, and must never ask for more than the app's own.

This runs in the sending thread. An answer that is no registry at all, such as the login page of a hotel's network, changes
nothing. An answer that claims to be a registry but breaks a rule ends sending until the app's next start.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from deniable.errors import DeniableError, ServedRegistryError
from deniable.registry import parse
from deniable.served_registry.cache import Cache
from deniable.served_registry.restrictions import restricted
from deniable.served_registry.signature import FILE, MAX_BYTES, Envelope, check_installed, check_public_key, refusal
from deniable.source import jitter
from deniable.transport.http import Http

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deniable.dsn import Dsn
    from deniable.registry import Registry

__all__ = ["Fetcher", "Get", "HttpGet"]

log = logging.getLogger("deniable")

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
        given = {"Accept-Encoding": "identity", **headers}
        status, _, body = Http()("GET", url, given, timeout, largest=MAX_BYTES, total=timeout)
        return status, body


class Fetcher:
    """Fetches a served registry and has it used. Each call returns the seconds until the next call.

    Parameters
    ----------
    dsn
        The server.
    public_key
        The key that the app pins, base64.
    bundled
        The app's own registry.
    directory
        The app's own directory, where the last good envelope is kept; None to keep it in memory.
    use
        Called with a registry to use from now on.
    refuse
        Called with the reason why nothing may be sent any more.
    get
        Replaces HTTP, for tests.

    Raises
    ------
    ConfigurationError
        If the key is invalid, or ``deniable[signed]`` is not installed.

    Attributes
    ----------
    counts : Counter of str
        Results of the attempts: ``used``, ``unchanged``, ``unreachable``, ``status``, ``no_registry``, ``refused``. Results of
        the kept envelope: ``cache_used``, ``cache_ignored``, ``cache_unwritable``.
    """

    def __init__(
        self,
        dsn: Dsn,
        public_key: str,
        bundled: Registry,
        directory: Path | None,
        *,
        use: Callable[[Registry], None],
        refuse: Callable[[str], None],
        get: Get | None = None,
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
        self._current: Envelope | None = None
        self._refused = False
        self.counts: Counter[str] = Counter()

    def __call__(self) -> float:
        """Use the kept registry, if it is newer, then ask the server for a newer one.

        Returns
        -------
        float
            Seconds until the next call is due.
        """
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
        return (_DAY if good else _HOUR) * (0.9 + jitter(0.2))

    def _use_kept(self) -> None:
        """Use the kept registry if it is newer than the present one. Its faults end nothing: it may have been damaged here."""
        readable = self._cache.refresh()
        if self._cache.envelope == self._current and readable:
            return
        try:
            self._use(self._kept())
        except Exception as error:  # noqa: BLE001 - the present registry stays in use
            log.debug("deniable: the kept registry is ignored: %s", type(error).__name__)
            self.counts["cache_ignored"] += 1
        else:
            self._current = self._cache.envelope
            self.counts["cache_used"] += 1

    def _kept(self) -> Registry:
        revision, envelope = self._cache.revision, self._cache.envelope
        if envelope is None:
            raise refusal(f"the file of revision {revision} can be read", "another file")
        registry = self._checked(envelope)
        if registry.revision != revision:
            raise refusal(f"the file of revision {revision} holds it", registry.revision)
        return registry

    def _fetch(self) -> bool:
        """Ask the server; return whether it answered properly."""
        # The request is always the same. If it depended on what was served before, it could tell devices apart.
        headers = {"Authorization": f"Bearer {self._dsn.key}", "Accept": "application/json"}
        try:
            status, body = self._get(f"{self._dsn.url}/v1/registry", headers, _TIMEOUT)
        except Exception as error:  # noqa: BLE001 - an error of requests, urllib3 or the system: there was no answer
            log.debug("deniable: no registry from %s: %s", self._dsn.url, type(error).__name__)
            self.counts["unreachable"] += 1
            return False
        if status != _OK:
            self.counts["status"] += 1
            return False
        envelope = None if body is None else Envelope.read(body)
        if envelope is None:
            self.counts["no_registry"] += 1
            return False
        self._take(envelope)
        return True

    def _take(self, envelope: Envelope) -> None:
        registry = self._checked(envelope)
        self._cache.refresh()  # another process may have kept a newer one
        known = self._cache.envelope
        if registry.revision < self._cache.revision:
            raise refusal(f"the revision is at least {self._cache.revision}, which was served before", registry.revision)
        if registry.revision == self._cache.revision and known and known.text != envelope.text and self._signed(known):
            raise refusal("a revision is published once", f"another text of revision {registry.revision}")
        if self._current is not None and envelope.text == self._current.text:
            self.counts["unchanged"] += 1
            return
        self._use(registry)
        self._current = envelope
        self.counts["used"] += 1
        if not self._cache.keep(registry.revision, envelope):
            self.counts["cache_unwritable"] += 1

    def _signed(self, kept: Envelope) -> bool:
        """Return whether the signature of a kept envelope is right. It may have been damaged."""
        try:
            kept.verify(self._public_key)
        except ServedRegistryError:
            return False
        return True

    def _checked(self, envelope: Envelope) -> Registry:
        """Return the registry of an envelope, if it may be used. The text is read only after its signature was checked."""
        envelope.verify(self._public_key)
        return restricted(self._bundled, parse(envelope.text, FILE))
