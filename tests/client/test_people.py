"""People of a web app: each is a device, whose state the app keeps in one file, or in its Redis."""

from __future__ import annotations

import gc
import gzip
import json
import os
import sqlite3
import threading
import warnings
from collections import Counter
from datetime import UTC, datetime

import pytest
from registries import metric_toml, registry_toml
from senders import Fake

import deniable
from deniable import ConfigurationError, ParameterError, SenderSettings
from deniable.client.people import People
from deniable.device import people as device
from deniable.registry import parse
from deniable.testing import Capture

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC).timestamp()
KEY = "a key that nobody can guess"
THEMES = ["light", "dark", "system"]
REGISTRY = parse(
    registry_toml(
        metric_toml("theme", values=THEMES, period="month"),
        metric_toml("visits", period="month", per_period=200),
        metric_toml("kept", values=THEMES, epsilon=1.0, epsilon_permanent=2.0, period="day"),
        metric_toml("search", range=[0, 60], unit="s", estimate="mean", period="month"),
    )
)


class Dictionary:
    """A Redis of which `People` asks four commands. What its scripts do, it does."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def get(self, name):
        return self.values.get(name)

    def set(self, name, value, *, nx, px):
        assert nx
        assert px
        with self.lock:
            return self.values.setdefault(name, value) is value

    def eval(self, script, _number, *arguments):
        *names, token = arguments if script == device._RELEASE else arguments[:3]
        with self.lock:
            if self.values.get(names[-1]) != token:
                return 0
            del self.values[names[-1]]
            if script == device._WRITE:
                self.values[names[0]] = arguments[3]
                if not arguments[3]:
                    del self.values[names[0]]
            return 1


@pytest.fixture(params=["file", "redis"])
def store(request, tmp_path):
    return tmp_path / "store" if request.param == "file" else Dictionary()


@pytest.fixture
def people_of(tmp_path):
    """Make what a worker of the app has, and close it after the test."""
    workers = []

    def make(store, post=None, **options) -> People:
        defaults = {
            "dsn": "https://key@t.example/shop",
            "registry": REGISTRY,
            "key": KEY,
            "consent": lambda _: True,
            "state": tmp_path / "state",
            "settings": SenderSettings(flush_interval=60),
            "clock": lambda: NOW,
        }
        workers.append(People(store=store, post=post or Fake(), **(defaults | options)))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close(60)


def groups(post):
    """Return what was sent: the number of reports by metric, and their payloads."""
    bodies = [gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body for body, headers, _ in post.calls]
    return [group for body in bodies for group in json.loads(body)["groups"]]


def content(store) -> bytes:
    """Return every byte of a store."""
    if isinstance(store, Dictionary):
        return repr(store.values).encode()
    return b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())


def test_each_person_is_a_device(people_of, store):
    """Each reports once a month, in whichever worker, and whatever others did."""
    post = Fake()
    workers = [people_of(store, post) for _ in range(2)]
    queued = [worker.person(number).record("theme", "dark") for number in range(5) for worker in workers * 2]
    assert queued == [True, False, False, False] * 5
    assert all(worker.flush(60) for worker in workers[:1])
    assert Counter({group["metric"]: group["count"] for group in groups(post)}) == {"theme": 5}
    assert workers[1].stats()["dropped"] == {"this_period": 10}


def test_a_person_spends_within_the_budget(people_of, store):
    """The ledger is that of a device: each report is paid for by itself, and a new worker knows what was spent."""
    people = people_of(store)
    assert people.person("a").record("visits", value=True)
    assert people.person("a").record("visits", value=True)
    assert people.person("b").record("kept", "dark")
    assert people_of(store).person("a").spent()["lifetime"] == pytest.approx(2, abs=1e-4)
    assert people.person("b").spent()["lifetime"] > 2
    assert people.person("c").spent()["lifetime"] == 0


def test_many_workers_are_exact(people_of, store):
    """Whatever many threads and workers do at once, no person makes a report too many, and none too few."""
    workers = [people_of(store) for _ in range(3)]
    queued = []

    def work(worker) -> None:
        tries = [(metric, number) for number in range(8) for metric in ("theme", "kept") * 2]
        queued.extend(each for each in tries if worker.person(each[1]).record(each[0], "dark"))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(queued) == [(metric, number) for metric in ("kept", "theme") for number in range(8)]


def test_a_kept_answer_stays(people_of, store):
    """Another worker, on another day, reports from the same permanent response."""
    sent = []
    for day in range(3):
        people = people_of(store, clock=lambda day=day: NOW + 86_400 * day)
        assert people.person("a").record("kept", "dark")
        state = people._states.of("a")
        with state.transaction() as db:
            sent.append(db.execute("SELECT content FROM responses").fetchall())
    assert len(sent[0]) == 1
    assert sent[0] == sent[1] == sent[2]


def test_the_store_has_no_identifier_and_no_key(people_of, store, tmp_path, caplog):
    """Whoever gets the store knows neither who is in it, nor which kept answer is whose: what both follow from is elsewhere."""
    people = people_of(store)
    assert people.person("somebody@shop.example").record("kept", "dark")
    assert people.person("somebody@shop.example").record("theme", "an answer that nobody declared")
    secret = people._states.key.secret("somebody@shop.example")
    for folder in (content(store), content(tmp_path / "state")):
        assert b"somebody" not in folder
        assert KEY.encode() not in folder
        assert secret not in folder
        assert secret.hex().encode() not in folder
        assert b"dark" not in folder
        assert b"nobody declared" not in folder
    assert "somebody" not in caplog.text
    assert "nobody declared" not in caplog.text
    assert people._states.key.person("somebody@shop.example") != device.Key(KEY, "other").person("somebody@shop.example")
    assert people._states.key.person("a") != device.Key(KEY + "!", "shop").person("a")


def test_reports_of_one_person_are_not_linked(people_of, store):
    """A batch has the reports of all people in their order; its key is random, and nothing names whose they are."""
    post = Fake()
    people = people_of(store, post)
    for number in (2, 1, 3):
        for metric in ("theme", "kept"):
            assert people.person(number).record(metric, "dark")
    assert people.flush(60)
    assert [group["count"] for group in groups(post)] == [3, 3]
    assert {name for group in groups(post) for name in group} == {
        "metric", "version", "fingerprint", "period", "segment", "count", "payloads",
    }  # fmt: skip
    assert people.person(1).record("visits", value=True)
    assert people.flush(60)
    assert len(set(post.keys)) == 2
    assert not any(people._states.key.person(str(number)).hex()[:8] in key for key in post.keys for number in (1, 2, 3))


def test_each_person_agrees_by_themselves(people_of, store):
    """The app's function is asked at each record. A no, or an error, stops this person, and drops nothing of others."""
    agreed = {"a": True, "b": False}
    people = people_of(store, consent=agreed.__getitem__)
    assert [people.person(name).record("theme", "dark") for name in ("a", "b", "unknown")] == [True, False, False]
    agreed.update(a=False, b=True)
    assert [people.person(name).record("visits", value=True) for name in ("a", "b")] == [False, True]
    assert people.stats()["dropped"] == {"no_consent": 3}
    assert people.flush(60)
    assert people.stats()["sent"] == 2


def test_reports_wait_on_disk_until_the_server_is_there(people_of, store, tmp_path):
    """Also those of the first people of a new store: they have spent, so nothing of theirs may be lost."""
    once = SenderSettings(max_tries=1)
    people = people_of(store, Fake(*[503] * 9), settings=once, state=tmp_path / "queue" / "reports")
    for number in range(5):
        people.person(number).record("theme", "dark")
    people.flush(60)
    assert people.stats()["spooled"] == 5
    people.close(60)
    post = Fake()
    later = people_of(store, post, settings=once, state=tmp_path / "queue" / "reports")
    later.flush(60)
    assert len(post.calls) >= 1
    assert later.person(1).record("theme", "dark") is False  # it has answered in this period


def test_a_person_is_forgotten(people_of, store):
    """Nothing of the person is left, and others stay."""
    people = people_of(store)
    for name in ("a", "b"):
        assert people.person(name).record("kept", "dark")
    name = people._states.key.person("a")
    before = content(store)
    assert name in before or name.hex().encode() in before
    assert people.person("a").forget()
    after = content(store)
    assert name not in after
    assert name.hex().encode() not in after
    assert people.person("a").spent()["lifetime"] == 0
    assert people.person("b").spent()["lifetime"] > 0


@pytest.mark.parametrize("kind", [device.PeopleFile, lambda _: device.PeopleInRedis(Dictionary(), "shop")], ids=["file", "redis"])
def test_a_store_that_nobody_uses_is_closed(tmp_path, kind):
    """Python warns of what is left open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what other tests have left
        gc.collect()
    store = kind(tmp_path)
    desk = store.desk
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        desk.execute("SELECT 1")


@pytest.mark.parametrize("identifier", [None, ""])
def test_who_is_not_signed_in_is_nobody(people_of, tmp_path, identifier):
    people = people_of(tmp_path / "store")
    assert not people.person(identifier).record("theme", "dark")
    assert not people.person(identifier).forget()
    assert people.stats()["dropped"] == {"nobody": 2}
    with pytest.raises(deniable.ParameterError, match="identifier"):
        people_of(tmp_path / "store", strict=True).person(identifier).record("theme", "dark")


def test_a_block_of_a_person_is_timed(people_of, store):
    people = people_of(store)
    for _ in range(2):
        with people.person("a").timed("search"):
            pass
    assert people.stats()["recorded"] == 1


WINDOWS = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="an open file is not removed there")


@pytest.mark.parametrize("damage", ["content", pytest.param("file", marks=WINDOWS)])
def test_what_is_damaged_spends_nothing(people_of, tmp_path, damage):
    """A person whose state cannot be read makes no report, and others do; nobody does if the file is gone."""
    people = people_of(tmp_path / "store")
    for name in ("a", "b"):
        assert people.person(name).record("theme", "dark")
    if damage == "content":
        with people._states.store.transaction() as db:
            db.execute("UPDATE people SET content = '{}' WHERE person = ?", (people._states.key.person("a"),))
        assert [people.person(name).record("visits", value=True) for name in ("a", "b")] == [False, True]
    else:
        (tmp_path / "store" / "shop+people" / "state.db").unlink()
        assert [people.person(name).record("visits", value=True) for name in ("a", "c")] == [False, False]
        assert "was deleted" in people.stats()["trouble"]


def test_a_redis_that_does_not_answer_slows_nobody(people_of):
    """The first request finds that it is away. Others do not ask for ten seconds."""
    calls = []

    class Away:
        def set(self, *_arguments, **_options):
            calls.append(1)
            raise ConnectionError

        def eval(self, *_arguments):
            raise ConnectionError

    people = people_of(Away())
    assert [people.person(number).record("theme", "dark") for number in range(3)] == [False] * 3
    assert len(calls) == 1
    assert people.stats()["dropped"] == {"state": 3}


@pytest.mark.parametrize("metric", ["theme", "kept"])
def test_what_is_not_written_is_not_reported(people_of, store, monkeypatch, metric):
    """A worker whose person was taken over, or whose disk is full, makes no report: what it spends is durable, or nothing is."""
    people = people_of(store)
    if isinstance(store, Dictionary):
        monkeypatch.setattr(store, "eval", lambda *_: 0)
    else:
        assert people.person("other").record(metric, "dark")
        people._states.store._connect().execute("PRAGMA query_only = ON")
    assert not people.person("a").record(metric, "dark")
    assert people.stats()["dropped"] == {"state": 1}
    assert people.stats()["recorded"] == (not isinstance(store, Dictionary))


@pytest.mark.parametrize("key", ["short", b"", None])
def test_a_key_that_can_be_guessed_records_nothing(people_of, tmp_path, key):
    people = people_of(tmp_path / "store", key=key)
    assert not people.person("a").record("theme", "dark")
    assert "at least 16 bytes" in people.stats()["disabled"]
    assert "at least 16 bytes" in people.flush(1).why


def test_consent_is_a_function_of_each_person(people_of, tmp_path):
    """Anything else turns the client off, and says so; a capture says it at the first answer."""
    people = people_of(tmp_path / "store", consent=True)
    assert not people.person("a").record("theme", "dark")
    assert "consent must be a function of the identifier" in people.flush(1).why
    with pytest.raises(ConfigurationError, match="consent must be a function of the identifier"):
        people_of(tmp_path / "store", consent=True, strict=True)
    with Capture() as capture, pytest.raises(ConfigurationError, match="consent must be a function of the identifier"):
        people_of(tmp_path / "store", consent=True).person("a").record("theme", "dark")
    assert len(capture.faults) == 1


SPLIT = parse(
    registry_toml(
        metric_toml("theme", period="month"),
        metric_toml("split", segments=["version"], period="month"),
        segments={"version": ["1", "2"]},
    )
)


def test_an_app_has_segments(people_of, tmp_path):
    """Each report carries the app's own; without it the metric is off, which a capture says when it is recorded."""
    post = Fake()
    people = people_of(tmp_path / "store", post, registry=SPLIT, segments={"version": "2"})
    assert people.person("a").record("split", value=True)
    assert people.flush(60)
    assert [group["segment"] for group in groups(post)] == ["version=2"]
    with Capture() as capture:
        person = people_of(tmp_path / "other", registry=SPLIT).person("a")
        assert person.record("theme", value=True)
        assert not capture.faults
        with pytest.raises(ParameterError, match=r'the segment version is missing: pass segments=\{"version"'):
            person.record("split", value=True)


def test_the_log_speaks_of_people(people_of, tmp_path, caplog):
    """What to do is said in the words of a web app: it has no set_consent, and no state of a device."""
    people = people_of(tmp_path / "store", consent=lambda person: person != "b")
    for name in ("a", "a", "b"):
        people.person(name).record("theme", "dark")
    people._states.store._connect().execute("PRAGMA query_only = ON")
    people.person("c").record("theme", "dark")
    assert {line.split(": ")[2] for line in caplog.messages} == {"this_period", "no_consent", "state"}
    assert not [line for line in caplog.messages if "set_consent" in line or "the device has" in line]


def test_a_server_for_many_is_told(people_of, tmp_path, caplog):
    """Where one device has very many answers, the log says that it is one person; where people record, it does not."""
    client = deniable.Client(dsn="https://key@t.example/shop", registry=REGISTRY, consent=True, state=tmp_path, post=Fake())
    for _ in range(150):
        client.record("theme", "dark")
    client.close(60)
    assert [line for line in caplog.messages if "one device is one person" in line and "deniable.people" in line]
    caplog.clear()
    people = people_of(tmp_path / "store")
    for _ in range(150):
        people.person("a").record("theme", "dark")
    assert "one device" not in caplog.text
