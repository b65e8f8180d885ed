"""The subcommand ``status``: batches that wait, workers and dead letters of each app."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_aggregator.publish.timetable import Pass
    from deniable_aggregator.store.uploads.health import Health

_COLUMNS = {
    "app": "app",
    "workers": "workers",
    "backlog": "backlog",
    "pending": "in hand",
    "lag": "lag s",
    "dead": "dead letters",
    "held_up": "held up by",
    "counted": "counted",
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
        looked = {store.app: store.now() for store in stores}
        state = {store.app: health.read(store) for store in stores}
        passes = {store.app: Pass.last(store) for store in stores}
        rows = [{"app": app} | asdict(state[app]) | _counted(last) for app, last in passes.items()]
        if arguments.json:
            for row in rows:
                print(json.dumps(row))
        else:
            table = [list(_COLUMNS.values()), *([_text(row[name]) for name in _COLUMNS] for row in rows)]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            for cells in table:
                print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
            print()
            for app, health_ in state.items():
                print(f"{app}: {_verdict(health_, looked[app])}")
            print("Backlog, in hand and dead letters are batches, each of some reports.")
            for app, last in passes.items():
                if last:
                    print(f"{app}: {_since(last)}")
        return int(any(each.backlog and not each.workers for each in state.values()))

    return run


def _verdict(
    state: Health,
    looked: float,  # the Unix time before it was read; the number of counted reports is older
) -> str:
    """Say whether all is well, and else what to do."""
    waiting = f"{plural(state.backlog, 'batch')} {'waits' if state.backlog == 1 else 'wait'}" if state.backlog else ""
    if not state.workers:
        return (
            f"{waiting or 'nothing waits'}, and no worker runs to count what comes: start `deniable worker`, or `deniable serve`"
        )
    if state.held_up:
        return (
            f"{waiting or 'nothing waits'}; counting is held up by {', '.join(state.held_up)}: `deniable doctor` says what to do"
        )
    dead = f"; of {plural(state.dead, 'dead letter')} `deniable dead-letters list` says why" if state.dead else ""
    if waiting:
        return f"{waiting} for a worker that runs{dead}"
    return f"all that came by {datetime.fromtimestamp(looked, UTC):%H:%M:%S} UTC is counted{dead}"


def _since(last: Pass) -> str:
    """Say of when the number of counted reports is: one of an hour ago looks like a loss."""
    from deniable_aggregator.publish import timetable

    then = f"{datetime.fromtimestamp(last.next, UTC):%H:%M}"
    if last.to_come:
        results = "results when a period closes (of a metric without segments also in steps before that, unless `early` is false)"
        return f"how many are counted shows at {then} UTC or soon after, and {results}"
    counted = f"the {plural(last.n, 'report')} {'was' if last.n == 1 else 'were'} counted by"
    open_ = "in periods that still take some"
    moment = datetime.fromtimestamp(last.at, UTC)
    if last.of_trial:
        return f"{counted} {moment:%H:%M:%S} UTC, {open_}; a worker looks again every {timetable.TRIAL_SECONDS:g} seconds"
    return f"{counted} {moment:%H:%M} UTC, {open_}; what was counted since then shows at {then} or soon after"


def _counted(last: Pass | None) -> dict[str, object]:
    """Return how many reports were counted, when their sums were last copied."""
    if last is None:
        return {"counted": None, "counted_at": None}
    # Every full hour at most, but in a trial: two looks that are a report apart would show that it came.
    at = f"{datetime.fromtimestamp(last.at, UTC):{'%Y-%m-%dT%H:%M:%SZ' if last.of_trial else '%Y-%m-%dT%H:%MZ'}}"
    # A number that is 0 because none was made yet would look like a loss.
    return {"counted": None if last.to_come else last.n, "counted_at": at}


def _text(value: object) -> str:
    """Write a cell of the table."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(value) or "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
