"""The audit log of an app: what operators did and analysts asked, in a chain that shows any later change.

In the store it is a list of lines, each an entry of `deniable_aggregator.audit.entry`. It is no stream, because a user who may
append to a stream (XADD) may also trim it. RPUSH only appends.

The caller computes the hash of a new entry from the last entry that it knows. A script appends the entry only if that one is the
last still. Otherwise it returns the last entries, for another try. The script can also make the change that the entry is about,
so that both happen or neither.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from deniable_aggregator.audit.entry import ALWAYS, LogEntry, genesis, intact_entry
from deniable_aggregator.store.errors import CommandRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.script import Script
    from deniable_aggregator.store.values.collections import StoreCommand

_TRIES = 1000  # a try fails only if another process has appended
_PAGE = 1000
_LAST = 16  # entries that the script returns


class Rotated(Exception):  # noqa: N818 - nothing went wrong
    """Entries were moved to a file while the log was read."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the chain: the last line, and the last entry, usually the same."""

    line: bytes
    number: int
    hash: str


class AuditLog:
    """The part of an app's audit log that is in the store."""

    def __init__(
        self,
        store: Store,  # the app's
    ) -> None:
        self.store, self.app = store, store.app
        self.key = store.audit.key
        self._append = store.script("chain", "audit")
        self._append_always = store.script("always", "chain", "audit")
        self._end: _End | None = None

    def append(
        self,
        event: str,
        actor: str,
        details: Mapping[str, str | int],
        *,
        # A change of the store that the entry is about: both happen, or neither if the change would change nothing.
        change: StoreCommand | None = None,
        # Instead of `change`: appends the entry together with several changes. It gets the expected last line and the new line,
        # and returns the last entries if the log ends differently, otherwise whether it has appended the entry.
        along: Callable[[bytes, bytes], Any] | None = None,
        # Called before each try: if it returns True, nothing is appended. What it looks at may change only with an entry.
        unless: Callable[[], bool] | None = None,
    ) -> LogEntry | None:
        """Append an entry and return it; None if nothing was appended. After a StoreError it may have been appended."""
        attempt = along or partial(self._write, self._append_always if event in ALWAYS else self._append, change)
        for _ in range(_TRIES):
            end = self._end or self._end_of(self.store.audit.between(-_LAST, -1))
            self._end = end
            if unless and unless():
                return None
            entry = LogEntry(end.number + 1, int(time.time()), event, actor, dict(details), token_hex(8), end.hash)
            done = attempt(end.line, entry.line)
            if isinstance(done, list):
                self._end = self._end_of(done)
                if entry.line in done:  # the script was sent twice, because its first answer was lost
                    return entry
            elif done:
                self._end = _End(entry.line, entry.number, entry.hash)
                return entry
            else:
                return None
        raise CommandRefused(f"the audit log of {self.app} has grown under each of {_TRIES} tries")

    def _write(self, script: Script, change: StoreCommand | None, seen: bytes, line: bytes) -> Any:
        """Append a line and make a change in one script; neither if the change would change nothing."""
        if change is None:
            return script([self.key], [seen, line])
        return script([self.key, change.key], [seen, line, change.command, *change.arguments])

    def last(self) -> LogEntry | None:
        """Return the last entry, or None if there is none."""
        for page in self._backwards():
            entry = _last(page)
            if entry:
                return entry
        return None

    def lines(
        self,
        first: bytes | None,  # the oldest line, from an earlier call of `first`
    ) -> Iterator[bytes]:
        """Yield all lines, the oldest first, also invalid ones. Rotated if some were moved meanwhile: then start again."""
        at = 0
        while True:
            page = self.store.audit.between(at, at + _PAGE - 1)
            if self.first() != first:  # places have moved, perhaps before the page was read
                raise Rotated
            if not page:
                return
            yield from page
            at += len(page)

    def first(self) -> bytes | None:
        """Return the oldest line in the store, or None."""
        return self.store.audit.first()

    def _end_of(self, lines: Sequence[bytes]) -> _End:
        """Return the end of the chain. Invalid lines are skipped; `verify` reports them."""
        if not lines:
            return _End(b"", 0, genesis(self.app))
        entry = _last(lines) or self.last()
        return _End(lines[-1], entry.number, entry.hash) if entry else _End(lines[-1], 0, genesis(self.app))

    def _backwards(self) -> Iterator[list[bytes]]:
        at = -1
        while page := self.store.audit.between(at - _PAGE + 1, at):
            yield page
            at -= _PAGE


def _last(lines: Sequence[bytes]) -> LogEntry | None:
    for line in reversed(lines):
        entry = intact_entry(line)
        if entry:
            return entry
    return None
