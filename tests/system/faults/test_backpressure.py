"""A store that is slow, full, read-only or away: refusals in time, nothing lost, and recovery without a restart."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

pytest.importorskip("flask")

import requests
from processes import in_time
from redis import RedisError


@pytest.fixture(scope="module")
def stage():
    """Start the service with room for five batches, on a store that writes every second."""
    from chaos import Stage
    from processes import servers

    with Stage(next(iter(servers().values())), "everysec", max_backlog=5) as stage:
        yield stage


@pytest.fixture
def empty(stage):
    """Empty the store, which is in good health."""
    stage.store._client.flushall()
    return stage


@pytest.fixture
def workers(empty):
    """Start one worker, which is to live as long as the test."""
    from processes import Workers

    workers = Workers(empty.url, empty.folder)
    workers.start(0, 0.0, 1)
    yield workers
    workers.stop()


def refused(stage, upload):
    """Send an upload that must be refused as the documentation says, and in time."""
    answer = in_time(lambda: stage.post(upload))
    assert answer.status_code == 503
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert int(answer.headers["Retry-After"]) > 0
    return answer.json()["code"]


def ready(stage):
    """Ask whether uploads would be taken, and if not, why the store would not take them."""
    answer = in_time(lambda: requests.get(f"http://127.0.0.1:{stage.outer.port}/readyz", timeout=300))
    return answer.status_code, answer.json()["parts"]["store"].get("reason")


def taken(stage, upload, seconds=120.0):
    """Send an upload until it is taken."""
    deadline = time.monotonic() + seconds
    while (answer := stage.post(upload)).status_code == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert answer.status_code == 202, answer.text
    upload.answered += 1


def counted(stage, uploads):
    """Wait until everything is counted, and compare."""
    from chaos import Run

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(RedisError):
            if not stage.store.backlog() and stage.store.settled() is not None:  # or a commit is added still
                break
        time.sleep(0.05)
    run = Run(0)
    stage.compare(run, uploads)
    assert run.faults == []
    assert run.accepted.total() > 0


class Out:
    """Of memory."""

    reason = "full"

    def begin(self, stage):
        stage.store._client.config_set("maxmemory", 1)

    def end(self, stage):
        stage.store._client.config_set("maxmemory", 0)


class ReadOnly:
    """As a replica is after a failover."""

    reason = "replica"

    def begin(self, stage):
        stage.store._client.replicaof("127.0.0.1", "1")

    def end(self, stage):
        stage.store._client.replicaof("NO", "ONE")


class FullDisk:
    """No file of the store can grow."""

    reason = "disk"

    def begin(self, stage):
        stage.redis.fill_disk(full=True)
        deadline = time.monotonic() + 120
        while stage.store._client.info("persistence")["aof_last_write_status"] == "ok" and time.monotonic() < deadline:
            with suppress(RedisError):
                stage.store._client.set("something", "to write")
            time.sleep(0.05)

    def end(self, stage):
        stage.redis.fill_disk(full=False)


class Away:
    """Its process is dead."""

    reason = "away"

    def begin(self, stage):
        stage.redis.kill()

    def end(self, stage):
        stage.redis.start()


class Slow:
    """It answers long after anybody waits for it."""

    reason = "away"

    def begin(self, stage):
        stage.inner.delay = 30.0

    def end(self, stage):
        stage.inner.delay = 0.0
        stage.inner.drop()


@pytest.mark.parametrize("trouble", [Out, ReadOnly, FullDisk, Away, Slow])
def test_refused_in_time_and_recovered_without_a_restart(empty, workers, trouble):
    """While the store cannot be used uploads get 503 in time; then the same processes take and count everything."""
    chance = random.Random(7)
    uploads = [empty.upload(chance) for _ in range(3)]
    taken(empty, uploads[0])
    before = empty.server_processes()
    bad = trouble()
    bad.begin(empty)
    try:
        assert refused(empty, uploads[1]) == ("store_full" if trouble is Out else "store_unavailable")
        assert ready(empty) == (503, bad.reason)
        time.sleep(0.5)  # the worker meets it as well
    finally:
        bad.end(empty)
    taken(empty, uploads[1])
    taken(empty, uploads[2])
    assert ready(empty) == (200, None)
    counted(empty, uploads)
    assert set(before) <= set(empty.server_processes())
    assert workers.alive() == 1


def test_a_full_backlog_refuses_and_trims_nothing(empty):
    """With nobody to count, the sixth batch is refused; once somebody counts, it is taken, and the first five are all there."""
    from processes import Workers

    chance = random.Random(8)
    uploads = [empty.upload(chance) for _ in range(6)]
    for upload in uploads[:5]:
        taken(empty, upload)
    assert refused(empty, uploads[5]) == "backlog_full"
    assert empty.store.backlog() == 5
    workers = Workers(empty.url, empty.folder)
    workers.start(0, 0.0, 1)
    try:
        taken(empty, uploads[5])
        counted(empty, uploads)
    finally:
        workers.stop()


def begin(stage, url=""):
    """Start a worker, and wait until it has joined."""
    from deniable_aggregator.store.uploads import health

    command = [sys.executable, "-m", "deniable", "worker", "--redis-url", url or stage.url, "--app", "shop"]
    others = health.read(stage.store).workers
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while health.read(stage.store).workers == others and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def end(process, seconds=120.0):
    """Wait for a worker and return its exit status and what it said."""
    try:
        _, complaints = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, complaints


def test_a_worker_told_to_stop_counts_what_it_has(empty):
    """SIGTERM under load: the exit status is 0, nothing is left in hand, and the worker is no longer listed."""
    from deniable_aggregator.store.uploads import health

    chance = random.Random(9)
    process = begin(empty)
    try:
        assert health.read(empty.store).workers == 1
        for _ in range(5):
            taken(empty, empty.upload(chance))
    finally:
        process.send_signal(signal.SIGTERM)
        status, complaints = end(process)
    assert (status, "counted" in complaints) == (0, True)
    state = health.read(empty.store)
    assert (state.pending, state.workers) == (0, 0)


def test_a_worker_whose_store_hangs_stops_in_time_and_says_so(empty):
    """SIGTERM while the store does not answer: the exit status is 3 within 25 s; a second signal makes it 1 at once."""
    from deniable_aggregator.commands import worker

    assert worker._STOP_SECONDS < 25
    url = f"{empty.url}?socket_timeout=3"  # and not ten
    patient, hasty = begin(empty, url), begin(empty, url)
    time.sleep(0.3)
    empty.redis.send(signal.SIGSTOP)
    try:
        for process in (patient, hasty):
            process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        hasty.send_signal(signal.SIGTERM)
        assert end(hasty)[0] == 1
        assert end(patient)[0] == 3
    finally:
        empty.redis.send(signal.SIGCONT)
        for process in (patient, hasty):
            process.kill()
            process.communicate()


def test_a_worker_told_wrong_things_does_not_start():
    """A URL that is none, or an option out of its range, is exit status 2, with the rule and without the URL."""
    command = [sys.executable, "-m", "deniable", "worker", "--app", "shop"]
    for options in (["--redis-url", "http://:secret@h"], ["--redis-url", "redis://127.0.0.1:1", "--claim-after", "0"]):
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 2
        assert "secret" not in done.stderr
        assert "Traceback" not in done.stderr
