"""deploy/backup.sh and restore.sh: a copy of a store that runs is what another one begins from, with all that was counted."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import threading
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import numpy as np
import pytest
from service import clean, end, spawn
from shipped import DEPLOY, Private, environment
from test_local import ready
from waiting import eventually

from deniable.commands.entry import main
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.process import running
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import embedded, snapshot
from deniable_aggregator.store.server.embedded import open_store
from deniable_server.access.key_file import KeyFile
from deniable_server.access.keys import KeyStore

LAYOUT = Layout(1, 3, "index")
STRATUM = Stratum("export.used", 1, "f" * 16, "2026-11-21", "")
DAY = 86_400

pytestmark = pytest.mark.skipif(shutil.which("redis-cli") is None, reason="no redis-cli on PATH")


class Place:
    """A store that is started with what is shipped, and a folder of copies of it.

    Parameters
    ----------
    folder
        For all of it.
    kind
        ``redis-server``, or ``wheel``.
    """

    def __init__(self, folder, kind) -> None:
        self.folder, self.copies = folder, folder / "copies"
        self.copies.mkdir()
        self.binary = shutil.which(kind) if kind == "redis-server" else embedded.find(None)[0]
        if self.binary is None:
            pytest.skip("no redis-server on PATH")
        self.private = Private(folder / "private")
        self.users = folder / "users.acl"
        self.users.write_text(self.private.path("private/users.acl").read_text() + "user watch on nopass ~* &* +@all\n")
        (folder / "valkey-cli").symlink_to(shutil.which("redis-cli"))

    def start(self, undo, data):
        data.mkdir(exist_ok=True)
        command = [self.binary, DEPLOY / "redis.conf", "--port", str(self.private.port), "--dir", data, "--aclfile", self.users]
        process = spawn(undo, self.folder / f"{data.name}.log", command, {})
        with self.client("operator") as client:
            assert eventually(lambda: ready(client))
        return process

    def client(self, user):
        return connect(environment(self.private.path(f"private/{user}.env"))["DENIABLE_REDIS_URL"])

    def run(self, script, *words, **env):
        """Run a script as its container does."""
        env = clean() | {"PATH": f"{self.folder}:{clean()['PATH']}"} | environment(self.private.path("private/backup.env")) | env
        return subprocess.run(["sh", DEPLOY / script, *words], env=env, capture_output=True, text=True, timeout=300, check=False)

    def held(self):
        """Return each key of the store with what it holds."""
        with connect(f"redis://watch:x@127.0.0.1:{self.private.port}/0") as client:
            return {key: client.dump(key) for key in client.scan_iter()}


@pytest.fixture(params=["redis-server", "wheel"])
def place(request, tmp_path):
    return Place(tmp_path, request.param)


def test_a_store_begins_from_the_copy_of_another(place):
    """Sums, batches that wait, what is remembered of uploads, and keys: all are there; what came later is not."""
    with ExitStack() as undo:
        process = place.start(undo, place.folder / "old")
        with closing(place.client("ingest")) as sending, closing(place.client("worker")) as counting:
            ingest, worker = Store(sending, "shop"), Store(counting, "shop")
            assert worker.partition("").commit("me", [], {STRATUM: np.array([5, 0, 7])}, 0) == []
            assert ingest.append(Upload(b"entry", key="one", remember=b"-", cap=10, ttl=3600)).outcome == "appended"
            with closing(place.client("operator")) as making:
                KeyStore(Store(making, "shop")).create("ingest", "")
            before = place.held()
            done = place.run("backup.sh", place.copies)
            assert (done.returncode, "took no note" in done.stderr) == (0, False), done.stderr
            with closing(place.client("query")) as looking:
                assert time.time() - snapshot.copies(looking).last < DAY
            assert ingest.append(Upload(b"entry", key="two", remember=b"-", cap=10, ttl=3600)).outcome == "appended"
        end(process)
        (copy,) = place.copies.iterdir()
        assert copy.stat().st_mode & 0o077 == 0
        (place.folder / "new").mkdir()
        done = place.run("restore.sh", place.copies, place.folder / "new")
        assert done.returncode == 0, done.stderr
        first, *again = done.stdout.splitlines()
        assert first == f"the store begins from {copy}"
        assert [line.partition("  ")[2].split("  ")[0] for line in again if line.startswith("  ")] == [
            "deniable keys revoke",
            "deniable erase",
            "deniable audit-log restored --files DIR",
            "deniable audit-log head",
        ]
        assert "make a copy now" in again[-2]
        process = place.start(undo, place.folder / "new")
        after = place.held()
        assert (after.pop(b"{deniable}:backup"), after) == (ANY, before)  # the note that the copy was begun
        with closing(place.client("ingest")) as sending, closing(place.client("worker")) as counting:
            ingest = Store(sending, "shop")
            assert Store(counting, "shop").read(LAYOUT, [STRATUM]).counts.tolist() == [[5, 0, 7]]
            assert ingest.backlog() == 1
            assert ingest.append(Upload(b"entry", key="one", remember=b"-", cap=10, ttl=3600)).outcome == "duplicate"
            assert ingest.append(Upload(b"entry", key="two", remember=b"-", cap=10, ttl=3600)).outcome == "appended"
        end(process)
        place.start(undo, place.folder / "new")  # and what came since the restore outlives the next start
        with closing(place.client("ingest")) as sending:
            assert Store(sending, "shop").backlog() == 2


def test_the_command_copies_what_the_script_does(place, capsys):
    """`deniable backup` needs no more than the user `backup` may, and its copy is one that a store begins from."""
    url = environment(place.private.path("private/backup.env"))["DENIABLE_REDIS_URL"]
    with ExitStack() as undo:
        process = place.start(undo, place.folder / "data")
        with closing(place.client("ingest")) as sending, closing(place.client("worker")) as working:
            ingest, worker = Store(sending, "shop"), Store(working, "shop")
            for name in ("one", "two"):
                assert ingest.append(Upload(b"entry", key=name, remember=b"-", cap=10, ttl=3600)).outcome == "appended"
            assert worker.partitions[0].commit("w", [], {STRATUM: np.array([1, 2, 3])}, 1) == []
        assert main(["backup", "--redis-url", url, "--to", str(place.copies)]) == 0
        with connect(environment(place.private.path("private/query.env"))["DENIABLE_REDIS_URL"]) as client:
            assert time.time() - snapshot.copies(client).last < DAY
        out = capsys.readouterr().out
        (copy,) = place.copies.iterdir()
        assert out.startswith(f"{copy}: {copy.stat().st_size:,} bytes\n")
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        before = place.held()
        assert before.pop(b"{deniable}:backup")
        end(process)
        (place.folder / "new").mkdir()
        assert place.run("restore.sh", place.copies, place.folder / "new").returncode == 0
        place.start(undo, place.folder / "new")
        after = place.held()
        assert (after.pop(b"{deniable}:backup"), after) == (ANY, before)  # the note that the copy was begun
        with connect(environment(place.private.path("private/query.env"))["DENIABLE_REDIS_URL"]) as client:
            assert snapshot.copies(client).begun
        with closing(place.client("ingest")) as sending:
            again = Upload(b"entry", key="one", remember=b"-", cap=10, ttl=3600)
            assert Store(sending, "shop").append(again).outcome == "duplicate"


def test_the_store_of_serve_is_copied_while_it_runs(tmp_path):
    """It is reached by its socket, is larger than a packet, and begins again from the copy; what came later is not in it."""
    copies, new = tmp_path / "copies", tmp_path / "new"
    with open_store(directory=tmp_path / "data") as store, connect(store.url) as client:
        client.mset({f"key {number}": os.urandom(1000) for number in range(3000)})
        before = {key: client.dump(key) for key in client.scan_iter()}
        assert main(["backup", "--redis-url", store.url, "--to", str(copies)]) == 0
        client.set("later", 1)
    assert stat.S_IMODE(copies.stat().st_mode) == 0o700
    new.mkdir(mode=0o700)
    subprocess.run(["sh", DEPLOY / "restore.sh", copies, new], check=True, timeout=300)
    with open_store(directory=new) as store, connect(store.url) as client:
        assert snapshot.copies(client).begun
        assert {key: client.dump(key) for key in client.scan_iter() if key != b"{deniable}:backup"} == before


def test_a_copy_of_serve_names_the_file_of_keys(tmp_path, capsys, monkeypatch):
    """The keys that `deniable serve` has drawn are in no copy of its store: the command says which file to copy as well."""
    monkeypatch.delenv("DENIABLE_REDIS_URL", raising=False)
    data = tmp_path / "data"
    with ExitStack() as undo:
        store = undo.enter_context(open_store(directory=data))
        undo.enter_context(running.keep(running.Running("", os.getpid(), {"DENIABLE_REDIS_URL": store.url}), data))
        command = ["backup", "--data", str(data), "--to", str(tmp_path / "copies")]
        assert main(command) == 0
        assert "keys.json" not in capsys.readouterr().out
        KeyFile(data).keys(["shop"])
        time.sleep(1)  # a name has whole seconds
        assert main(command) == 0
        assert f"it does not have {data / 'keys.json'}: copy that file, too" in capsys.readouterr().out


def test_old_copies_are_removed_if_that_is_asked_for(tmp_path):
    """Their names say how old they are; what has another name stays."""
    names = {f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H%M%SZ}.rdb": days for days in (2, 6, 8, 90)}
    for name in (*names, "other.rdb"):
        (tmp_path / name).write_text("x")
    with open_store() as store:
        command = ["backup", "--redis-url", store.url, "--to", str(tmp_path)]
        assert main(command) == 0
        assert {*names, "other.rdb"} < {path.name for path in tmp_path.iterdir()}
        assert main([*command, "--keep-days", "0"]) == 2
        time.sleep(1)  # a name has whole seconds
        assert main([*command, "--keep-days", "7"]) == 0
    left = {path.name for path in tmp_path.iterdir()}
    assert left & {*names, "other.rdb"} == {"other.rdb", *(name for name, days in names.items() if days < 7)}
    assert len(left) == 5


@pytest.mark.parametrize(
    "sent",
    [b"$9\r\nREDIS00", b"$EOF:" + b"a" * 40 + b"\r\nREDIS0011" + b"a" * 39, b"$8\r\nsomething", b"", b"-ERR no\r\n"],
)
def test_half_a_copy_is_none(tmp_path, sent, capsys, monkeypatch):
    """Whatever comes in place of a whole file, or of its end, leaves no file behind."""
    monkeypatch.setattr(snapshot, "begin", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                while received := connection.recv(4096):
                    if b"SYNC" in received:
                        connection.sendall(b"\n" + sent)
                        return
                    connection.sendall(b"+OK\r\n" * received.count(b"*"))

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0?protocol=2"
        assert main(["backup", "--redis-url", url, "--to", str(tmp_path)]) == 3
        thread.join()
    assert "it sent no whole copy" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_user_who_may_not_copy_is_told(place, capsys):
    """Nothing stays in the folder of a copy that failed, and the message has no password."""
    with ExitStack() as undo:
        place.start(undo, place.folder / "data")
        url = environment(place.private.path("private/worker.env"))["DENIABLE_REDIS_URL"]
        assert main(["backup", "--redis-url", url, "--to", str(place.copies)]) == 3
    assert "run it as 'backup'" in capsys.readouterr().err
    assert list(place.copies.iterdir()) == []
    cluster = "redis+cluster://backup:secret@a:6379,b:6379/0"
    assert main(["backup", "--redis-url", cluster, "--to", str(place.copies)]) == 2
    assert capsys.readouterr().err == (
        "deniable backup: backup copies one server: name each primary of a cluster by its own redis:// URL\n"
    )
    assert main(["backup", "--redis-url", "redis://127.0.0.1:9", "--to", str(place.copies)]) == 3
    assert list(place.copies.iterdir()) == []


def test_a_restore_says_where_it_has_no_folder(place):
    """A folder that is not there, or none, is named with what to do; half a restore from before is no obstacle."""
    copy = place.copies / "2026-11-21T031700Z.rdb"
    copy.write_bytes(b"REDIS0011")
    for words in ([place.copies, place.folder / "none"], [place.copies]):
        done = place.run("restore.sh", *words)
        assert (done.returncode, "is no folder. Name the store's" in done.stderr) == (2, True)
    (place.folder / "new" / "appendonlydir.new").mkdir(parents=True)
    assert place.run("restore.sh", place.copies, place.folder / "new").returncode == 0
    assert sorted(path.name for path in (place.folder / "new").iterdir()) == ["appendonlydir"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_restore_by_root_belongs_to_the_store(place):
    """What the store begins from has the owner of its folder, who is another user."""
    data = place.folder / "data"
    data.mkdir()
    os.chown(data, 12345, 23456)
    (place.copies / "2026-11-21T031700Z.rdb").write_bytes(b"REDIS0011rest")
    assert place.run("restore.sh", place.copies, data).returncode == 0
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in data.rglob("*")}
    assert owners == {(12345, 23456)}


def test_what_a_store_had_is_put_aside_once(place):
    """A restore removes nothing: the earlier data lie beside the new ones until somebody removes them."""
    data, copy = place.folder / "data", place.copies / "2026-11-21T031700Z.rdb"
    (data / "appendonlydir").mkdir(parents=True)
    (data / "appendonlydir" / "earlier").write_text("x")
    copy.write_bytes(b"REDIS0011rest")
    (place.copies / "2026-11-20T031700Z.rdb").write_bytes(b"REDIS0011older")
    assert place.run("restore.sh", place.copies, data).returncode == 0
    assert (data / "appendonlydir.replaced" / "earlier").read_text() == "x"
    assert (data / "appendonlydir" / "appendonly.aof.1.base.rdb").read_bytes() == copy.read_bytes()
    done = place.run("restore.sh", copy, data)
    assert done.returncode == 2
    assert "appendonlydir.replaced is there from an earlier restore" in done.stderr
    (place.folder / "no copy").write_text("text")
    for wrong in (place.folder / "no copy", place.folder / "gone", place.folder / "private"):
        done = place.run("restore.sh", wrong, data)
        assert (done.returncode, "needs a copy that backup.sh made" in done.stderr) == (2, True)


def test_a_small_copy_replaces_a_large_store_only_if_wanted(place):
    """A copy of an empty store beside a full append-only file is the wrong one: the data are in the file."""
    data, copy = place.folder / "data", place.copies / "empty.rdb"
    (data / "appendonlydir").mkdir(parents=True)
    (data / "appendonlydir" / "earlier").write_bytes(bytes(1000))
    copy.write_bytes(b"REDIS0011rest")
    done = place.run("restore.sh", copy, data)
    assert (done.returncode, "has 13 bytes" in done.stderr, "has 1000" in done.stderr) == (2, True, True)
    assert [path.name for path in data.iterdir()] == ["appendonlydir"]
    assert place.run("restore.sh", copy, data, "--smaller").returncode == 0
    assert (data / "appendonlydir.replaced" / "earlier").stat().st_size == 1000


def write_anew(client):
    """Have a store write its file of commands anew, which it does at once, or after the copy that it still makes."""
    client.bgrewriteaof()
    about = ("aof_rewrite_scheduled", "aof_rewrite_in_progress")
    assert eventually(lambda: not any(client.info("persistence")[each] for each in about))


def test_a_long_file_of_commands_does_not_make_a_copy_small(place):
    """Commands that came since the file was written anew are longer than what they leave: the copy is compared with that."""
    data = place.folder / "data"
    with ExitStack() as undo:
        process = place.start(undo, data)
        with closing(place.client("worker")) as counting, connect(f"redis://watch:x@127.0.0.1:{place.private.port}/0") as watch:
            partition = Store(counting, "shop").partition("")
            for segment in range(20):
                partition.commit("me", [], {STRATUM._replace(segment=str(segment)): np.array([5, 0, 7])}, 0)
            assert place.run("backup.sh", place.copies).returncode == 0
            write_anew(watch)
            for number in range(2000):
                partition.commit("me", [], {STRATUM: np.array([number, 0, 7])}, 0)
        end(process)
    (copy,) = place.copies.iterdir()
    (base,) = (data / "appendonlydir").glob("*.base.rdb")
    assert base.stat().st_size > 1000
    assert 10 * copy.stat().st_size < sum(path.stat().st_size for path in (data / "appendonlydir").iterdir())
    done = place.run("restore.sh", place.copies, data)
    assert done.returncode == 0, done.stderr


def test_a_copy_of_a_store_that_began_empty_does_not_resegmentwhat_it_had(place):
    """Whether its file was written anew or not: a copy of next to nothing is refused."""
    data = place.folder / "data"
    for anew in (False, True):
        with ExitStack() as undo:
            process = place.start(undo, data)
            with connect(f"redis://watch:x@127.0.0.1:{place.private.port}/0") as watch:
                if anew:
                    write_anew(watch)
                else:
                    watch.mset({f"key {number}": os.urandom(100) for number in range(100)})
            end(process)
        (base,) = (data / "appendonlydir").glob("*.base.rdb")
        assert (base.stat().st_size > 1000) is anew
        (place.copies / "empty.rdb").write_bytes(b"REDIS0011" + bytes(200))
        done = place.run("restore.sh", place.copies, data)
        assert (done.returncode, "has 209 bytes" in done.stderr) == (2, True)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")
@pytest.mark.parametrize("appendonly", ["yes", "no"])
def test_no_copy_is_restored_below_a_store_that_runs(place, appendonly):
    """A store that was started by whatever, and writes or not, is seen by the folder that it works in."""
    data, copy = place.folder / "data", place.copies / "one.rdb"
    data.mkdir()
    copy.write_bytes(b"REDIS0011" + bytes(200))
    command = ["redis-server", "--port", "0", "--unixsocket", "s", "--dir", str(data), "--appendonly", appendonly]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            eventually((data / "s").exists)
            done = place.run("restore.sh", copy, data)
        finally:
            process.kill()
    assert (done.returncode, f"as process {process.pid}: stop it first" in done.stderr) == (2, True)
    assert not (data / "appendonlydir.replaced").exists()
    assert place.run("restore.sh", copy, data).returncode == 0


def test_copies_expire_and_no_half_of_one_stays_for_a_whole(place):
    """Copies older than a week go with the next one; where no store answers there is none, and the failure is told."""
    old, recent, half = (place.copies / name for name in ("old.rdb", "recent.rdb", "old.rdb.part"))
    for path, days in ((old, 9), (recent, 2), (half, 9)):
        path.write_text("x")
        os.utime(path, (time.time() - days * DAY,) * 2)
    assert place.run("backup.sh", place.copies).returncode != 0
    assert {path.name for path in place.copies.glob("*.rdb")} == {"old.rdb", "recent.rdb"}
    with ExitStack() as undo:
        place.start(undo, place.folder / "data")
        assert place.run("backup.sh", place.copies).returncode == 0
    assert not old.exists()
    assert not half.exists()
    assert recent.exists()
    assert len(list(place.copies.glob("*.rdb"))) == 2


def test_a_cluster_is_not_copied_in_part(place):
    """Of a store of several servers nothing is copied, and it is said why."""
    done = place.run("backup.sh", place.copies, DENIABLE_REDIS_URL="redis+cluster://backup:secret@a:6379,b:6379/0")
    assert done.returncode == 2
    assert done.stderr == "backup.sh copies one store, redis://USER:PASSWORD@HOST:PORT/0 or rediss://, not redis+cluster://\n"
