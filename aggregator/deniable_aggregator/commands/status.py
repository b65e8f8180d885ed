"""The subcommand ``status``: batches that wait, workers and dead letters of each app."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_aggregator.publish.timetable import Pass

_COLUMNS = {
    "app": "app",
    "workers": "workers",
    "backlog": "backlog",
    "pending": "in hand",
    "lag": "lag s",
    "dead": "dead letters",
    "held_up": "held up by",
    "counted": "counted",
    "counted_at": "as of (UTC)",
}


def status(parser: argparse.ArgumentParser) -> Run:
    """``deniable status [--data DIR | --redis-url URL] [--app NAME...] [--json]``."""
    # Exit status: 0 if nothing waits or a worker lives; 1 if batches wait and no worker lives; 2 for a wrong configuration or an
    # app that is not known; 3 if
    # the store cannot be used.
    options.add(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each app, by line")

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.publish.timetable import Pass
        from deniable_aggregator.store.uploads import health

        environment = options.environment(arguments)
        stores = options.stores(environment, arguments.app)
        options.check_known(environment, stores)
        state = {store.app: health.read(store) for store in stores}
        rows = [{"app": store.app} | asdict(state[store.app]) | _counted(Pass.last(store)) for store in stores]
        if arguments.json:
            for row in rows:
                print(json.dumps(row))
        else:
            table = [list(_COLUMNS.values()), *([_text(row[name]) for name in _COLUMNS] for row in rows)]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            for cells in table:
                print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
        return int(any(each.backlog and not each.workers for each in state.values()))

    return run


def _counted(last: Pass | None) -> dict[str, object]:
    """Return how many reports were counted, when their sums were last copied."""
    # Every full hour at most: two looks that are a report apart would show that it came.
    at = f"{datetime.fromtimestamp(last.at, UTC):%Y-%m-%dT%H:%MZ}" if last else None
    return {"counted": last and last.n, "counted_at": at}


def _text(value: object) -> str:
    """Write a cell of the table."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(value) or "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
