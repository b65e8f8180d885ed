"""The audit log of an app: what operators did and analysts asked, in a chain that shows whether anything was changed since.

It is a list of entries, each one line as `deniable_aggregator.audit.entry` writes it. A list, since a user of the store who may
RPUSH can do no more than append; one who may XADD to a stream can trim it in the same breath.

Whoever appends hashes on his own side, on top of the last entry that he knows; a script appends what he made only if that entry
still is the last one, and else hands out the last ones for another try. What the entry tells of can be done in the same script:
then there is neither without the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from deniable_aggregator.audit.entry import Entry, genesis, whole
from deniable_aggregator.store.errors import CommandRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deniable_aggregator.store import Store

__all__ = ["AuditLog", "Rotated"]

_TRIES = 1000  # each that fails is one that another process made good
_PAGE = 1000
_LAST = 16  # as the script hands out


class Rotated(Exception):  # noqa: N818 - nothing went wrong
    """Entries were moved to a file while the log was read."""


@dataclass(frozen=True, slots=True)
class _End:
    """Where the chain goes on: after which line, and after which entry, as a rule the same."""

    line: bytes
    number: int
    hash: str


class AuditLog:
    """The audit log of one app, as far as it is in the store.

    Parameters
    ----------
    store
        The app's.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.app = store, store.app
        self.key = store.audit.key
        self._append = store.script("chain", "audit")
        self._end: _End | None = None

    def append(
        self,
        event: str,
        actor: str,
        details: Mapping[str, str | int],
        *,
        along: Callable[[bytes, bytes], Any] | None = None,
        unless: Callable[[], bool] | None = None,
    ) -> Entry | None:
        """Append an entry.

        Parameters
        ----------
        event, actor, details
            As `Entry` takes them.
        along
            What does the appending, together with what is told, as `doing` makes it: called with the line that the log must
            still end with and the line to append. Returns the last entries if it ends with another, else whether it was done.
        unless
            Asked before each try; nothing is appended if it says yes. It may go by whatever changes only along with an entry.

        Returns
        -------
        Entry or None
            None where it was not to be, or what was to be done changed nothing.

        Raises
        ------
        ParameterError
            If the entry is none.
        StoreError
            If the store cannot be used. The entry may have been appended all the same.
        """
        attempt = along or (lambda seen, line: self._append([self.key], [seen, line]))
        for _ in range(_TRIES):
            end = self._end or self._found(self.store.audit.some(-_LAST, -1))
            self._end = end
            if unless and unless():
                return None
            entry = Entry(end.number + 1, int(time.time()), event, actor, dict(details), token_hex(8), end.hash)
            done = attempt(end.line, entry.line)
            if isinstance(done, list):
                self._end = self._found(done)
                if entry.line in done:  # the script was sent twice, since its first answer was lost
                    return entry
            elif done:
                self._end = _End(entry.line, entry.number, entry.hash)
                return entry
            else:
                return None
        raise CommandRefused(f"the audit log of {self.app} has grown under each of {_TRIES} tries")

    def doing(self, command: str, key: str, *arguments: Any) -> Callable[[bytes, bytes], Any]:
        """Have a command of the store done in the moment in which the entry is appended, or neither if it changes nothing.

        Parameters
        ----------
        command
            Its name, e.g. ``HDEL``. An answer of 0 or nothing says that it changed nothing.
        key
            What it changes, of the same app.
        arguments
            What else it takes.
        """
        return lambda seen, line: self._append([self.key, key], [seen, line, command, *arguments])

    def last(self) -> Entry | None:
        """Return the last entry, or None where there is none."""
        for page in self._backwards():
            found = _last(page)
            if found:
                return found
        return None

    def lines(self, first: bytes | None) -> Iterator[bytes]:
        """Go through all that the store has, the oldest first, whatever it is.

        Parameters
        ----------
        first
            The oldest, as `first` told it, perhaps before something else was looked at.

        Raises
        ------
        Rotated
            If the oldest were moved away meanwhile: what was read is not all there was, so begin again.
        StoreError
            If the store cannot be used.
        """
        at = 0
        while True:
            page = self.store.audit.some(at, at + _PAGE - 1)
            if self.first() != first:  # places have moved, perhaps before the page was read
                raise Rotated
            if not page:
                return
            yield from page
            at += len(page)

    def first(self) -> bytes | None:
        """Return the oldest line that the store has, or None."""
        return self.store.audit.first()

    def _found(self, lines: Sequence[bytes]) -> _End:
        """Find where the chain goes on; what is no entry is passed over, and `verify` tells of it."""
        if not lines:
            return _End(b"", 0, genesis(self.app))
        entry = _last(lines) or self.last()
        return _End(lines[-1], entry.number, entry.hash) if entry else _End(lines[-1], 0, genesis(self.app))

    def _backwards(self) -> Iterator[list[bytes]]:
        at = -1
        while page := self.store.audit.some(at - _PAGE + 1, at):
            yield page
            at -= _PAGE


def _last(lines: Sequence[bytes]) -> Entry | None:
    for line in reversed(lines):
        entry = whole(line)
        if entry:
            return entry
    return None
