"""The subcommand ``erase``: remove everything about a metric, one of its versions, or a whole app from the store."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.messages.plural import plural
from deniable.registry import published
from deniable_aggregator.audit.entry import LONGEST
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    from deniable.commands.parser import Run
    from deniable.registry import Registry
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.deletion.erase import ErasePlan, Removal
    from deniable_aggregator.store import Store

_MOST = 1 << 53
_NAMED = 5  # processes
_DRY = "nothing was removed; --yes removes it for good"


def erase(parser: argparse.ArgumentParser) -> Run:
    """``deniable erase --redis-url URL --app NAME [--metric ID [--version V]] [--yes]``."""
    # Exit status: 0 done, or done before, or, without `--yes`, the data are listed; 2 for a wrong configuration, or if the store
    # has nothing of the metric or the app; 3 if the store cannot be used.
    options.add(parser)
    about = "metrics.toml of the app; several are joined by : (default: DENIABLE_REGISTRY, or none)"
    parser.add_argument("--registry", metavar="FILE", help=about)
    about = "the metric; registries may have dropped it (default: all of the app that --app names)"
    parser.add_argument("--metric", metavar="ID", help=about)
    parser.add_argument("--version", type=_version, metavar="V", help="only this version of the metric (default: all)")
    options.add_archive(parser, "its files in the archive, too")
    parser.add_argument("--yes", action="store_true", help="do it; without this, only show what would be removed")

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.deletion.erase import Removal

        environment = options.environment(arguments)
        metric, version = arguments.metric, arguments.version
        # An app goes only if it is named: a variable that names one must not make a forgotten --metric mean all of it.
        if metric is None and (version or not arguments.app):
            raise ConfigurationError("name the metric by --metric, or by --app an app to erase all of, without --version")
        store = options.store(environment, arguments.app, "erase takes")
        if metric is None:
            return _erase_app(store, environment["DENIABLE_REGISTRY"], options.archive(arguments), yes=arguments.yes)
        if not 0 < len(metric) <= LONGEST or not metric.isprintable() or "|" in metric:
            raise ConfigurationError(f"--metric {metric!r}: write the id of a metric, such as ui.theme")
        registries = published.load_all(environment["DENIABLE_REGISTRY"])
        declared = _declared(registries.get(store.app), metric)
        removal = Removal(store, metric, version)
        plan = removal.find()
        # Versions that are declared and have no data yet are erased, too: their first reports may wait to be counted.
        highest = max([*plan.versions, *declared, *filter(None, (version,))], default=None)
        say_rest = partial(_say_rest, store, registries.get(store.app), metric, version)
        if not plan.keys and not plan.letters and removal.is_marked(highest or 1) and _was_erased(store, metric, version):
            say_rest()
            return 0
        if highest is None and not plan.letters:
            known = [*_metrics(registries.get(store.app)), *store.metrics.all()]
            raise ConfigurationError(f"the store has nothing of {metric!r} of {store.app!r}{options.meant(metric, known)}")
        _print(store, f"{metric} version {version}" if version else metric, plan)
        say_rest()
        if not arguments.yes:
            print(_DRY)
            return 0
        _erase(store, removal, arguments, plan, highest or 1)
        _erase_files(store, options.archive(arguments), metric, version)
        return 0

    return run


def _version(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no version: write a whole number of at least 1")
    return int(text)


def _declared(registry: Registry | None, metric: str) -> set[int]:
    """Return the versions that the app's registry declares."""
    return {each.version for each in registry.definitions if each.id == metric} if registry else set()


def _metrics(registry: Registry | None) -> list[str]:
    return list(registry.metrics) if registry else []


def _say_rest(store: Store, registry: Registry | None, metric: str, version: int | None) -> None:
    """Say what is still to come of an erased metric: from the queue, and from devices."""
    waiting = store.backlog()
    if waiting:
        print(f"batches that wait: {waiting}; reports of it are dropped when they are counted")
    if registry is None:
        print("whether a registry still declares it was not looked at: --registry names one")
        return
    declared = _declared(registry, metric)
    sent = declared if version is None else declared & {version}
    if sent:
        raised = f", or raise its version to {max(sent) + 1}" if sent == declared else ""
        still = f"{registry.file} still declares version {', '.join(map(str, sorted(sent)))}"
        print(f"{still}: devices go on to send it, and its reports are accepted, and dropped; remove it there{raised}")


def _was_erased(store: Store, metric: str | None = None, version: int | None = None) -> bool:
    """Say when the app, or a metric of it, was erased, if the audit log has that."""
    from deniable_aggregator.audit.entry import intact_entry
    from deniable_aggregator.audit.log import AuditLog

    log = AuditLog(store)
    about = {} if metric is None else {"metric": metric} | ({"version": version} if version else {})
    for entry in reversed([intact_entry(line) for line in log.lines(log.first())]):
        if entry and entry.event == ("metric.erased" if metric else "app.erased") and about.items() <= entry.details.items():
            what = f"{metric} of {store.app}" if metric else store.app
            when = f"{entry.moment} (entry {entry.number} of its audit log)"
            print(f"{what} was erased on {when}, and nothing that was counted is left")
            return True
    return False


def _print(store: Store, what: str, plan: ErasePlan) -> None:
    versions = ", ".join(map(str, plan.versions)) or "none"
    print(f"{what} of {store.app}: versions {versions}; periods {plan.periods}; keys and fields {plan.keys}")
    if plan.letters:
        print(f"dead letters with reports of it: {len(plan.letters)}; other reports in them are kept")


def _erase_files(store: Store, archive: Folder | None, metric: str, version: int | None) -> None:
    later = "its files leave the archive within an hour if a worker with the archive and the registry runs"
    if archive:
        from deniable_aggregator.archive.errors import ArchiveError
        from deniable_aggregator.deletion import archived_files

        try:
            print(f"removed: files of the archive {archived_files.erase(store, archive, metric, version)}")
        except ArchiveError as error:
            raise ConfigurationError(f"--archive: the archive cannot be used ({error}); {later}") from None
    elif any(each.archived.number() for each in store.partitions):
        print(later)


def _erase_app(store: Store, registries: str | None, archive: Folder | None, *, yes: bool) -> int:
    from deniable_aggregator.audit.log import AuditLog
    from deniable_aggregator.deletion.app import AppRemoval

    app = store.app
    loaded = published.load_all(registries or "").get(app)
    removal = AppRemoval(store, loaded.metrics if loaded else ())
    plan = removal.find()
    archived = any(each.archived.number() for each in store.partitions)
    if not plan and not archived:
        if _was_erased(store):
            return 0
        known = options.declared_apps(registries or "")
        raise ConfigurationError(f"the store has nothing of an app {app!r}{options.meant(app, known)}")
    for metric, keys in plan.metrics.items():
        print(f"{metric}: keys and fields {keys}")
    counts = f"batches that wait: {plan.waiting}; dead letters: {plan.letters}; keys of people and devices: {plan.keys}"
    print(f"all of {app}: metrics {len(plan.metrics)}; {counts}")
    print("the audit log, what analysts have spent, and which metrics were erased stay")
    if archived and archive is None:
        raise ConfigurationError(f"{app} has an archive, whose files nobody would delete later: name it by --archive")
    in_use = _in_use(store)
    if yes and in_use:
        raise ConfigurationError(f"nothing was removed, since {in_use}")
    if not yes:
        print(f"nothing was removed; --yes removes it for good, once nothing uses it: {in_use}" if in_use else _DRY)
        return 0
    AuditLog(store).append("app.erased", "command", {"metrics": len(plan.metrics), "keys": sum(plan.metrics.values())})
    if archive:
        # The store names the folders of the files, so they go first.
        print(f"removed: files of the archive {_without_files(store, archive)}")
    removal.sweep()
    print(f"removed: metrics {len(plan.metrics)}; {counts}")
    print("it leaves the store's append-only file when that is rewritten: within an hour if a worker of another app runs")
    return 0


def _in_use(store: Store) -> str:
    """Say which processes take or count reports of an app, and how they let go of it; empty if none does."""
    from deniable_aggregator.store.uploads import health, registries

    running = registries.running(store)
    if any(each.role == "serve" for each in running):
        rule = f"`deniable serve` serves {store.app}: start it again with the files of the other apps"
        return f"{rule}; if there is no other, stop it and delete its data folder, which has nothing else"
    servers = [each.process for each in running if each.serves]
    workers = max(health.read(store).workers, sum(each.role == "worker" for each in running))
    named = f" ({', '.join(servers[:_NAMED])}{', ...' if len(servers) > _NAMED else ''})" if servers else ""
    use = " and ".join(
        [*([plural(len(servers), "server") + named] if servers else []), *([plural(workers, "worker")] if workers else [])]
    )
    rule = f"{store.app} is in use by {use}: take it out of their DENIABLE_REGISTRY and DENIABLE_APPS and start them again"
    return f"{rule}, or stop them; one that was killed counts as alive for a minute" if use else ""


def _without_files(store: Store, archive: Folder) -> int:
    """Delete all files of an app's archive; return how many there were."""
    from deniable_aggregator.archive.errors import ArchiveError
    from deniable_aggregator.deletion import archived_files

    try:
        return archived_files.erase(store, archive)
    except ArchiveError as error:
        raise ConfigurationError(f"--archive: the archive cannot be used ({error}); nothing else was removed") from None


def _erase(store: Store, removal: Removal, arguments: argparse.Namespace, plan: ErasePlan, highest: int) -> None:
    from deniable_aggregator.audit.log import AuditLog

    details: dict[str, str | int] = {"metric": arguments.metric, "keys": plan.keys + len(plan.letters)}
    if arguments.version:
        details["version"] = arguments.version
    # The audit log comes first: no erasure goes unrecorded. The mark comes before the data: nothing is counted anew meanwhile.
    AuditLog(store).append("metric.erased", "command", details)
    removal.mark(highest)
    letters = removal.rewrite()
    removal.sweep()
    print(f"removed: keys and fields {plan.keys}, dead letters {letters}")
    print("it leaves the store's append-only file when that is rewritten: within an hour if a worker runs")
