"""The doctor's checks of an app whose reports a relay mixes: it may send, its reports open, and its pools come whole."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.errors import ConfigurationError
from deniable.messages.finding import Finding
from deniable.messages.plural import few
from deniable.registry import period
from deniable_aggregator.publish import release
from deniable_server.access.keys import KeyStore
from deniable_server.access.sealing_keys import Opener

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.registry import Registry
    from deniable.registry.relay import Relay
    from deniable_aggregator.store import Store
    from deniable_server.settings import Settings

_ASK = "`deniable relay doctor` says there what waits, what was dropped, and why pools are refused"


def checks(settings: Settings, registry: Registry, store: Store) -> dict[str, Callable[[], Finding]]:
    """Return the checks of an app, by name; none if no relay mixes its reports."""
    mixer = registry.relay
    if mixer is None:
        return {}
    return {
        "sealing key": lambda: sealing_key(settings, registry),
        "relay": lambda: relay(mixer, registry, store),
        "pools": lambda: pools(mixer, registry, store),
    }


def sealing_key(settings: Settings, registry: Registry) -> Finding:
    """Check that a server that takes uploads has the private part of the key that devices seal to."""
    name, app = "sealing key", registry.app
    if settings.serves == "query":
        return Finding(name, "ok", "a server of queries opens nothing, and needs none", app=app)
    remedy = (
        "name its file in DENIABLE_SEALING_KEYS, and start the server again; if it is lost, only an app release brings another"
    )
    try:
        lack = Opener.read(settings.sealing_keys).lacks(registry)
    except ConfigurationError as error:
        return Finding(name, "fault", str(error), "servers that take uploads do not start", remedy, app)
    if lack:
        meaning = "the relay's pools are refused with 503 and stay there; nothing is counted"
        return Finding(name, "fault", lack.partition(":")[0], meaning, remedy, app)
    return Finding(name, "ok", "the one that devices seal to is here", app=app)


def relay(mixer: Relay, registry: Registry, store: Store, now: datetime | None = None) -> Finding:
    """Check that the relay may send pools, and when the last one came."""
    name, app = "relay", registry.app
    keys = [key for key in KeyStore(store).load() if key.role == "relay"]
    if not keys:
        remedy = f"`deniable keys create --app {app} --role relay`, and hand it to {mixer.operator}"
        return Finding(name, "fault", "it has no key", "no pool can come: each is answered 401", remedy, app)
    hours = [hour for partition in store.partitions if (hour := partition.last_upload()) is not None]
    if hours:
        begun = datetime.fromtimestamp(max(hours), UTC)
        seen = f"the last pool of {mixer.operator} came on {begun:%Y-%m-%d}"
    else:
        begun = datetime.combine(max(key.created for key in keys if key.created), time(), UTC)
        seen = f"no pool of {mixer.operator} has come"
    if (now or datetime.now(UTC)) - begun <= _longest_silence(registry):
        return Finding(name, "ok", seen, app=app)
    meaning = "two periods of a metric are over, and their time for late reports: the relay is down, or its pools stay too small"
    return Finding(name, "warning", seen, meaning, f"ask {mixer.operator}: {_ASK}", app)


def _longest_silence(registry: Registry) -> timedelta:
    """Return how long nothing may come: two of the shortest periods that metrics have, with their time for late reports."""
    now = datetime.now(UTC)
    lengths = []
    for metric in registry.metrics.values():
        current = period.of(now, metric.period)
        lengths.append(metric.closes(current) - period.bounds(current, metric.period)[0])
    return 2 * min(lengths, default=timedelta())


def pools(mixer: Relay, registry: Registry, store: Store) -> Finding:
    """Check what is published for pools that have not come whole: a relay sends all of a pool, or nothing."""
    name, app = "pools", registry.app
    parts = []
    for metric in registry.metrics.values():
        tag = Declared.of(metric).fingerprint
        for stratum, note in release.listed(store, metric.id).items() if metric.shuffled else ():
            if stratum.fingerprint == tag and 0 < note.n < metric.crowd:
                place = f"{metric.id} of {stratum.period}" + (f" ({stratum.segment})" if stratum.segment else "")
                parts.append(f"{place}: {note.n:,} of at least {metric.crowd:,}")
    if not parts:
        return Finding(name, "ok", "each that is published is as large as declared", app=app)
    meaning = "a part of the pool has not come, or does not open: there are fewer reports than devices sent"
    remedy = f"see the finding refused for the code `seal`; ask {mixer.operator}: {_ASK}"
    return Finding(name, "warning", few(parts, between="; "), meaning, remedy, app)
