"""The audit log of an app: what operators did and analysts asked, in a chain that shows any later change.

It is a list of entries, each one line of `deniable_aggregator.audit.entry`. It is a list because a store user with RPUSH can only
append. A user with XADD on a stream could also trim it.

The caller computes the hash of a new entry on top of the last entry that it knows. A script appends the entry only if that one is
still the last. Otherwise it returns the last entries, for another try. The script can also make the change that the entry is
about, so that both happen or neither.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from deniable_aggregator.audit.entry import Entry, genesis, whole
from deniable_aggregator.store.errors import CommandRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.values.collections import Change

_TRIES = 1000  # a try fails only if another process has appended
_PAGE = 1000
_LAST = 16  # the number of entries that the script returns


class Rotated(Exception):  # noqa: N818 - nothing went wrong
    """Entries were moved to a file while the log was read."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the chain: the last line, and the last entry, usually the same."""

    line: bytes
    number: int
    hash: str


class AuditLog:
    """The audit log of one app, as far as it is in the store."""

    def __init__(
        self,
        store: Store,  # the app's
    ) -> None:
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
        change: Change | None = None,
        along: Callable[[bytes, bytes], Any] | None = None,
        unless: Callable[[], bool] | None = None,
    ) -> Entry | None:
        """Append an entry.

        Parameters
        ----------
        event, actor, details
            As `Entry` takes them.
        change
            A change of the app's store that the entry is about. Both happen or neither.
        along
            Appends the entry together with what it is about, where that is more than one change. It is called with the expected
            last line and the line to append. It returns the last entries if the log ends differently, else whether it was done.
        unless
            Called before each try; if it returns True, nothing is appended. It may depend on things that change only with an
            entry.

        Returns
        -------
        Entry or None
            None if nothing was appended, because of `unless` or because the change would have changed nothing.

        Raises
        ------
        ParameterError
            If the entry is invalid.
        StoreError
            If the store cannot be used. The entry may have been appended.
        """
        attempt = along or partial(self._write, change)
        for _ in range(_TRIES):
            end = self._end or self._found(self.store.audit.some(-_LAST, -1))
            self._end = end
            if unless and unless():
                return None
            entry = Entry(end.number + 1, int(time.time()), event, actor, dict(details), token_hex(8), end.hash)
            done = attempt(end.line, entry.line)
            if isinstance(done, list):
                self._end = self._found(done)
                if entry.line in done:  # the script was sent twice, because its first answer was lost
                    return entry
            elif done:
                self._end = _End(entry.line, entry.number, entry.hash)
                return entry
            else:
                return None
        raise CommandRefused(f"the audit log of {self.app} has grown under each of {_TRIES} tries")

    def _write(self, change: Change | None, seen: bytes, line: bytes) -> Any:
        """Append a line and make a change in one script; neither if the change would change nothing."""
        if change is None:
            return self._append([self.key], [seen, line])
        return self._append([self.key, change.key], [seen, line, change.command, *change.arguments])

    def last(self) -> Entry | None:
        """Return the last entry, or None if there is none."""
        for page in self._backwards():
            found = _last(page)
            if found:
                return found
        return None

    def lines(
        self,
        first: bytes | None,  # the oldest line, from an earlier call of `first`
    ) -> Iterator[bytes]:
        """Yield all lines in the store, the oldest first, valid or not.

        Raises
        ------
        Rotated
            If the oldest lines were moved to a file meanwhile. Then the lines read are incomplete, so start again.
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
        """Return the oldest line in the store, or None."""
        return self.store.audit.first()

    def _found(self, lines: Sequence[bytes]) -> _End:
        """Find the end of the chain. Invalid lines are skipped; `verify` reports them."""
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
