"""What waits on the device, when it travels, and why not if it does not: for the command ``telemetry status``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from deniable.client import helper
from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.messages.plural import plural
from deniable.transport.backlog import BEGIN_EVERY
from deniable.transport.spool import Spool

if TYPE_CHECKING:
    from pathlib import Path

    from deniable.transport import Exit


def lines(
    directory: Path,  # of the app's state
    *,
    off: str | None,  # why nothing is recorded here; None if it is
    exit: Exit,  # noqa: A002 - as the app gives it
) -> list[str]:
    """Say how many reports wait, and when they travel, in one line or two."""
    spool = Spool(directory / "spool")
    ready, later = spool.reports, len(Waiting(State(directory)))
    if not ready and not later:
        return ["No report waits on this device."]
    parts = [plural(ready, "report")] * (ready > 0) + [f"{plural(later, 'report')} that may not travel yet"] * (later > 0)
    travel = f"do not travel from here: {off}" if off else f"travel {_when(spool, directory, exit=exit)}"
    return [f"On this device wait: {' and '.join(parts)}.", f"They {travel}."]


def _when(spool: Spool, directory: Path, *, exit: Exit) -> str:  # noqa: A002 - as above
    hindrance = helper.hindrance(os.environ)
    if exit == "helper" and hindrance is None and not helper.started(directory):
        return "soon after the next run, by a process in the background"
    begun = spool.begun
    if begun is None or abs(time.time() - begun) >= BEGIN_EVERY:
        run = "with the next run, while it works"
    else:
        run = f"with a run from {_clock(begun + BEGIN_EVERY)} on, while it works: the last try was at {_clock(begun)}"
    if exit != "helper":
        return run
    return f"{run}; no process in the background sends them: {hindrance or 'one was started today'}"


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M", time.localtime(seconds))
