"""Commands as processes of their own: what they read, say and leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing

import forgery
import numpy as np
import pytest
from machines import wait
from workers import INDEX, ONE, send

from deniable import mechanisms, registry
from deniable.declared import Declared, fingerprint
from deniable.wire.report import Stratum
from deniable_aggregator.alarms import watcher
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.process import running
from deniable_aggregator.store import GROUP, Store, Upload, connect
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.deliveries import forget_dead


def test_a_reader_that_has_seen_enough(real_redis, store_url):
    """``deniable audit-log list | head`` is no damaged file: nothing is said, and the status is that of a closed pipe."""
    log = AuditLog(Store(real_redis, "shop"))
    for number in range(1000):  # more than a pipe holds
        log.append("key.created", "command", {"id": f"{number:016x}", "name": "n" * 100})
    command = [sys.executable, "-m", "deniable", "audit-log", "--redis-url", store_url, "--app", "shop", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "key.created" in process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


LOGGING = """
import logging, sys, threading
from deniable_aggregator.process.logs import LogSettings
logging.basicConfig(level=logging.DEBUG)
LogSettings("{level}", "json").apply()
log = logging.getLogger("some.library")
log.info("quiet")
log.warning("loud %d", "canary-argument")
log.warning("loud")
thread = threading.Thread(target=lambda: int("canary-thread"))
thread.start()
thread.join()
int("canary-end")
"""


@pytest.mark.parametrize(("level", "events"), [("warning", []), ("info", ["quiet"])])
def test_a_whole_process_logs_so(level, events):
    """All loggers of a process write lines of JSON from the level on; a bug is one too, without what it was about."""
    done = subprocess.run(
        [sys.executable, "-c", LOGGING.format(level=level)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    ends = [f"{what} ends because of a bug" for what in ("a thread", "the process")]
    assert [each["event"] for each in lines] == [*events, "loud", *ends]
    assert lines[-1].items() >= {"level": "critical", "exception": "ValueError"}.items()
    assert "canary" not in done.stderr


def test_the_names_of_the_server_need_no_flask():
    """A worker is installed without Flask, and knows what servers read all the same."""
    code = (
        "import sys\nsys.modules['flask'] = None\nfrom deniable_aggregator.process.variables import strays\n"
        "assert strays({'DENIABLE_METRICS_KEY': 'x'}) == []\nassert len(strays({'DENIABLE_METRICS_KEYS': 'x'})) == 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


KILLED = """
import os, sys
from pathlib import Path
from deniable_aggregator.process import running

with running.keep(running.Running("http://killed", 1, {}), Path(sys.argv[1])):
    os._exit(0)
"""


def test_what_a_killed_server_left_tells_of_nothing(tmp_path):
    """A server is found while it runs and not after it was killed; the next one takes its place."""
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], timeout=300, check=True)
    assert (tmp_path / "serving.json").exists()
    assert running.find(tmp_path) is None
    here = running.Running("http://here", 1, {"A": "b"})
    with running.keep(here, tmp_path):
        assert running.find(tmp_path) == here
    assert list(tmp_path.iterdir()) == []


def test_a_worker_goes_by_its_variables(monkeypatch, registry_file, start_store):
    """A worker without any flag counts the apps of the registry, and is stopped by a bad variable, by name."""
    url = start_store("server")
    with closing(connect(url)) as client:
        client.flushall()  # other tests use it, too
    environment = {
        "DENIABLE_REDIS_URL": url,
        "DENIABLE_REGISTRY": str(registry_file),
        "DENIABLE_LOG_FORMAT": "json",
        "DENIABLE_LOG_LEVEL": "info",
        "DENIABLE_WORKER_BATCHS": "7",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "deniable", "worker", "--burst"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    stray, counted = done.stderr.splitlines()
    assert "is DENIABLE_WORKER_BATCH meant?" in stray
    assert '"event": "counted 0 reports, put aside 0 batches"' in counted
    monkeypatch.setenv("DENIABLE_WORKER_BATCH", "none")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "DENIABLE_WORKER_BATCH = 'none': write a whole number" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("source", ["option", "environment", "none"])
def test_a_worker_process_looks_where_it_has_the_registry(real_redis, store_url, registry_file, source):
    """Given the registry by option or environment a worker raises alarms; without it, it only counts."""
    store, plugin = Store(real_redis, "shop"), registry.load(registry_file).metrics["plugin"]
    mechanism = mechanisms.of(plugin)
    honest = b"".join(mechanism.randomize(0) for _ in range(500))
    forged = forgery.maximal_gain(mechanism, [1, 3], 500, np.random.default_rng(4))
    stratum = Stratum("plugin", 1, fingerprint(plugin, mechanism.canonical), "2026-11-21", "")
    entry = batch.encode([Group(stratum, mechanism.layout, honest + forged)])
    store.append(Upload(entry, key="k", remember=b"-", cap=10, ttl=60))
    command = [sys.executable, "-m", "deniable", "worker", "--burst", "--redis-url", store_url, "--app", "shop"]
    environment = {name: value for name, value in os.environ.items() if name != "DENIABLE_REGISTRY"}
    if source == "option":
        command += ["--registry", str(registry_file)]
    if source == "environment":
        environment["DENIABLE_REGISTRY"] = str(registry_file)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "counted 1,000 reports" in done.stderr
    assert bool(watcher.alarms(store, [Declared.of(plugin).definition])) == (source != "none")
    assert ("alarm weight" in done.stderr) == (source != "none")


@pytest.mark.both_stores
def test_a_killed_worker_is_forgotten_by_one_that_lives(real_redis, store_url):
    """A worker that was killed with -9 leaves its name in the store; the next one to look takes it out, and only it."""
    store = Store(real_redis, "shop")
    (partition,) = store.partitions

    def consumers():
        return {consumer["name"].decode(): consumer for consumer in real_redis.xinfo_consumers(partition.stream, GROUP)}

    partition.join()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")}
    command = [sys.executable, "-m", "deniable", "worker", "--redis-url", store_url, "--app", "shop"]
    send(store, "a", b"\1\2")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait(lambda: store.read(INDEX, [ONE]).n == 2)
    process.kill()
    process.wait()
    (killed,) = consumers()
    forget_dead(store)
    assert list(consumers()) == [killed]  # an hour is not over
    send(store, "b", b"\1\2")
    real_redis.xreadgroup(GROUP, "killed later", {partition.stream: ">"})
    wait(lambda: all(consumer["idle"] > 100 for consumer in consumers().values()))
    forget_dead(store, idle=0.1)
    assert {name: consumer["pending"] for name, consumer in consumers().items()} == {"killed later": 1}
