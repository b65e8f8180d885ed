"""A worker that cannot use the store: one line says why and what to do, however often it tries."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import redis
from workers import running

from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.events import Events
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Partition, Store, errors, outage
from deniable_aggregator.store.outage import Outage


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


def wait(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


class Failures(Events):
    """Counts failed uses of the store."""

    def __init__(self):
        self.number = 0

    def failed(self):
        self.number += 1


def test_a_wrong_password_is_told_once(store, monkeypatch, caplog):
    """All threads of a worker try again and again, and one line says so; a second one says that the store can be used again."""

    def refuse(*_arguments):
        raise redis.AuthenticationError("WRONGPASS invalid username-password pair")

    monkeypatch.setattr(outage, "_CALM_SECONDS", 0)
    failures, url = Failures(), "redis://worker:secret@store.example:6379/0"
    chore = Chore("look", 0.0, lambda: store._client.ping() and None, Faults(store))
    worker = Worker([store], WorkerSettings(block_ms=10), chores=[chore], events=failures, outage=Outage(url))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "divide", refuse)
        patch.setattr(Partition, "join", refuse)
        with running(worker):
            wait(lambda: failures.number > 3)
            patch.undo()
            wait(lambda: "again" in caplog.messages[-1] and len(caplog.messages) > 1)
    assert caplog.messages == [
        (
            "the store at redis://store.example:6379/0 cannot be used: it refuses the user or the password. To mend that: "
            "DENIABLE_REDIS_URL, or --redis-url, names the user 'worker': correct it and start this process again, or let the "
            "store read its users.acl again. This worker goes on trying, and says so again in 10 minutes"
        ),
        "the store can be used again",
    ]


def test_an_outage_is_told_again_seldom_and_each_reason_by_itself(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(outage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    outage_of_two, away, login = Outage("redis://h/0"), redis.ConnectionError(), redis.AuthenticationError()
    for now[0], place, error in [
        (0, "a", away),
        (1, "a", away),
        (2, "b", away),
        (3, "a", login),
        (599, "a", away),
        (600, "a", away),
    ]:
        outage_of_two.failed(place, error)
    assert len(caplog.messages) == 4
    now[0] = 614
    outage_of_two.passed("a")  # it may fail again at once
    assert len(caplog.messages) == 4
    now[0] = 615
    outage_of_two.passed("a")
    outage_of_two.passed("a")
    assert caplog.messages[4:] == ["the store can be used again"]
    outage_of_two.failed("a", away)
    assert len(caplog.messages) == 6


def test_a_store_without_room_is_told_once_for_each_app(real_redis, monkeypatch, caplog):
    """Counting and chores of two apps try again and again; each app has one line, and their end has one."""
    monkeypatch.setattr(outage, "_CALM_SECONDS", 0)
    stores, failures, full = [Store(real_redis, app) for app in ("shop", "games")], Failures(), [True]

    def refuse(*_arguments):
        if full[0]:
            raise errors.NoRoom

    monkeypatch.setattr(Partition, "check_room", refuse)
    shared = Outage("redis://worker:secret@store.example:6379/0")
    chores = [Chore("copies", 0.0, refuse, Faults(store, failures, shared)) for store in stores]
    worker = Worker(stores, WorkerSettings(block_ms=10), chores=chores, events=failures, outage=shared)
    with running(worker):
        wait(lambda: failures.number > 4)
        full[0] = False
        wait(lambda: caplog.messages and "again" in caplog.messages[-1][-6:])
    *lines, last = caplog.messages
    assert sorted(lines) == [
        f"the store at redis://store.example:6379/0 cannot be used for {app}: it has no memory left. To mend that: make room "
        "first: https://deniable.github.io/deniable/how-to/operate/mend-the-store/#make-room. "
        "This worker goes on trying, and says so again in 10 minutes"
        for app in ("games", "shop")
    ]
    assert last == "the store can be used again"
    assert {record.app for record in caplog.records[:2]} == {"shop", "games"}


def test_no_advice_leads_back_to_where_one_is():
    """Whoever runs a command as the right user, whose rights the store lacks, is sent to the store's users."""
    forbidden = redis.exceptions.NoPermissionError()
    assert "run it as 'operator'" in errors.remedy(forbidden, "redis://worker:x@h/0", "operator")
    assert "load that file into the store anew" in errors.remedy(forbidden, "redis://operator:x@h/0", "operator")


def test_a_store_that_fails_and_works_in_turns_is_told_once(monkeypatch, caplog):
    """One that is full to the brim takes some uploads: that is no end of the outage."""
    now = [0.0]
    monkeypatch.setattr(outage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    brim = Outage(role="server")
    for now[0] in range(0, 300, 3):
        brim.failed("", errors.NoRoom())
        brim.passed("")
    assert len(caplog.messages) == 1


def test_a_store_that_becomes_a_replica_is_told_once(caplog):
    """It first unblocks whoever waits for reports, and then refuses writes: that is one cause."""
    unblocked = redis.ResponseError(
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
    )
    one = Outage("redis://h/0")
    for error in (unblocked, redis.ReadOnlyError("You can't write against a read only replica.")):
        assert errors.transient(error)
        one.failed("a", error)
    (line,) = caplog.messages
    assert "it is a replica. To mend that: name its primary" in line
