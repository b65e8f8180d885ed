"""The subcommand ``doctor``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from deniable.commands.findings import print_all, print_line
from deniable.messages.plural import plural
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run
    from deniable_server.doctor import Finding
    from deniable_server.doctor.config import ConfigReport

_SECONDS = 3.0
_WRONG = 2


def doctor(parser: argparse.ArgumentParser) -> Run:
    """``deniable doctor [--settings] [--data DIR | --redis-url URL] [--json]``: check an installation, without changing it."""
    # Exit status: 0 without a fault; 1 with one; 2 for a wrong configuration; 3 if the store cannot be reached.
    options.add_store(parser)
    about = "check the settings, registries and keys only, before the start"
    parser.add_argument("--settings", action="store_true", help=about)
    about = "for programs: one JSON object for each finding, by line; of the settings, one for all"
    parser.add_argument("--json", action="store_true", help=about)

    def run(arguments: argparse.Namespace) -> int:
        if arguments.settings:
            return _check_settings(arguments)
        from deniable_aggregator.store.errors import AWAY, cause, remedy
        from deniable_aggregator.store.server.embedded import redacted
        from deniable_server.doctor import Finding, examine
        from deniable_server.settings import Settings

        settings = Settings.from_environment(options.environment(arguments))
        client = options.opened(settings.redis_url, timeout=_SECONDS)
        findings: list[Finding] = []
        try:
            for finding in examine(settings, client):
                findings.append(finding)
                if arguments.json:
                    print_line(finding)
        except AWAY as error:
            seen, mend = f"{cause(error)} ({redacted(settings.redis_url)})", remedy(error, settings.redis_url, settings.serves)
            away = Finding("store", "fault", seen, "nothing that needs it could be checked", mend)
            if arguments.json:
                print_line(away)
            else:
                print_all([away, *findings])
            return options.STORE_STATUS
        finally:
            client.close()
        if not arguments.json:
            print_all(findings)
        return int(any(each.status == "fault" for each in findings))

    return run


def _check_settings(arguments: argparse.Namespace) -> int:
    from deniable_server.doctor.config import inspect

    # A missing store is one error of several here, so it is looked for only if an option names one.
    named = arguments.data or arguments.redis_url
    report = inspect(options.environment(arguments) if named else os.environ)
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        _print_settings(report)
    return _WRONG if report.errors else 0


def _print_settings(report: ConfigReport) -> None:
    width = max(len(setting.name) for setting in report.settings)
    for setting in report.settings:
        mark = "*" if setting.origin == "environment" else " "
        print(f"{mark} {setting.name:<{width}}  {setting.value or '-'}")
    print("* from the environment; the others are the defaults\n")
    for app, metrics in report.apps.items():
        print(f"{app}: {plural(metrics, 'metric')}")
    if report.store:
        print(report.store)
    for kind, sentences in (("error", report.errors), ("warning", report.warnings)):
        for sentence in sentences:
            print(f"{kind}: {sentence}")
    print(f"{plural(len(report.errors), 'error')}, {plural(len(report.warnings), 'warning')}")
    if report.errors:
        print(
            "Fix the errors and run this again: a server would not start, leave an app off, refuse reports or ignore a variable."
        )
    else:
        print("Next: `deniable doctor` checks the store and what runs.")
        print("To serve: gunicorn -c deploy/gunicorn.conf.py 'deniable_server:create_app()'; to count: deniable worker")
