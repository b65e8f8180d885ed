"""The answers to the metrics of ``deniable init --cli``."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.cli.decision import Decision

_SETTLED = 14  # days after which it is known whether somebody came back in the second week


def answers(decision: Decision, version: str, command: str) -> dict[str, object]:
    """Return the answer to each metric that has one today. Which metrics these are does not depend on the answers."""
    now = datetime.now(UTC)
    known: dict[str, object] = {
        "app.new": decision.since[:7] == f"{now:%Y-%m}",
        "app.system": {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, "other"),
        "app.python": ".".join(platform.python_version_tuple()[:2]),
    }
    if version:
        known["app.version"] = ".".join(version.split(".")[:2])
    if command:
        known["app.command"] = command
    if decision.days >= _SETTLED:
        known["app.returned"] = decision.returned
    return known
