"""Processes that this one starts: they end with it, and leave Ctrl-C to it."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def tied() -> Callable[[], Any] | None:
    """Return a ``preexec_fn`` that has a new process get SIGTERM when this one ends; None where that is not possible."""
    # Linux ties a child to the thread that started it, so another thread than the main one could end it too early.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    return partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))


@contextmanager
def spared() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: this process ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
