"""Waiting for what is to come, until it is there. The limit is for what hangs: no test depends on how long it took."""

from __future__ import annotations

from time import monotonic, sleep

_SECONDS = 180


def new_profile(browser, **options):
    """Make a profile of a browser, whose own waits end after half a minute otherwise."""
    profile = browser.new_context(**options)
    profile.set_default_timeout(1000 * _SECONDS)
    return profile


def eventually(question, seconds: float = _SECONDS):
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
