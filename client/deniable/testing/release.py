"""Lets a test of an app send reports that would wait."""

from __future__ import annotations

from deniable.transport import Sender


def make_due() -> None:
    """Let all reports that wait in this process, and in the states of its clients, travel now. `deniable.flush` then sends them.

    Reports of metrics with a `delay` are meant, and of blocks by `deniable.timed` that have ended. A block that still runs stays.
    """
    for sender in Sender.all():
        sender.make_due()
