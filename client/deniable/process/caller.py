"""Who calls the SDK: the app's own source, or an app that was installed or packed. An early call loads no more than this."""

from __future__ import annotations

import os.path
import sys

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would take longer than this module
if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - `pathlib` is slow to import
_INSTALLED = frozenset({"site-packages", "dist-packages"})


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
    path = frame.f_code.co_filename
    # The folder is that of an app's source. A module that was installed, or is within an archive, is on the device of a person.
    source = os.path.isfile(path) and _INSTALLED.isdisjoint(path.replace(os.sep, "/").split("/"))  # noqa: PTH113 - as above
    return source or frame.f_globals.get("__name__") == "__main__"
