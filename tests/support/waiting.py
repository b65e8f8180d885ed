"""Waiting for what is to come, until it is there. The limit is for what hangs: no test depends on how long it took."""

from __future__ import annotations

from time import monotonic, sleep


def eventually(question, seconds: float = 180):
    """Ask until the answer is yes, or the time is up, and return the last answer. No connection is a no."""
    end = monotonic() + seconds
    while True:
        try:
            answer = question()
        except OSError:
            answer = None
        if answer or monotonic() > end:
            return answer
        sleep(0.01)
