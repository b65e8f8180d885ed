"""The subcommand ``publish``: publish now what is due."""

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
    """``deniable publish --redis-url URL --registry FILE``."""
    # Exit status: 0 done, also if nothing was due; 2 for a wrong configuration; 3 if the store cannot be used.
    options.add(parser)
    about = "metrics.toml of the apps; several are joined by : (default: DENIABLE_REGISTRY)"
    parser.add_argument("--registry", metavar="FILE", help=about)

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.publish import definitions
        from deniable_aggregator.publish.publisher import Publisher

        environment = options.environment(arguments)
        loaded = published.load_all(environment["DENIABLE_REGISTRY"])
        if not loaded:
            raise ConfigurationError("this needs --registry, which says how many reports a release needs")
        number = 0
        for store in options.stores(environment, arguments.app):
            if store.app not in loaded:
                raise ConfigurationError(f"--registry names the registry of each app; {store.app} has none")
            publisher = Publisher(store, definitions.completed(store, loaded[store.app]), actor="command")
            for release in publisher.publish(store.now()):
                number += 1
                cell = f", {release.segment}" if release.segment else ""
                print(f"{store.app}: {release.metric}@{release.version}, {release.period}{cell}")
            if loaded[store.app].publication.trial:
                print(f"{store.app}: a trial: all reports are published as soon as they are counted")
                continue
            for declared, came in publisher.unpublished():
                metric = declared.metric
                due = metric.closes(metric.next_to_close(datetime.now(UTC)))
                early = loaded[store.app].publication.early and not metric.segments
                step = ", or a step earlier: when as many more have come, and a quarter of those published" if early else ""
                wait = f"reports that wait: {came:,}; needed: {declared.needed}"
                print(
                    f"{store.app}: {metric.id}@{metric.version}: {wait}; the next release is due {due:%Y-%m-%d %H:%M} UTC{step}"
                )
        print(f"{number} published")
        return 0

    return run
