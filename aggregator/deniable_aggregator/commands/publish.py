"""The subcommand ``publish``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.registry import published
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run


def publish(parser: argparse.ArgumentParser) -> Run:
    """``deniable publish --redis-url URL --registry FILE``.

    Exit status: 0 done, also if there was nothing to publish; 2 for a wrong configuration; 3 when the store could not be used.
    """
    options.add(parser)
    about = "metrics.toml of the apps; several are joined by : (default: DENIABLE_REGISTRY)"
    parser.add_argument("--registry", metavar="FILE", help=about)

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.publish.publisher import Publisher

        told = options.environment(arguments)
        loaded = published.load_all(told["DENIABLE_REGISTRY"])
        if not loaded:
            raise ConfigurationError("this needs --registry, which says how many reports a release needs")
        made = 0
        for store in options.stores(told, arguments.app):
            if store.app not in loaded:
                raise ConfigurationError(f"--registry names the registry of each app; {store.app} has none")
            publisher = Publisher(store, loaded[store.app], actor="command")
            for each in publisher.publish(store.now()):
                made += 1
                print(f"{store.app}: {each.metric}@{each.version}, {each.period}{', ' + each.segment if each.segment else ''}")
            if loaded[store.app].publication.trial:
                print(f"{store.app}: a trial: all reports are published as soon as they are counted")
                continue
            for declared, came in publisher.unpublished():
                metric = declared.metric
                due = metric.closes(metric.next_to_close(datetime.now(UTC)))
                wait = f"reports that wait: {came:,}; needed: {declared.needed}"
                print(f"{store.app}: {metric.id}@{metric.version}: {wait}; the next release is due {due:%Y-%m-%d %H:%M} UTC")
        print(f"{made} published")
        return 0

    return run
