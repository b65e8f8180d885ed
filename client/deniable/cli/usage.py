"""The answers to the metrics of ``deniable init --cli``."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

from deniable.messages.notice import warn_once

if TYPE_CHECKING:
    from deniable.cli.decision import Decision
    from deniable.registry import Metric

_WEEKS = ("first", "second", "third", "fourth")


def answers(decision: Decision, version: str, command: str) -> dict[str, object]:
    """Return the answer to each metric. Which metrics have one does not depend on the answers."""
    known: dict[str, object] = {
        "app.new": decision.new,
        "app.week": _WEEKS[decision.weeks] if 0 <= decision.weeks < len(_WEEKS) else "later",
        "app.system": {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, "other"),
        "app.python": ".".join(platform.python_version_tuple()[:2]),
    }
    if version:
        known["app.version"] = ".".join(version.split(".")[:2])
    if command:
        known["app.command"] = command
    return known


def listed(
    metric: Metric,
    value: object,
    *,
    named: bool,  # whether the app is developed: elsewhere a log must not have the answer
) -> object:
    """Return the metric's `other` for an answer that it does not list, as a new command is, with a warning."""
    if metric.other is None or value in metric.values:
        return value
    if named:
        words = f"{value!r} is not among its values, so {metric.other!r} is reported; to see it, add it to metrics.toml"
        warn_once(metric.id, "undeclared", words)
    return metric.other
