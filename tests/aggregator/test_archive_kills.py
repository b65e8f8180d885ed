"""Workers with an archive are killed at every point of a commit: the files that the store names are what was counted."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.counting.worker import Worker, WorkerSettings
from deniable_aggregator.store import Partition, Store, batch, connect, deltas
from deniable_aggregator.store.batch import Group
from deniable_aggregator.tally import set_bits

pytest.importorskip("pyarrow")
if sys.platform == "win32":
    pytest.skip("processes are forked", allow_module_level=True)

from deniable_aggregator.archive.folder import Folder
from deniable_aggregator.archive.recount import count_files

BITS, ROWS = Layout(1, 12, "bits"), Layout(16, 20, "bits")
LAYOUTS = {
    Stratum("one", 1, "e" * 16, "2026-11-21", ""): BITS,
    Stratum("two", 1, "d" * 16, "2026-11-21", "platform=linux"): ROWS,
}
INDEX = Stratum("three", 1, "c" * 16, "2026-11-21", "")


def drawn(layout, rng, n):
    rows, bits = rng.integers(0, layout.rows, n), rng.integers(0, 1 << layout.width, n)
    return b"".join(layout.pack(int(row), int(content)) for row, content in zip(rows, bits, strict=True))


def victim(url, archive, seed, rate, record):
    """Count in a process of its own, which is killed between two files, between the files and the commit, or after it."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        chance = random.Random(seed)

        def perhaps(point):
            if chance.random() < rate:
                os.write(record, f"{point}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

        write, commit = Folder.write, Partition.commit

        def deadly_write(self, *arguments, **options):
            name = write(self, *arguments, **options)
            perhaps("file")
            return name

        def deadly_commit(self, *arguments):
            perhaps("files")
            stale = commit(self, *arguments)
            perhaps("commit")
            return stale

        Folder.write, Partition.commit = deadly_write, deadly_commit
        if chance.random() < 0.5:
            deltas.AT_ONCE, deltas._PIECE = 5, 4
        settings = WorkerSettings(batch=5, min_idle_ms=20, claim_every=0.0, max_deliveries=1000)
        with connect(url) as client:
            Worker([Store(client, "shop")], settings, archive=Folder(archive)).run(threading.Event(), burst=True)
    finally:
        os._exit(0)


@pytest.mark.parametrize("uploads", [120, pytest.param(1500, marks=pytest.mark.campaign)])
def test_what_is_named_is_what_was_counted(real_redis, store_url, tmp_path, uploads):
    """Cell by cell, though workers died at each point, and left files behind that do not count."""
    store, rng, sent = Store(real_redis, "shop"), np.random.default_rng(1), Counter()
    for key in range(uploads):
        groups = [Group(INDEX, Layout(1, 5, "index"), b"\1\2")]
        for stratum, layout in LAYOUTS.items():
            n = int(rng.integers(1, 9))
            groups.append(Group(stratum, layout, drawn(layout, rng, n)))
            sent[stratum] += n
        assert store.append(batch.encode(groups), key=str(key), remember=b"-", cap=10_000, ttl=60).outcome == "appended"
    for layout in LAYOUTS.values():  # the processes need not compile it each for itself
        tally.count(layout, bytes(layout.payload_size))
        set_bits.count(layout, bytes(layout.payload_size))
    archive, record, number = str(tmp_path / "archive"), os.open(tmp_path / "record", os.O_CREAT | os.O_APPEND | os.O_WRONLY), 0
    rate = 12 / uploads if uploads > 1000 else 0.1
    while store.backlog() or store.settled() is None:
        number += 1
        victim(store_url, archive, number, rate, record)
        time.sleep(0.02)
        assert number < 1000
    os.close(record)
    assert set((tmp_path / "record").read_text().split()) == {"file", "files", "commit"}
    (partition,) = store.partitions
    folder = Folder(archive, partition.archived.number())
    for stratum, layout in LAYOUTS.items():
        names = partition.archived.names([stratum])[stratum]
        counted = count_files(folder.url, folder.number, [folder.path(stratum, name) for name in names])
        assert counted == store.read(layout, [stratum])
        assert counted.n == sent[stratum]
        assert {each.name for each in folder.find(stratum.metric)} > names
