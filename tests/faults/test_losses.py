"""What a store that writes every second loses when its machine dies: the end of what it was told, each thing whole."""

from __future__ import annotations

import random
import shutil
import threading

import pytest
from processes import Redis, servers

from deniable.layout import Layout
from deniable.report import Stratum
from deniable_aggregator import batch
from deniable_aggregator.batch import Group
from deniable_aggregator.store import Store, connect
from deniable_aggregator.worker import Worker, WorkerSettings

INDEX = Layout(1, 40, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
UPLOADS = 40


def send(store, number):
    """Append an upload with one report, whose value is its number."""
    body = batch.encode([Group(ONE, INDEX, bytes([number]))])
    return store.append(body, key=str(number), remember=b"-", cap=1000, ttl=3600).outcome


def count(store):
    # Also what a worker had in hand whose commit was lost.
    settings = WorkerSettings(batch=4, min_idle_ms=1, claim_every=0.0)
    Worker([store], settings).run(threading.Event(), burst=True)


def counted(store):
    return store.read(INDEX, [ONE]).counts[0].tolist()


@pytest.fixture(params=["redis-server", "wheel"])
def server(request, tmp_path):
    """Start each server in turn."""
    if request.param not in servers():
        pytest.skip(f"no {request.param} here")
    server = Redis(servers()[request.param], tmp_path, "everysec")
    server.start()
    yield server
    server.kill()


def test_the_end_is_lost_whole(server, tmp_path):
    """Cut off anywhere, the file has a first part of the uploads, each with its key, and each counted once in the end."""
    store = Store(connect(f"redis://127.0.0.1:{server.port}"), "shop")
    for number in range(UPLOADS):
        assert send(store, number) == "appended"
        if number % 5 == 4:
            count(store)
    server.kill()
    shutil.copytree(tmp_path / "appendonlydir", tmp_path / "whole")
    chance, seen = random.Random(11), set()
    for _ in range(12):
        shutil.rmtree(tmp_path / "appendonlydir")
        shutil.copytree(tmp_path / "whole", tmp_path / "appendonlydir")
        (path,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
        with path.open("r+b") as file:
            file.truncate(chance.randrange(path.stat().st_size))
        server.start()
        kept = [store.recall(str(number)) is not None for number in range(UPLOADS)]
        assert kept == sorted(kept, reverse=True)  # a first part
        count(store)
        assert counted(store) == list(map(int, kept))
        for number in range(UPLOADS):  # devices that were not answered send again, as some do that were
            assert send(store, number) == ("duplicate" if kept[number] else "appended")
        count(store)
        assert counted(store) == [1] * UPLOADS
        seen.add(sum(kept))
        server.kill()
    assert len(seen) > 3  # the cuts were at different places
    store.redis.close()
    server.start()
