"""Functions that run at the end of a process: by `atexit`, and by finalizers in children of `multiprocessing`."""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from deniable.platform.forks import at_fork

if TYPE_CHECKING:
    from collections.abc import Callable


class _AtExit:
    """Calls a function once when the process ends."""

    def __init__(
        self,
        function: Callable[[float], object],  # called with `seconds`
        seconds: float,  # how long it may take
    ) -> None:
        self._function = function
        self._seconds = seconds
        atexit.register(self.call)
        at_fork(in_child=self.register)
        self.register()

    def call(self) -> None:
        """Call the function. Ctrl-C ends it without a traceback."""
        with suppress(KeyboardInterrupt):
            self._function(self._seconds)

    def register(self) -> None:
        """Have `multiprocessing`, if this process uses it, call the function at the end of a child."""
        util: Any = sys.modules.get("multiprocessing.util")
        process: Any = sys.modules.get("multiprocessing.process")
        if util is None or process is None:
            return
        # A child clears its finalizers when it begins. But it calls what was registered for after the fork.
        util.register_after_fork(self, _AtExit.register_in_child)
        if process.parent_process() is not None:
            self.register_in_child()

    def register_in_child(self) -> None:
        """Register the finalizer in a child that has begun."""
        sys.modules["multiprocessing.util"].Finalize(None, self.call, exitpriority=0)


def at_exit(
    function: Callable[[float], object],  # called with `seconds`; a second call must do nothing
    seconds: float,  # how long it may take
) -> None:
    """Have a function called at the end of this process and of its children, except after a signal or `os._exit`."""
    _AtExit(function, seconds)
