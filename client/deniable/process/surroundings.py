"""What the environment of a program says: whether its user has opted out, whether it runs in CI, and where states are kept.

This is all that a command line tool reads whose user has not agreed, so it imports little.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.platform.folders import default_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

_CI = ("CI", "CONTINUOUS_INTEGRATION", "BUILD_ID", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITLAB_CI", "TEAMCITY_VERSION", "TF_BUILD")
"""Variables that systems for continuous integration set. Nearly all set the first one."""


def switched_off() -> str | None:
    """Return which of ``DENIABLE_DISABLED`` and ``DO_NOT_TRACK`` is set to anything but empty or 0; None if neither is."""
    name = switch()
    return f"{name} is set" if name else None


def switch() -> str | None:
    """Return the name of the variable by which the user has opted out; None if there is none."""
    return next((name for name in ("DENIABLE_DISABLED", "DO_NOT_TRACK") if os.environ.get(name, "") not in ("", "0")), None)


def in_ci(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this runs in continuous integration, where nobody sits who could agree."""
    return ci_variable(environment) is not None


def ci_variable(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of the variable that tells of continuous integration; None if there is none."""
    return next((name for name in _CI if environment.get(name, "").lower() not in ("", "0", "false")), None)


def state_root() -> Path:
    """Return the directory of all states: ``DENIABLE_STATE_DIR``, or the system's place; raise `StateError` without either."""
    path = os.environ.get("DENIABLE_STATE_DIR")
    return Path(path).expanduser() if path else default_directory()
