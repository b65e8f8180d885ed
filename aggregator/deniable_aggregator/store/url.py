"""The URL of a store, which may name several servers: ``redis+cluster://one:7000,[::1]:7002``."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from deniable.errors import ConfigurationError
from deniable.messages.lookalike import nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

Place = tuple[str, int]
"""A host and a port; 0 for the usual one."""

_PLACES: Final = re.compile(r"(?<=://)((?:[^/?#]*@)?)([^/?#]*)")
"""Who logs in, and where: what stands before the path of a URL."""
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}")  # without a password
_SCHEMES: Final = {f"redis{tls}{plus}" for tls in ("", "s") for plus in ("", "+cluster", "+sentinel")} | {"unix"}
_RULE: Final = (
    "write redis://, unix://, redis+cluster:// or redis+sentinel://, or with TLS rediss://, rediss+cluster:// or "
    "rediss+sentinel://, as in https://deniable.github.io/deniable/how-to/operate/cluster/"
)
_MOST_SECONDS: Final = 3600
_SWITCH: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class _Option(NamedTuple):
    """An option of a URL."""

    value: Callable[[str], Any]  # reads it, and raises ValueError or KeyError
    rule: str  # what may be written


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError
    return seconds


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


_OF_SECONDS: Final = _Option(_seconds, f"a number of seconds above 0, at most {_MOST_SECONDS}")
_YES_NO: Final = _Option(lambda text: _SWITCH[text.lower()], "yes or no")
_FILE: Final = _Option(_text, "a path")
_ANY: Final = {
    "socket_timeout": _OF_SECONDS,
    "socket_connect_timeout": _OF_SECONDS,
    "protocol": _Option({"2": 2, "3": 3}.__getitem__, "2 or 3"),
}
_TCP: Final = {"socket_keepalive": _YES_NO}
_TLS: Final = {
    "ssl_ca_certs": _FILE,
    "ssl_ca_path": _FILE,
    "ssl_certfile": _FILE,
    "ssl_keyfile": _FILE,
    "ssl_password": _Option(_text, "a password"),
    "ssl_cert_reqs": _Option({word: word for word in ("none", "optional", "required")}.__getitem__, "none, optional or required"),
    "ssl_check_hostname": _YES_NO,
}
_SENTINEL: Final = {"sentinel_password": _Option(_text, "a password")}
_UNIX: Final = {"db": _Option(int, "the number of a database")}
_ALL: Final = _ANY | _TCP | _TLS | _SENTINEL | _UNIX


def parts(url: str) -> SplitResult:
    """Take a URL apart as if it named its first server alone; raise ValueError if it is invalid."""
    # Pythons since 2025 refuse an address in brackets behind another host.
    return urlsplit(_PLACES.sub(lambda authority: authority[1] + authority[2].partition(",")[0], url, count=1))


def places(url: str) -> list[Place]:
    """Return host and port of each server that a URL names; 0 for the usual port. Raise ValueError if one is invalid."""
    authority = _PLACES.search(url)
    hosts = [urlsplit(f"//{host}") for host in (authority[2] if authority else "").split(",")]
    return [(host.hostname or "localhost", host.port or 0) for host in hosts]


def files(url: str) -> str:
    """Return the options of a URL that name files, as they are written in it."""
    return "&".join(f"{name}={text}" for name, text in parse_qsl(parts(url).query) if _TLS.get(name) is _FILE)


def kind(url: str) -> str:
    """Return what follows the ``+`` of a URL's scheme: ``cluster``, ``sentinel``, or nothing for one server."""
    return parts(url).scheme.partition("+")[2]


def options(url: str) -> dict[str, Any]:
    """Check a URL, and return its options; ConfigurationError if something in it is wrong. No error has a password."""
    if _ADDRESS.fullmatch(url):
        raise ConfigurationError(f"write redis://{url}/0; this is {url}")
    scheme, separator, address = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ConfigurationError(_RULE)
    authority = re.split("[/?#]", address, maxsplit=1)[0]
    if scheme != "unix" and ("#" in address or ("@" in address and "@" not in authority)):
        raise ConfigurationError("in a password write %2F for /, %3F for ? and %23 for #")
    try:
        places(url)
        path = parts(url).path.strip("/")
    except ValueError:
        raise ConfigurationError("a port is a number from 1 to 65535, and an IPv6 address has brackets: [::1]:6379") from None
    if scheme in ("redis", "rediss") and path:
        database(path)
    return _read(scheme, parts(url).query)


def database(text: str) -> int:
    """Read the number of a database; ConfigurationError if it is none."""
    if not text.isdecimal():
        raise ConfigurationError("the URL ends with the number of a database: write /0")
    return int(text)


def _read(scheme: str, query: str) -> dict[str, Any]:
    """Read the options of a URL with this scheme."""
    pairs = parse_qsl(query, keep_blank_values=True)
    taken = _ANY | (_UNIX if scheme == "unix" else _TCP)
    taken |= _TLS if scheme.startswith("rediss") else {}
    taken |= _SENTINEL if scheme.endswith("sentinel") else {}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in _ALL:
            near = nearest(name, taken)
            raise ConfigurationError(f"nothing reads ?{name}" + (f"; is {near} meant?" if near else ""))
        if name not in taken:
            raise ConfigurationError(f"{scheme}:// does not read ?{name}: {_instead(scheme, name)}")
        try:
            values[name] = taken[name].value(text)
        except (ValueError, KeyError):
            value = "" if name.endswith("password") else f" = {text!r}"
            raise ConfigurationError(f"?{name}{value}: write {taken[name].rule}") from None
    repeated = [name for name, number in Counter(name for name, _ in pairs).items() if number > 1]
    if repeated:
        raise ConfigurationError(f"?{repeated[0]} stands there more than once: write it once")
    return values


def _instead(scheme: str, name: str) -> str:
    """Say how to have an option read that belongs to another scheme."""
    if name in _TLS and scheme != "unix":
        return f"for TLS write {scheme.replace('redis', 'rediss', 1)}://, or leave it out"
    if name in _UNIX:
        return "write the database behind the host: /0" if scheme.endswith(("redis", "rediss")) else "leave it out"
    return "leave it out"
