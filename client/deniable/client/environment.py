"""Environment variables. They can switch the SDK off and tune it. They never make it send more than the app asks for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.frozen import fields
from deniable.messages.log import log
from deniable.transport import SenderSettings

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NUMBERS: dict[str, Any] = {"flush_at": int, "flush_interval": float, "queue_size": int, "timeout": float, "max_tries": int}

VARIABLES: dict[str, str] = {
    "DENIABLE_DSN": "",
    "DENIABLE_DISABLED": "",
    "DENIABLE_STATE_DIR": "",
    **{
        f"DENIABLE_{name.upper()}": f"{number:g}"
        for name, number in ((each.name, each.default) for each in fields(SenderSettings))
    },
}
"""The variables that the SDK reads, with their defaults."""


def caller() -> FrameType:
    """Return the nearest frame of the call stack that is not ours."""
    frame = sys._getframe()  # noqa: SLF001 - `inspect` does the same, but is slow to import
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def tried_out() -> bool:
    """Return whether a script, a notebook, a prompt, or a module that is not installed calls us. No packed app does."""
    if getattr(sys, "frozen", False):
        return False
    frame = caller()
    path = Path(frame.f_code.co_filename)
    # The folder is that of an app's source. A module that was installed, or is within an archive, is on the device of a person.
    source = path.is_file() and _INSTALLED.isdisjoint(path.parts)
    return source or frame.f_globals.get("__name__") == "__main__"


def sender_settings() -> SenderSettings:
    """Read the settings from variables such as ``DENIABLE_FLUSH_AT``. A bad value is logged, and the default is used."""
    chosen: dict[str, Any] = {}
    for name, kind in _NUMBERS.items():
        text = os.environ.get(f"DENIABLE_{name.upper()}")
        if text is None:
            continue
        try:
            number = kind(text)
            SenderSettings(**{name: number})
        except ValueError:  # ParameterError is one
            log.warning("deniable: DENIABLE_%s is %r, so the default is used: write a number above 0", name.upper(), text)
        else:
            chosen[name] = number
    return SenderSettings(**chosen)
