"""Log warnings for developers: one line for each subject and reason, and at most a hundred lines."""

from __future__ import annotations

import logging

log = logging.getLogger("deniable")

_MOST = 100
_LONGEST = 200  # characters of each part

_warned: set[tuple[str, str]] = set()


def warn_once(
    subject: str,  # The subject, such as a metric's id. Never an answer.
    reason: str,  # a code
    words: str,  # the reason in words
) -> None:
    """Log a warning, unless this process has already logged the same one, or a hundred others."""
    # The parts may come from a server. They are written as one line of printable ASCII.
    about = _plain(subject), _plain(reason)
    if about in _warned or len(_warned) > _MOST:
        return
    _warned.add(about)
    if len(_warned) > _MOST:
        log.warning("deniable: no more such warnings are logged; stats() counts them")
    else:
        log.warning("deniable: %s: %s: %s", *about, _plain(words))


def _plain(text: str) -> str:
    cut = text[:_LONGEST]
    return cut if cut.isascii() and cut.isprintable() else ascii(cut)
