"""Durability: each promise is checked against the store that has to keep it."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis

from deniable.errors import ConfigurationError
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.server.durability import Durability, _warn
from deniable_aggregator.store.uploads import together


@pytest.fixture(params=["redis-server", "wheel"])
def executable(request):
    """Name each server in turn; None is the wheel's."""
    if request.param == "wheel":
        return None
    program = shutil.which(request.param)
    if program is None:
        pytest.skip("no redis-server on PATH")
    return Path(program)


@pytest.fixture
def start(executable):
    """Start servers that keep a promise."""
    from contextlib import ExitStack

    with ExitStack() as running:

        def start(durability, **options):
            store = running.enter_context(embedded.open_store(executable=executable, durability=durability, **options))
            client = connect(store.url)
            running.callback(client.close)
            return client

        yield start


def append(store, key="k"):
    return store.append(Upload(b"entry", key=key, remember=b"answer", cap=10, ttl=60)).outcome


@pytest.mark.parametrize("actual", ["memory", "everysec", "always"])
@pytest.mark.parametrize("promised", ["memory", "everysec", "always"])
def test_a_store_must_keep_what_is_promised(start, actual, promised):
    """A store that keeps less is refused by name; one that keeps as much, or more, is taken."""
    client = start(actual)
    durability = Durability(promised)
    order = ["memory", "everysec", "always"]
    if order.index(actual) >= order.index(promised):
        durability.check(client)
        assert append(Store(client, "shop", durability)) == "appended"
    else:
        with pytest.raises(ConfigurationError, match=r"append(only yes|fsync)"):
            durability.check(client)
        with pytest.raises(redis.RedisError):
            append(Store(client, "shop", durability))
        assert client.exists("{shop}:reports") == 0


def test_a_store_that_forgets_is_refused(start):
    """Whatever is promised, a full store must refuse: an evicted key would be counted twice."""
    client = start("everysec")
    client.config_set("maxmemory-policy", "volatile-lru")
    for name in ("memory", "everysec", "always"):
        with pytest.raises(ConfigurationError, match=r"noeviction.*volatile-lru"):
            Durability(name).check(client)


def test_a_promise_that_cannot_be_seen_is_said(start, caplog):
    """A store that tells nothing of itself: `always` is refused, less is taken with a warning."""
    _warn.cache_clear()  # it is said once in a process
    client = start("everysec")
    client.execute_command("ACL", "SETUSER", "shy", "on", ">pw", "~*", "+@all", "-config", "-info")
    shy = redis.Redis(connection_pool=redis.ConnectionPool.from_url(url_of(client), username="shy", password="pw"))
    with caplog.at_level(logging.WARNING):
        Durability("everysec").check(shy)
    assert "appendfsync" in caplog.text
    with pytest.raises(ConfigurationError, match="cannot be seen"):
        Durability("always").check(shy)
    shy.close()


def url_of(client):
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def test_there_are_four_names():
    """Any other is refused with the four."""
    with pytest.raises(ConfigurationError, match="durability = 'sometimes': write memory, everysec, always or replicated"):
        Durability("sometimes")


def test_a_store_of_ones_own_has_no_replicas():
    """So it cannot promise any."""
    with pytest.raises(ConfigurationError, match="DENIABLE_REDIS_URL"):
        embedded.open_store(durability="replicated")


def test_replicated_needs_a_store_that_writes(start):
    """A replica alone is not enough: both machines may lose their power."""
    with pytest.raises(ConfigurationError, match="durability replicated needs a store that writes"):
        Durability("replicated").check(start("memory"))
    Durability("replicated").check(start("always"))


def test_always_survives_a_kill(executable):
    """What was appended, and answered to a copy of it, is there after the server was killed at once."""
    folder = Path("/tmp", f"d{time.monotonic_ns() % 10**9}")
    try:
        for round_ in range(3):
            server = embedded.open_store(directory=folder, executable=executable, durability="always")
            client = connect(server.url)
            store = Store(client, "shop", Durability("always"))
            assert store.backlog() == round_
            assert append(store, f"k{round_}") == "appended"
            assert store.recall(f"k{round_}", 60) == b"answer"
            assert append(store, f"k{round_}") == "duplicate"
            pid = client.info("server")["process_id"]
            client.close()
            subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pid)], check=True)
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_store_is_looked_at_again(start, monkeypatch):
    """If the store stops keeping its promise, uploads are refused from the next look on."""
    client = start("always")
    store = Store(client, "shop", Durability("everysec"))
    assert append(store) == "appended"
    client.config_set("appendonly", "no")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    with pytest.raises(redis.RedisError):
        append(store, "another")


def test_a_store_that_was_started_again_is_looked_at_before_an_upload(executable):
    """If it keeps less than before, not a single upload is appended, also if many are appended together."""
    folder = Path("/tmp", f"d{time.monotonic_ns() % 10**9}")
    try:
        with embedded.open_store(directory=folder, executable=executable, durability="everysec") as server:
            client = connect(server.url)
            store = Store(client, "shop", Durability("everysec"))
            assert append(store) == "appended"
        with embedded.open_store(directory=folder, executable=executable, durability="memory") as again:
            assert again.url == server.url
            uploads = [(store, Upload(b"entry", key=key, remember=b"answer", cap=10, ttl=60)) for key in ("b", "c", "d")]
            for sent in (uploads, uploads[:1], uploads):
                assert all("set appendonly yes" in str(each) for each in together.append(sent))
            assert client.exists("{shop}:reports") == 0
            client.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_memory_keeps_nothing(executable):
    """A server for `memory` writes nothing, even where it has a directory; the others come back with what they had."""
    for durability, left in (("memory", 0), ("everysec", 1), ("always", 1)):
        folder = Path("/tmp", f"d{time.monotonic_ns() % 10**9}")
        try:
            for expected in (0, left):
                with embedded.open_store(directory=folder, executable=executable, durability=durability) as server:
                    client = connect(server.url)
                    store = Store(client, "shop")
                    assert store.backlog() == expected
                    append(store)
                    client.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_configuration_for_production_keeps_the_default(executable, tmp_path):
    """A server started with deploy/redis.conf keeps `everysec`, evicts nothing and is reachable from this machine only."""
    if executable is None:
        executable, _ = embedded.find(None)
    configuration = Path(__file__).parents[3] / "deploy" / "redis.conf"
    path = Path("/tmp", f"r{time.monotonic_ns() % 10**9}.sock")
    command = [str(executable), str(configuration), "--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = connect(f"unix://{path}")
    try:
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        Durability("everysec").check(client)
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("bind")["bind"].startswith("127.0.0.1")
    finally:
        client.close()
        process.terminate()
        process.wait()


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here to see what the server asks of the disk")
def test_always_answers_after_the_disk(start, tmp_path):
    """Seen from outside, no upload is answered between its write to the file and the sync of it."""
    client = start("always")
    store = Store(client, "shop", Durability("always"))
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-s", "300", "-e", "trace=fdatasync,fsync,write,writev,sendto", "-o", trace, "-p"]
    tracer = subprocess.Popen([*command, str(client.info("server")["process_id"])], stderr=subprocess.PIPE, text=True)
    try:
        if "attached" not in (attached := tracer.stderr.readline()):
            pytest.skip(f"strace cannot be used: {attached}")
        for number in range(30):
            assert store.append(Upload(b"entry", key=str(number), remember=b"answer", cap=100, ttl=60)).outcome == "appended"
    finally:
        tracer.terminate()
        tracer.communicate()
    written = answered = False
    answers = 0
    for line in trace.read_text(errors="replace").splitlines():
        if "sync(" in line and "unfinished" not in line:
            written = False
        elif "XADD" in line:
            written = True
        elif "appended" in line:
            answers += 1
            answered = answered or written
    assert (answers, answered) == (30, False)
