"""Processes that use one store at once: the audit log, the budgets of analysts, connections after a fork, and outages."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
import redis
from machines import wait

from deniable.limits.allowance import MICRO
from deniable.registry.tables import Analysts
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.audit.files import files, rotate, verify
from deniable_aggregator.audit.log import AuditLog, Rotated
from deniable_aggregator.questions.budgets import Budgets
from deniable_aggregator.store import Store, Upload, connect, outage
from deniable_aggregator.store.outage import Outage

APPENDING = """
import sys
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.store import Store, connect

client = connect(sys.argv[1], timeout=600)
log = AuditLog(Store(client, "shop"))
client.rpush("ready", "1")
client.blpop("go", 300)
for number in range(int(sys.argv[2])):
    log.append("key.revoked", "command", {"id": f"{sys.argv[3]} {number}"})
"""


def test_many_processes_append_one_chain(store_url, real_redis):
    """However many append at once, nothing is lost, nothing is there twice, and the chain is whole."""
    count, appends = 4, 50
    command = [sys.executable, "-c", APPENDING, store_url, str(appends)]
    started = [subprocess.Popen([*command, str(process)]) for process in range(count)]
    try:
        wait(lambda: real_redis.llen("ready") == count, 300)
        real_redis.rpush("go", *range(count))
        assert [process.wait(300) for process in started] == [0] * count
    finally:
        for process in started:
            process.kill()
            process.wait()
    log = AuditLog(Store(real_redis, "shop"))
    verification = verify(log)
    assert (verification.entries, verification.number, verification.faults) == (count * appends, count * appends, ())
    logged = [intact_entry(line).details["id"] for line in stored(log)]
    assert sorted(logged) == sorted(f"{process} {number}" for process in range(count) for number in range(appends))
    for process in range(count):  # in the order of each
        assert [text for text in logged if text.startswith(f"{process} ")] == [f"{process} {number}" for number in range(appends)]


NOW = 1795290000


def stored(log):
    return log.store._client.lrange(log.key, 0, -1)


LOGGING = """
import sys
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.store import Store, connect

log = AuditLog(Store(connect(sys.argv[1], timeout=600), "shop"))
for number in range(int(sys.argv[2])):
    log.append("key.revoked", "command", {"id": str(number)})
"""


def test_a_log_is_rotated_and_verified_while_it_grows(store_url, real_redis, tmp_path):
    """Another process may append at any moment: no entry is lost, and no reader sees a break that is none."""
    log, folder, count = AuditLog(Store(real_redis, "shop")), tmp_path / "audit", 150
    writer = subprocess.Popen([sys.executable, "-c", LOGGING, store_url, str(count)])
    seen, done = [], threading.Event()

    def reader():
        while not done.is_set():
            try:
                seen.append(verify(AuditLog(Store(real_redis, "shop")), folder if folder.is_dir() else None))
            except Rotated:
                continue

    watching = threading.Thread(target=reader)
    watching.start()
    try:
        while writer.poll() is None:
            rotate(log, folder, NOW * 2)
        assert writer.returncode == 0
    finally:
        done.set()
        watching.join(300)
        writer.kill()
        writer.wait()
    verification = verify(log, folder)
    assert not verification.faults
    assert not [fault for each in seen for fault in each.faults]
    lines = [line for path in files(folder, "shop") for line in path.read_bytes().splitlines()] + stored(log)
    logged = [entry.details["id"] for entry in map(intact_entry, lines) if entry.event == "key.revoked"]
    assert logged == [str(number) for number in range(count)]


ASKING = """
import sys
from deniable.registry.tables import Analysts
from deniable.wire.report import Stratum
from deniable_aggregator.questions.budgets import PaidQuestion, Payer, Budgets, BudgetSpent
from deniable_aggregator.store import Store, connect

budgets = Budgets(Store(connect(sys.argv[1]), "shop"), Analysts())
payer = Payer(sys.argv[2] * 4, float(sys.argv[3]))
theme, spent = Stratum("theme", 1, "f00d", "2026-11-20", ""), 0
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    try:
        cost = 50_000 - int(sys.argv[2]) * (number % 2)
        question = PaidQuestion(theme, "2026-11", ((("linux",),),), cost - number // 2)
        spent += budgets.ask(payer, question, lambda: [0]).spent
    except BudgetSpent:
        pass
print(spent)
"""


@pytest.mark.both_stores
def test_processes_that_ask_at_once_spend_no_more_than_there_is(real_redis, store_url):
    """Each answer to the same and other questions at once is paid once, up to the app's budget and each key's own."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ASKING, store_url, str(1000 + number), "0.3" if number == 1 else "0.5"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    spent = [int(process.communicate(timeout=300)[0]) for process in processes]
    noted = Budgets(Store(real_redis, "shop"), Analysts()).spent()["2026-11"]
    assert sum(spent) == noted.pop("") == sum(noted.values())
    assert noted.get("1001" * 4, 0) <= 0.3 * MICRO  # nothing if the others were quicker
    assert 0.95 * MICRO < sum(spent) <= MICRO
    costs = [int(field.partition(b"|")[0]) for field in real_redis.hkeys("{shop}:answers:theme")]
    assert sum(costs) == sum(spent)


@pytest.mark.both_stores
def test_a_fork_asks_on_connections_of_its_own(store_url, real_redis):  # noqa: ARG001 - emptied
    """A child never sends on what its parent has, and the parent goes on with it."""

    def append(store):
        return store.append(Upload(b"entry", key="key", remember=b"-", cap=10, ttl=60)).outcome

    with connect(store_url) as client:
        stores = [Store(client, f"app-{number}") for number in range(2)]
        assert append(stores[0]) == "appended"
        child = os.fork()
        if not child:
            os._exit(append(stores[0]) != "duplicate" or append(stores[1]) != "appended")
        assert append(stores[0]) == "duplicate"
        assert os.waitpid(child, 0)[1] == 0
        assert append(stores[1]) == "duplicate"


def test_processes_of_a_server_speak_as_one(monkeypatch, tmp_path):
    """Of those that were forked from one that shares, one says each line; a later one of them says that it is over."""
    monkeypatch.setattr(outage, "_CALM_SECONDS", 0)
    outage.share()
    logged = tmp_path / "log"

    def live():
        log = logging.getLogger("deniable.server")
        log.handlers = [logging.FileHandler(logged)]
        mine = Outage(role="server")
        mine.failed("", redis.ConnectionError())
        return mine

    def end():
        live().passed("")

    for task in (live, live, end, end):
        child = os.fork()
        if not child:
            with suppress(BaseException):
                task()
            os._exit(0)
        os.waitpid(child, 0)
    outage.unshare()
    lines = logged.read_text("utf-8").splitlines()
    assert [line[:20] for line in lines] == ["the store cannot be ", "the store can be use"] * 2
