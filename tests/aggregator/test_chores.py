"""Chores: each is done when it is time to, and what fails of one holds up no other."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import redis

from deniable.commands.entry import main
from deniable.registry import published
from deniable.registry.tables import Publication
from deniable_aggregator.archive.folder import Folder
from deniable_aggregator.commands import worker
from deniable_aggregator.counting import chores, compilation, prometheus
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.events import Events
from deniable_aggregator.counting.faults import Faults, present
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.store import Store


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_it_is_done_at_once_and_then_now_and_again(store, clock):
    """However often the worker asks."""
    done = []
    chore = Chore("look", 600.0, lambda: done.append(clock[0]), Faults(store))
    for seconds in (0, 1, 598, 1, 1, 598):
        clock[0] += seconds
        assert not chore.do()
    assert done == [1000.0, 1600.0]


def test_none_is_tried_while_the_stores_user_may_not(store, monkeypatch):
    """Then it is done in the same thread."""
    monkeypatch.setattr(chores, "_LOOK_SECONDS", 0.0)
    stop, answers = threading.Event(), [True, True, False]
    chores.run([Chore("look", 600.0, stop.set, Faults(store))], Events(), print, stop, lambda: answers.pop(0))
    assert answers == []


@pytest.mark.parametrize(("trial", "looks"), [(True, 4), (False, 1)])
def test_reports_of_a_trial_show_in_status_as_soon_as_in_results(store, clock, monkeypatch, trial, looks):
    """Both are looked for every two seconds."""
    seen = []
    monkeypatch.setattr(Hourly, "run", lambda *_: seen.append("copies"))
    declared = SimpleNamespace(publication=Publication(trial=trial))
    every = {each.name: each for each in worker._Published(store, declared, Faults(store), None).chores()}
    monkeypatch.setattr(worker._Published, "registry", declared)
    monkeypatch.setattr(worker._Published, "publisher", SimpleNamespace(run=lambda: seen.append("publisher")))
    for _ in range(4):
        every["publisher"].do()
        every["copies"].do()
        clock[0] += 2
    assert seen == ["publisher", "copies"] * looks


@pytest.mark.parametrize(("options", "counted", "words"), [((), 0, ""), ((), 2, "counted 2 "), (("--burst",), 0, "counted 0 ")])
def test_a_worker_that_is_replaced_is_silent_if_it_has_counted_nothing(store_url, capsys, monkeypatch, options, counted, words):
    """As after an edit of the registry. A burst always says what became of it."""
    monkeypatch.setattr(worker, "_stop_on_signals", lambda: (threading.Event(), threading.Event()))
    monkeypatch.setattr(Worker, "run", lambda *_, **__: None)
    monkeypatch.setattr(Worker, "counted", counted)
    monkeypatch.setattr(compilation, "Compilation", lambda: SimpleNamespace(stop=lambda: None))
    assert main(["worker", "--redis-url", store_url, "--app", "shop", *options]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "put aside" in line]
    assert [line[: len(words)] for line in lines] == [words] * bool(words)


def test_one_in_pieces_goes_on_at_once(store, clock):
    """Until nothing is left of it; then it waits as long as any other."""
    left = [True, True, False, False]
    chore = Chore("delete", 600.0, lambda: left.pop(0), Faults(store))
    assert [chore.do() for _ in range(9)] == [True, True, *[False] * 7]
    assert left == [False]
    clock[0] += 601
    assert not chore.do()
    assert left == []


def test_what_fails_is_noted_until_it_passes(store, clock, caplog):
    """Under the name of the chore, without the text of the error."""
    faults = [ValueError("123 counts")]

    def run():
        if faults:
            raise faults.pop()

    chore = Chore("look", 600.0, run, Faults(store))
    assert not chore.do()
    assert "look failed (ValueError)" in caplog.text
    assert "123 counts" not in caplog.text
    assert present(store) == {"look": "ValueError"}
    clock[0] += 599
    chore.do()
    assert present(store) == {"look": "ValueError"}
    clock[0] += 1
    chore.do()
    assert present(store) == {}


@pytest.mark.parametrize(("every", "again"), [(3600.0, 60.0), (2.0, 2.0)])
def test_a_store_that_is_away_is_tried_again_soon(store, clock, every, again):
    """It holds up everything, and what was to be done is tried again within a minute."""
    tried = []

    def run():
        tried.append(clock[0])
        raise redis.ConnectionError

    chore = Chore("look", every, run, Faults(store))
    with pytest.raises(redis.ConnectionError):
        chore.do()
    clock[0] += again - 1
    assert not chore.do()
    clock[0] += 1
    with pytest.raises(redis.ConnectionError):
        chore.do()
    assert tried == [1000.0, 1000.0 + again]


def test_every_chore_of_the_worker_is_counted_from_the_start(store, registry_file, tmp_path):
    """At /metrics, by its name."""
    archive, loaded = Folder(str(tmp_path)), published.load_all(str(registry_file))
    both = {each: Faults(each) for each in (store, Store(store._client, "blog"))}
    one = {store: both[store]}
    assert {chore.name for chore in worker._chores(one, loaded, archive)} == set(prometheus._CHORES)
    assert "mixture" not in {chore.name for chore in worker._chores(one, loaded, None)}
    without = [chore.name for chore in worker._chores(both, {}, archive)]
    assert without == ["compaction", "departures", "departures"]
