"""The end of a process: what runs then, by `atexit` and, in children of `multiprocessing`, by its finalizers."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_exit"]


class _AtExit:
    """Calls a function when the process ends, once.

    Parameters
    ----------
    function
        To be called with `seconds`.
    seconds
        How long it may take.
    """

    def __init__(self, function: Callable[[float], object], seconds: float) -> None:
        self._function = function
        self._seconds = seconds
        atexit.register(self.call)
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self.register)
        self.register()

    def call(self) -> None:
        """Call the function. Ctrl-C ends it, without a traceback."""
        with suppress(KeyboardInterrupt):
            self._function(self._seconds)

    def register(self) -> None:
        """Ask `multiprocessing`, if this process uses it, to call the function at the end of a child."""
        util: Any = sys.modules.get("multiprocessing.util")
        process: Any = sys.modules.get("multiprocessing.process")
        if util is None or process is None:
            return
        # A child clears its finalizers when it begins. What is to run after the fork, it keeps; that registers the finalizer.
        util.register_after_fork(self, _AtExit.register_in_child)
        if process.parent_process() is not None:
            self.register_in_child()

    def register_in_child(self) -> None:
        """Register the finalizer, in a child that has begun."""
        sys.modules["multiprocessing.util"].Finalize(None, self.call, exitpriority=0)


def at_exit(function: Callable[[float], object], seconds: float) -> None:
    """Have a function called when this process ends, or a child of it, unless by a signal or `os._exit`.

    Parameters
    ----------
    function
        Called with `seconds`; it does nothing when called again.
    seconds
        How long it may take.
    """
    _AtExit(function, seconds)
