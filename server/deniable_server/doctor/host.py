"""The doctor's checks of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement

from deniable_aggregator.process.variables import strays
from deniable_server.doctor.finding import Finding

_SHM = Path("/dev/shm")  # noqa: S108 - nothing of ours is written there
_LEAST_FREE = 1 << 20


def variables() -> Finding:
    """Check for variables that nothing reads."""
    unread = strays()
    if not unread:
        return Finding("environment", "ok", "every DENIABLE_ variable is one that is read")
    meaning = "what was meant by it is not in effect"
    return Finding("environment", "warning", "; ".join(map(str, unread)), meaning, "mend its name, or unset it")


def memory_files(place: Path = _SHM) -> Finding:
    """Check the folder of the heartbeats of gunicorn's processes."""
    if sys.platform != "linux":
        return Finding("memory files", "ok", "this system is not Linux; gunicorn uses its temporary folder")
    meaning = "gunicorn kills processes whose signs of life wait for a slow disk"
    if not place.is_dir() or not os.access(place, os.W_OK):
        remedy = "mount it as a tmpfs that the server's user may write to (docker: --shm-size, --tmpfs; systemd: not PrivateTmp)"
        return Finding("memory files", "warning", f"{place} is not there or cannot be written", meaning, remedy)
    free = shutil.disk_usage(place).free
    if free < _LEAST_FREE:
        return Finding(
            "memory files", "warning", f"{place} has {free:,} bytes left", meaning, "remove what fills it, or enlarge it"
        )
    return Finding("memory files", "ok", f"{place} has {free >> 20:,} MiB left")


def gunicorn() -> Finding:
    """Check that gunicorn has a version whose threaded worker can be extended."""
    installed = version("gunicorn")
    requirement = next(need for text in requires("deniable") or () if (need := Requirement(text)).name == "gunicorn")
    if requirement.specifier.contains(installed):
        return Finding("gunicorn", "ok", installed)
    meaning = "our worker class extends gunicorn's, and may not fit this one: slow clients may then stop the service"
    return Finding(
        "gunicorn", "fault", f"{installed}, not {requirement.specifier}", meaning, "pip install 'deniable[ingest]' again"
    )
