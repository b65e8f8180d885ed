"""An archive beside a store: what is counted is in it, once, and what is deleted leaves it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import redis
from machines import wait
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.commands.entry import main
from deniable.declared import fingerprint
from deniable.wire.report import Stratum
from deniable_aggregator.commands.worker import _chores
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.faults import Faults, present
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.deletion.retention import Retention
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import GROUP, Partition, Store, Upload, schema
from deniable_aggregator.store.sums import deltas, tallies
from deniable_aggregator.store.uploads import batch, health
from deniable_aggregator.store.uploads.archived import LastRecount
from deniable_aggregator.store.uploads.batch import Group

pytest.importorskip("pyarrow")

from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.archive.folder import HOURS, Folder
from deniable_aggregator.archive.recount import Counted, count_files
from deniable_aggregator.deletion import archived_files

HOUR, DAY = 3600, 86_400
ENDED = 1_795_305_600  # 2026-11-22, when the period of the day before is over
CLOSED = ENDED + 3 * DAY
TODAY, TOMORROW = "2026-11-21", "2026-11-22"

REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark", "system"], mechanism="oue", segments=["platform"], description="Which theme"),
    metric_toml("export"),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 10, "grace": "3d"},
    retention={"tallies": 10, "releases": 20},
)


class Shop:
    """An app on a real store, with an archive."""

    def __init__(self, client, folder):
        self.redis = client
        self.registry = registry.parse(REGISTRY)
        self.store = Store(client, "shop")
        self.publisher = Publisher(self.store, self.registry)
        self.retention = Retention(self.store, self.registry, self.publisher)
        self.archive = Folder(str(folder))
        self.files = archived_files.ArchivedFiles(self.store, self.registry, self.publisher, self.archive)
        self.sent = 0

    @property
    def partition(self):
        (only,) = self.store.partitions
        return only

    @property
    def folder(self):
        return self.archive.of(self.partition.archived.number())

    def of(self, metric="theme", period=TODAY, segment=""):
        declared = self.registry.metrics[metric]
        return Stratum(metric, declared.version, fingerprint(declared, mechanisms.of(declared).canonical), period, segment)

    def layout(self, metric="theme"):
        return mechanisms.of(self.registry.metrics[metric]).layout

    def send(self, n=20, *strata):
        """Send a batch of n random reports of each stratum."""
        groups = []
        for stratum in strata or (self.of(),):
            self.sent += 1
            layout = self.layout(stratum.metric)
            most = 1 << layout.width if layout.kind == "bits" else layout.width
            values = np.random.default_rng(self.sent).integers(0, most, n)
            groups.append(Group(stratum, layout, b"".join(layout.pack(0, int(each)) for each in values)))
        key = f"upload {self.sent}"
        assert self.store.append(Upload(batch.encode(groups), key=key, remember=b"-", cap=10_000, ttl=60)).outcome == "appended"

    def count(self, *, archive=True, **settings):
        worker = Worker([self.store], WorkerSettings(**settings), archive=self.archive if archive else None)
        worker.run(threading.Event(), burst=True)
        return worker

    def names(self, stratum=None):
        return self.partition.archived.names([stratum or self.of()]).get(stratum or self.of(), set())

    def files_of(self, metric=""):
        return {each.name for each in self.folder.find(metric)}

    def equal(self, stratum=None):
        """Return whether the recount of the noted files equals the tally, and is not empty."""
        stratum = stratum or self.of()
        counted = self.store.read(self.layout(stratum.metric), [stratum])
        return counted.n > 0 and self.recounted(stratum) == Counted(counted, {}, missing=False)

    def recounted(self, stratum):
        return count_files(self.folder.url, self.folder.number, stratum, sorted(self.names(stratum)))

    def age(self, seconds):
        """Let all files be older."""
        for path in Path(self.archive.url).rglob("*.parquet"):
            os.utime(path, (time.time() - seconds,) * 2)

    def tidy(self, now):
        """Mix and delete what is due, if all files were written two hours before."""
        self.age(time.time() - now + 2 * HOUR)
        self.files.tidy(now)


@pytest.fixture
def shop(real_redis, tmp_path, monkeypatch):
    monkeypatch.setattr(archived_files, "_LOST_SECONDS", 0.0)
    return Shop(real_redis, tmp_path / "archive")


@pytest.mark.cluster_too
@pytest.mark.both_stores
@pytest.mark.parametrize("at_once", [1 << 20, 0])
def test_what_is_counted_is_archived(shop, monkeypatch, at_once):
    """A file for each commit and stratum of bits, noted as it counts; of an index nothing. So it is in pieces, too."""
    monkeypatch.setattr(deltas, "AT_ONCE", at_once)
    linux = shop.of(segment="platform=linux")
    for _ in range(5):
        shop.send(20, shop.of(), linux, shop.of("export"))
    worker = shop.count(batch=2)
    assert worker.counted == 300
    assert (len(shop.names()), len(shop.names(linux)), shop.names(shop.of("export"))) == (3, 3, set())
    assert shop.files_of() == shop.names() | shop.names(linux)
    assert shop.equal()
    assert shop.equal(linux)


def test_without_an_archive_nothing_is_kept(shop):
    """It is off unless it is asked for: the store has no key of it."""
    shop.send()
    shop.count(archive=False)
    assert not {schema.find(key.decode(), "shop") for key in shop.redis.scan_iter()} & {schema.ARCHIVE, schema.ARCHIVED}
    assert not Path(shop.archive.url).exists()
    shop.tidy(CLOSED + 1)


@pytest.mark.parametrize("at_once", [1 << 20, 0])
def test_a_stratum_is_archived_as_a_whole_or_not_at_all(shop, monkeypatch, at_once):
    """What had been counted before there was an archive is not archived from the middle on; the next period is."""
    monkeypatch.setattr(deltas, "AT_ONCE", at_once)
    shop.send()
    shop.count(archive=False)
    shop.send(20, shop.of(), shop.of(period=TOMORROW))
    shop.count()
    assert shop.names() == set()
    assert shop.equal(shop.of(period=TOMORROW))


@pytest.mark.parametrize("at_once", [1 << 20, 0])
def test_late_reports_are_archived_where_they_count(shop, monkeypatch, at_once):
    """Reports of a sealed period count in the next one; their file is noted there."""
    monkeypatch.setattr(deltas, "AT_ONCE", at_once)
    shop.store.seal(shop.of()[:3], TOMORROW)
    shop.send(20, shop.of())
    shop.send(20, shop.of(period=TOMORROW))
    shop.count(batch=1)
    assert shop.names() == set()
    assert len(shop.names(shop.of(period=TOMORROW))) == 2
    assert shop.equal(shop.of(period=TOMORROW))


def test_a_commit_that_did_not_count_leaves_files_that_do_not_count(shop, monkeypatch):
    """Another worker took a batch over meanwhile: what it does not own, and its file, are left."""
    for _ in range(3):
        shop.send()
    commit, stalls = Partition.commit, iter([True])

    def stalled_commit(self, consumer, ids, *more):
        if next(stalls, False):
            self._client.xclaim(self.stream, GROUP, "gone", 0, ids[:1])
        return commit(self, consumer, ids, *more)

    monkeypatch.setattr(Partition, "commit", stalled_commit)
    assert shop.count(batch=3).counted == 40
    assert (len(shop.names()), len(shop.files_of())) == (1, 2)
    assert shop.equal()
    shop.files.tidy(time.time())
    assert len(shop.files_of()) == 2
    shop.age(DAY + 60)
    shop.files.tidy(time.time())
    assert shop.files_of() == shop.names()


def test_a_commit_whose_answer_is_lost_is_archived_once(shop, monkeypatch):
    """It is sent again with the same files, which are noted already."""
    shop.send()
    commit, losses = Partition.commit, iter([True])

    def lossy_commit(self, *arguments):
        stale = commit(self, *arguments)
        if next(losses, False):
            raise redis.ConnectionError("the answer is lost")
        return stale

    monkeypatch.setattr(Partition, "commit", lossy_commit)
    shop.count()
    assert len(shop.names()) == 1
    assert shop.files_of() == shop.names()
    assert shop.equal()


def test_a_commit_that_waited_long_has_new_files(shop, monkeypatch):
    """Files that could be taken for orphans by now are not noted."""
    monkeypatch.setattr("deniable_aggregator.counting.counter.LIFE_SECONDS", -1.0)
    shop.send()
    commit, losses = Partition.commit, iter([True])

    def refused_commit(self, *arguments):
        if next(losses, False):
            raise redis.ConnectionError
        return commit(self, *arguments)

    monkeypatch.setattr(Partition, "commit", refused_commit)
    shop.count()
    assert (len(shop.names()), len(shop.files_of())) == (1, 2)
    assert shop.equal()


def test_while_the_archive_is_away_nothing_is_counted(shop, store_url, caplog, capsys):
    """The worker lives, says so and goes on trying; nothing is read in vain, lost, or counted twice."""
    shop.send()
    Path(shop.archive.url).write_text("in the way")
    stop = threading.Event()
    worker = Worker([shop.store], WorkerSettings(block_ms=10), archive=shop.archive)
    thread = threading.Thread(target=worker.run, args=[stop])
    thread.start()
    wait(lambda: caplog.text.count("the archive cannot be used") > 1)
    state = health.read(shop.store)
    assert (worker.counted, state.backlog, state.pending, state.workers) == (0, 1, 0, 1)
    assert state.held_up == present(shop.store) == {"archive": "NotADirectoryError: Not a directory"}
    assert main(["status", "--redis-url", store_url, "--app", "shop"]) == 0
    assert "archive" in capsys.readouterr().out.split()
    Path(shop.archive.url).unlink()
    wait(lambda: worker.counted)
    stop.set()
    thread.join(60)
    assert worker.counted == 20
    assert shop.equal()
    assert (present(shop.store), health.read(shop.store).held_up) == ({}, {})
    assert not worker.cut_off


def test_an_archive_that_fails_in_a_commit_holds_it_up(shop, monkeypatch, caplog):
    """What is in hand waits for it, and nothing half-written is left; after a stop another worker counts it."""
    linux = shop.of(segment="platform=linux")
    shop.send(20, shop.of(), linux)
    write, failures = Folder.write, iter([False, True, False, True])

    def failing_write(self, *arguments, **options):
        if next(failures, False):
            raise ArchiveError("OSError")
        return write(self, *arguments, **options)

    monkeypatch.setattr(Folder, "write", failing_write)
    worker = shop.count()
    assert worker.counted == 40
    assert caplog.text.count("the archive cannot be used (OSError)") == 2
    assert shop.files_of() == shop.names() | shop.names(linux)
    assert shop.equal()

    def broken_write(*_arguments, **_options):
        stop.set()
        raise ArchiveError("OSError")

    monkeypatch.setattr(Folder, "write", broken_write)
    shop.send()
    stop, worker = threading.Event(), Worker([shop.store], archive=shop.archive)
    worker.run(stop)
    assert (worker.counted, worker.cut_off, shop.store.backlog()) == (0, True, 1)
    monkeypatch.setattr(Folder, "write", write)
    time.sleep(0.02)
    assert shop.count(min_idle_ms=10, claim_every=0.0).counted == 20
    assert shop.equal()


def test_an_archive_that_fails_with_a_batch_in_hand_is_a_fault_at_once(shop, monkeypatch):
    """Until a file can be written again. The worker lives meanwhile, and one without an archive does not take it for well."""
    stop, write = threading.Event(), Folder.write
    monkeypatch.setattr(health, "BEAT_SECONDS", 0.0)
    worker = Worker([shop.store], WorkerSettings(block_ms=10), archive=shop.archive)
    thread = threading.Thread(target=worker.run, args=[stop], daemon=True)
    thread.start()
    shop.send()
    wait(lambda: worker.counted)
    assert present(shop.store) == {}

    def full(*_arguments, **_options):
        raise ArchiveError("OSError: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", full)
        shop.redis.delete(shop.partition.workers)
        shop.send()
        wait(lambda: health.read(shop.store).held_up == {"archive": "OSError: No space left on device"})
        wait(lambda: health.read(shop.store).workers == 1)
        shop.count(archive=False)
        assert present(shop.store) == {"archive": "OSError: No space left on device"}
        patch.setattr(Folder, "write", write)
        wait(lambda: worker.counted == 40)
    wait(lambda: present(shop.store) == {})
    stop.set()
    thread.join(60)
    assert shop.equal()


def test_a_fault_of_a_worker_that_ended_passes(shop, monkeypatch):
    """When the next one starts and can write."""
    stop = threading.Event()

    def full(*_arguments, **_options):
        stop.set()
        raise ArchiveError("OSError: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "check", full)
        Worker([shop.store], archive=shop.archive).run(stop)
    assert present(shop.store) == {"archive": "OSError: No space left on device"}
    shop.count()
    assert present(shop.store) == {}


def test_a_store_that_is_away_too_ends_no_wait_for_the_archive(shop, monkeypatch):
    """The fault is noted when both can be used; until then the batch stays in hand, and is counted once."""
    shop.send()
    write, tries = Folder.write, []

    def away(*_):
        raise redis.ConnectionError

    def failing(self, *arguments, **options):
        tries.append(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(shop.store.faults), "put", away)
            if len(tries) < 3:
                raise ArchiveError("OSError")
        return write(self, *arguments, **options)

    monkeypatch.setattr(Folder, "write", failing)
    assert shop.count().counted == 20
    assert len(tries) == 3
    assert present(shop.store) == {}


def test_a_batch_is_not_put_aside_because_the_archive_is_away(shop, monkeypatch):
    """However many workers there are to take it over from each other."""
    stop, write, check = threading.Event(), Folder.write, Folder.check
    settings = WorkerSettings(block_ms=10, min_idle_ms=50, claim_every=0.02)
    workers = [Worker([shop.store], settings, archive=shop.archive) for _ in range(7)]
    threads = [threading.Thread(target=worker.run, args=[stop], daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    wait(lambda: health.read(shop.store).workers == len(workers))

    def full(*_arguments, **_options):
        raise ArchiveError("OSError")

    monkeypatch.setattr(Folder, "write", full)
    monkeypatch.setattr(Folder, "check", full)
    shop.send()
    time.sleep(2)
    monkeypatch.setattr(Folder, "write", write)
    monkeypatch.setattr(Folder, "check", check)
    wait(lambda: not shop.store.backlog())
    stop.set()
    for thread in threads:
        thread.join(60)
    assert (sum(worker.counted for worker in workers), sum(worker.buried for worker in workers)) == (20, 0)
    assert shop.equal()


@pytest.mark.cluster_too
def test_files_are_mixed(shop):
    """Those of the commits of an hour, and all of a period, not a moment before it is closed; what comes later is mixed, too."""
    later = shop.of(period=TOMORROW)
    for _ in range(6):
        shop.send(20, shop.of(), later)
    shop.count(batch=2)
    before = shop.names()
    shop.tidy(CLOSED)
    (hour,) = shop.names()
    assert hour.startswith(HOURS)
    assert not shop.files_of() & before
    shop.send()
    shop.count()
    shop.tidy(CLOSED)
    assert len(shop.names()) == 2
    assert hour in shop.names()
    shop.tidy(CLOSED + 1)
    (mixed,) = shop.names()
    assert "/" not in mixed
    assert shop.equal()
    assert shop.equal(later)
    assert shop.files_of() == shop.names() | shop.names(later)
    assert [name.startswith(HOURS) for name in shop.names(later)] == [True]
    with shop.folder.read(shop.of(), mixed) as (head, groups):
        payloads = [bytes([each]) for each in b"".join(groups)]
    assert head.stratum == shop.of()
    assert payloads == sorted(payloads)
    shop.tidy(CLOSED + 1)
    assert shop.names() == {mixed}
    shop.send()
    shop.count()
    shop.tidy(CLOSED + 1)
    assert not shop.names() & {mixed}
    assert len(shop.names()) == 1
    assert shop.equal()


def test_commits_are_mixed_by_whole_hours_however_many_workers_do_it(shop):
    """A worker that looks soon after another one does not mix the minutes since then: their reports would tell these."""
    hour = CLOSED - DAY
    for written, looked in [(hour - 60, hour + 600), (hour + 700, hour + 1200), (hour + 3500, hour + HOUR + 60)]:
        shop.send()
        shop.count()
        shop.age(time.time() - written)
        shop.files.tidy(looked)
        assert [name.startswith(HOURS) for name in sorted(shop.names())].count(True) == 1
    shop.files.tidy(hour + HOUR + 600)
    assert [name.startswith(HOURS) for name in shop.names()] == [True] * 2
    assert shop.files_of() == shop.names()
    assert shop.equal()


def test_files_that_differ_from_the_tally_stay(shop, monkeypatch, caplog):
    """A fault tells of it, until the recount is right again; they are not counted again until there are others."""
    linux = shop.of(segment="platform=linux")
    shop.send(20, shop.of(), linux)
    shop.count()
    shop.send()
    shop.count(archive=False)
    tried, write = [], archived_files.mixture.write

    def tried_write(*arguments):
        tried.append((arguments[1].segment, arguments[3] is not None))
        return write(*arguments)

    monkeypatch.setattr(archived_files.mixture, "write", tried_write)
    for _ in range(2):
        shop.tidy(CLOSED + 1)
        assert [name.startswith(HOURS) for name in shop.names()] == [True]
        assert shop.files_of() == shop.names() | shop.names(linux)
        assert shop.store.faults.all() == {b"mixture of theme": b"RecountDiffersError"}
    assert sorted(tried) == [("", False), ("", True), ("platform=linux", False), ("platform=linux", True)]
    assert "mixture of theme failed (RecountDiffersError)" in caplog.text
    assert [("/" in name) for name in shop.names(linux)] == [False]
    assert shop.equal(linux)


@pytest.mark.parametrize("late", ["before it reads", "after it has read"])
def test_a_worker_that_was_slower_leaves_nothing(shop, monkeypatch, late):
    """Of two workers that mix the same files, one notes its own; the other deletes what it wrote, and has no fault."""
    for _ in range(4):
        shop.send()
    shop.count(batch=1)
    other = archived_files.ArchivedFiles(shop.store, shop.registry, shop.publisher, shop.archive)
    write, tries = archived_files.mixture.write, []

    def slow_write(*arguments):
        tries.append(arguments)
        slower = len(tries) == 2  # the files of an hour: all that is closed
        if slower and late == "before it reads":
            other.tidy(CLOSED + 1)
        name = write(*arguments)
        if slower and late != "before it reads":
            other.tidy(CLOSED + 1)
        return name

    monkeypatch.setattr(archived_files.mixture, "write", slow_write)
    shop.tidy(CLOSED + 1)
    assert len(tries) == 3
    assert ["/" in name for name in shop.names()] == [False]
    assert shop.equal()
    assert shop.files_of() == shop.names()
    assert not shop.store.faults.all()


def test_a_store_that_loses_an_exchange_has_its_files(shop, monkeypatch):
    """Its last second may go with it: then it names the former files, which are still there."""
    for _ in range(3):
        shop.send()
    shop.count(batch=1)
    key = schema.ARCHIVED.of("shop", tallies.name(shop.of()))
    before, delete = shop.redis.dump(key), shop.files._delete_former

    def lost():
        shop.redis.restore(key, 0, before, replace=True)
        delete()

    with monkeypatch.context() as patch:
        patch.setattr(shop.files, "_delete_former", lost)
        shop.tidy(CLOSED + 1)
    assert len(shop.names()) == 3
    assert shop.equal()
    shop.tidy(CLOSED + 1)
    assert shop.equal()
    assert len(shop.names()) == 1


def test_former_files_stay_until_the_store_has_surely_kept_the_exchange(shop, monkeypatch):
    """An old file is no orphan meanwhile, and other work of the worker goes on."""
    for _ in range(3):
        shop.send()
    shop.count(batch=1)
    shop.age(1000 * DAY)
    clock = [time.monotonic()]
    monkeypatch.setattr(archived_files, "_LOST_SECONDS", 10.0)
    monkeypatch.setattr(archived_files.time, "monotonic", lambda: clock[0])
    former = shop.names()
    while former & shop.names():
        assert shop.files.run()
    for _ in range(3):
        assert shop.files.run()
        assert former < shop.files_of()
    clock[0] += 10.0
    while shop.files.run():
        pass
    assert shop.files_of() == shop.names()


def test_an_exchange_whose_answer_is_lost_loses_no_file(shop, monkeypatch):
    """The store is asked once more, finds it done, and the files that count now stay."""
    for _ in range(3):
        shop.send()
    shop.count(batch=1)
    exchange = shop.partition.archived._exchange
    monkeypatch.setattr(shop.partition.archived, "_exchange", lambda *arguments: (exchange(*arguments), exchange(*arguments))[1])
    shop.tidy(CLOSED + 1)
    assert ["/" in name for name in shop.names()] == [False]
    assert shop.files_of() == shop.names()
    assert shop.equal()


def test_files_of_a_commit_that_is_decided_stay(shop, monkeypatch):
    """Its pieces are not added yet, so nothing names its files, however old they are."""
    monkeypatch.setattr(deltas, "AT_ONCE", 0)
    apply = shop.partition.staging.apply
    monkeypatch.setattr(shop.partition.staging, "apply", lambda: None)
    shop.send()
    shop.count()
    assert (shop.names(), shop.store.backlog(), len(shop.files_of())) == (set(), 0, 1)
    shop.age(2 * DAY)
    shop.files.tidy(time.time())
    apply()
    assert shop.files_of() == shop.names()
    assert shop.equal()


def test_a_store_that_is_full_holds_the_first_commit_up(shop, monkeypatch):
    """It has no folder yet; the batch is not delivered again and again meanwhile, until it is put aside."""
    shop.send()
    begin, refusals = type(shop.partition.archived).begin, iter([True] * 7)

    def refused_begin(self):
        if next(refusals, False):
            raise redis.OutOfMemoryError
        return begin(self)

    monkeypatch.setattr(type(shop.partition.archived), "begin", refused_begin)
    monkeypatch.setattr(threading.Event, "wait", lambda *_: False)
    worker = shop.count()
    assert (worker.counted, worker.buried) == (20, 0)
    assert shop.equal()


def test_a_file_that_was_lost_is_a_fault(shop):
    """What is named and not there is told, and the rest is mixed."""
    others = [shop.of(segment=f"platform={each}") for each in ("linux", "macos")]
    shop.send(20, shop.of(), *others)
    shop.count()
    shop.folder.delete([shop.folder.path(shop.of(), name) for name in shop.names()])
    shop.tidy(CLOSED + 1)
    assert shop.store.faults.all() == {b"mixture of theme": b"a file is not there"}
    assert [["/" in name for name in shop.names(each)] for each in others] == [[False], [False]]


def test_retention_reaches_the_files(shop):
    """With the exact sums their files go; others stay."""
    shop.send(20, shop.of(), shop.of(period="2026-12-21"))
    shop.count()
    shop.publisher.publish(CLOSED + 11)
    shop.tidy(CLOSED + 11)
    assert len(shop.files_of()) == 2
    shop.age(10 * DAY)
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 3
    shop.files.tidy(time.time())
    assert shop.files_of() == shop.names(shop.of(period="2026-12-21"))
    assert len(shop.files_of()) == 1


@pytest.mark.parametrize("registry_too", [True, False])
def test_an_erased_metric_leaves_the_archive(shop, store_url, capsys, registry_too):
    """At once if the command has the archive; else a worker deletes its files, however new they are."""
    shop.send(20, shop.of(), shop.of("export"))
    shop.count()
    assert len(shop.files_of("theme")) == 1
    options = ["--archive", shop.archive.url] if registry_too else []
    assert main(["erase", "--redis-url", store_url, "--app", "shop", "--metric", "theme", "--yes", *options]) == 0
    output = capsys.readouterr().out
    assert ("removed: files of the archive 1" if registry_too else "within an hour if a worker with the archive") in output
    if not registry_too:
        assert len(shop.files_of("theme")) == 1
        shop.files.tidy(time.time())
    assert shop.files_of("theme") == set()
    shop.send()
    shop.count()
    assert (shop.names(), len(shop.files_of("theme"))) == (set(), 1)
    shop.files.tidy(time.time())
    assert shop.files_of("theme") == set()


def test_an_erased_app_leaves_the_archive(shop, store_url, capsys):
    """No worker would delete its files later, so the command has to have the archive, and removes nothing without it."""
    shop.send(20, shop.of(), shop.of("export"))
    shop.count()
    former, before = shop.folder, shop.names()
    for partition in shop.store.partitions:
        shop.redis.delete(partition.workers)
    shop.store.metrics.add(["theme", "export"])  # as a worker does
    options = ["erase", "--redis-url", store_url, "--app", "shop", "--yes"]
    assert main(options) == 2
    assert "shop has an archive, whose files nobody would delete later: name it by --archive" in capsys.readouterr().err
    assert shop.names() == before
    count = len(former.find())
    assert count > 0
    assert main([*options, "--archive", shop.archive.url]) == 0
    assert f"removed: files of the archive {count}\n" in capsys.readouterr().out
    assert former.find() == []
    assert shop.names() == set()


def test_an_archive_that_is_away_does_not_keep_a_metric(shop, store_url, capsys):
    """Everything else is removed, and what happens to the files is said; so is that a recount cannot be made."""
    shop.send()
    shop.count()
    place = Path(shop.archive.url)
    place.rename(place.with_name("elsewhere"))
    place.write_text("in the way")
    assert recount(shop, store_url) == 2
    assert "its files cannot be read (the folder is not there; is the disk?)" in capsys.readouterr().err
    options = ["--redis-url", store_url, "--app", "shop", "--archive", shop.archive.url]
    assert main(["erase", *options, "--metric", "theme", "--yes"]) == 2
    captured = capsys.readouterr()
    assert "removed: keys and fields" in captured.out
    assert "cannot be used (the folder is not there; is the disk?); its files leave the archive within an hour" in captured.err
    assert shop.names() == set()


def test_stores_leave_each_other_s_files_alone(shop):
    """A store that was emptied, or another one with the same archive, deletes none of the former one's files."""
    shop.send()
    shop.count()
    former = shop.folder
    shop.age(3 * DAY)
    shop.redis.flushall()
    shop.send()
    shop.count()
    shop.files.tidy(time.time())
    assert shop.folder.number != former.number
    assert len(former.find()) == 1
    assert shop.equal()


def test_a_store_that_another_worker_found_empty_gets_a_folder_for_all(shop):
    """A busy worker sees no error if the other one was there first; it asks for the folder at each commit."""

    class Emptied:
        times = 0

        def do(self):
            self.times += 1
            if self.times == 1:
                shop.redis.flushall()
                shop.partition.join()
                shop.send()
                shop.count()
                shop.send()
            return self.times == 1

    shop.send()
    worker = Worker([shop.store], chores=[Emptied()], archive=shop.archive)
    worker.run(threading.Event(), burst=True)
    assert worker.counted == 40
    assert len(shop.names()) == 2
    assert shop.equal()


def test_the_chore_does_one_period_at_a_time(shop):
    """Counting waits for one period only."""
    shop.store.now = lambda: CLOSED + 1
    shop.send(20, shop.of(), shop.of(segment="platform=linux"))
    shop.count()
    mixed = []
    while shop.files.run():
        mixed.append(sum("/" not in name for name in shop.files_of()))
    assert mixed == [1, 2, 2, 2]  # then orphans go, and then the former files
    shutil.rmtree(shop.archive.url)
    with pytest.raises(ArchiveError):
        shop.files.run()


@pytest.mark.parametrize("archived", [True, False])
def test_a_worker_without_a_registry_tells_what_stays(shop, caplog, archived):
    """It writes files, and only a worker with the registry mixes and deletes them."""
    list(_chores({shop.store: Faults(shop.store)}, {}, shop.archive if archived else None))
    (line,) = caplog.messages
    assert line.startswith("this worker only counts reports of shop: no file of DENIABLE_REGISTRY or --registry declares it")
    assert line.endswith(". Name its metrics.toml there, and start the worker again")
    assert ("mixed" in line) == archived
    caplog.clear()
    list(_chores({shop.store: Faults(shop.store)}, {}, None, ["shop"]))  # another line says what is wrong with its file
    assert not caplog.messages


def recount(shop, store_url, *options):
    return main(["recount", "--redis-url", store_url, "--app", "shop", "--archive", shop.archive.url, *options])


def test_the_command_recounts(shop, store_url, capsys, monkeypatch):
    """It tells of each stratum whether the recount equals the tally, mixed or not; the status is 1 if one differs."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    linux = shop.of(segment="platform=linux", period=TOMORROW)
    for _ in range(3):
        shop.send(20, shop.of(), linux, shop.of("export"))
    shop.count(batch=1)
    shop.tidy(CLOSED + 1)
    assert recount(shop, store_url) == 0
    equal = "theme version 1, 2026-11-21, segment none: 60 reports in 1 file, equal to the live tally\n"
    differing = "theme version 1, 2026-11-22, segment platform=linux: 60 reports in 1 file, {}\n"
    assert capsys.readouterr().out == equal + differing.format("equal to the live tally")
    assert recount(shop, store_url, "--files") == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(map(str, Path(shop.archive.url).rglob("*.parquet")))
    assert recount(shop, store_url, "--metric", "export") == 1
    assert "nothing of export is archived: of an index layout the tally is the archive" in capsys.readouterr().err
    shop.send(20, linux)
    shop.count(archive=False)
    assert recount(shop, store_url, "--metric", "theme") == 1
    assert capsys.readouterr().out == equal + differing.format("the live tally has 80, and differs")
    shop.folder.delete([shop.folder.path(shop.of(), name) for name in shop.names()])
    assert recount(shop, store_url) == 1
    output = capsys.readouterr().out
    assert "2026-11-21, segment none: of 1 files 1 cannot be counted\n  " in output
    assert ".parquet: a file is not there\n" in output


def test_a_spoilt_file_hides_no_other_stratum(shop, store_url, capsys, monkeypatch):
    """It is named, with what ails it, and the rest is recounted; what was found is noted, unless only one metric was counted."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    linux = shop.of(segment="platform=linux")
    for _ in range(3):
        shop.send(20, shop.of(), linux)
    shop.count(batch=1)
    assert LastRecount.of(shop.store) is None
    assert recount(shop, store_url) == 0
    assert LastRecount.of(shop.store)[1:] == (2, 0, 0)
    capsys.readouterr()
    spoilt, lost, _ = sorted(Path(shop.folder.address(shop.folder.path(shop.of(), name))) for name in shop.names())
    spoilt.write_bytes(spoilt.read_bytes()[:-9])
    lost.unlink()
    assert recount(shop, store_url, "--metric", "theme") == 1
    assert capsys.readouterr().out == (
        "theme version 1, 2026-11-21, segment none: of 3 files 2 cannot be counted\n"
        f"  {spoilt}: it is empty, cut off, or no Parquet file\n"
        f"  {lost}: a file is not there\n"
        "theme version 1, 2026-11-21, segment platform=linux: 60 reports in 3 files, equal to the live tally\n"
    )
    assert LastRecount.of(shop.store)[1:] == (2, 0, 0)
    shop.send(20, linux)
    shop.count(archive=False)
    assert recount(shop, store_url) == 1
    assert LastRecount.of(shop.store)[1:] == (2, 1, 1)


def test_many_spoilt_files_are_not_all_named(shop, store_url, capsys, monkeypatch):
    """The first ones, and how many more there are."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    for _ in range(23):
        shop.send()
    shop.count(batch=1)
    for path in Path(shop.archive.url).rglob("*.parquet"):
        path.write_bytes(b"")
    assert recount(shop, store_url) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1]) == (22, "  and 3 more")
    assert lines[0].endswith("of 23 files 23 cannot be counted")


def test_a_store_that_is_full_does_not_hide_a_recount(shop, store_url, capsys, monkeypatch):
    """It cannot be noted, and is printed all the same."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    shop.send()
    shop.count()

    def full(*_):
        raise redis.OutOfMemoryError

    monkeypatch.setattr(LastRecount, "note", full)
    assert recount(shop, store_url) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("equal to the live tally\n")
    assert "OutOfMemoryError" in captured.err


def test_a_damaged_commit_keeps_no_other_from_being_mixed(shop):
    """The worker reports it as a fault. The other commits lose their time within the hour, and the period stays in hours."""
    for _ in range(3):
        shop.send()
    shop.count(batch=1)
    damaged = min(shop.names())
    Path(shop.folder.address(shop.folder.path(shop.of(), damaged))).write_bytes(b"")
    shop.tidy(CLOSED - HOUR)
    fault = {"mixture of theme": "it is empty, cut off, or no Parquet file"}
    assert present(shop.store) == fault
    (hour,) = shop.names() - {damaged}
    assert hour.startswith(HOURS)
    assert shop.recounted(shop.of()).tally.n == 40
    for now in (CLOSED - HOUR, CLOSED + 1):
        shop.tidy(now)
        assert shop.names() == shop.files_of() == {damaged, hour}
        assert present(shop.store) == fault


def test_files_that_are_mixed_meanwhile_are_counted_again(shop, store_url, capsys, monkeypatch):
    """A recount while a worker closes a period is right, too."""
    for _ in range(3):
        shop.send()
    shop.count(batch=1)

    def late_pool(**_):
        shop.tidy(CLOSED + 1)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", late_pool)
    assert recount(shop, store_url) == 0
    assert capsys.readouterr().out.endswith("60 reports in 1 file, equal to the live tally\n")


def test_a_recount_finishes_a_commit(shop, store_url, capsys, monkeypatch):
    """It does not wait for a worker that may never come."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    shop.send()
    shop.count()
    monkeypatch.setattr(deltas, "AT_ONCE", 0)
    monkeypatch.setattr(shop.partition.staging, "apply", lambda: None)
    shop.send()
    shop.count()
    assert shop.partition.staging.settled() is None
    assert recount(shop, store_url) == 0
    assert capsys.readouterr().out.endswith("40 reports in 2 files, equal to the live tally\n")


def test_a_recount_without_an_archive(shop, store_url, capsys):
    """What is missing is named."""
    shop.send()
    shop.count(archive=False)
    assert main(["recount", "--redis-url", store_url, "--app", "shop"]) == 2
    assert "DENIABLE_ARCHIVE" in capsys.readouterr().err
    assert recount(shop, store_url) == 1
    assert "nothing of shop is archived" in capsys.readouterr().err


def test_a_partition_that_is_not_archived_is_missing(shop, store_url, capsys, monkeypatch):
    """What one partition counted before there was an archive is no part of the recount, but of the tally."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    assert shop.store.divide(2) == 2
    shop.send()
    shop.count(archive=False)
    (late,) = [each for each in shop.store.partitions if not each.strata("theme")]
    while not late.backlog():
        shop.send()
    shop.count()
    assert len(late.archived.names([shop.of()])) == 1
    assert recount(shop, store_url) == 1
    line = "theme version 1, 2026-11-21, segment none: 20 reports in 1 file, the live tally has {}, and differs\n"
    assert capsys.readouterr().out == line.format(20 * shop.sent)


@pytest.mark.cluster_too
def test_each_partition_has_its_own_files(shop, store_url, capsys, monkeypatch):
    """Each is mixed, recounted and erased by itself; the command tells of all of them together."""
    monkeypatch.setattr("deniable_aggregator.archive.executor.ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(2))
    assert shop.store.divide(3) == 3
    for _ in range(30):
        shop.send(20, shop.of())
    shop.count()
    shop.tidy(CLOSED + 1)
    partitions = shop.store.partitions
    assert len({each.archived.number() for each in partitions}) == 3
    assert [len(each.archived.names([shop.of()])[shop.of()]) for each in partitions] == [1, 1, 1]
    assert recount(shop, store_url) == 0
    line = "theme version 1, 2026-11-21, segment none: 600 reports in 3 files, equal to the live tally\n"
    assert capsys.readouterr().out == line
    assert archived_files.erase(shop.store, shop.archive, "theme", 2) == 0
    assert archived_files.erase(shop.store, shop.archive, "theme", None) == 3
    assert recount(shop, store_url, "--metric", "theme") == 1
    assert capsys.readouterr().out.count(": a file is not there\n") == 3
