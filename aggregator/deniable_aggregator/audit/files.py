"""Files of old entries of an audit log: writing, verifying and deleting them.

A file has one entry in each line (JSON Lines). Only its owner can read it, and it is on disk before the entries leave the store.
The script that removes them appends an entry with the name of the file and the hash of its last entry, so the chain in the store
is never empty. Before old files are deleted, an entry is appended that explains why the log begins later.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.platform import files as disk
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.audit.log import Rotated
from deniable_aggregator.audit.verify import Chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deniable_aggregator.audit.entry import LogEntry
    from deniable_aggregator.audit.log import AuditLog
    from deniable_aggregator.audit.verify import Fault

_MOST = 100_000  # entries of a file, about 35 MB
_ROUNDS = 5
_RESTORED = "if the store was restored from a backup, give `deniable audit-log restored --files DIR`; else ask `verify`"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a log."""

    entries: int  # number of entries read
    # number, hash: of the last one; 0 and empty if there is none
    number: int
    hash: str
    faults: tuple[Fault, ...]  # all places where the chain is broken, in order
    notes: tuple[str, ...]  # what could not be checked, and why


def files(folder: Path, app: str) -> list[Path]:
    """Return the files of an app's log, the oldest first; none of a folder that is not there, as before the first `rotate`."""
    if not folder.exists():
        return []
    form = re.compile(rf"{re.escape(app)}\.audit\.(\d{{12}})-\d{{12}}\.jsonl")
    return sorted(path for path in folder.iterdir() if form.fullmatch(path.name))


def verify(
    log: AuditLog,  # the part of the log in the store
    folder: Path | None = None,  # folder of its files; None to verify the store only
    anchors: Mapping[int, str] | None = None,  # hash by number of entries
) -> Verification:
    """Verify a log from its first entry to its last."""
    # If entries are moved to a file meanwhile, it starts again.
    for _ in range(_ROUNDS - 1):
        try:
            return _verify(log, folder, anchors or {})
        except Rotated:
            continue
    return _verify(log, folder, anchors or {})


def _verify(log: AuditLog, folder: Path | None, anchors: Mapping[int, str]) -> Verification:
    chain = Chain(log.app, anchors)
    first, lines = log.first(), list[bytes]()
    for path in files(folder, log.app) if folder else ():
        lines = _lines(path)
        chain.add(path.name, lines)
    # An interrupted rotation has written its file, and the store still has the same lines.
    copied = lines if first and lines and _written(first) == lines[0] else []
    place = 0
    for place, line in enumerate(log.lines(first), 1):
        if place > len(copied):
            chain.add("store", [line], place)
        elif _written(line) != copied[place - 1]:
            chain.fault(f"store:{place}", "this is not what the last file has in its place")
    if place < len(copied) or (lines and not place):
        chain.fault("end", f"the store has not even what it had when entry {chain.number} was moved to a file")
    notes = chain.finish(with_files=folder is not None)
    if folder is not None and not folder.exists():
        notes.append(f"there is no folder {folder}: `rotate` makes it, when the first entries are old enough")
    if copied:
        notes.append(
            "the store still has the entries of the last file: a rotation was cut short, the next one ends it; or it was restored"
        )
    return Verification(chain.entries, chain.number, chain.hash, tuple(chain.faults), tuple(notes))


def rotate(
    log: AuditLog,  # the part of the log in the store
    folder: Path,  # folder of the files of this log; created if missing
    before: int,  # Unix time in seconds. Older entries are moved, up to the first younger one.
) -> list[Path]:
    """Move old entries to files, unchanged, even if the chain is broken; return the files. Rotated if somebody else does so."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths: list[Path] = []
    more = True
    while more:
        path, more = _rotate(log, folder, before)
        paths += [path] if path else []
    return paths


def _rotate(log: AuditLog, folder: Path, before: int) -> tuple[Path | None, bool]:
    """Write one file and remove its entries from the store; return it, and whether there may be more to move."""
    first, known = log.first(), files(folder, log.app)
    written = _lines(known[-1]) if known else []
    if first is None:
        return None, False
    if written and _written(first) == written[0]:  # an earlier rotation wrote its file and was interrupted; finish it
        path = known[-1]
        lines = log.store.audit.between(0, len(written) - 1)
        if [_written(line) for line in lines] != written:
            raise ConfigurationError(f"{path} and the store have the same first entry and differ further on: {_RESTORED}")
        more = True
    else:
        lines = _older(log, first, before)
        new = _new(log.app, folder, lines, intact_entry(written[-1]) if written else None)
        if new is None:
            return None, False
        path, more = new, len(lines) == _MOST
    ends = _ends(lines)
    if ends is None:
        return None, False
    details: dict[str, str | int] = {"file": path.name, "first": ends[0].number, "last": ends[1].number, "hash": ends[1].hash}
    # One script drops the entries and appends the one about it, unless another rotation has moved them first.
    moved = log.store.audit.dropping(len(lines))
    if not log.append("audit.rotated", "command", details, change=moved, unless=lambda: log.first() != first):
        raise Rotated
    return path, more


def _new(app: str, folder: Path, lines: Sequence[bytes], last: LogEntry | None) -> Path | None:
    """Write a file that follows the last entry in files; None if there is nothing to write."""
    ends = _ends(lines)
    if ends is None:
        return None
    if last and ends[0].number != last.number + 1:
        raise ConfigurationError(
            f"the files of {app} in {folder} end with entry {last.number} and the store begins with entry {ends[0].number}: "
            f"give another folder, or {_RESTORED}"
        )
    path = folder / f"{app}.audit.{ends[0].number:012}-{ends[1].number:012}.jsonl"
    if path.exists():
        raise ConfigurationError(f"there is a file {path} already, which is not what the store has: ask `verify`")
    # The file gets its name when it is complete: an interrupted rotation leaves none that is cut off.
    part = path.with_name(f".{path.name}.{token_hex(4)}")
    disk.write_new(part, b"".join(_written(line) + b"\n" for line in lines))
    part.rename(path)
    disk.sync(folder)
    return path


def expire(
    log: AuditLog,  # the part of the log in the store
    folder: Path,  # folder of its files
    before: int,  # Unix time in seconds
) -> list[Path]:
    """Delete the files whose entries are all older than a moment; return them. The log must have been verified just before."""
    old: list[Path] = []
    end: LogEntry | None = None
    for path in files(folder, log.app):
        ends = _ends(_lines(path))
        if ends is None or ends[1].time >= before:
            break
        old.append(path)
        end = ends[1]
    if end:
        log.append("audit.expired", "command", {"files": len(old), "last": end.number, "hash": end.hash})
    for path in old:  # the oldest first, so that an interruption leaves no gap
        path.unlink()
        disk.sync(folder)
    return old


def put_aside(
    log: AuditLog,  # the part of the log in the store, which was restored from a backup
    folder: Path,  # folder of its files
) -> list[Path]:
    """Put aside the files of the time that was lost, so that the log goes on from the backup; return their new paths."""
    # A store always begins where a file ends. The files from there on have entries that it has again, and others that are lost.
    first = intact_entry(log.first() or b"")
    lost = [path for path in files(folder, log.app) if first and int(path.name.split(".")[-2].partition("-")[0]) >= first.number]
    if not lost:
        return []
    end = (_ends(_lines(lost[-1])) or (None, None))[1]
    log.append("audit.restored", "command", {"files": len(lost)} | ({"last": end.number, "hash": end.hash} if end else {}))
    return [path.rename(path.with_name(f"{path.name}.lost")) for path in lost]


def _older(log: AuditLog, first: bytes, before: int) -> list[bytes]:
    lines: list[bytes] = []
    for line in log.lines(first):
        entry = intact_entry(line)
        if (entry and entry.time >= before) or len(lines) == _MOST:
            break
        lines.append(line)
    return lines


def _ends(lines: Sequence[bytes]) -> tuple[LogEntry, LogEntry] | None:
    """Return the first and the last entry among lines; None if there is none."""
    entries = [entry for line in lines if (entry := intact_entry(line))]
    return (entries[0], entries[-1]) if entries else None


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().removesuffix(b"\n").split(b"\n")


def _written(line: bytes) -> bytes:
    """Return a line of the store as a line of a file: unchanged, unless it contains a line end, which entries never do."""
    return line if b"\n" not in line else json.dumps({"no_entry": b64encode(line).decode()}).encode()
