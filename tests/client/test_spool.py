"""The spool: batches survive the process, within limits, and no file can do harm."""

from __future__ import annotations

import gzip
import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from deniable.errors import ParameterError
from deniable.platform.files import lock
from deniable.transport.spool import Spool
from deniable.wire.batch import Batch
from deniable.wire.report import Report, Stratum

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners are those of POSIX")
STRATUM = Stratum("m", 1, "0" * 16, "2026-01-01", "")


def batch(count: int = 2, created: float | None = None, size: int = 2) -> Batch:
    fresh = Batch.of("shop", tuple(Report(STRATUM, i.to_bytes(2, "big") + os.urandom(size - 2)) for i in range(count)))
    return fresh if created is None else Batch("shop", fresh.key, fresh.body, fresh.reports, created)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop" / "spool"


@pytest.fixture
def spool(directory):
    opened = Spool(directory)
    yield opened
    opened.reset()  # lets go of what was taken


def test_nothing_on_the_disk_before_the_first_batch(spool, directory):
    """A spool that never had a batch has no directory, and is empty."""
    assert (len(spool), spool.take()) == (0, None)
    spool.purge()
    assert not directory.exists()


def test_the_directory_above_is_not_made(tmp_path):
    """A device that was removed while the app ran is not begun anew by its spool: it would be one without a state."""
    spool = Spool(tmp_path / "gone" / "spool")
    assert not spool.put(batch())
    assert not (tmp_path / "gone").exists()


def test_kept_whole(spool, directory):
    """A batch comes back from another spool in the same place with the same key, bytes and reports."""
    before = batch(50)
    assert spool.put(before)
    assert files(directory) == [f"{before.key}.json.gz"]
    taken = Spool(directory).take()
    assert (taken.key, taken.body, len(taken.reports)) == (before.key, before.body, 50)


@posix
def test_only_the_owner_may_read(spool, directory):
    """The directory is its owner's alone, also if it was there before, and so is each file, whatever the umask."""
    directory.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        spool.put(batch())
    finally:
        os.umask(before)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in directory.iterdir()] == [0o600]


@posix
def test_a_planted_directory_is_not_used(spool, directory, caplog):
    """What lies in a directory that everybody can write is not sent, and nothing is added to it; the log says what to do."""
    assert spool.put(batch())
    directory.chmod(0o777)
    assert spool.take() is None
    assert not spool.put(batch())
    assert len(spool) == 1
    assert f"{directory} has mode 0777" in caplog.text
    assert f"chmod go-w {directory}" in caplog.text
    directory.chmod(0o700)
    assert spool.take() is not None


@posix
def test_a_planted_batch_is_not_sent(spool, directory, given_away):
    """Nor is a file of somebody else."""
    one = batch()
    assert spool.put(one)
    given_away(directory / f"{one.key}.json.gz")
    assert spool.take() is None


def test_oldest_first(spool):
    """Batches are taken in the order in which they were put, each once."""
    batches = [batch() for _ in range(5)]
    for one in batches:
        spool.put(one)
    assert [spool.take().key for _ in batches] == [one.key for one in batches]
    assert spool.take() is None
    assert len(spool) == 5, "they stay on the disk until they are done with"


def test_done_and_released(spool):
    """A batch that is done with is gone, one that is released is there again."""
    first, second = batch(), batch()
    spool.put(first)
    spool.put(second)
    spool.done(spool.take())
    assert len(spool) == 1
    spool.release(spool.take())
    assert spool.take().key == second.key
    assert not spool.counts


def test_two_spools_take_different_batches(spool, directory):
    """Of two that share the directory, none takes what the other has taken, until it is released."""
    other = Spool(directory)
    spool.put(batch())
    spool.put(batch())
    mine, theirs = spool.take(), other.take()
    assert mine.key != theirs.key
    assert other.take() is None
    spool.release(mine)
    assert other.take().key == mine.key
    spool.release(mine)
    other.done(theirs)
    assert len(spool) == 1
    other.reset()


def test_a_batch_finished_meanwhile_is_not_taken(spool, directory, monkeypatch):
    """A file that another process finished between the opening and the locking is left alone."""
    one = batch()
    spool.put(one)

    def late(descriptor: int) -> bool:
        monkeypatch.setattr("deniable.transport.spool.lock", lock)
        Spool(directory).done(one)
        return lock(descriptor)

    monkeypatch.setattr("deniable.transport.spool.lock", late)
    assert spool.take() is None
    assert not spool.counts


# limits


def test_too_many_files(directory):
    """Beyond the number of files the oldest go, and their reports are counted."""
    spool = Spool(directory, max_files=3)
    batches = [batch(count) for count in (1, 2, 3, 4, 5)]
    for one in batches:
        assert spool.put(one)
    assert [spool.take().key for _ in range(3)] == [one.key for one in batches[2:]]
    assert spool.counts == {"spool_full": 3}
    spool.reset()


def test_too_many_bytes(directory):
    """Beyond the number of bytes the oldest go, too; a batch above it goes at once."""
    spool = Spool(directory, max_bytes=30_000)
    for _ in range(4):
        spool.put(batch(5, size=2000))
    assert len(spool) == 2
    assert sum(path.stat().st_size for path in directory.iterdir()) <= 30_000
    spool.put(batch(20, size=2000))
    assert len(spool) == 0
    assert spool.counts == {"spool_full": 40}


@pytest.mark.parametrize("seconds", [48 * 3600 + 60, -(48 * 3600 + 60)])
def test_too_old(spool, directory, seconds):
    """A batch that a server may have forgotten is removed and counted, and so is one from the future."""
    old = batch(3)
    spool.put(batch(1, created=time.time() - 47 * 3600))
    spool.put(old)
    os.utime(directory / f"{old.key}.json.gz", (time.time() - seconds,) * 2)
    assert len(spool.take().reports) == 1
    assert spool.take() is None
    assert spool.counts == {"spool_expired": 3}
    assert len(files(directory)) == 1


def test_too_old_when_another_is_put(spool, directory):
    """Old batches are removed also where nobody takes any."""
    old = batch(3)
    spool.put(old)
    then = time.time() - 49 * 3600
    os.utime(directory / f"{old.key}.json.gz", (then, then))
    spool.put(batch(1))
    assert len(spool) == 1
    assert spool.counts == {"spool_expired": 3}


@pytest.mark.parametrize("limit", ["max_files", "max_bytes", "max_age", "max_seen"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_are_above_zero(directory, limit, value):
    """A limit that nothing meets is refused when it is given."""
    with pytest.raises(ParameterError, match=limit):
        Spool(directory, **{limit: value})


def test_what_nobody_has_seen_is_kept_as_long_as_a_server_takes_it(spool, directory):
    """After weeks it is still sent. Once it may have arrived, the time in which a server remembers its key begins."""
    spool.put(batch(1, created=time.time() - 60 * 86_400), seen=False)
    spool.put(batch(3, created=time.time() - 62 * 86_400), seen=False)
    assert spool.counts == {"spool_expired": 3}
    one = spool.take()
    spool.release(one, seen=False)  # nobody has seen it after all
    one = spool.take()
    spool.release(one)
    for part, half in enumerate((one, *batch(2, created=one.created).halves())):  # what it is split into is as old as its key
        spool.put(half)
        assert len(spool) == part + 1
    old = spool.take()
    assert abs(old.created - time.time()) < 3600
    spool.release(old)
    for name in files(directory):
        os.utime(directory / name, (time.time() - 49 * 3600,) * 2)
    assert spool.take() is None


# what may lie there


KEY = "6f0c2a9e-51b3-4784-9c3e-1234567890ab"


def _bomb() -> bytes:
    return gzip.compress(bytes(50_000_000))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip",
        gzip.compress(b"not json"),
        gzip.compress(batch().write())[:-9],
        gzip.compress(batch().write())[:40] + b"\0" * 40,
        _bomb(),
    ],
    ids=["empty", "no gzip", "no json", "truncated", "garbled", "bomb"],
)
def test_damaged_files(spool, directory, content):
    """A file that is no batch of its name is removed and counted, and the ones after it are taken."""
    directory.mkdir(parents=True)
    (directory / f"{KEY}.json.gz").write_bytes(content)
    good = batch()
    spool.put(good)
    assert spool.take().key == good.key
    assert spool.counts == {"spool_damaged": 1}
    assert files(directory) == [f"{good.key}.json.gz"]


def test_a_bomb_takes_no_memory(spool, directory):
    """Of a small file that would inflate to a large one no more is read than a batch has."""
    directory.mkdir(parents=True)
    (directory / f"{KEY}.json.gz").write_bytes(_bomb())
    tracemalloc.start()
    try:
        assert spool.take() is None
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_files_of_others_stay(spool, directory):
    """Files that do not have the spool's names are not read, moved, counted or removed."""
    directory.mkdir(parents=True)
    (directory / "notes.txt").write_text("mine")
    (directory / f"{KEY}.json").write_text("mine")
    (directory / f"{KEY}.json.gz").mkdir()
    if hasattr(os, "mkfifo"):  # Windows has no such files
        os.mkfifo(directory / f"{KEY.replace('6', '7')}.json.gz")  # to open it would wait for ever
    (directory / f"{KEY.replace('6', '8')}.json.gz").symlink_to(directory / "notes.txt")
    before = files(directory)
    assert (len(spool), spool.take()) == (0, None)
    spool.purge()
    assert files(directory) == before
    assert (directory / "notes.txt").read_text() == "mine"


# keys that nobody has seen


def test_a_key_that_nobody_has_seen_is_not_seen_twice(spool, directory):
    """After each try without a connection the batch has another key; the same reports, once, in their old place."""
    first, second = batch(), batch()
    spool.put(first, seen=False)
    spool.put(second)
    keys = {first.key}
    for _ in range(3):
        taken = spool.take()
        assert (taken.body, len(spool)) == (first.body, 2)
        assert files(directory) == sorted([f"{taken.key}.json.gz", f"{second.key}.json.gz"])
        keys.add(taken.key)
        spool.release(taken, seen=False)
    assert len(keys) == 3  # the first try has the key of the file, and each later one another
    taken = spool.take()
    spool.release(taken)  # it may have arrived
    spool.done(second)
    for _ in range(2):
        again = spool.take()
        assert again.key == taken.key
        spool.release(again, seen=False)


def test_a_crash_in_a_try_keeps_the_key(spool, directory):
    """Once a batch is taken, somebody may see its key: whoever finds the file later keeps it, whatever comes of their tries."""
    one = batch()
    spool.put(one, seen=False)
    assert spool.take().key == one.key
    spool.reset()  # as if the process had ended
    another = Spool(directory)
    for _ in range(2):
        taken = another.take()
        assert taken.key == one.key
        another.release(taken, seen=False)
    another.reset()


@posix
def test_without_locks_a_key_stays(spool, monkeypatch):
    """Where another process may have the same batch, it must have the same key, so that it counts once."""
    monkeypatch.setattr("deniable.transport.spool.lock", lambda _: None)
    one = batch()
    spool.put(one, seen=False)
    spool.release(spool.take(), seen=False)
    assert spool.take().key == one.key


def test_a_disk_that_does_not_rename_sends_nothing(spool, monkeypatch):
    """If it cannot be noted that a key may be seen, the batch is left where it is."""
    spool.put(batch(), seen=False)
    monkeypatch.setattr("deniable.transport.spool.sync", lambda _: (_ for _ in ()).throw(OSError("no")))
    assert spool.take() is None
    assert len(spool) == 1


def test_unfinished_writes_are_cleared(spool, directory):
    """What is left of a write that was cut off long ago is removed; one that may be under way is not."""
    directory.mkdir(parents=True)
    old, new = directory / f"{KEY}.json.gz.tmp", directory / f"{KEY.replace('6', '7')}.json.gz.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert spool.take() is None
    spool.put(batch())
    assert (old.exists(), new.exists()) == (False, True)


def test_purge_removes_all(spool, directory):
    """A purge removes every batch, also those that somebody has taken, and counts the reports."""
    for count in (1, 2, 4):
        spool.put(batch(count))
    (directory / f"{KEY}.json.gz.tmp").write_bytes(b"half")
    taken = Spool(directory).take()
    spool.take()
    spool.purge()
    assert files(directory) == []
    assert spool.counts == {"purged": 7}
    spool.release(taken)
    spool.done(taken)
    assert len(spool) == 0


# disks


def _failing(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("function", ["fsync", "open", "utime"])
def test_a_full_disk(spool, directory, monkeypatch, function):
    """A batch that cannot be written is refused, leaves nothing behind, and the next one is tried."""
    spool.put(batch())
    with monkeypatch.context() as patch:
        patch.setattr(f"deniable.transport.spool.os.{function}", _failing)
        assert spool.put(batch()) is False
    assert len(files(directory)) == 1
    assert spool.put(batch())
    assert len(spool) == 2


def test_a_directory_that_cannot_be(tmp_path):
    """Where a file stands in the way, nothing is kept and nothing raised."""
    (tmp_path / "file").write_text("x")
    spool = Spool(tmp_path / "file" / "spool")
    assert spool.put(batch()) is False
    assert (len(spool), spool.take()) == (0, None)
    spool.purge()


def test_a_file_that_stays(spool, monkeypatch):
    """A batch that is done with but cannot be removed is not taken again by this process, else it would be sent for ever."""
    spool.put(batch())
    taken = spool.take()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", _failing)
        spool.done(taken)
    assert len(spool) == 1
    assert spool.take() is None


def test_atomic(spool, directory, monkeypatch):
    """A batch is under its name only when all of it is on the disk."""
    seen = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        seen.append(files(directory))
        fsync(descriptor)

    monkeypatch.setattr("deniable.transport.spool.os.fsync", look)
    one = batch()
    spool.put(one)
    steps = [[f"{one.key}.json.gz.tmp"], [f"{one.key}.json.gz"]]  # Windows cannot sync the folder, which is the second
    assert seen == (steps if hasattr(os, "geteuid") else steps[:1])


def test_what_a_file_holds(spool, directory):
    """A file has the body, the number of reports and when; neither a name of the device nor the ingest key."""
    one = batch(3)
    spool.put(one)
    (path,) = directory.iterdir()
    raw = path.read_bytes()
    assert raw[3:8] == bytes(5), "neither a file name nor a time in the gzip header"
    document = json.loads(gzip.decompress(raw))
    assert document == {
        "format": 1,
        "made": int(one.created),
        "reports": 3,
        "body": one.body.decode(),
    }


def test_tries_that_are_cut_hold_off_the_next_ones(directory, monkeypatch):
    """After the first one the next program may try at once. Then the pause grows to an hour, as after a try that failed."""
    now = [1_800_000_000.0]
    monkeypatch.setattr("deniable.transport.spool.time.time", lambda: now[0])
    spool = Spool(directory)
    assert spool.put(batch(0))
    pauses = []
    for _ in range(11):
        assert spool.begin()
        assert not Spool(directory).begin()
        assert spool.free_at == now[0] + 3600, "while it tries, and if it is killed"
        spool.end(cut=True)
        pauses.append((spool.free_at or now[0]) - now[0])
        now[0] += pauses[-1]
    assert pauses == [0, 60, 120, 240, 480, 960, 1920, *[3600] * 4]
    assert spool.begin()
    spool.end(cut=False)
    assert (spool.cut, spool.free_at) == (0, now[0] + 3600)
    now[0] += 3600
    assert spool.begin()
    spool.end(cut=True)
    assert spool.begin()
