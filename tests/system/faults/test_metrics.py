"""What a service of real processes counts of itself is right to the unit, whoever dies, and stays small."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from observed import WEB, observed, series
from processes import in_time

from deniable import registry
from deniable.registry import published
from deniable_aggregator.store.uploads import registries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")

SHOP = {"app": "shop"}
ACCEPTED = series("reports_accepted_total", **SHOP)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with observed(tmp_path_factory.mktemp("observed")) as running:
        yield running


def totals(numbers):
    return {each: value for each, value in numbers.items() if each[0].endswith("_total")}


def grown(before, after):
    return {each: after[each] - before.get(each, 0) for each in after if after[each] != before.get(each, 0)}


def kill(service, process):
    """Kill a process of the server, and wait for the one that takes its place."""
    before = service.web()
    os.kill(process, signal.SIGKILL)
    service.until(lambda: process not in service.web() and len(service.web()) == WEB)
    (new,) = set(service.web()) - set(before)
    with service.only(new):
        service.until(lambda: service.ask("/healthz") == 200)
    return new


def test_processes_count_together(service):
    """Each of two processes tells what both have counted, duplicates and refusals too."""
    before = totals(service.numbers())
    for number, process in enumerate(service.web()):
        with service.only(process):
            for _ in range(2 + number):
                assert service.upload(0, 1, 2) == 202
            assert service.upload(1, key="twice", payloads="AQ==") == 202  # the very same bytes
            assert service.upload(1, key="twice", payloads="Ag==") == 422
            assert service.upload(0, 1, version=9) == 422
    expected = {
        ACCEPTED: 3 * 5 + 1,
        series("uploads_total", **SHOP, code="accepted"): 6,
        series("uploads_total", **SHOP, code="duplicate"): 1,
        series("uploads_total", **SHOP, code="idempotency_mismatch"): 2,
        series("uploads_total", **SHOP, code="all_rejected"): 2,
        series("reports_rejected_total", **SHOP, code="unknown_version"): 4,
    }
    for process in service.web():
        with service.only(process):
            assert grown(before, totals(service.numbers())) == expected


def test_counts_outlive_the_processes_that_counted(service):
    """Nothing counted is lost when processes are killed or replaced, nothing falls, and the files are no more than before."""
    service.upload(0)
    last = totals(service.numbers())
    for _ in range(3):
        new = kill(service, service.web()[0])
        with service.only(new):
            assert totals(service.numbers()) == last
            assert service.upload(0, 1) == 202
        present = totals(service.numbers())
        assert grown(last, present) == {ACCEPTED: 2, series("uploads_total", **SHOP, code="accepted"): 1}
        last = present
    (service.folder() / "counter_99.db").touch()  # as a file is for a moment after its process has made it
    assert totals(service.numbers()) == last
    (service.folder() / "counter_99.db").unlink()
    files = sorted(path.name for path in service.folder().glob("*.db"))
    assert files == sorted(f"{kind}_{slot}.db" for kind in ("counter", "histogram") for slot in range(WEB))


def test_a_registry_with_faults_ends_no_server(service):
    """At SIGHUP processes say the fault and go on, and one that dies starts with the registry before; a good one is read."""
    text, processes = service.file.read_text("utf-8"), service.web()
    loaded = published.identity(service.registry)

    def agree(*, fault, digest):
        signs = registries.running(service.store)
        servers = [each for each in signs if each.role == "server" and int(each.process.rpartition(":")[2]) in service.web()]
        return len(servers) == WEB and all(bool(each.fault) == fault and each.digest == digest for each in servers)

    service.file.write_text(f"{text}\nx =", "utf-8")
    service.server.send_signal(signal.SIGHUP)
    service.until(lambda: agree(fault=True, digest=loaded))
    assert service.web() == processes
    kill(service, processes[0])
    assert service.upload(0, 1) == 202
    service.file.write_text(f"{text}\n# edited\n", "utf-8")
    service.server.send_signal(signal.SIGHUP)
    service.until(lambda: agree(fault=False, digest=published.identity(registry.load(service.file))))
    assert service.upload(0, 1) == 202
    assert len(set(processes) & set(service.web())) == WEB - 1  # no other process was started


def test_the_worker_counts_what_it_does(service):
    """Reports, batches, commits, dead letters and batches taken over from a worker that died are counted to the unit."""
    reports = series("worker_reports_counted_total", **SHOP)

    def all_counted():
        return service.worker_numbers()[reports] == service.numbers()[ACCEPTED]

    service.until(all_counted)
    before = service.worker_numbers()
    assert service.upload(0, 1, 2, 0) == 202
    assert service.upload(1) == 202
    service.until(all_counted)
    growth = grown(before, totals(service.worker_numbers()))
    assert growth[reports] == 5
    assert growth[series("worker_batches_counted_total", **SHOP)] == 2
    commits = series("worker_commit_duration_seconds_count", **SHOP)
    assert 1 <= service.worker_numbers()[commits] - before[commits] <= 2
    service.redis.xadd(service.store.partitions[0].stream, {"d": b"no batch"})
    service.until(lambda: service.worker_numbers()[series("worker_dead_letters_total", **SHOP)] == 1)
    assert service.numbers()[series("dead_letters", **SHOP)] == 1
    service.worker.send_signal(signal.SIGSTOP)
    try:
        assert service.upload(0, 1) == 202
        deadline = time.monotonic() + 120
        # The stopped worker may have asked for it before; then the entry is already in hand, and another is sent.
        while not service.redis.xreadgroup("agg", "ghost", {service.store.partitions[0].stream: ">"}):
            assert time.monotonic() < deadline
            assert service.upload(0, 1) == 202
    finally:
        service.worker.send_signal(signal.SIGCONT)
    service.until(all_counted)
    assert service.worker_numbers()[series("worker_takeovers_total", **SHOP)] >= 1


def test_a_store_that_is_away_is_told_in_time(service):
    """While the store does not answer, or is gone, a scrape says so within what Prometheus waits, and so does the worker's."""
    failures = series("worker_store_errors_total")
    before = service.worker_numbers()[failures]
    service.redis_server.send(signal.SIGSTOP)
    try:
        assert in_time(service.numbers)[series("store_up")] == 0
    finally:
        service.redis_server.send(signal.SIGCONT)
    service.redis_server.kill()
    numbers = service.numbers()
    assert numbers[series("store_up")] == 0
    assert numbers[ACCEPTED] > 0
    service.until(lambda: service.worker_numbers()[failures] > before)
    service.redis_server.start()
    service.until(lambda: service.numbers()[series("store_up")] == 1)


def test_nothing_is_left_of_a_server_that_ends(service):
    """The place where processes count is private, and goes with the server."""
    folder = service.folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    service.server.terminate()
    service.server.wait(120)
    assert not folder.exists()


def worker(*arguments, **environment):
    command = [sys.executable, "-m", "deniable", "worker", "--redis-url", "redis://127.0.0.1:1", "--app", "shop", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")} | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_a_worker_whose_address_is_taken_does_not_start():
    """An address that is taken ends the start with status 2 and is named, whether by flag or by variable."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        for done in (worker("--metrics-bind", bind), worker(DENIABLE_METRICS_BIND=bind)):
            assert done.returncode == 2
            assert f"--metrics-bind {bind}: it is taken; give another address" in done.stderr
            assert "Traceback" not in done.stderr
