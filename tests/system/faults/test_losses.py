"""What a store loses that is killed, whose machine dies or whose replica takes over: the end of what it was told, whole."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
from processes import Redis, preloaded, servers
from proxy import Proxy

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.sums import tallies
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "operate" / "back-up.md").read_text("utf-8")
INDEX = Layout(1, 40, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
UPLOADS = 40


def send(store, number):
    """Append an upload with one report, whose value is its number."""
    body = batch.encode([Group(ONE, INDEX, bytes([number]))])
    return store.append(Upload(body, key=str(number), remember=b"-", cap=1000, ttl=3600)).outcome


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
        known = [store.recall(str(number), 3600) is not None for number in range(UPLOADS)]
        assert known == sorted(known, reverse=True)  # a first part
        count(store)
        assert counted(store) == list(map(int, known))
        for number in range(UPLOADS):  # devices that were not answered send again, as some do that were
            assert send(store, number) == ("duplicate" if known[number] else "appended")
        count(store)
        assert counted(store) == [1] * UPLOADS
        seen.add(sum(known))
        server.kill()
    assert len(seen) > 3  # the cuts were at different places
    store._client.close()
    server.start()


LEVELS = {"memory": ("no", "everysec"), "everysec": ("yes", "everysec"), "always": ("yes", "always")}
EARLY = UPLOADS // 2


class Killed:
    """The store's process is killed, and started again."""

    keeps: ClassVar = {"memory": 0, "everysec": UPLOADS, "always": UPLOADS}

    def __init__(self, folder, options):
        self.environment = preloaded(folder, "synced") | {"SYNCED_FILE": str(folder / "synced")}
        (folder / "synced").write_bytes(bytes(8))
        self.folder, self.options, self.replica = folder, options, None
        self.primary = self.started("primary")

    def started(self, name, *more):
        (self.folder / name).mkdir()
        writes, fsync = self.options
        options = ("--appendonly", writes, "--repl-diskless-sync-delay", "0", *more)
        server = Redis(servers()["redis-server"], self.folder / name, fsync, self.environment, options)
        server.start()
        return server

    def before(self):
        """Do what comes between the early and the late uploads."""

    def __call__(self):
        """Do it; return the server that goes on."""
        self.primary.kill()
        self.primary.start()
        return self.primary

    def stop(self):
        for server in filter(None, (self.primary, self.replica)):
            server.kill()


class MachineDied(Killed):
    """The store's machine loses power: what was not synced is gone."""

    keeps: ClassVar = {"memory": 0, "everysec": None, "always": UPLOADS}

    def before(self):
        time.sleep(2.5)

    def __call__(self):
        self.primary.kill()
        for path in (self.folder / "primary").glob("appendonlydir/*.incr.aof"):
            with path.open("r+b") as file:
                file.truncate(int.from_bytes((self.folder / "synced").read_bytes(), sys.byteorder))
        self.primary.start()
        return self.primary


class Promoted(Killed):
    """The store is gone for good, and a replica takes over that had everything."""

    keeps: ClassVar = dict.fromkeys(LEVELS, UPLOADS)

    def __init__(self, folder, options):
        super().__init__(folder, options)
        self.proxy = Proxy(self.primary.port).__enter__()
        self.replica = self.started("replica", "--replicaof", "127.0.0.1", str(self.proxy.port))
        self.clients = [connect(f"redis://127.0.0.1:{each.port}") for each in (self.primary, self.replica)]
        deadline = time.monotonic() + 120
        while self.clients[1].info("replication")["master_link_status"] != "up" and time.monotonic() < deadline:
            time.sleep(0.05)

    def __call__(self):
        if not self.proxy.delay:
            assert self.clients[0].wait(1, 10_000) == 1
        self.primary.kill()
        self.proxy.drop()
        self.clients[1].replicaof("NO", "ONE")
        return self.replica

    def stop(self):
        self.proxy.__exit__()
        for client in self.clients:
            client.close()
        super().stop()


class LaggingPromoted(Promoted):
    """The same, of a replica that had not got the last of it."""

    keeps: ClassVar = dict.fromkeys(LEVELS, EARLY)

    def before(self):
        assert self.clients[0].wait(1, 10_000) == 1
        self.proxy.delay = 60.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss", [Killed, MachineDied, Promoted, LaggingPromoted])
def test_what_each_level_survives(tmp_path, loss, level):
    """As the table of docs/reference/durability.md says; what is lost is the end, whole, and can be sent and counted again."""
    done = loss(tmp_path, LEVELS[level])
    try:
        store = Store(connect(f"redis://127.0.0.1:{done.primary.port}"), "shop")
        for number in range(UPLOADS):
            if number == EARLY:
                count(store)
                done.before()
            assert send(store, number) == "appended"
        store._client.close()
        store = Store(connect(f"redis://127.0.0.1:{done().port}"), "shop")
        count(store)
        counts = counted(store) if store._client.exists(store.partitions[0].tallies.key(tallies.name(ONE))) else [0] * UPLOADS
        assert counts == sorted(counts, reverse=True)  # a first part, each once
        if done.keeps[level] is None:
            assert sum(counts) >= EARLY
        else:
            assert sum(counts) == done.keeps[level]
        assert [send(store, number) for number in range(UPLOADS)] == ["duplicate" if each else "appended" for each in counts]
        count(store)
        assert counted(store) == [1] * UPLOADS
        store._client.close()
    finally:
        done.stop()


def commands(marker, folder, **replaced):
    """Run the commands of the page that stand below a marker, with other words for some of theirs."""
    block = re.search(rf"<!-- {marker} -->\n *```sh\n(.*?)```", PAGE, re.DOTALL)[1]
    for word, other in replaced.items():
        assert word in block
        block = block.replace(word, other)
    subprocess.run(["sh", "-e", "-c", block], cwd=folder, check=True, timeout=120)


def test_a_backup_is_restored(tmp_path):
    """As the page says, with the rights that it names: a first part of the uploads comes back, counted or not, each once."""
    if not all(map(shutil.which, ("redis-server", "redis-cli", "redis-check-rdb"))):
        pytest.skip("no redis-server with its commands here")
    (tmp_path / "lost").mkdir()
    lost, restored = (Redis(servers()["redis-server"], tmp_path / name, "everysec") for name in ("lost", "restored"))
    copied = EARLY + 1
    try:
        lost.start()
        store = Store(connect(lost.url), "shop")
        rights = re.search(r"a user of the store with the rights `([^`]*)`", PAGE)[1].split()
        store._client.execute_command("ACL", "SETUSER", "copies", "on", ">secret", "-@all", *rights)
        for number in range(UPLOADS):
            assert send(store, number) == "appended"
            if number == EARLY // 2:
                count(store)
            if number == EARLY:
                here = f"redis-cli -h 127.0.0.1 -p {lost.port} --user copies --pass secret"
                commands("backup", tmp_path, **{"redis-cli -h store.example": here})
        count(store)
        store._client.close()
        lost.kill()
        commands("restore", tmp_path, **{"6390": str(free_port())})
        restored.start()
        store = Store(connect(restored.url), "shop")
        count(store)
        assert counted(store) == [1] * copied + [0] * (UPLOADS - copied)
        assert [send(store, number) for number in range(UPLOADS)] == ["duplicate"] * copied + ["appended"] * (UPLOADS - copied)
        count(store)
        assert counted(store) == [1] * UPLOADS
        store._client.close()
    finally:
        for server in (lost, restored):
            if server._process:
                server.kill()
