"""The doctor's checks of each app: its pipeline, its keys, and its releases."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.messages.finding import Finding
from deniable.messages.plural import plural
from deniable_aggregator.counting import faults
from deniable_aggregator.deletion.erase import Erased
from deniable_aggregator.publish import release
from deniable_aggregator.publish.definitions import refusal
from deniable_aggregator.store import Store
from deniable_aggregator.store.uploads import health, refused_reports, registries
from deniable_aggregator.store.uploads.archived import LastRecount
from deniable_server.access.keys import KeyStore
from deniable_server.agreement import SHOWN, Agreement, has_loaded
from deniable_server.doctor import relays
from deniable_server.doctor.definitions import definitions, expired
from deniable_server.doctor.servers import NOT_KNOWN, servers
from deniable_server.doctor.store import silence
from deniable_server.settings import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from deniable.declared import Definition
    from deniable.registry import Registry
    from deniable.served_registry.signature import Envelope
    from deniable_aggregator.answer.model.comparison import ArmSizes
    from deniable_aggregator.store import Client
    from deniable_aggregator.store.uploads.health import Health
    from deniable_aggregator.store.uploads.refused_reports import Refused
    from deniable_server.settings import Settings
    from deniable_server.sources import Source

_RESTORE = "https://deniable.github.io/deniable/how-to/operate/back-up/#restore-the-store"
_SOON = 7  # days before the end of a signed registry that need attention
_NAMED = 5  # in one finding
_READ_SECONDS = 10.0  # in which processes of `deniable serve` start, and read an edited file
_LOOK_SECONDS = 0.25
_OTHER_REGISTRY = ("definition_mismatch", "unknown_metric", "unknown_version")
"""Why reports are refused that were made for another registry."""
_LATE, _TOO_LATE = 60.0, 3600.0  # seconds that batches wait; the second is the shortest period


def checks(
    settings: Settings,
    app: str,
    client: Client,
    source: Source | None,  # of the app's registry; None if that has faults
    serving: Callable[[], Sequence[str]],  # returns the apps that a living server serves
    deadline: Callable[[], float],  # returns until when servers are waited for that may just start
) -> dict[str, Callable[[], Finding]]:
    """Return the checks of an app, by name. Some need its registry."""
    store, silenced = Store(client, app), cache(partial(silence, client, app))
    named: dict[str, Callable[[], Finding]] = {
        "store server": lambda: store_server(store),
        "servers": lambda: servers(store, serving, deadline, silenced),
        "workers": lambda: workers(app, revived(store), silenced),
        "backlog": lambda: backlog(app, health.read(store), settings.max_backlog),
        "lag": lambda: lag(app, health.read(store)),
        "dead letters": lambda: dead(app, health.read(store)),
        "keys": lambda: keys(settings, store),
        "chores": lambda: chores(app, faults.present(store), health.read(store)),
        "archive": lambda: archive(store, health.read(store).held_up.get(health.ARCHIVE)),
    }
    if source is not None:
        registry, agreement = source.registry, cache(partial(settled, store, source))
        named |= {
            "registry": lambda: processes(agreement(), app=app, path=source.path, breaks=partial(refusal, store, registry)),
            "signed registry": lambda: signed_registry(app, source.envelope),
            "refused": lambda: refused(registry, store, agree=not agreement().differing),
            "definitions": lambda: definitions(registry, store),
            "erased": lambda: erased(registry, store),
            "expired": lambda: expired(registry),
            "simulated people": lambda: simulated_people(registry, store),
            "experiments": lambda: experiments(registry, store),
            **relays.checks(settings, registry, store),
        }
    return named


def store_server(store: Store) -> Finding:
    """Check that the store's server that has the app's data answers."""
    return Finding(
        "store server",
        "ok",
        f"it answers, and has {len(store.partitions)} partitions" if len(store.partitions) > 1 else "it answers",
        app=store.app,
    )


def settled(store: Store, source: Source) -> Agreement:
    """Look whether processes and file agree, again and again for some seconds while `deniable serve` has them read it."""
    deadline = time.monotonic() + _READ_SECONDS
    while True:
        agreement = Agreement.of(store, source)
        if not agreement.differing or not agreement.reloads or agreement.fault or time.monotonic() > deadline:
            return agreement
        time.sleep(_LOOK_SECONDS)


def revived(store: Store) -> Health:
    """Read the state of an app; if no worker lives, again for some seconds while `deniable serve` or the store starts."""
    deadline = time.monotonic() + _READ_SECONDS
    while True:
        state = health.read(store)
        serving = any(each.role == "serve" for each in registries.running(store))
        starting = not state.workers and (serving or not registries.heard(store))
        if not starting or time.monotonic() > deadline:
            return state
        time.sleep(_LOOK_SECONDS)


def processes(
    agreement: Agreement,
    *,
    app: str,
    path: str,
    breaks: Callable[[], object] = list,  # returns what the file, which can be read, would break
) -> Finding:
    """Check that running processes have loaded the registry that is on disk."""
    if not agreement.differing:
        seen = (
            f"{agreement.processes}: all have loaded the file on disk" if agreement.running else "no process reports that it runs"
        )
        return Finding("registry", "ok", seen, app=app)
    others = ", ".join(f"{each.role} {each.process} {has_loaded(each)}" for each in agreement.differing[:_NAMED])
    more = f", and {len(agreement.differing) - _NAMED} more have others" if len(agreement.differing) > _NAMED else ""
    file = agreement.on_disk[:SHOWN] or "unreadable"
    meaning = "what was changed in the file is not in effect there: its reports may be refused, and are published as before"
    mend = bool(agreement.fault) and not agreement.is_off and (agreement.reloads or bool(breaks()))
    if agreement.is_off:
        meaning = (
            "it had a fault when they read it: servers there answer 503 (app_not_served), and workers publish nothing of the app"
        )
    elif mend:
        meaning = f"the file was refused, and the one before is in use: {agreement.fault}"
    elif agreement.fault:
        meaning = (
            f"the file is valid now; when they read it last, they refused it ({agreement.fault}), and the one before is in use"
        )
    seen = f"{path} is {file}, but {others}{more}"
    return Finding("registry", agreement.status, seen, meaning, _remedy(agreement, path, mend=mend), app)


def _remedy(agreement: Agreement, path: str, *, mend: bool) -> str:
    """Say how processes come to read the file."""
    says = "mend what it says"  # `lint` finds nothing, so the file was refused for what it would break
    if agreement.reloads:
        return says if agreement.fault else "`deniable serve` has them read it: what it writes says why they have not"
    roles = {"server" if each.is_server else each.role for each in agreement.differing}
    ways = {"server": "send SIGHUP to gunicorn's first process, under running requests", "worker": "restart the worker"}
    back = f"or put the file back as it was (`deniable registry diff OLD {path}` compares the two)"
    named = [way for role, way in ways.items() if role in roles]
    first = [says] if mend else []
    if {each.role for each in agreement.running if each not in agreement.differing} & {each.role for each in agreement.differing}:
        other = "others of their kind have loaded this file, so they probably load another one: compare their DENIABLE_REGISTRY"
        return "; ".join([*first, f"{other}, and the files on both machines", "if it is the same file: " + named[0], *named[1:]])
    stays = (
        "if this finding stays for longer than a minute, they load another file: look at their DENIABLE_REGISTRY (one that ended "
        "within the last minute is still named)"
    )
    return "; ".join([*first, *named, back, stays])


def refused(
    registry: Registry,
    store: Store,
    *,
    agree: bool,  # whether all processes have loaded this registry
) -> Finding:
    """Check which reports were refused, why, and for which version and definition of their metrics they were made."""
    trial = registry.publication.trial
    numbers = refused_reports.numbers(store, refused_reports.visible(store, trial=trial))
    when = f"in the last {refused_reports.DAYS} days"
    later = "" if trial else "; what came since a worker's last hourly copy is not counted yet"
    if not numbers:
        return Finding("refused", "ok", f"none {when}{later}", app=store.app)
    known = {Declared.of(metric).definition for metric in registry.definitions}
    published = {definition: each.last for definition, each in release.summaries(store).items() if each.n}
    sorted_numbers = sorted(numbers.items(), key=lambda pair: (pair[0].code not in _OTHER_REGISTRY, -pair[1], pair[0]))
    parts = [f"{n:,} of {_made_for(of, known, published, agree=agree)} as {of.code}" for of, n in sorted_numbers[:_NAMED]]
    if len(sorted_numbers) > _NAMED:
        parts.append(f"{sum(n for _, n in sorted_numbers[_NAMED:]):,} others")
    seen = f"{when}: {'; '.join(parts)}{later}"
    others = [of for of in numbers if of.code in _OTHER_REGISTRY]
    if all(agree and _definition(of) in known for of in others):  # all that was refused for another registry is declared by now
        return Finding("refused", "ok", seen, app=store.app)
    meaning = "apps with another registry than this server's send reports that are not counted"
    remedy = (
        "of a newer app: serve its registry; of an older one: restore what it declares, or raise the version, and serve the "
        f"folder of all registries in use (`deniable registry publish`); these numbers go {refused_reports.DAYS} days later"
    )
    return Finding("refused", "warning", seen, meaning, remedy, store.app)


def _made_for(of: Refused, known: Collection[Definition], published: Mapping[Definition, str], *, agree: bool) -> str:
    """Say of which metric refused reports were, and for what they were made if it is not what the server has."""
    if not of.metric:
        return "metrics that are not declared"
    definition = _definition(of)
    if definition is None:
        return f"{of.metric} of other definitions" if of.made_for else f"{of.metric} version {of.version}"
    what = f"{of.metric} version {definition[1]}, defined as {definition[2]}"
    if definition in known:
        loaded = "sent before the file was loaded" if agree else "a server has not loaded this file"
        return f"{what} (as the file defines it now; {loaded})"
    return f"{what} (published until {published[definition]})" if definition in published else what


def _definition(of: Refused) -> Definition | None:
    """Return the definition that refused reports were made for, if they say it."""
    version, _, tag = of.made_for.partition(" ")
    return (of.metric, int(version), tag) if tag else None


def workers(app: str, state: Health, silenced: Callable[[], str] = str) -> Finding:
    """Check that a worker lives."""
    if state.workers:
        return Finding("workers", "ok", f"{state.workers} alive", app=app)
    if why := silenced():
        return Finding("workers", "skipped", f"no worker can say that it lives: {why}", *NOT_KNOWN, app)
    meaning = "nothing is counted" + ("" if state.backlog else "; nothing waits at the moment")
    remedy = (
        "start `deniable worker`, which counts all apps of DENIABLE_REGISTRY, with the environment of the user 'worker' "
        "(deploy/private/worker.env); if one runs, its log says why it cannot use the store; if it hangs, kill it"
    )
    return Finding("workers", "fault" if state.backlog else "warning", "none gives a sign of life", meaning, remedy, app)


def backlog(app: str, state: Health, cap: int) -> Finding:
    """Check how much waits."""
    seen = f"{state.backlog:,} of at most {cap:,} batches wait, {state.pending:,} of them in a worker's hands"
    remedy = "start another worker; if that does not help, look what slows the store"
    if state.backlog >= cap:
        return Finding("backlog", "fault", seen, "uploads are refused with 503 backlog_full", remedy, app)
    if 2 * state.backlog >= cap:
        return Finding("backlog", "warning", seen, "more comes than is counted: soon uploads will be refused", remedy, app)
    return Finding("backlog", "ok", seen, app=app)


def lag(app: str, state: Health) -> Finding:
    """Check how long batches wait."""
    if state.lag is None:
        meaning, remedy = "how long batches have waited cannot be told", "start `deniable worker`"
        return Finding("lag", "warning", "no worker came, ever or since the store's clock went back", meaning, remedy, app)
    seen = f"{'nothing waits longer than' if state.known else 'something waits for at least'} {state.lag:,.0f} s"
    if state.lag < _LATE:
        return Finding("lag", "ok", seen, app=app)
    meaning = "what was sent shows late in the estimates"
    remedy = "start another worker; after a worker's death its batches wait for --claim-after seconds"
    if not state.workers:
        remedy = "do what the finding workers says"
    return Finding("lag", "fault" if state.lag >= _TOO_LATE else "warning", seen, meaning, remedy, app)


def dead(app: str, state: Health) -> Finding:
    """Check for batches that could not be counted."""
    if not state.dead:
        return Finding("dead letters", "ok", "none", app=app)
    meaning = "batches that were accepted are in no tally"
    remedy = f"`deniable dead-letters --app {app} list` says why; requeue them once that is mended, or purge them"
    return Finding("dead letters", "warning", f"{state.dead:,}", meaning, remedy, app)


def keys(settings: Settings, store: Store) -> Finding:
    """Check who may send and read. A revoked key leaves no trace, so only missing keys can be seen."""
    app, roles = store.app, Counter(key.role for key in KeyStore(store).load())
    for role, pairs in (("ingest", settings.ingest_keys), ("read", settings.read_keys)):
        roles[role] += sum(served == app for served, _ in Keys(pairs))
    seen = ", ".join(f"{roles[role]} {role}" for role in ("ingest", "read", "admin"))
    make = f"`deniable keys create --app {app} --role"
    as_whom = "with the environment of the user 'operator' (deploy/private/operator.env), or with --redis-url"
    if not roles.total():  # those of apps in use are not made again, but restored
        as_whom += f"; if {app} had keys, the store has lost its data: restore the last copy instead ({_RESTORE})"
    if settings.serves != "query" and not roles["ingest"]:
        return Finding("keys", "fault", seen, "no device can send: each is answered 401", f"{make} ingest`, {as_whom}", app)
    if settings.serves != "ingest" and not roles["read"] + roles["admin"] and settings.dashboard == "key":
        return Finding("keys", "warning", seen, "nobody can read what is counted", f"{make} read`, {as_whom}", app)
    return Finding("keys", "ok", seen, app=app)


def signed_registry(app: str, envelope: Envelope | None) -> Finding:
    """Check that the registry that is handed to devices is still used by those that have not had it."""
    if envelope is None or envelope.valid_until is None:
        seen = "none is handed to devices" if envelope is None else "valid without end"
        return Finding("signed registry", "ok", seen, app=app)
    left = (envelope.valid_until - datetime.now(UTC).date()).days
    seen = f"valid until {envelope.valid_until}"
    if left >= _SOON:
        return Finding("signed registry", "ok", seen, app=app)
    meaning = "after that day, devices that have not had it do not use it, and the others pause what was ever turned off"
    again = "sign it again with `deniable registry sign --against FILE --valid-for 30d`"
    remedy = f"{again}; `deniable serve` reads it by itself, other servers at SIGHUP"
    return Finding("signed registry", "fault" if left < 0 else "warning", seen, meaning, remedy, app)


def experiments(registry: Registry, store: Store) -> Finding:
    """Check that the arms of experiments have as many reports as declared."""
    from deniable_aggregator.answer.difference import DIFFER, arm_sizes_of  # noqa: PLC0415 - a server for uploads has no scipy

    tested: list[tuple[str, ArmSizes]] = []
    for metric in registry.metrics.values():
        for segment in registry.experiments.keys() & set(metric.segments):
            declared = Declared.of(metric)
            releases = {each: note for each, note in release.listed(store, metric.id).items() if each[:3] == declared.definition}
            sizes = arm_sizes_of(registry, declared, releases, segment)
            if sizes:
                tested.append((f"{metric.id} by {segment}", sizes))
    # Of many metrics one may differ by chance.
    differing = [f"{name}: {sizes.says}" for name, sizes in tested if sizes.differ and sizes.p_value * len(tested) < DIFFER]
    if not differing:
        seen = f"{plural(len(tested), 'metric')} with arms as declared" if tested else "none is published"
        return Finding("experiments", "ok", seen, app=store.app)
    meaning = "a comparison of arms of other sizes than declared may mislead"
    remedy = "look whether the app draws arms as `split` says, and whether one arm fails or sends less"
    return Finding("experiments", "warning", " ".join(sorted(differing)), meaning, remedy, store.app)


def erased(registry: Registry, store: Store) -> Finding:
    """Check for metrics that were erased, and that the registry declares nevertheless."""
    gone = Erased(store.erased.all())
    named = [f"{each.id} version {each.version}" for each in registry.definitions if gone.has(each.id, each.version)]
    if not named:
        return Finding("erased", "ok", "nothing that is declared", app=registry.app)
    meaning = "devices go on to send it, and its reports are accepted, and dropped"
    remedy = (
        "remove it from the registry, or raise its version; then have servers and workers read the registry, and release the app"
    )
    return Finding("erased", "warning", f"{', '.join(sorted(named))}, which the registry declares", meaning, remedy, registry.app)


def simulated_people(registry: Registry, store: Store) -> Finding:
    """Check that results of real people have no reports of simulated ones in them."""
    name, days = "simulated people", store.simulated
    if not days:
        return Finding(name, "ok", "none were sent", app=store.app)
    if registry.publication.trial:
        return Finding(name, "ok", f"sent for {days}, into a trial", app=store.app)
    remedy = "serve real people with a new store: `deniable serve` with another --data, or another DENIABLE_REDIS_URL"
    return Finding(name, "fault", f"sent for {days}", "results mix them with real people", remedy, store.app)


def chores(app: str, present: Mapping[str, str], state: Health) -> Finding:
    """Check for chores of workers that fail."""
    # What holds counting up is over when its worker is; of the archive another check says it.
    over = {health.ARCHIVE, health.MEMORY} - ({health.MEMORY} & state.held_up.keys())
    failing = [
        f"counting is held up by {name} ({error})" if name == health.MEMORY else f"{name} fails ({error})"
        for name, error in present.items()
        if name not in over
    ]
    if not failing:
        return Finding("chores", "ok", "nothing fails of what workers do beside counting", app=app)
    seen = "; ".join(failing)
    meaning = "what is named is not published, watched or deleted; nothing else is held up"
    remedy = "the worker's log says when; look at that metric in the registry"
    if health.MEMORY in state.held_up:
        others = "; what else is named is not published, watched or deleted" if len(failing) > 1 else ""
        meaning = f"reports wait, and are refused when the backlog is full{others}"
        room = "do what the finding memory says, and the worker goes on by itself"
        remedy = f"{room}; of what else is named {remedy}" if others else room
    return Finding("chores", "fault", seen, meaning, remedy, app)


def archive(store: Store, fault: str | None) -> Finding:
    """Check that reports can be kept, if they are kept after they are counted."""
    app = store.app
    if fault:
        meaning = "the worker that says so counts nothing until it can; reports wait, and are refused when the backlog is full"
        remedy = "see that the worker's user can write there, and that there is room; the worker goes on by itself"
        return Finding("archive", "fault", f"it cannot be written ({fault})", meaning, remedy, app)
    folders = ", ".join(filter(None, (each.archived.number() for each in store.partitions)))
    if not folders:
        return Finding("archive", "ok", "none: a report is kept until it is counted", app=app)
    seen = f"randomised reports of bits layouts are kept, until their exact sums are deleted, in these folders: {folders}"
    last = LastRecount.of(store)
    if last is None:
        return Finding("archive", "ok", f"{seen}; no recount of all yet", app=app)
    recount = f"of {last.strata:,} strata {last.failing:,} have files that cannot be counted, {last.differing:,} differ"
    seen += f"; the last recount of all was on {datetime.fromtimestamp(last.at, UTC):%Y-%m-%d %H:%M} UTC: {recount}"
    if not last.failing + last.differing:
        return Finding("archive", "ok", seen, app=app)
    meaning = "the archive does not have all reports that were counted; tallies and releases are not affected"
    remedy = f"`deniable recount --app {app}` names the files; restore them from a backup, or let them go with their period"
    return Finding("archive", "warning", seen, meaning, remedy, app)
