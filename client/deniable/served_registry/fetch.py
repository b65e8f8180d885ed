"""A registry from the server, without a new release of the app: signed, never older, and never asking for more.

It runs in the sending thread. What does not look like a registry at all, such as the page of a hotel's network, changes nothing;
what claims to be one, and is not right, ends sending until the app starts anew.
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
    """Asks for a document; raises when no answer came."""

    def __call__(self, url: str, headers: Mapping[str, str], timeout: float) -> tuple[int, bytes | None]:
        """Return status and body, None instead of one that is larger than an envelope."""


class HttpGet:
    """`Get` over HTTP, from a sending thread."""

    def __call__(self, url: str, headers: Mapping[str, str], timeout: float) -> tuple[int, bytes | None]:
        """Ask once; a server that takes longer in all is cut off."""
        # Not compressed, so that what is read is all that there is.
        given = {"Accept-Encoding": "identity", **headers}
        status, _, body = Http()("GET", url, given, timeout, largest=MAX_BYTES, total=timeout)
        return status, body


class Fetcher:
    """Brings a served registry into use. To be called again after as many seconds as it returns.

    Parameters
    ----------
    dsn
        Where to ask.
    public_key
        The key that the app pins, base64.
    bundled
        The registry that the app brings along.
    directory
        The app's own directory, where the last good envelope is kept; None for none.
    use
        Called with a registry to use from now on.
    refuse
        Called with the reason why nothing may be sent any more.
    get
        Replaces HTTP, for tests.

    Raises
    ------
    ConfigurationError
        If the key is none, or ``deniable[signed]`` is not installed.

    Attributes
    ----------
    counts : Counter of str
        What came of each attempt: ``used``, ``unchanged``, ``unreachable``, ``status``, ``no_registry``, ``refused``; of the kept
        envelope ``cache_used``, ``cache_ignored``, ``cache_unwritable``.
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
        """Look for a registry, first among what was kept, then on the server.

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
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, this registry ends sending
            self._refused = True
            self.counts["refused"] += 1
            self._refuse(str(error) if isinstance(error, DeniableError) else f"{FILE} cannot be used: {type(error).__name__}")
            return _DAY
        return (_DAY if good else _HOUR) * (0.9 + jitter(0.2))

    def _use_kept(self) -> None:
        """Use the registry that was kept, if it is newer than the one in use. A fault in it is not the server's."""
        readable = self._cache.refresh()
        if self._cache.envelope == self._current and readable:
            return
        try:
            self._use(self._kept())
        except Exception as error:  # noqa: BLE001 - the registry in use is as good
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
        """Ask the server; return whether it has answered as it should."""
        # The same request every time: nothing in it follows from what was served before, which could tell devices apart.
        headers = {"Authorization": f"Bearer {self._dsn.key}", "Accept": "application/json"}
        try:
            status, body = self._get(f"{self._dsn.url}/v1/registry", headers, _TIMEOUT)
        except Exception as error:  # noqa: BLE001 - of requests, urllib3 or the system: nothing was served
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
        """Tell whether what was kept is what was signed, and not damaged since."""
        try:
            kept.verify(self._public_key)
        except ServedRegistryError:
            return False
        return True

    def _checked(self, envelope: Envelope) -> Registry:
        """Return the registry of an envelope, if it may be used; the text is not even read before its signature is checked."""
        envelope.verify(self._public_key)
        return restricted(self._bundled, parse(envelope.text, FILE))
