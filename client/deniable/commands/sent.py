"""``deniable sent``: what left this device, and what waits on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.client import waiting
from deniable.commands.parser import REGISTRY
from deniable.commands.terminal import print_table
from deniable.device.journal import Journal
from deniable.device.ledger import Ledger
from deniable.device.state import State
from deniable.errors import ConfigurationError, RegistryError
from deniable.evidence import with_names
from deniable.limits.caps import budget_of
from deniable.process.surroundings import state_root
from deniable.registry import load

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable.device.journal import SentReport
    from deniable.registry import Registry

_FILE = "state.db"
_HEADINGS = ("METRIC", "VERSION", "PERIOD", "SEGMENT", "SENT AS BYTES", "SAYS")


def sent(parser: argparse.ArgumentParser) -> Run:
    """``deniable sent [DIR] [--registry FILE] [--json]``: the last thousand reports that a server took, and how many wait."""
    about = "state directory of an app (default: that of the app of metrics.toml, else of the only app that has one)"
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help=about)
    about = "metrics.toml of the app, for what each report says (default: metrics.toml, if it is here)"
    parser.add_argument("--registry", type=Path, metavar="FILE", help=about)
    parser.add_argument("--json", action="store_true", help="for programs")

    def run(arguments: argparse.Namespace) -> int:
        declared = _registry(arguments.registry)
        if arguments.directory:
            directory = _only_state(arguments.directory.expanduser())
        else:
            directory = _state_of(declared.app) if declared else _only_state(state_root())
        entries = Journal(State(directory)).entries()
        entries = with_names(entries, declared) if declared else entries
        if arguments.json:
            print(json.dumps([asdict(entry) for entry in entries], indent=2))
        elif entries:
            _table(entries)
        else:
            print(f"nothing was sent by the app that keeps its state in {directory}, or it was forgotten since")
        if not arguments.json:
            if any(entry.names for entry in entries):
                print("What a report says may be true or drawn at random.")
            print("\n".join(waiting.lines(directory, off=None, exit=None, records=False, developed=True)))
            if declared:
                print(Ledger(State(directory), budget_of(declared)).this_month())
        return 0

    return run


def _registry(path: Path | None) -> Registry | None:
    """Read the registry of the app; without a path the usual file, if it is here and sound."""
    if path is not None:
        return load(path)
    try:
        return load(Path(REGISTRY)) if Path(REGISTRY).is_file() else None
    except RegistryError:  # perhaps of another app
        return None


def _state_of(app: str) -> Path:
    """Return the state directory of the app, and of no other one."""
    directory = state_root() / app
    if (directory / _FILE).is_file():
        return directory
    rule = f"{app} keeps no state in {directory}, so it has sent nothing from there"
    raise ConfigurationError(f"{rule}; give the directory that the app gave as state=")


def _only_state(directory: Path) -> Path:
    """Return the directory itself if it has a state, or else the only one below it that has."""
    if (directory / _FILE).is_file():
        return directory
    within = sorted(each.parent for each in directory.glob(f"*/{_FILE}") if not each.parent.name.startswith("."))
    if len(within) == 1:
        return within[0]
    if within:
        raise ConfigurationError(f"several apps keep their state here; name one: {', '.join(map(str, within))}")
    raise ConfigurationError(f"no app keeps its state in {directory}; give the directory that the app gave as state=")


def _table(entries: list[SentReport]) -> None:
    rows = [
        (each.metric, str(each.version), each.period, each.segment, each.payload + " (sealed)" * each.sealed, each.names)
        for each in entries
    ]
    width = len(_HEADINGS) - (not any(each.names for each in entries))
    print_table([row[:width] for row in (_HEADINGS, *rows)])
