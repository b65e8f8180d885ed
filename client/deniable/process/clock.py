"""The time of day as devices have it. A test of an app can set it, with `deniable.testing.Clock`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

read: Callable[[], float] = time.time


def now() -> float:
    """Return the seconds since the epoch."""
    return read()
