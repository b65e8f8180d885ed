"""Findings as commands print them: a conclusion first, then each finding, the worst first."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from deniable.commands import terminal
from deniable.messages.finding import alike
from deniable.messages.plural import few, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.messages.finding import Finding

_ORDER = ("fault", "warning", "skipped", "ok")
_COLOURS = {"ok": "32", "warning": "33", "fault": "31", "skipped": "36"}


def print_line(finding: Finding) -> None:
    """Print a finding for programs, as a JSON object on a line."""
    print(json.dumps(asdict(finding)))


def print_all(findings: Sequence[Finding]) -> None:
    """Print findings for people, after the conclusion."""
    groups = grouped(findings)
    print(conclusion(groups))
    for group in groups:  # by what is said once
        _print(group)


def conclusion(groups: Sequence[list[Finding]]) -> str:
    """Say in a sentence whether all is well, or which checks found something; what is the same of many apps counts once."""
    parts: list[str] = []
    findings = [group[0] for group in groups]
    for status in ("fault", "warning"):
        checks = [each.check for each in findings if each.status == status]
        if checks:
            worst, *others = dict.fromkeys(checks)
            # The first fault says at once what it is.
            cause = f" ({next(each.seen for each in findings if each.status == status)})" if status == "fault" else ""
            parts.append(f"{plural(len(checks), status)}: {', '.join([f'{worst}{cause}', *others])}")
    if parts:
        return "; ".join(parts)
    if any(each.status == "skipped" for each in findings):
        return "All is well as far as it can be seen from here. Each skipped check says why, and where to look."
    return "All is well."


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return findings by what is said once, the worst first."""
    groups = [[each] for each in findings if not each.app] + alike(each for each in findings if each.app)
    places = {id(each): place for place, each in enumerate(findings)}
    return sorted(groups, key=lambda group: (_ORDER.index(group[0].status), places[id(group[0])]))


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
    return few([each.app for each in findings])
