"""The doctor's checks of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement

from deniable.messages.finding import Finding
from deniable_aggregator.process.variables import strays

_SHM = Path("/dev/shm")  # noqa: S108 - nothing of ours is written there
_LEAST_FREE = 1 << 20
_OVERCOMMIT, _MEMORY = Path("/proc/sys/vm/overcommit_memory"), Path("/proc/meminfo")
_ALWAYS, _NEVER = 1, 2  # what the kernel does when a process asks for more memory than there may be; 0: it guesses


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


def overcommit(
    most: int,  # the store's maxmemory in bytes; 0 if it has none
    *,
    here: bool,  # whether the store is on this machine
    mode: Path = _OVERCOMMIT,
    memory: Path = _MEMORY,
) -> Finding:
    """Check that the kernel lets the store copy its memory, which it does to rewrite its file and to be copied."""
    name, setting = "overcommit", "sysctl vm.overcommit_memory=1, and the same in /etc/sysctl.d, so that it outlives a restart"
    if not here:
        meaning = "whether the kernel lets it copy its memory is not known"
        return Finding(name, "skipped", "the store is on another machine", meaning, f"look there, and set it to 1: {setting}")
    try:
        chosen = int(mode.read_text("utf-8"))
        installed = 1024 * int(memory.read_text("utf-8").partition("MemTotal:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return Finding(name, "ok", "this system does not say what its kernel does")
    seen = f"vm.overcommit_memory is {chosen}"
    if chosen == _ALWAYS:
        return Finding(name, "ok", seen)
    # A kernel that guesses refuses what is plainly too much. The store takes up to twice its limit; `memory` warns of none.
    if chosen != _NEVER and 2 * most <= installed:
        limit = f", and maxmemory is at most half of this machine's {installed >> 20:,} MiB" if most else ""
        return Finding(name, "ok", f"{seen}{limit}")
    meaning = (
        "the store may fail to rewrite its file and to be copied, although there is memory: its disk fills, and no backup is made"
    )
    return Finding(name, "warning", seen, meaning, f"set it to 1: {setting}")


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
