"""Log warnings for developers: of each client one line for each subject and reason, and at most a hundred lines.

They go to the logger `deniable`, see `deniable.messages.log`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.messages.log import log

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 100  # subjects and reasons of a client
_MOST_CLIENTS = 20  # that say something of their own; an app may make one after another by mistake
_LONGEST = 200  # characters of a subject and of a reason
_LONGEST_WORDS = 600

_MORE = len(" and 1000 more")

_warned: set[tuple[str, str]] = set()
_clients = 0


def begin() -> None:
    """Let a new client say what an earlier one has said."""
    global _clients  # noqa: PLW0603 - of the process
    _clients += 1
    if _clients <= _MOST_CLIENTS:
        _warned.clear()


def warn_once(
    subject: str | Sequence[str],  # The subject, such as a metric's id, or several. Never an answer.
    reason: str,  # a code
    words: str,  # the reason in words
) -> None:
    """Log a warning, unless the newest client has logged the same of all its subjects, or a hundred others. It raises nothing."""
    # The parts may come from a server. They are written as one line of printable ASCII.
    code = plain(reason, _LONGEST)
    names = [plain(name, _LONGEST) for name in ([subject] if isinstance(subject, str) else subject)]
    names = [name for name in dict.fromkeys(names) if (name, code) not in _warned]
    if not names or len(_warned) > _MOST:
        return
    _warned.update((name, code) for name in names)
    try:
        if len(_warned) > _MOST:
            log.warning("deniable: no more such warnings are logged; stats() counts them")
        else:
            log.warning("deniable: %s: %s: %s", listed(names), code, plain(words, _LONGEST_WORDS))
    except Exception:  # noqa: BLE001, S110 - of the host app's own handlers and filters
        pass


def listed(names: Sequence[str]) -> str:
    """List names, of many as many as a subject has room for, and how many more there are."""
    number = len(names)
    while number > 1 and len(", ".join(names[:number])) + _MORE > _LONGEST:
        number -= 1
    more = f" and {len(names) - number} more" if number < len(names) else ""
    return ", ".join(names[:number]) + more


def plain(text: str, longest: int) -> str:
    """Write a text as printable ASCII, cut."""
    cut = text[:longest]
    return cut if cut.isascii() and cut.isprintable() else ascii(cut)
