"""The doctor's checks of the store: that it works, keeps its promises, and has room."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.messages.finding import Finding
from deniable.messages.plural import plural, plural_noun
from deniable_aggregator.store import Store
from deniable_aggregator.store.errors import (
    AWAY,
    MAKE_ROOM_ON_DISK,
    WAIT_FOR_FILE,
    CommandForbidden,
    CommandRefused,
    cause,
    reason,
)
from deniable_aggregator.store.server import about, durability, room, snapshot
from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.server.servers import primaries
from deniable_server.doctor import access, host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.store import Client
    from deniable_aggregator.store.server.durability import Durability
    from deniable_aggregator.store.server.replicas import Replicas
    from deniable_server.doctor.served import Served
    from deniable_server.settings import Settings

_OLDEST = (7, 0)
_TIGHT = 0.8  # of the memory that uploads may use
_LOOK = "look into the store's own log"
_REMEDIES = {
    "away": "start it",
    "loading": WAIT_FOR_FILE,
    "full": "do what the finding memory says",
    "disk": MAKE_ROOM_ON_DISK,
    "replica": "do what the finding role says",
    "replicas": "start its replicas: the finding durability says how many it has",
}
"""What to do about a store that refuses writes, by reason."""
_RAISE = "raise maxmemory in the store's redis.conf and restart the store; devices keep what they have meanwhile"
_COUNTED = {0: "no", 1: "one"}
_WORSE = ("ok", "skipped", "warning", "fault")
_FSYNC = "appendonly yes, and appendfsync everysec or always"
_BEGIN = (
    "set appendonly yes in redis.conf and restart the store, which begins from that file; make no restore, as a copy has only "
    "what came since the store began without the file"
)
_COPY = (
    "If it is not there, the store would begin empty: make a copy first (`deniable backup`), then set appendonly yes, stop the "
    "store, restore the copy (`sh deploy/restore.sh`), and start the store"
)
_BACKUP = (
    "run `deniable backup` or deploy/backup.sh as the user 'backup' (deploy/private/backup.env; deploy/systemd has a timer); "
    "only these leave the time, so ignore this if copies are made otherwise"
)
_OFF = 2.0  # seconds between the clocks that need attention; answers of the store take less
_STALE_DAYS = 2.0
_DAY = 86_400.0
_MIB = 1 << 20
_SMALL = 10 * _MIB  # below it, tenths of a MiB matter
_HOUR = 3600.0
_TOO_FAR = _HOUR  # the shortest period


def checks(settings: Settings, served: Served, client: Client) -> dict[str, Callable[[], Finding]]:
    """Return the checks of the store, by name."""
    apps = served.apps
    away: set[Client] = set()  # they are asked once, and `writes` names them

    def of_all(check: Callable[[Client], Finding]) -> Callable[[], Finding]:
        return lambda: _worst(client, check, away)

    clustered = isinstance(client, Cluster)
    return {
        "version": of_all(lambda server: version(about.state(server, "server"))),
        "role": of_all(
            lambda server: role(about.state(server, "replication") | about.state(server, "cluster"), clustered=clustered)
        ),
        "writes": lambda: writes(client, apps),
        "eviction": of_all(lambda server: eviction(durability.read(server))),
        "durability": of_all(lambda server: _promise(settings.promise, server)),
        "disk": of_all(lambda server: disk(about.state(server, "persistence"))),
        "memory": of_all(lambda server: memory(about.state(server, "memory"))),
        "overcommit": of_all(overcommit),
        "access": of_all(access.access),
        "rights": lambda: access.rights(client, settings, [app for app in apps if Store(client, app).place not in away]),
        "clock": of_all(clock),
        "backup": lambda: backup(client, real=served.real),
    }


def _worst(client: Client, check: Callable[[Client], Finding], away: set[Client]) -> Finding:
    """Check each server of the store that answers; return the worst finding, and say of which server of plural_noun."""
    checked: list[tuple[Finding, Client]] = []
    servers = primaries(client)
    for server in servers:
        if server in away:
            continue
        try:
            checked.append((check(server), server))
        except AWAY:
            away.add(server)
            if len(away) == len(servers):
                raise
    worst, server = max(checked, key=lambda pair: _WORSE.index(pair[0].status))
    if len(servers) == 1 or worst.status == "ok":
        return worst
    return replace(worst, seen=f"at {about.name(server)}: {worst.seen}")


def version(info: dict[str, Any]) -> Finding:
    """Check the store's version, from ``INFO server``."""
    valkey = info.get("valkey_version")
    seen = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"
    if valkey or tuple(int(part) for part in str(info["redis_version"]).split(".")[:2]) >= _OLDEST:
        return Finding("version", "ok", seen)
    return Finding("version", "fault", seen, "it lacks commands that are needed", "use Redis 7.0 or above, or Valkey")


def role(info: dict[str, Any], *, clustered: bool) -> Finding:
    """Check that the store is no replica, and no node of a cluster that is taken for one server."""
    if info.get("cluster_enabled") and not clustered:
        meaning = "the keys of most apps are on its other nodes, so their uploads are refused"
        return Finding("role", "fault", "a node of a cluster", meaning, "write DENIABLE_REDIS_URL with redis+cluster://")
    if info.get("role") == "master":
        return Finding("role", "ok", "takes writes")
    return Finding("role", "fault", "a replica", "every upload is refused", "point DENIABLE_REDIS_URL at the primary")


def writes(client: Client, apps: Sequence[str]) -> Finding:
    """Check that the store would accept a write, as ``/readyz`` does."""
    refusals = about.refusals(client, apps)
    for error in refusals.values():
        if isinstance(error, CommandForbidden):
            raise error
    if refusals:
        clustered = isinstance(client, Cluster)
        seen = "; ".join(
            (f"{about.name(server)}: " if clustered else "the store refuses them: ") + cause(error)
            for server, error in refusals.items()
        )
        meaning = "uploads are refused with 503 store_unavailable, and so are queries, which are written down"
        if clustered:
            meaning = f"of the apps that live there, {meaning}"
        remedies = dict.fromkeys(_REMEDIES.get(reason(error), _LOOK) for error in refusals.values())
        return Finding("writes", "fault", seen, meaning, "; ".join(remedies))
    return Finding("writes", "ok", "the store takes them")


def silence(client: Client, app: str) -> str:
    """Say why processes cannot say that they live, although the store answers; empty if they can. A full store lets them."""
    refused = about.refusals(client, [app]).values()
    whys = [cause(each) for each in refused if not isinstance(each, CommandForbidden) and reason(each) != "full"]
    return f"the store takes no sign of life ({whys[0]})" if whys else ""


def eviction(seen: dict[str, str]) -> Finding:
    """Check what the store does when it is full."""
    wrong = durability.evicts(seen)
    if wrong:
        meaning = "an upload that was forgotten is counted twice when it is repeated, and tallies vanish"
        return Finding(
            "eviction",
            "fault",
            wrong,
            meaning,
            "set maxmemory-policy noeviction in the store's redis.conf, and restart the store",
        )
    if "maxmemory-policy" not in seen:
        meaning = "a store that forgets what it has no room for counts twice"
        remedy = "see to it that its configuration has maxmemory-policy noeviction, or allow CONFIG GET or INFO"
        return Finding("eviction", "warning", "the store does not tell", meaning, remedy)
    return Finding("eviction", "ok", "noeviction")


def promise(
    promised: Durability,
    seen: dict[str, str],
    *,
    appended: bool = False,  # whether the store's folder is known to have an append-only file
) -> Finding:
    """Check that the store keeps the promised durability."""
    wrong = promised.broken(seen)
    if wrong:
        meaning = "servers refuse to start on this store, or answer 503"
        if seen.get("appendonly", "yes") != "yes":
            remedy = _BEGIN if appended else f"look for appendonlydir in the store's folder. If it is there: {_BEGIN}. {_COPY}"
            return Finding("durability", "fault", wrong, meaning, remedy)
        return Finding(
            "durability",
            "fault",
            wrong,
            meaning,
            "correct the store's redis.conf and restart the store, or promise less: DENIABLE_DURABILITY",
        )
    missing = [name for name in durability.unseen(seen) if name != "maxmemory-policy"]
    if missing and promised.name != "memory":
        meaning = f"whether it keeps {promised.name} cannot be seen from here"
        remedy = f"look at these lines of the store's redis.conf once: {_FSYNC}"
        return Finding("durability", "skipped", f"the store's user may not ask for {', '.join(missing)}", meaning, remedy)
    return Finding("durability", "ok", f"{promised.name} is kept")


def _promise(promised: Durability, server: Client) -> Finding:
    finding = promise(promised, durability.read(server), appended=_appended(server))
    if promised.replicas and finding.status != "fault":
        return replicas(about.state(server, "replication"), promised.replicas)
    return finding


def _appended(server: Client) -> bool:
    """Return whether a server's folder is seen to have an append-only file; False also if it cannot be looked at."""
    if not access.near(about.connection(server).get("host")):
        return False
    try:
        settings = about.settings(server, "dir", "appenddirname")
        return any(Path(settings["dir"], settings["appenddirname"]).iterdir())
    except (CommandRefused, KeyError, OSError):
        return False


def replicas(info: dict[str, Any], promised: Replicas) -> Finding:
    """Check how many replicas a primary has, from ``INFO replication``, beside how many it should have."""
    states = [info[f"slave{number}"] for number in range(int(info.get("connected_slaves", 0)))]
    online = sum(each.get("state") == "online" for each in states)
    seen = f"{_COUNTED.get(online, online)} {'replica' if online == 1 else plural_noun('replica')} of {promised.number}"
    if online > promised.number:
        meaning = "one that uploads do not wait for may be elected: what was answered would be lost"
        return Finding("durability", "fault", seen, meaning, f"set DENIABLE_REPLICAS to {online}, or take replicas away")
    if not online:
        return Finding("durability", "fault", seen, "uploads are refused until it has one", "start its replicas")
    if online < promised.number:
        meaning = f"uploads are refused for {promised.timeout:.0f} s after one went away, and if the rest go, too"
        return Finding("durability", "warning", seen, meaning, "start those that are away; this check names their primary")
    if promised.number == 1:
        meaning, remedy = "uploads are refused while it is away", "give each primary two, and set DENIABLE_REPLICAS to 2"
        return Finding("durability", "warning", seen, meaning, remedy)
    return Finding("durability", "ok", f"replicated is kept, with {online} replicas")


def disk(info: dict[str, Any]) -> Finding:
    """Check that the store's writes reach its disk."""
    remedy = "look at the disk's room and at the store's log"
    if info.get("aof_last_write_status", "ok") != "ok":
        return Finding("disk", "fault", "the last write failed", "uploads are refused until it writes again", MAKE_ROOM_ON_DISK)
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        meaning = "its file grows, and batches that were counted stay in it"
        return Finding("disk", "warning", "the last rewrite of the append-only file failed", meaning, remedy)
    return Finding("disk", "ok", "writes" if info.get("aof_enabled") else "does not write")


def memory(info: dict[str, Any]) -> Finding:
    """Check how much room the store has."""
    used, most = int(info["used_memory"]), int(info.get("maxmemory", 0))
    if not most:
        seen = f"{used >> 20:,} MiB used, and no maxmemory"
        meaning = "uploads can take all memory of its machine, and leave none to count them or to revoke a key"
        return Finding(
            "memory", "warning", seen, meaning, "set maxmemory in the store's redis.conf to half of what its machine has for it"
        )
    digits = 1 if most < _SMALL else 0
    seen = f"{used / most:.0%} of its maxmemory used ({used / _MIB:,.{digits}f} of {most / _MIB:,.{digits}f} MiB)"
    refused = f"from {room.UPLOADS:.0%} on uploads are refused with 503 store_full"
    if room.left(info, room.COUNTING) <= 0:
        meaning = f"{refused}, and from {room.COUNTING:.0%} on nothing is counted"
        return Finding("memory", "fault", seen, meaning, f"{_RAISE}; or `deniable erase` a metric that has taken it")
    if room.left(info) <= 0:
        remedy = f"if batches wait, start a worker; else {_RAISE}"
        return Finding("memory", "fault", seen, refused, remedy)
    if used >= _TIGHT * room.UPLOADS * most:
        return Finding("memory", "warning", seen, f"a backlog would fill it; {refused}", _RAISE)
    return Finding("memory", "ok", seen)


def overcommit(server: Client) -> Finding:
    """Check that a server of the store may copy its memory."""
    here = access.here(about.connection(server).get("host"))
    return host.overcommit(int(about.state(server, "memory").get("maxmemory", 0)), here=here)


def clock(client: Client, now: Callable[[], float] = time.time) -> Finding:
    """Check how far this machine's clock and the store's are apart."""
    # The store read its clock at some moment between these two, so only what lies outside of them is a difference.
    before = now()
    theirs = about.clock(client)
    after = now()
    difference = max(0.0, before - theirs, theirs - after)
    if difference < _OFF:
        return Finding("clock", "ok", f"within {max(0.1, after - before + difference):.1f} s of the store's")
    seen = f"{difference:,.0f} s {'ahead of' if before > theirs else 'behind'} the store's"
    meaning = "one of them is wrong: reports at the edge of a period may be refused, and what is due goes out late"
    if difference >= _TOO_FAR:
        meaning = f"{meaning}; uploads may be forgotten early, and counted again when they are repeated"
    return Finding("clock", "fault" if difference >= _TOO_FAR else "warning", seen, meaning, "have both machines keep time (NTP)")


def backup(
    client: Client,
    *,
    real: bool,  # whether an app is known to be no trial
    now: Callable[[], float] = time.time,
) -> Finding:
    """Check of when the last copy of the store is."""
    if isinstance(client, Cluster):
        return Finding("backup", "ok", "not looked for: each primary of a cluster has its copies on other machines")
    last, begun = snapshot.copies(client)
    if begun is not None:
        seen = f"none since the copy begun {_minute(begun)}, {_age(max(now() - begun, 0.0))} ago"
        meaning = "if the store was restored, that is its copy; otherwise that copy is not finished. What came since may be lost"
        return Finding("backup", "warning", seen, meaning, f"make a copy now: {_BACKUP}")
    seen = "none is known" if last is None else f"the last copy is of {_minute(last)}"
    if last is None and not real:
        return Finding("backup", "ok", f"{seen}, and no app is known to be more than a trial")
    if last is not None and now() - last < _STALE_DAYS * _DAY:
        return Finding("backup", "ok", seen)
    meaning = "if the store's disk is lost, all that came since is lost with it: counts, releases and keys"
    return Finding("backup", "warning", seen, meaning, f"make a copy each day: {_BACKUP}")


def _age(seconds: float) -> str:
    units = {"day": _DAY, "hour": _HOUR, "minute": 60.0}
    unit, length = next(((unit, length) for unit, length in units.items() if seconds >= length), ("minute", 60.0))
    return plural(int(seconds / length), unit)


def _minute(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
