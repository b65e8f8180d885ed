"""Devices in tests draw from a generator that the name of the test seeds, so a test that passes once passes again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Seeded:
    """Stands in for the module `os` in `deniable.source`: all is as in `os`, but for `urandom`.

    A forked process draws from the operating system again, as a device does: it would repeat its parent's draws.
    """

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self._process = os.getpid()

    def urandom(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        return self._random.randbytes(size) if os.getpid() == self._process else os.urandom(size)

    def __getattr__(self, name: str) -> object:
        """Return what `os` has by this name."""
        return getattr(os, name)


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Let `deniable.source` of this process draw from a generator with this seed for a while."""
    from deniable import source

    before = source.os
    source.os = Seeded(seed)  # type: ignore[assignment]
    _forget_noise()
    try:
        yield
    finally:
        source.os = before
        _forget_noise()


def _forget_noise() -> None:
    """Give this process another mark, as after a fork: noise that was drawn ahead is not used any more."""
    from deniable import source

    source._clear_mark()
    source.mark_process()
