"""Verification of an audit log: all places where its chain is broken.

A chain shows every change except two. The end may be cut off, and everything from an entry on may be rewritten with new hashes.
An anchor shows both: the number and hash of an entry, noted when it was the last one. Whoever can write to the store or the files
must not be able to change the anchors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deniable_aggregator.audit.entry import LogEntry, genesis, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Fault:
    """A place where a chain is broken."""

    where: str  # the line, such as `store:3` for the third that the store has; or the `end`, or an `anchor`
    what: str  # what is wrong there, by the numbers of entries

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class Chain:
    """A log that is verified line by line, the oldest first."""

    app: str  # the app of the log
    anchors: Mapping[int, str] = field(default_factory=dict)  # hash by number of entries
    entries: int = field(default=0, init=False)  # number of entries read
    # number, hash: of the last entry; 0 and empty before the first
    number: int = field(default=0, init=False)
    hash: str = field(default="", init=False)
    faults: list[Fault] = field(default_factory=list, init=False)  # in the order of the lines
    _first: LogEntry | None = field(default=None, init=False)
    _where: str = field(default="", init=False)
    _before: int = field(default=0, init=False)
    _moved: dict[str, list[LogEntry]] = field(default_factory=dict, init=False)
    _met: set[int] = field(default_factory=set, init=False)

    def add(
        self,
        name: str,  # origin of the lines
        lines: Iterable[bytes],  # in their order
        start: int = 1,  # the place of the first line
    ) -> None:
        """Verify further lines."""
        for place, line in enumerate(lines, start):
            self._add(f"{name}:{place}", line)

    def _add(self, where: str, line: bytes) -> None:
        entry_and_hash = read(line)
        if entry_and_hash is None:
            self.fault(where, "this is no entry: somebody else put it there, or it was damaged")
            return
        entry, written = entry_and_hash
        self.entries += 1
        number = entry.number
        if self._first is None:
            self._first, self._where, self._before = entry, where, len(self.faults)
        if entry.line != line:
            # Its content is not reliable, but its place and hash may be unchanged. Then the chain goes on behind it.
            number = self.number + 1 if self.number else number
            self.fault(where, f"entry {number} was changed")
        else:
            self._link(where, entry)
            if entry.event in ("audit.rotated", "audit.expired"):
                self._moved.setdefault(entry.event, []).append(entry)
        if number in self.anchors:
            self._met.add(number)
            if self.anchors[number] != written:
                self.fault(where, f"entry {number} is another one than that of the anchor")
        self.number, self.hash = number, written

    def _link(self, where: str, entry: LogEntry) -> None:
        before, number = self.number, entry.number
        if not before:
            return
        if number <= before:
            self.fault(where, f"entry {number} stands after entry {before}: it was moved or repeated")
        elif number > before + 1:
            missing = f"entry {before + 1} is" if number == before + 2 else f"entries {before + 1} to {number - 1} are"
            self.fault(where, f"{missing} missing: entry {number} stands after entry {before}")
        elif entry.previous != self.hash:
            self.fault(where, f"entry {number} was made after another entry {before}: one of the two is not the one that it was")

    def fault(self, where: str, what: str) -> None:
        """Record a fault."""
        self.faults.append(Fault(where, what))

    def finish(
        self,
        *,
        with_files: bool,  # whether the files of rotated entries were read, too
    ) -> list[str]:
        """Check both ends, after all lines were read; return notes on what could not be checked, and why."""
        notes = self._front(with_files=with_files)
        for number in sorted(self.anchors.keys() - self._met):
            self._unmet(number)
        return notes

    def _unmet(self, number: int) -> None:
        if number > self.number:
            self.fault("end", f"the log ends with entry {self.number}: what followed, as far as the anchor {number}, was cut off")
        elif self._first is None or number != self._first.number - 1:
            self.fault("anchor", f"entry {number} is not among those that were read")
        elif self.anchors[number] != self._first.previous:
            self.fault(self._where, f"entry {number + 1} was made after another entry {number} than that of the anchor")

    def _front(self, *, with_files: bool) -> list[str]:
        """Check whether later entries of the chain explain why the first entries are missing."""
        if self._first is None:
            return []
        first, before = self._first, self._first.number - 1
        if not before:
            if first.previous != genesis(self.app):
                self.faults.insert(self._before, Fault(self._where, f"entry 1 is not the first one of a log of {self.app}"))
            return []
        fates = {"audit.expired": "deleted when their time was over"}
        if not with_files:
            fates["audit.rotated"] = "moved to files, which were not read"
        for event, fate in fates.items():
            for entry in self._moved.get(event, ()):
                last = entry.details.get("last")
                exact = last == before and entry.details.get("hash") == first.previous
                # An interrupted deletion has left some of its files: they are in this chain.
                short = event == "audit.expired" and isinstance(last, int) and last > before
                if exact or short:
                    return [f"entries 1 to {before} were {fate} (entry {entry.number})"]
        what = f"the log begins with entry {first.number}: what was before it is missing"
        self.faults.insert(self._before, Fault(self._where, what))
        return []
