"""The ``deniable`` command: a thin front that finds its subcommands by entry point.

Each subcommand is a function ``(parser) -> run`` that adds its arguments to an argparse parser and returns what runs it,
``(arguments) -> exit status``. A subcommand whose extra is not installed says which ``pip install`` brings it.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from deniable import terminal
from deniable.errors import DeniableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.metadata import EntryPoint

    Run = Callable[[argparse.Namespace], int]
    Command = Callable[[argparse.ArgumentParser], Run]

__all__ = ["main"]

_EXTRAS = {"deniable_aggregator": "aggregator", "deniable_server": "server"}
_SUMMARIES = {
    "account": "add up what all reports of a device tell, in every way, and say which total to quote",
    "check-config": "tell what a server would make of this environment, and every fault in it",
    "doctor": "look at a live installation, and tell what is wrong and what to do",
    "attack": "guess what devices hold from all their reports, with and without a kept permanent response",
    "audit-log": "look at the audit log, verify it, and move what is old to files",
    "demo": "real devices' answers through real processes, with the truth beside the estimates",
    "keys": "make, list and revoke the keys of an app",
    "dlq": "look at batches that could not be counted, and have them counted after all",
    "erase": "remove all that the store has of a metric, for good",
    "explain": "tell in words what a metric sends, with what probabilities",
    "prove": "prove each mechanism's privacy by walking every draw it can make",
    "publish": "publish what was counted, as far as it may be",
    "registry": "check a metrics.toml, compare two, or sign one for devices",
    "report": "write what a privacy reviewer needs to know of a registry, and of what was published",
    "serve": "run the ingest server, the query API and the dashboard",
    "rappor": "decode what a google/rappor deployment has collected",
    "status": "tell how much waits to be counted, and whether anybody works on it",
    "worker": "count reports from the stream into tallies",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0 done, 1 found wanting, 2 wrong usage or configuration.

    The process ends with `terminal.CLOSED_STATUS` when nobody reads its output any more.
    """
    with terminal.guarded():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    commands = {point.name: point for point in entry_points(group="deniable.commands")}
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="deniable", description="Telemetry that nobody can hold against the person who sent it."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = given[0] if given else None
    run: Run | None = None
    for name in sorted(commands):
        summary = _SUMMARIES.get(name)
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == chosen:  # only the command that runs is imported
            command = _load(commands[name])
            if command is None:
                return 2
            run = command(subparser)
    parsed = parser.parse_args(given)
    if run is None:
        return 2
    try:
        return run(parsed)
    except DeniableError as error:
        print(f"deniable {parsed.command}: {error}", file=sys.stderr)
        return 2


def _load(point: EntryPoint) -> Command | None:
    try:
        command: Command = point.load()
    except ModuleNotFoundError as error:
        package = point.value.partition(":")[0].partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None or (error.name or "").startswith("deniable"):
            raise
        extra = "demo" if point.name in ("attack", "demo") else extra
        print(
            f"deniable {point.name} needs {error.name}, which is not installed: pip install 'deniable[{extra}]'",
            file=sys.stderr,
        )
        return None
    return command
