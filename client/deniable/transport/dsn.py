"""The DSN: one line that says where an app sends its reports."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from deniable.errors import ConfigurationError

_SECRET = {"rk_": "a read key", "ak_": "an admin key"}  # how the keys begin that no app may hold


@dataclass(frozen=True, slots=True)
class Dsn:
    """A parsed DSN, ``https://PUBLIC_KEY@host[:port][/prefix]/app``."""

    url: str  # address of the server, without a trailing slash
    key: str  # the app's public ingest key
    app: str  # the app's name

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        # Whether ``http://`` may go to another machine. Everybody on the way can then read it and answer in its place.
        allow_http: bool = False,
    ) -> Dsn:
        """Read a DSN; raise `ConfigurationError` if a part is missing, or its key is none for ingest."""
        # No message repeats the key: logs are read by more people than keys.
        shape = "a DSN is written https://PUBLIC_KEY@host/app"
        try:
            parts = urlsplit(text)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            raise ConfigurationError(f"{shape}; the host or port cannot be read") from None
        if parts.scheme not in ("http", "https"):
            raise ConfigurationError(f"the scheme {parts.scheme!r} is wrong: {shape}")
        if not parts.username:
            raise ConfigurationError(f"{shape}; PUBLIC_KEY@ is missing before the host")
        if parts.password:
            raise ConfigurationError(f"{shape}; the part before @ is the public key alone")
        start = parts.username[:3]
        if start in _SECRET:
            wrong = f"the key of this DSN is {_SECRET[start]} ({start}...), which no app may hold"
            raise ConfigurationError(f"{wrong}: write the app's ingest key (pk_...), which is public")
        if not parts.hostname:
            raise ConfigurationError(f"{shape}; the host is missing")
        if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
            rule = "http:// goes to this machine only, since anybody on the way can read it"
            raise ConfigurationError(
                f"the host {parts.hostname!r} is another machine, and {rule}: write https://, or pass allow_http=True"
            )
        prefix, _, app = parts.path.rpartition("/")
        if not app or parts.query or parts.fragment:
            raise ConfigurationError(f"{shape}; the path ends with the app's name, got {parts.path!r}")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(f"{parts.scheme}://{host}{port}{prefix}", parts.username, app)

    def check_app(self, app: str) -> None:
        """Check that it is for an app; raise `ConfigurationError` if it is for another one."""
        if self.app != app:
            alike = "write one name at the end of the DSN and as `app` in metrics.toml"
            raise ConfigurationError(f"the DSN is for app {self.app!r} and the registry for app {app!r}: {alike}")

    @property
    def local(self) -> bool:
        """Whether it leads to this machine, as while an app is developed."""
        return leads_here(self.url)

    def __repr__(self) -> str:
        return f"Dsn({self.url}/{self.app})"


def leads_here(*texts: str | None) -> bool:
    """Return whether the first address that is there, such as a DSN with faults, leads to this machine."""
    try:
        return _is_loopback(urlsplit(next(filter(None, texts), "")).hostname or "")
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    if ":" not in host and not host[-1:].isdigit():
        return host == "localhost"
    from ipaddress import ip_address  # noqa: PLC0415 - most hosts have names

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
