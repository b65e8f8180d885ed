"""The subcommand ``erase``: remove everything about a metric, or about one of its versions, from the store."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.registry import published
from deniable_aggregator.audit.entry import LONGEST
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    from deniable.commands.parser import Run
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.deletion.erase import ErasePlan, Removal
    from deniable_aggregator.store import Store

_MOST = 1 << 53


def erase(parser: argparse.ArgumentParser) -> Run:
    """``deniable erase --redis-url URL --app NAME --metric ID [--version V] [--yes]``."""
    # Exit status: 0 done, or, without `--yes`, the data are listed; 1 if the metric is unknown; 2 for a wrong configuration; 3 if
    # the store cannot be used.
    options.add(parser)
    about = "metrics.toml of the app; several are joined by : (default: DENIABLE_REGISTRY, or none)"
    parser.add_argument("--registry", metavar="FILE", help=about)
    parser.add_argument("--metric", required=True, metavar="ID", help="the metric; registries may have dropped it")
    parser.add_argument("--version", type=_version, metavar="V", help="only this version (default: all)")
    options.add_archive(parser, "its files in the archive, too")
    parser.add_argument("--yes", action="store_true", help="do it; without this, only show what would be removed")

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.deletion.erase import Removal

        environment = options.environment(arguments)
        store = options.store(environment, arguments.app, "erase takes")
        metric, version = arguments.metric, arguments.version
        if not 0 < len(metric) <= LONGEST or not metric.isprintable() or "|" in metric:
            raise ConfigurationError(f"--metric is the id of a metric, such as ui.theme; got {metric!r}")
        declared = _declared(environment["DENIABLE_REGISTRY"], store.app, metric)
        removal = Removal(store, metric, version)
        plan = removal.find()
        # Versions that are declared and have no data yet are erased, too: their first reports may wait to be counted.
        highest = max([*plan.versions, *declared, *filter(None, (version,))], default=None)
        if highest is None and not plan.letters:
            print(f"the store of {store.app} has nothing of {metric}, and no registry given declares it", file=sys.stderr)
            return 1
        _print(store, f"{metric} version {version}" if version else metric, plan)
        dropped = ", ".join(map(str, sorted(declared if version is None else declared & {version})))
        if dropped:
            print(f"the registry declares version {dropped}: reports of it are accepted, and dropped")
        if not arguments.yes:
            print("nothing was removed; --yes removes it for good")
            return 0
        _erase(store, removal, arguments, plan, highest or 1)
        _erase_files(store, options.archive(arguments), metric, version)
        return 0

    return run


def _version(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < _MOST:
        raise argparse.ArgumentTypeError(f"a version is a whole number of at least 1; got {text!r}")
    return int(text)


def _declared(paths: str | None, app: str, metric: str) -> set[int]:
    """Return the versions that the app's registry declares."""
    loaded = published.load_all(paths or "").get(app)
    return {each.version for each in loaded.definitions if each.id == metric} if loaded else set()


def _print(store: Store, what: str, plan: ErasePlan) -> None:
    versions = ", ".join(map(str, plan.versions)) or "none"
    print(f"{what} of {store.app}: versions {versions}; periods {plan.periods}; keys and fields {plan.keys}")
    if plan.letters:
        print(f"dead letters with reports of it: {len(plan.letters)}; other reports in them are kept")
    waiting = store.backlog()
    if waiting:
        print(f"batches that wait: {waiting}; reports of it are dropped when they are counted")


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
