"""The DSN: one line that says where an app sends its reports."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from deniable.errors import ConfigurationError
from deniable.frozen import dataclass

_SECRET = {"rk_": "a read key", "ak_": "an admin key", "xk_": "a relay key"}  # how the keys begin that no app may hold
_SHAPE = "write it as https://PUBLIC_KEY@host/app"
_OF_EXAMPLES = ("example.org", "example.com", "example.net")  # hosts that nobody has (RFC 2606)


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
        try:
            parts = _split(text.strip())
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            raise ConfigurationError(f"the host or port of the DSN cannot be read: {_SHAPE}") from None
        shape = _shape(parts, port)
        if parts.scheme not in ("http", "https"):
            begins = f"begins with {parts.scheme}://" if parts.scheme else "does not begin with https:// or http://"
            raise ConfigurationError(f"the DSN {begins}: write it as {_with_scheme(parts, port)}")
        if not parts.username:
            raise ConfigurationError(f"the DSN has no key before its host: {shape}")
        if parts.password:
            raise ConfigurationError(f"the DSN has more than the public key before its host: {shape}")
        start = parts.username[:3]
        if start in _SECRET:
            wrong = f"the key of this DSN is {_SECRET[start]} ({start}...), which no app may hold"
            raise ConfigurationError(f"{wrong}: write the app's ingest key (pk_...), which is public")
        if not parts.hostname:
            raise ConfigurationError(f"the DSN has no host: {shape}")
        if parts.username.endswith("...") or parts.hostname.endswith(_OF_EXAMPLES):
            raise ConfigurationError("the DSN is that of an example: copy the one of your server, which `deniable serve` prints")
        if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
            wrong = f"the DSN leads to {parts.hostname!r} by http://, where anybody on the way can read what is sent"
            raise ConfigurationError(f"{wrong}: write https://, or pass allow_http=True")
        prefix, _, app = parts.path.removesuffix("/").rpartition("/")
        if not app or parts.query or parts.fragment:
            end = parts._replace(scheme="", netloc="").geturl()
            raise ConfigurationError(f"the DSN does not end with the app's name, but with {end!r}: {shape}")
        return cls(f"{parts.scheme}://{_host(parts)}{port}{prefix}", parts.username, app)

    def check_app(self, app: str) -> None:
        """Check that it is for an app; raise `ConfigurationError` if it is for another one."""
        if self.app != app:
            alike = "write the same name at the end of the DSN and as `app` in metrics.toml"
            raise ConfigurationError(f"the DSN is for app {self.app!r} and the registry for app {app!r}: {alike}")

    @property
    def local(self) -> bool:
        """Whether it leads to this machine, as while an app is developed."""
        return leads_here(self.url)

    def __repr__(self) -> str:
        return f"Dsn({self.url}/{self.app})"


def leads_here(*texts: object) -> bool:
    """Return whether the first address that is there, such as a DSN with faults, leads to this machine."""
    try:
        return is_loopback(_split(next((text for text in texts if type(text) is str and text), "")).hostname or "")
    except ValueError:
        return False


def _split(text: str) -> SplitResult:
    """Take an address apart. One without a scheme begins with its key or host, where `urlsplit` would see a scheme or a path."""
    return urlsplit(text if "://" in text else f"//{text.removeprefix('//')}")


def _with_scheme(parts: SplitResult, port: str) -> str:
    """Write a DSN that works, with the host of one whose scheme is missing or wrong, and without its key."""
    here = is_loopback(parts.hostname or "")
    # What is before an @ is the key. Without one the host may be it.
    place = f"{_host(parts)}{port}{parts.path}" if parts.path and (here or parts.username) else "host/app"
    return f"{'http' if here else 'https'}://PUBLIC_KEY@{place}"


def _shape(parts: SplitResult, port: str) -> str:
    """Show what a DSN looks like; one of a server on this machine, which has no TLS, with its host."""
    here = parts.scheme == "http" and is_loopback(parts.hostname or "")
    return f"write it as http://PUBLIC_KEY@{_host(parts)}{port}/app" if here else _SHAPE


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether a host, a name or an address, is this machine."""
    if ":" not in host and not host[-1:].isdigit():
        return host == "localhost"
    from ipaddress import ip_address  # noqa: PLC0415 - most hosts have names

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
