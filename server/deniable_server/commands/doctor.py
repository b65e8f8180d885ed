"""The subcommand ``doctor``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from deniable.commands import terminal
from deniable.messages.plural import plural
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from deniable.commands.parser import Run
    from deniable_server.doctor import Finding
    from deniable_server.doctor.config import ConfigReport

_SECONDS = 3.0
_WRONG = 2
_NAMED = 10  # apps of which the same is said
_ORDER = ("fault", "warning", "skipped", "ok")
_COLOURS = {"ok": "32", "warning": "33", "fault": "31", "skipped": "36"}


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
                    print(json.dumps(asdict(finding)))
        except AWAY as error:
            groups, seen = _groups(findings), f"{cause(error)} ({redacted(settings.redis_url)})"
            if not arguments.json:
                print(_conclusion([[Finding("store", "fault", seen)], *groups]), flush=True)
            print(f"fault    store: {seen}", file=sys.stderr)
            print(f"         {remedy(error, settings.redis_url, settings.serves)}", file=sys.stderr, flush=True)
            if not arguments.json:
                _print_all(groups)
            return options.STORE_STATUS
        finally:
            client.close()
        if not arguments.json:
            groups = _groups(findings)
            print(_conclusion(groups))
            _print_all(groups)
        return int(any(each.status == "fault" for each in findings))

    return run


def _conclusion(groups: Sequence[list[Finding]]) -> str:
    """Say in a sentence whether all is well, or which checks found something; what is the same of many apps counts once."""
    parts: list[str] = []
    findings = [group[0] for group in groups]
    for status in ("fault", "warning"):
        checks = [each.check for each in findings if each.status == status]
        if checks:
            parts.append(f"{plural(len(checks), status)}: {', '.join(dict.fromkeys(checks))}")
    if parts:
        return "; ".join(parts)
    if any(each.status == "skipped" for each in findings):
        return "All is well as far as it can be seen from here. Each skipped check says why, and where to look."
    return "All is well."


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
        print(f"{app}: {metrics} metrics")
    if report.store:
        print(report.store)
    for kind, sentences in (("error", report.errors), ("warning", report.warnings)):
        for sentence in sentences:
            print(f"{kind}: {sentence}")
    print(f"{plural(len(report.errors), 'error')}, {plural(len(report.warnings), 'warning')}")
    if report.errors:
        print("Fix the errors and run this again; a server would not start, or would ignore a variable.")
    else:
        print("Next: `deniable doctor` checks the store and what runs.")
        print("To serve: gunicorn -c deploy/gunicorn.conf.py 'deniable_server:create_app()'; to count: deniable worker")


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return findings by what is said once, the worst first."""
    from deniable_server.doctor import alike

    groups = [[each] for each in findings if not each.app] + alike(each for each in findings if each.app)
    return sorted(groups, key=lambda group: _ORDER.index(group[0].status))


def _print_all(groups: Sequence[list[Finding]]) -> None:
    for group in groups:
        _print(group)


def _print(group: list[Finding]) -> None:
    """Print findings that are alike as one: the first, and the names of the other apps."""
    first, *others = group
    mark = f"{first.status:<7}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        print(f"\033[{_COLOURS[first.status]}m{mark}\033[0m", end="", file=terminal.raw(sys.stdout))
        mark = ""
    same = all((each.seen, each.meaning, each.remedy) == (first.seen, first.meaning, first.remedy) for each in others)
    app = f" ({_names(group) if same else first.app})" if first.app else ""
    print(f"{mark}  {first.check}{app}: {first.seen}")
    for text in filter(None, (first.meaning, first.remedy)):
        print(f"         {text}")
    if others and not same:
        print(f"         The same of {_names(others)}, but for names and numbers.")


def _names(findings: Sequence[Finding]) -> str:
    """Write the apps of findings, the first ones by name."""
    more = f" and {len(findings) - _NAMED} more" if len(findings) > _NAMED else ""
    return f"{', '.join(each.app for each in findings[:_NAMED])}{more}"
