"""The subcommand ``divide``: divide an app into partitions, so that several servers of a cluster share its reports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.messages.plural import plural
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run


def divide(parser: argparse.ArgumentParser) -> Run:
    """``deniable divide --redis-url URL --app NAME --into N``."""
    # Exit status: 0 if the app has this number of partitions now; 1 if it has another; 2 for a wrong configuration; 3 if the
    # store cannot be used.
    options.add(parser)
    parser.add_argument("--into", type=options.whole_number, required=True, metavar="N", help="number of partitions")

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.store.uploads.partition import MOST

        store = options.store(options.environment(arguments), arguments.app, "divide takes", unknown=True)
        if not 1 <= arguments.into <= MOST:
            raise ConfigurationError(f"--into {arguments.into}: write 1 to {MOST}, the number of partitions")
        app, number = store.app, store.divide(arguments.into)
        if number == arguments.into:
            print(f"{app}: {plural(number, 'partition')}")
            return 0
        print(
            f"{app} has {plural(number, 'partition')} for good. The first worker or upload fixes the number: with "
            "another one, an upload that is sent again would be counted twice. Divide an app with another name.",
            file=sys.stderr,
        )
        return 1

    return run
