"""The subcommand ``doctor``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from deniable.commands import terminal
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_server.doctor import Finding

_SECONDS = 3.0
_NAMED = 10  # apps of which the same is said
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
        from deniable_server.doctor import alike, examine
        from deniable_server.settings import Settings

        settings = Settings.from_environment(options.environment(arguments))
        registries = settings.registries()
        client = options.opened(settings.redis_url, timeout=_SECONDS)
        statuses: list[str] = []
        of_apps: list[Finding] = []
        try:
            for finding in examine(settings, registries, client):
                statuses.append(finding.status)
                if arguments.json:
                    print(json.dumps(asdict(finding)))
                elif finding.app:
                    of_apps.append(finding)
                else:
                    _print([finding])
        except AWAY as error:
            print(f"the store cannot be reached ({redacted(settings.redis_url)}): {type(error).__name__}", file=sys.stderr)
            return options.STORE_STATUS
        finally:
            for group in alike(of_apps):
                _print(group)
            client.close()
        if not arguments.json:
            print(f"{statuses.count('fault')} faults, {statuses.count('warning')} warnings")
        return int("fault" in statuses)

    return run


def _print(group: list[Finding]) -> None:
    """Print findings that are alike as one: the first, and the names of the other apps."""
    first, *others = group
    mark = f"{first.status:<7}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        print(f"\033[{_COLOURS[first.status]}m{mark}\033[0m", end="", file=terminal.raw(sys.stdout))
        mark = ""
    app = f" ({first.app})" if first.app else ""
    print(f"{mark}  {first.check}{app}: {first.seen}")
    for text in filter(None, (first.meaning, first.remedy)):
        print(f"         {text}")
    if others:
        names = ", ".join(other.app for other in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        print(f"         The same of {names}{more}.")
