"""Dead letters: looked at, given back exactly once, removed; and the commands that do it."""

from __future__ import annotations

import json
import threading

import pytest

from deniable.commands.entry import main
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, Upload
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.dead_letters import DeadLetters

pytestmark = pytest.mark.cluster_too

INDEX = Layout(1, 5, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
SECRET = b"\4\4\4\4\4\4\4\4"


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


@pytest.fixture
def letters(store):
    """Put aside one batch that can be counted, and one that cannot be read."""
    store.partitions[0].join()
    for key, body in enumerate([batch.encode([Group(ONE, INDEX, SECRET)]), b"unreadable " + SECRET]):
        store.append(Upload(body, key=str(key), remember=b"-", cap=10, ttl=60))
    for _, entries in store._client.xreadgroup("agg", "w", {store.partitions[0].stream: ">"}):
        for id_, _ in entries:
            assert store.partitions[0].bury("w", id_, "delivered more than 5 times")
    return DeadLetters(store)


def drain(store):
    Worker([store]).run(threading.Event(), burst=True)


@pytest.fixture
def dead_letters(store_url):
    """Run ``deniable dead-letters``."""
    return lambda *words: main(["dead-letters", "--redis-url", store_url, "--app", "shop", *words])


def test_letters_are_listed(letters):
    """Each has its reason, its size, and what it holds as far as it can be read."""
    first, second = letters
    assert len(letters) == 2
    assert (first.reason, first.reports) == ("delivered more than 5 times", 8)
    assert first.groups[0].stratum == ONE
    assert (second.size, second.reports, second.groups) == (19, 0, ())
    assert letters.get(first.id) == first
    assert letters.get("1-1") is None


def test_requeued_once(store, letters):
    """Given back, a batch is counted once, however often it is given back; it is no dead letter any more."""
    first, _ = letters
    threads = [threading.Thread(target=letters.requeue, args=(first.id, 10)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert letters.requeue(first.id, 10) == "missing"
    assert (store.backlog(), len(letters)) == (1, 1)
    drain(store)
    assert store.read(INDEX, [ONE]).n == 8


def test_a_full_backlog_takes_none_back(store, letters):
    """At the cap a dead letter stays where it is."""
    first, _ = letters
    assert letters.requeue(first.id, 0) == "full"
    assert (store.backlog(), len(letters)) == (0, 2)


def test_a_letter_without_a_batch_cannot_go_back(store, letters):
    """What holds nothing stays, to be purged."""
    id_ = store._client.xadd(store.partitions[0].dead, {"reason": "no body", "other": "x"}).decode()
    assert letters.requeue(id_, 10) == "empty"
    assert letters.get(id_).size is None


def test_requeued_behind_what_waits(store, letters):
    """A batch goes back behind the latest entry of the stream, whatever the clock says."""
    far = 4_102_444_800_000  # 2100
    store._client.xadd(store.partitions[0].stream, {"d": b"later"}, id=f"{far}-7")
    first, _ = letters
    assert letters.requeue(first.id, 10) == "requeued"
    assert [id_ for id_, _ in store._client.xrange(store.partitions[0].stream)][-1] == f"{far}-8".encode()


def test_commands_show_structure_only(letters, dead_letters, capsys):
    """`list` and `show` tell what is there, and nothing of a report."""
    first, second = letters
    assert dead_letters("list") == 0
    assert dead_letters("show", first.id) == 0
    assert dead_letters("show", second.id) == 0
    output = capsys.readouterr().out
    assert "one version 1" in output
    assert "8 reports, 1 x 5 index" in output
    assert "cannot be read" in output
    for secret in (SECRET.hex(), "unreadable", repr(SECRET)[2:-1]):
        assert secret not in output
    assert dead_letters("show", "1-1") == 1


def test_an_empty_list_says_so(store, dead_letters, capsys):
    """Where there is none the output is empty, for programs, and people are told."""
    store.divide()
    assert dead_letters("list") == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "no dead letters: every batch could be counted so far, or was removed\n")


def test_commands_give_back_and_remove(store, letters, dead_letters, capsys):
    """`requeue` and `purge` act on ids or on all, and the exit status tells what was not there."""
    first, second = letters
    assert dead_letters("requeue", first.id) == 0
    assert dead_letters("requeue", first.id) == 1
    assert store.backlog() == 1
    assert dead_letters("purge", second.id) == 0
    assert dead_letters("purge", second.id) == 1
    assert dead_letters("requeue", "--all") == 0
    assert len(letters) == 0
    assert "missing" in capsys.readouterr().out
    logged = [json.loads(line) for line in store._client.lrange("{shop}:audit", 0, -1)]
    events = [("letters.requeued", 8), ("letters.purged", 0)]
    assert [(entry["event"], entry["details"]["reports"]) for entry in logged] == events


@pytest.mark.parametrize("words", [["purge"], ["purge", "1-1", "--all"], ["show", "- +"]])
def test_commands_ask_for_ids(dead_letters, words, capsys):
    """Neither nothing nor everything by mistake; and an id is one."""
    assert dead_letters(*words) == 2
    assert "deniable dead-letters:" in capsys.readouterr().err


def test_a_store_that_is_away_is_status_three(capsys):
    """Whoever watches the exit status can tell."""
    for words in (["dead-letters", "list"], ["status"]):
        command, *options = words
        assert main([command, "--redis-url", "redis://127.0.0.1:1", "--app", "shop", *options]) == 3
    assert "cannot be used" in capsys.readouterr().err
