"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def tied() -> Callable[[], Any] | None:
    """Return what a new process calls first (``preexec_fn``), so that it gets SIGTERM when this process ends, in whatever way.

    Returns
    -------
    Callable or None
        None where nothing ties them: outside Linux, and in other threads than the main one. The kernel ties a child to the thread
        that started it.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    return partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
