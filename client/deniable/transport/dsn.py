"""The DSN: one line that says where an app sends its reports."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from deniable.errors import ConfigurationError
from deniable.frozen import dataclass

_SECRET = {"rk_": "a read key", "ak_": "an admin key", "xk_": "a relay key"}  # how the keys begin that no app may hold
_OF_EXAMPLES = ("example.org", "example.com", "example.net")  # hosts that nobody has (RFC 2606)
_PLACEHOLDERS = ("PUBLIC_KEY", "YOUR_KEY", "KEY")
_COPY = "copy the one of your server, which `deniable serve` prints"
_QUOTES = "\"'`"
_OF_UPLOADS = "v1"  # in the path of an address of a server
_LARGEST_PORT = 65535
_MOST_DIGITS = 10  # of a port that is shown


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
        app: str = "",  # the app whose registry it is for; empty if none is known
        # Whether ``http://`` may go to another machine. Everybody on the way can then read it and answer in its place.
        allow_http: bool = False,
    ) -> Dsn:
        """Read a DSN; raise `ConfigurationError` if a part is missing or wrong, with the DSN that works as far as it is known."""
        # No message repeats the key: logs are read by more people than keys.
        if not isinstance(text, str):
            raise ConfigurationError(f"the DSN is an object of type {type(text).__name__}: write it as a text in quotes")
        parts = _written(text.strip())
        port = _port(parts)
        works = _mended(parts, port, app)
        wrong = _of_key(parts, works) or _of_place(parts, works, app, allow_http=allow_http)
        if wrong:
            raise ConfigurationError(f"the DSN {wrong}")
        prefix, _, name = parts.path.removesuffix("/").rpartition("/")
        return cls(f"{parts.scheme}://{_host(parts)}{port}{prefix}", parts.username or "", name)

    @property
    def local(self) -> bool:
        """Whether it leads to this machine, as while an app is developed."""
        return leads_here(self.url)

    @property
    def by_http(self) -> str:
        """How it is written with http://, without its key."""
        return f"http://PUBLIC_KEY@{self.url.partition('://')[2]}/{self.app}"

    def __repr__(self) -> str:
        return f"Dsn({self.url}/{self.app})"


def leads_here(*texts: object) -> bool:
    """Return whether the first address that is there, such as a DSN with faults, leads to this machine."""
    text = next((text for text in texts if type(text) is str and text), "")
    try:
        return is_loopback(_split(text.strip().strip(_QUOTES)).hostname or "")
    except ValueError:
        return False


def _written(text: str) -> SplitResult:
    """Take a DSN apart; raise `ConfigurationError` where it is not written as one word."""
    if text and (text[0] in _QUOTES or text[-1] in _QUOTES):
        raise ConfigurationError("the DSN has quotes around it: write it without them")
    if any(map(str.isspace, text)):
        raise ConfigurationError("the DSN has white space in it: write it as one word")
    try:
        return _split(text)
    except ValueError:
        raise ConfigurationError(
            "the host of the DSN cannot be read: an address with colons stands in brackets, as [::1]"
        ) from None


def _of_key(
    parts: SplitResult,
    works: str,  # the DSN that works, as far as it is known
) -> str:
    """Say what is wrong with the scheme and the key; empty if nothing is."""
    key = parts.username or ""
    if parts.scheme not in ("http", "https"):
        begins = f"begins with {parts.scheme}://" if parts.scheme else "does not begin with https:// or http://"
        return f"{begins}: write it as {works}"
    if not key:
        return f"has no key before its host: write it as {works}, with the key that `deniable serve` prints"
    if parts.password:
        return f"has more than the public key before its host: write it as {works}"
    if key[:3] in _SECRET:
        wrong = f"has {_SECRET[key[:3]]} ({key[:3]}...), which no app may hold"
        return f"{wrong}: write the app's ingest key (pk_...), which is public"
    if (parts.hostname or "").endswith(_OF_EXAMPLES):
        return f"is that of an example: {_COPY}"
    placeholder = key in _PLACEHOLDERS or key.endswith("...") or key.startswith(("<", "{", "$"))
    return f"has a placeholder where its key should be: {_COPY}" if placeholder else ""


def _of_place(
    parts: SplitResult,
    works: str,  # as for `_of_key`
    app: str,
    *,
    allow_http: bool,
) -> str:
    """Say what is wrong with the host, the path and the app's name; empty if nothing is."""
    if not parts.hostname:
        return f"has no host: write it as {works}"
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        wrong = f"leads to {parts.hostname!r} by http://, where anybody on the way can read what is sent"
        return f"{wrong}: write {works}, or pass allow_http=True"
    prefix, _, name = parts.path.removesuffix("/").rpartition("/")
    if not name or parts.query or parts.fragment:
        end = parts._replace(scheme="", netloc="").geturl()
        return f"does not end with the app's name, but with {end!r}: write it as {works}"
    if _OF_UPLOADS in prefix.split("/"):
        return f"has the path of an upload, which the SDK adds by itself: write it as {works}"
    if app and name != app:
        return f"is for app {name!r} and the registry for app {app!r}: write it as {works}, or pass the registry of {name!r}"
    return ""


def _port(parts: SplitResult) -> str:
    """Return the port with its colon, empty if there is none; raise `ConfigurationError` for one that nobody can have."""
    number = f"write a number from 1 to {_LARGEST_PORT}, such as in the DSN that `deniable serve` prints"
    try:
        port = parts.port
    except ValueError:
        after = parts.netloc.rpartition(":")[2]
        # What is no number may be anything, also a key.
        digits = f", {after}," if after.isascii() and after.isdecimal() and len(after) <= _MOST_DIGITS else ""
        raise ConfigurationError(f"the port of the DSN{digits} is none: {number}") from None
    if port == 0:
        raise ConfigurationError(f"the port of the DSN, 0, is none: {number}")
    return f":{port}" if port else ""


def _split(text: str) -> SplitResult:
    """Take an address apart. One without a scheme begins with its key or host, where `urlsplit` would see a scheme or a path."""
    return urlsplit(text if "://" in text else f"//{text.removeprefix('//')}")


def _mended(
    parts: SplitResult,
    port: str,
    app: str,  # empty if it is not known
) -> str:
    """Write the DSN that works, with the host of one that does not, and without its key."""
    here = is_loopback(parts.hostname or "")
    begin = f"{'http' if here and parts.scheme != 'https' else 'https'}://PUBLIC_KEY@"
    if not (parts.hostname and (here or parts.username)):  # what is before an @ is the key, and without one the host may be it
        return f"{begin}host/{app or 'app'}"
    prefix, _, name = parts.path.removesuffix("/").rpartition("/")
    if not name or _OF_UPLOADS in parts.path.split("/"):
        prefix = name = ""
    return f"{begin}{_host(parts)}{port}{prefix}/{app or name or 'app'}"


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
