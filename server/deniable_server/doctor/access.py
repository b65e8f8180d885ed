"""The doctor's checks of who has access to the store: how it is reached, and what the store's user may do."""

from __future__ import annotations

from socket import SOCK_DGRAM, getaddrinfo, socket
from typing import TYPE_CHECKING, Any

from deniable.messages.finding import Finding
from deniable.transport.dsn import is_loopback
from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import CommandRefused, user
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.replicas import LOOK
from deniable_aggregator.store.server.servers import primaries, primary
from deniable_aggregator.store.url import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Client
    from deniable_server.settings import Settings

_USERS_PAGE = "https://deniable.github.io/deniable/how-to/operate/store-users/"
_TLS_PAGE = "https://github.com/deniable/deniable/blob/main/deploy/README.md#two-machines"

# Commands that change nothing if they are allowed: those that each process needs, and those that none needs.
_INGEST: dict[str, tuple[Any, ...]] = {
    "append batches": ("EVAL", "return 1", 2, schema.REPORTS, schema.SEEN),
    "append batches (XADD)": ("XADD", schema.REPORTS, "NOMKSTREAM", "0-0", "d", ""),  # no store accepts this id
    "recognise repeated uploads": ("HGET", schema.SEEN, ""),
    "remember uploads": ("EXPIREAT", schema.SEEN, 1),
    "count refused reports": ("EXPIRE", schema.REFUSED, 1),
}
_QUERY: dict[str, tuple[Any, ...]] = {
    "list releases": ("HGETALL", schema.RELEASES),
    "read releases": ("MGET", schema.RELEASE),
    "read alarms": ("HMGET", schema.ALARMS, "doctor"),
}
_LIVE: dict[str, tuple[Any, ...]] = {
    "read what is not published yet": ("MGET", schema.TALLY),
    "read what was refused": ("HGETALL", schema.REFUSED),
}
"""For servers that answer admin keys only."""
_BOTH: dict[str, tuple[Any, ...]] = {
    "read keys": ("HGETALL", schema.KEYS),
    "say which registry is loaded": ("ZADD", schema.REGISTRIES, "XX", 0, "doctor"),
    "hold limits": ("EVAL", "return 1", 1, schema.RATE_KEY),
    "hold limits (EXPIRE)": ("EXPIRE", schema.RATE_KEY, 1),
}
_NOBODY: dict[str, tuple[Any, ...]] = {
    "list all that is kept": ("SCAN", 0, "COUNT", 1),
    "read batches that wait": ("XRANGE", schema.REPORTS, "+", "-"),  # from the end to the beginning: no entries
    "see other users": ("ACL", "USERS"),
}
_OF_USERS: dict[str, dict[str, tuple[Any, ...]]] = {
    "worker": {
        "take batches": ("XREADGROUP", "GROUP", "doctor", "doctor", "STREAMS", schema.REPORTS, ">"),
        "end batches": ("XACK", schema.REPORTS, "doctor", "0-0"),
        "add sums": ("BITFIELD", schema.TALLY, "GET", "u8", 0),
        "publish": ("HDEL", schema.RELEASES, "doctor"),
        "say which registry is loaded": _BOTH["say which registry is loaded"],
    },
    "operator": {
        "make and revoke keys": ("HDEL", schema.KEYS, "doctor"),
        "remove dead letters": ("XDEL", schema.DEAD, "0-0"),
        "erase a metric": ("DEL", schema.TALLY),
        "write to the audit log": ("EVAL", "return 1", 1, schema.AUDIT),
    },
}
"""What a process that is no server needs, by the name of its user."""


def access(client: Client) -> Finding:
    """Check who else has access."""
    options = about.connection(client)
    password, place = options.get("password"), options.get("host")
    remedy = f"give each process a user of its own ({_USERS_PAGE}), and bind the store to where they are"
    if not password:
        if not near(place):
            meaning = "whoever reaches its address reads, changes and empties it"
            return Finding("access", "warning", f"no password at {place}", meaning, remedy)
        if _listens_widely(client):
            meaning = "it also listens on addresses that others reach, and keeps nobody out there"
            return Finding("access", "warning", "no password, and protected-mode no", meaning, remedy)
    if not about.encrypted(client) and not here(place):
        meaning = "whoever listens between the machines reads passwords, batches and sums, and can be the store's user"
        remedy = f"have them speak TLS: rediss:// in DENIABLE_REDIS_URL ({_TLS_PAGE}), or a network that encrypts"
        return Finding("access", "warning", f"a password, at {place}, and nothing is encrypted", meaning, remedy)
    who = "a password" if password else "no password"
    return Finding("access", "ok", f"{who}, at {place or options.get('path', 'its socket')}")


def near(place: str | None) -> bool:
    """Return whether an address belongs to this machine."""
    return place is None or is_loopback(place)


def here(place: str | None) -> bool:
    """Return whether an address leads to this machine, or is a name in a network of containers."""
    if place is None or near(place):
        return True
    if "." not in place and ":" not in place:
        return True
    try:
        addresses = getaddrinfo(place, 0, type=SOCK_DGRAM)
    except OSError:
        return False
    return all(_own(family, address) for family, *_, address in addresses)


def _own(family: int, address: Any) -> bool:
    """Return whether this machine has an address."""
    try:
        with socket(family, SOCK_DGRAM) as tried:
            tried.bind(address)
    except OSError:
        return False
    return True


def _listens_widely(client: Client) -> bool:
    try:
        settings = about.settings(client, "bind", "protected-mode", "port", "tls-port")
    except CommandRefused:
        return False
    listens = {settings.get("port", "0"), settings.get("tls-port", "0")} != {"0"}
    places = [place.removeprefix("-") for place in settings.get("bind", "").split()]
    return listens and settings.get("protected-mode") == "no" and not (places and all(map(near, places)))


def rights(client: Client, settings: Settings, apps: Sequence[str]) -> Finding:
    """Check that the store's user may do what its process does, and no more. Every command tried changes nothing."""
    needed = _needed(settings)
    missing = [what for what, command in needed.items() if not all(_may(client, command, app) for app in apps)]
    if missing:
        meaning = "its process fails where it has to do that: a server answers 503"
        remedy = "load the users of deploy/users.acl into the store anew, or run the process as the user that is made for it"
        seen = f"{user(settings.redis_url)} may not {', '.join(missing)}"
        return Finding("rights", "fault", seen, meaning, remedy)
    unwanted = _NOBODY | (_LIVE if settings.serves == "ingest" else {})
    if needed is _OF_USERS["worker"]:
        unwanted = {what: command for what, command in unwanted.items() if command[0] != "XRANGE"}
    more = [what for what, command in unwanted.items() if any(_may(client, command, app) for app in apps)]
    if not more:
        return Finding("rights", "ok", f"what {user(settings.redis_url)} needs, and nothing else that was tried")
    seen = f"the store's user may also {', '.join(more)}"
    if all(near(about.connection(server).get("host")) for server in primaries(client)):
        return Finding("rights", "ok", f"{seen}; the store is on this machine")
    meaning = "anyone who takes over the server that faces the internet reads what others have sent"
    return Finding("rights", "warning", seen, meaning, f"use the users of deploy/users.acl ({_USERS_PAGE})")


def _needed(settings: Settings) -> dict[str, tuple[Any, ...]]:
    """Return what the store's user has to do: for a server by what it serves, for another process by the user's name."""
    own = _OF_USERS.get(parts(settings.redis_url).username or "") if settings.serves == "all" else None
    if own is not None:
        return own
    waits = {"wait for replicas": ("WAIT", 0, 1), "see its replicas": LOOK} if settings.durability == "replicated" else {}
    return (
        waits | _BOTH | (_INGEST if settings.serves != "query" else {}) | (_QUERY | _LIVE if settings.serves != "ingest" else {})
    )


def _may(client: Client, command: tuple[Any, ...], app: str) -> bool:
    """Return whether a command is allowed, even if it fails otherwise."""
    words = [_key(part, app) if isinstance(part, schema.Key) else part for part in command]
    return about.may(primary(client, _key(schema.REPORTS, app)), *words)  # all keys of an app are on one server


def _key(kind: schema.Key, app: str) -> str:
    """Return a key that never exists."""
    return kind.of(app, *["doctor"] * kind.name.count("*"))
