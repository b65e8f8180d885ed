"""The subcommand ``check-config``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_server.doctor.config import Inspection

_WRONG = 2


def check_config(parser: argparse.ArgumentParser) -> Run:
    """``deniable check-config [--json]``: the settings of servers and workers in this environment, and if the store has room.

    Exit status: 0 if a server would start, 2 if it would not, or if a variable has no effect.
    """
    parser.add_argument("--json", action="store_true", help="for programs")

    def run(arguments: argparse.Namespace) -> int:
        from deniable_server.doctor.config import inspect

        found = inspect()
        if arguments.json:
            print(json.dumps(asdict(found), indent=2))
        else:
            _say(found)
        return _WRONG if found.errors else 0

    return run


def _say(found: Inspection) -> None:
    width = max(len(each.name) for each in found.shown)
    for each in found.shown:
        mark = "*" if each.origin == "environment" else " "
        print(f"{mark} {each.name:<{width}}  {each.value or '-'}")
    print("* from the environment; the others are the defaults\n")
    for app, metrics in found.apps.items():
        print(f"{app}: {metrics} metrics")
    if found.store:
        print(found.store)
    for kind, said in (("error", found.errors), ("warning", found.warnings)):
        for text in said:
            print(f"{kind}: {text}")
    print(f"{len(found.errors)} errors, {len(found.warnings)} warnings")
    if found.errors:
        print("Fix the errors and run this again; a server would not start, or would ignore a variable.")
    else:
        print("Next: `deniable doctor` checks the store and what runs.")
        print("To serve: gunicorn -c deploy/gunicorn.conf.py 'deniable_server:create_app()'; to count: deniable worker")
