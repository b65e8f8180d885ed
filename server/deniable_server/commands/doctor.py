"""The subcommand ``doctor``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from deniable import terminal
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_server.doctor import Finding

__all__ = ["doctor"]

_SECONDS = 3.0
_COLOURS = {"ok": "32", "warning": "33", "fault": "31"}


def doctor(parser: argparse.ArgumentParser) -> Run:
    """``deniable doctor [--data DIR | --redis-url URL] [--json]``: check an installation, without changing it.

    Exit status: 0 without a fault; 1 with one; 2 for a wrong configuration; 3 if the store cannot be reached.
    """
    options.add_store(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each finding, by line")

    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.store.embedded import redacted
        from deniable_aggregator.store.errors import AWAY
        from deniable_server.doctor import examine
        from deniable_server.settings import Settings

        settings = Settings.from_environment(options.environment(arguments))
        registries = settings.registries()
        client = options.opened(settings.redis_url, timeout=_SECONDS)
        say = _as_json if arguments.json else _as_text
        faults = warnings = 0
        try:
            for found in examine(settings, registries, client):
                say(found)
                faults += found.status == "fault"
                warnings += found.status == "warning"
        except AWAY as error:
            print(f"the store cannot be reached ({redacted(settings.redis_url)}): {type(error).__name__}", file=sys.stderr)
            return options.STORE_STATUS
        finally:
            client.close()
        if not arguments.json:
            print(f"{faults} faults, {warnings} warnings")
        return int(bool(faults))

    return run


def _as_json(found: Finding) -> None:
    print(json.dumps(asdict(found)))


def _as_text(found: Finding) -> None:
    mark = f"{found.status:<7}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        print(f"\033[{_COLOURS[found.status]}m{mark}\033[0m", end="", file=terminal.raw(sys.stdout))
        mark = ""
    of = f" ({found.app})" if found.app else ""
    print(f"{mark}  {found.check}{of}: {found.seen}")
    for text in filter(None, (found.meaning, found.remedy)):
        print(f"         {text}")
