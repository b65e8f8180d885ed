"""Workers with an archive are killed at every point of a commit, and as they mix files: what is named is what was counted."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from itertools import count as from_zero

import numpy as np
import pytest

from deniable import registry
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Partition, Store, Upload, connect
from deniable_aggregator.store.sums import deltas
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.archived import Archived
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.tally import set_bits

pytest.importorskip("pyarrow")
if sys.platform == "win32":
    pytest.skip("processes are forked", allow_module_level=True)

from deniable_aggregator.archive import mixture
from deniable_aggregator.archive.folder import Folder
from deniable_aggregator.archive.recount import count_files
from deniable_aggregator.deletion import archived_files

BITS, ROWS = Layout(1, 12, "bits"), Layout(16, 20, "bits")
LAYOUTS = {
    Stratum("one", 1, "e" * 16, "2020-01-01", ""): BITS,  # closed
    Stratum("two", 1, "d" * 16, "2099-01-01", "platform=linux"): ROWS,
}
REGISTRY = """
format = 1
app = "shop"

[metrics.three]
type = "boolean"
epsilon = 1.0
description = "Any"
owner = "core@shop.example"
"""
POINTS = {"file", "files", "commit", "mixed", "exchanged"}
INDEX = Stratum("three", 1, "c" * 16, "2020-01-01", "")


def payloads_of(layout, rng, n):
    rows, bits = rng.integers(0, layout.rows, n), rng.integers(0, 1 << layout.width, n)
    return b"".join(layout.pack(int(row), int(content)) for row, content in zip(rows, bits, strict=True))


def victim(url, archive, seed, rate, record):
    """Start a process that counts and mixes, and is killed at any step of either; return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        chance = random.Random(seed)

        def perhaps(point):
            if chance.random() < rate:
                os.write(record, f"{point}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

        def deadly(point, act, *arguments):
            done = act(*arguments)
            perhaps(point)
            return done

        write, commit, mix, exchange = Folder.write, Partition.commit, mixture.write, Archived.exchange
        Folder.write = lambda *arguments: deadly("file", write, *arguments)
        Partition.commit = lambda *arguments: (perhaps("files"), deadly("commit", commit, *arguments))[1]
        mixture.write = lambda *arguments: deadly("mixed", mix, *arguments)
        Archived.exchange = lambda *arguments: deadly("exchanged", exchange, *arguments)
        if chance.random() < 0.5:
            deltas.AT_ONCE, deltas._PIECE = 5, 4
        settings = WorkerSettings(batch=5, min_idle_ms=20, claim_every=0.0, max_deliveries=1000)
        with connect(url) as client:
            store, folder, declared = Store(client, "shop"), Folder(archive), registry.parse(REGISTRY)
            if store.partitions[0].archived.number() and chance.random() < 0.5:
                archived_files.ArchivedFiles(store, declared, Publisher(store, declared), folder).tidy(time.time())
            Worker([store], settings, archive=folder).run(threading.Event(), burst=True)
    finally:
        os._exit(0)


@pytest.mark.parametrize("uploads", [120, pytest.param(300, marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_what_is_named_is_what_was_counted(real_redis, store_url, tmp_path, monkeypatch, uploads):
    """Cell by cell, though workers died at each point, and left files behind that do not count."""
    monkeypatch.setattr(archived_files, "_LOST_SECONDS", 0.0)
    store, rng, sent, keys = Store(real_redis, "shop"), np.random.default_rng(1), Counter(), from_zero()

    def send():
        groups = [Group(INDEX, Layout(1, 5, "index"), b"\1\2")]
        for stratum, layout in LAYOUTS.items():
            n = int(rng.integers(1, 9))
            groups.append(Group(stratum, layout, payloads_of(layout, rng, n)))
            sent[stratum] += n
        appended = store.append(Upload(batch.encode(groups), key=str(next(keys)), remember=b"-", cap=10_000, ttl=60))
        assert appended.outcome == "appended"

    for _ in range(uploads):
        send()
    for layout in LAYOUTS.values():  # the processes need not compile it each for itself
        tally.count(layout, bytes(layout.payload_size))
        set_bits.count(layout, bytes(layout.payload_size))
    archive, path, numbers = str(tmp_path / "archive"), tmp_path / "record", from_zero()
    record = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    deadline = time.monotonic() + 300
    while store.backlog() or store.settled() is None:
        for pid in [victim(store_url, archive, next(numbers), 12 / uploads, record) for _ in range(2)]:
            os.waitpid(pid, 0)
        if set(path.read_text().split()) != POINTS:
            send()  # go on until somebody has died at each point
        time.sleep(0.02)
        assert time.monotonic() < deadline
    os.close(record)
    (partition,) = store.partitions
    folder = Folder(archive, partition.archived.number())
    names = partition.archived.names(list(LAYOUTS))
    for stratum, layout in LAYOUTS.items():
        counted = count_files(folder.url, folder.number, stratum, sorted(names[stratum])).tally
        assert counted == store.read(layout, [stratum])
        assert counted.n == sent[stratum]
    assert {each.name for each in folder.find()} > set().union(*names.values())
