"""Batches on disk that wait until the server can be reached, or until the app's next start.

Each batch is one gzip file, and its name is the batch's key. Several processes share a directory: the process that takes a batch
locks its file. On a file system without locks a batch may be sent twice. It has the same key both times, so it counts once.

A batch whose key nobody can have seen has a name of its own kind until it is tried. After a try without a connection it gets
another key. So networks that see different tries see different keys. Once it may have arrived, the key stays.

A batch that nobody has seen is kept as long as any server takes it. One that may have arrived is kept as long as servers surely
remember its key. The time of its file is that of the first try.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING

from deniable.errors import ParameterError, PayloadError, StateError
from deniable.frozen import NamedTuple, replace
from deniable.messages.log import log
from deniable.platform.files import let_go, lock, open_to_read, remove, rename, rename_onto, sync, write_new
from deniable.platform.folders import make_own, require_own
from deniable.registry.tables import TAKEN_FOR
from deniable.wire.batch import Batch

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(\.unseen)?\.json\.gz")
_UNSEEN, _SUFFIX, _UNFINISHED = ".unseen", ".json.gz", ".tmp"
_BEGUN = "begun"  # a file: an hour after its time a program may begin with these batches; it has a byte for each try that was cut
BEGIN_EVERY = 3600.0  # seconds; programs that run briefly and often do not all try a server that is away
_FIRST_PAUSE = 60.0  # seconds after the second try in succession that the end of a program cut
_MOST_CUT = 20  # of which the last pauses are all `BEGIN_EVERY`
_KEY = 36  # characters of a key
_UNFINISHED_AGE = 3600.0  # seconds; a write that takes longer was interrupted
_MOST_NAMED = 10  # batches whose metrics are named
_LARGEST = 4 * 1024 * 1024  # bytes that are read of a decompressed file; every batch has fewer


class _Entry(NamedTuple):
    changed: int  # nanoseconds since 1970
    name: str
    size: int

    @property
    def key(self) -> str:
        return self.name[:_KEY]

    @property
    def unseen(self) -> bool:
        return self.name[_KEY:].startswith(_UNSEEN)


class _Held(NamedTuple):
    descriptor: int  # has the lock
    unseen: bool  # whether nobody else can have the file, nor have seen its key before this try
    created: float  # when the batch was made, in seconds since 1970


class Spool:
    """A directory of batches with limits on number, size and age. The oldest batches are dropped first, and counted.

    No method raises errors of the disk. A batch that cannot be written is refused, and one that cannot be read is removed.
    """

    def __init__(
        self,
        directory: Path,  # The directory. It is made with the first batch, for its owner only.
        *,
        max_files: int = 200,  # most batches that are kept
        max_bytes: int = 5_000_000,  # most bytes of all files
        max_age: float = TAKEN_FOR,  # seconds for which a batch is kept that nobody can have seen
        # Seconds for one that may have arrived. A server remembers idempotency keys for 72 hours, so it must be less.
        max_seen: float = 48 * 3600.0,
    ) -> None:
        limits = (("max_files", max_files), ("max_bytes", max_bytes), ("max_age", max_age), ("max_seen", max_seen))
        for name, limit in limits:
            if not limit > 0:
                raise ParameterError(f"{name} is {limit!r}: write a number above 0")
        self._directory = directory
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._ages = {True: max_age, False: max_seen}  # by whether nobody can have seen it
        self.counts: Counter[str] = Counter()
        """Lost reports: ``spool_full``, ``spool_expired``, ``purged``. And damaged files: ``spool_damaged``."""
        self._held: dict[str, _Held] = {}  # taken files, by key
        self.reset()

    def reset(self) -> None:
        """Start again with a new lock and without the taken files."""
        self._lock = RLock()
        self._stuck: set[str] = set()  # files that are no longer needed but could not be removed
        # In a forked child these are the parent's. Closing an inherited descriptor does not end the parent's lock.
        for held in self._held.values():
            with suppress(OSError):
                os.close(held.descriptor)
        self._held = {}

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def reports(self) -> int:
        """Number of reports in all batches."""
        return sum(map(self._count, self._entries()))

    def metrics(self) -> Counter[str]:
        """Count the reports of the newest batches by metric: of a few, as each is read for it."""
        metrics: Counter[str] = Counter()
        for entry in self._entries()[-_MOST_NAMED:]:
            with suppress(OSError):
                descriptor = open_to_read(self._directory / entry.name)
                try:
                    batch = _read(entry.key, descriptor)
                finally:
                    os.close(descriptor)  # as in `_count`
                metrics.update(report.stratum.metric for report in (batch.reports if batch else ()))
        return metrics

    def put(
        self,
        batch: Batch,
        *,
        seen: bool = True,  # whether somebody may have seen its key
    ) -> bool:
        """Write a batch; return whether it is completely on disk. A directory that others can write to is refused."""
        import gzip  # noqa: PLC0415 - the app's thread never needs it

        path = self._directory / f"{batch.key}{'' if seen else _UNSEEN}{_SUFFIX}"
        unfinished = self._directory / f"{path.name}{_UNFINISHED}"
        with self._lock:
            if not self._is_own():
                return False
            try:
                make_own(self._directory)  # but not the one above: without its state file, the state would count as deleted
                self._write(unfinished, gzip.compress(batch.write(), mtime=0), batch.created)
                rename_onto(unfinished, path)
                with suppress(OSError):  # without this the batch is kept, but may be lost in a power failure
                    sync(self._directory)
            except OSError as error:
                log.warning("deniable: the spool cannot be written: %s", type(error).__name__)
                with suppress(OSError):
                    remove(unfinished)
                return False
            self._stuck.discard(path.name)
            self._trim()
            return True

    def take(self) -> Batch | None:
        """Take the oldest batch that no other process has taken; None if there is none, or if others can write here."""
        # The file stays until `done`. Other processes cannot take it before `done` or `release`.
        with self._lock:
            for entry in self._entries() if self._is_own() else []:
                if entry.key not in self._held and entry.name not in self._stuck:
                    batch = self._open(entry)
                    if batch is not None:
                        return batch
        return None

    def done(self, batch: Batch) -> None:
        """Remove a batch."""
        with self._lock:
            self._remove(f"{batch.key}{_SUFFIX}")
            self.release(batch)

    def release(
        self,
        batch: Batch,
        *,
        seen: bool = True,  # Whether somebody may have seen its key since it was taken. If nobody ever has, it gets a new one.
    ) -> None:
        """Leave a taken batch for later, or for another process."""
        with self._lock:
            held = self._held.pop(batch.key, None)
            if held is None:
                return
            if held.unseen and not seen:
                new = f"{batch.renewed().key}{_UNSEEN}{_SUFFIX}"
                if self._rename(f"{batch.key}{_SUFFIX}", new):
                    with suppress(OSError):  # else it is taken after others
                        os.utime(self._directory / new, (held.created, held.created))
            let_go(held.descriptor)

    def _rename(self, name: str, new: str) -> bool:
        """Rename a file for good; return whether that is certain."""
        try:
            rename(self._directory / name, self._directory / new)
            sync(self._directory)
        except OSError as error:
            log.debug("deniable: a spool file cannot be renamed: %s", type(error).__name__)
            return False
        return True

    def begin(self) -> bool:
        """Note that a program begins with what is here; return False if one has done so within the hour."""
        try:
            if not self._is_own() or self.free_at is not None:
                return False
            self._mark(self.cut, BEGIN_EVERY)
        except OSError:
            return False
        return True

    def end(
        self,
        *,
        cut: bool,  # whether the end of the program cut it, so that nobody knows whether the server answers
    ) -> None:
        """Note how a try ended. After one that was cut, another program may begin sooner, unless earlier ones were cut, too."""
        cuts = min(self.cut + 1, _MOST_CUT) if cut else 0
        with suppress(OSError):
            if cuts or self.cut:
                # A server that takes long for its answer cuts all tries of programs that run briefly.
                pause = 0.0 if cuts == 1 else min(_FIRST_PAUSE * 2.0 ** (cuts - 2), BEGIN_EVERY) if cuts else BEGIN_EVERY
                self._mark(cuts, pause)

    def _mark(self, cuts: int, pause: float) -> None:
        marker, begun = self._directory / _BEGUN, time.time() - BEGIN_EVERY + pause
        descriptor = os.open(marker, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.truncate(descriptor, cuts)
        finally:
            os.close(descriptor)
        os.utime(marker, (begun, begun))

    @property
    def free_at(self) -> float | None:
        """From when on a program may begin with what is here, in seconds since 1970; None for now."""
        try:
            begun = (self._directory / _BEGUN).stat().st_mtime
        except (OSError, ValueError):
            return None
        return begun + BEGIN_EVERY if abs(time.time() - begun) < BEGIN_EVERY else None

    @property
    def cut(self) -> int:
        """Number of the last tries, one after another, that the end of a program cut."""
        try:
            return (self._directory / _BEGUN).stat().st_size
        except (OSError, ValueError):
            return 0

    def purge(self) -> None:
        """Remove all batches, also taken ones, and the files of unfinished writes."""
        with self._lock:
            for entry in self._entries():
                self._drop(entry, "purged")
            self._remove_unfinished(0.0)
            self._remove(_BEGUN)

    def _open(self, entry: _Entry) -> Batch | None:
        """Lock and read a file. If it is no batch of ours, or too old, remove and count it."""
        try:
            descriptor = open_to_read(self._directory / entry.name)
        except OSError:  # removed, not readable, or too many open files: another time it may work
            return None
        taken = False
        try:
            locked = lock(descriptor)
            if locked is False or os.fstat(descriptor).st_nlink == 0 or not (self._directory / entry.name).exists():
                return None  # another process sends it, has just sent it, or has given it another name
            batch = _read(entry.key, descriptor)
            if batch is None:
                self._drop(entry, "spool_damaged", 1)
                return None
            now = time.time()
            since = batch.created if entry.unseen else entry.changed / 1e9
            # A file from the future would never expire, so it is removed like an old one.
            if abs(now - since) > self._ages[entry.unseen]:
                self._drop(entry, "spool_expired", len(batch.reports))
                return None
            if entry.unseen:  # from now on somebody may see its key
                os.utime(self._directory / entry.name, (now, now))
                since = now
            # What is made of it, such as its halves, is as old as its key. Without a lock another process may have it, too.
            created, batch = batch.created, replace(batch, created=since)
            taken = not entry.unseen or self._rename(entry.name, f"{entry.key}{_SUFFIX}")
            if taken:
                self._held[batch.key] = _Held(descriptor, entry.unseen and locked is True, created)
        except OSError:
            return None
        else:
            return batch if taken else None
        finally:
            if not taken:
                let_go(descriptor)

    def _entries(self) -> list[_Entry]:
        """Return the batches, the oldest first. Files with other names are ignored."""
        batches: list[_Entry] = []
        with suppress(OSError, ValueError), os.scandir(self._directory) as entries:  # a path with a null byte is a ValueError
            for file in entries:
                with suppress(OSError):  # removed meanwhile
                    if _NAME.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                        status = file.stat(follow_symlinks=False)
                        batches.append(_Entry(status.st_mtime_ns, file.name, status.st_size))
        return sorted(batches)

    def _trim(self) -> None:
        entries = self._entries()
        size = sum(entry.size for entry in entries)
        now = time.time()
        for place, entry in enumerate(entries):
            full = len(entries) - place > self._max_files or size > self._max_bytes
            if full or abs(now - entry.changed / 1e9) > self._ages[entry.unseen]:
                self._drop(entry, "spool_full" if full else "spool_expired")
                size -= entry.size
        self._remove_unfinished(_UNFINISHED_AGE)

    def _drop(self, entry: _Entry, reason: str, reports: int | None = None) -> None:
        if reports is None:
            reports = self._count(entry)
        if self._remove(entry.name):
            self.counts[reason] += reports

    def _count(self, entry: _Entry) -> int:
        """Return the number of reports in a file; 1 if it cannot be read."""
        import zlib  # noqa: PLC0415 - the app's thread never needs it

        try:
            descriptor = open_to_read(self._directory / entry.name)
        except OSError:
            return 1
        try:
            return Batch.count(_unzipped(descriptor, Batch.HEAD))
        except (OSError, EOFError, zlib.error):
            return 1
        finally:
            os.close(descriptor)  # without unlocking, since this descriptor has no lock

    def _remove(self, name: str) -> bool:
        """Remove a file; return whether it was there."""
        try:
            remove(self._directory / name)
        except FileNotFoundError:
            return False
        except OSError as error:
            log.warning("deniable: a spool file cannot be removed: %s", type(error).__name__)
            self._stuck.add(name)  # otherwise it would be taken again and again
            return False
        return True

    def _remove_unfinished(self, age: float) -> None:
        with suppress(OSError, ValueError), os.scandir(self._directory) as entries:  # a path with a null byte is a ValueError
            for file in entries:
                with suppress(OSError):
                    ours = file.name.endswith(_UNFINISHED) and _NAME.fullmatch(file.name.removesuffix(_UNFINISHED))
                    if ours and time.time() - file.stat(follow_symlinks=False).st_mtime >= age:
                        self._remove(file.name)

    def _is_own(self) -> bool:
        try:
            require_own(self._directory)
        except StateError as error:
            log.warning("deniable: the spool is not used: %s", error)
            return False
        except OSError as error:
            log.warning("deniable: the spool cannot be looked at: %s", type(error).__name__)
            return False
        return True

    def _write(self, path: Path, data: bytes, created: float) -> None:
        with suppress(FileNotFoundError):
            remove(path)
        write_new(path, data)
        os.utime(path, (created, created))  # also because the system's own times are too coarse to order two files


def _read(key: str, descriptor: int) -> Batch | None:
    """Read a batch, at most as many bytes as a batch may have; None if this is no batch, `OSError` if the disk fails."""
    import gzip  # noqa: PLC0415 - the app's thread never needs it
    import zlib  # noqa: PLC0415

    try:
        data = _unzipped(descriptor, _LARGEST + 1)
        return None if len(data) > _LARGEST else Batch.read(key, data)
    except (gzip.BadGzipFile, EOFError, zlib.error, PayloadError):
        return None


def _unzipped(descriptor: int, most: int) -> bytes:
    """Return the first bytes of a decompressed file, at most so many."""
    import gzip  # noqa: PLC0415 - the app's thread never needs it

    with os.fdopen(descriptor, "rb", closefd=False) as raw, gzip.GzipFile(fileobj=raw) as file:
        return file.read(most)
