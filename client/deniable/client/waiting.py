"""What waits on the device, when it travels, and why not if it does not: for ``telemetry status`` and ``deniable sent``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from deniable.client import helper
from deniable.client.guard import in_words
from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.messages.plural import plural
from deniable.platform.folders import require_own
from deniable.transport.spool import BEGIN_EVERY, Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from deniable.client import Client
    from deniable.transport import Exit

_WAIT = '; exit="wait" of the app waits for it, and exit="helper" sends them in the background'


def hindrances(
    make: Callable[[], Client],  # makes the client of somebody who agreed
    directory: Path,  # of the app's state
) -> tuple[str | None, Mapping[str, Sequence[str]]]:
    """Return why the client records nothing though the person agreed, or None; and the metrics that alone are off, by reason."""
    try:
        client = make()
        if not client.disabled:
            require_own(directory)
            Journal(State(directory)).entries()  # reads the state, if it exists
    except Exception as error:  # noqa: BLE001 - as the client says it, also one that is strict
        return in_words(error), {}
    return client.disabled, client._metrics.off_by_reason  # noqa: SLF001 - our own


def lines(
    directory: Path,  # of the app's state
    *,
    off: str | None,  # why nothing is recorded here; None if it is
    exit: Exit | None,  # noqa: A002 - as the app gives it; None if it is not known
    records: bool,  # whether this run has recorded, so that at its end it sends if the app waits for that
    developed: bool,  # whether a developer reads it
) -> list[str]:
    """Say how many reports wait, and when they travel, in one line or two."""
    spool = Spool(directory / "spool")
    ready, later = spool.reports, len(Waiting(State(directory)))
    if not ready and not later:
        return ["No report waits on this device."]
    parts = [plural(ready, "report")] * (ready > 0) + [f"{plural(later, 'report')} that may not travel yet"] * (later > 0)
    travel = f"do not travel from here: {off}" if off else f"travel {_when(spool, directory, exit=exit, records=records)}"
    cut = ""
    if ready and not off and spool.cut and exit != "wait":
        cut = f" The last run that tried ended before the server answered{_WAIT * developed}."
    at_once = "; `deniable.flush()` in the app sends what may travel at once" if exit is None and ready else ""
    return [f"On this device wait: {' and '.join(parts)}.", f"They {travel}{at_once}.{cut}"]


def _when(spool: Spool, directory: Path, *, exit: Exit | None, records: bool) -> str:  # noqa: A002 - as above
    if exit == "wait":
        return f"at the end of {'this' if records else 'the next'} run, which waits for the server"
    hindrance = helper.hindrance(os.environ)
    if exit == "helper" and hindrance is None and not helper.started(directory):
        return "soon after the next run, by a process in the background"
    free_at = spool.free_at
    run = "with the next run, while it works"
    if free_at is not None:
        run = f"with a run from {_clock(free_at)} on, while it works"
        run += "" if spool.cut else f": the last try was at {_clock(free_at - BEGIN_EVERY)}"
    if exit != "helper":
        return run
    return f"{run}; no process in the background sends them: {hindrance or 'one was started today'}"


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M", time.localtime(seconds))
