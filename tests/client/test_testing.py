"""What `deniable.testing` gives the tests of apps: raw answers of the test alone, and a server to send to."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
import requests
from registries import metric_toml, registry_toml

import deniable
from deniable import Budget, Caps, Client, ConfigurationError, ParameterError, RegistryError, SenderSettings
from deniable.commands import entry as cli
from deniable.messages.reasons import ANSWERS, LATER
from deniable.process.clock import now
from deniable.registry import parse
from deniable.testing import Attempt, Capture, Captured, Clock, StubServer, make_due
from deniable.transport.dsn import Dsn

ONCE = ANSWERS["this_period"].words()
SEGMENTS = {"platform": "linux"}
QUICK = SenderSettings(flush_at=1, flush_interval=0.2, timeout=60)


@pytest.fixture
def capture():
    """Capture in a test, without the plugin and any registry."""
    with Capture(lenient=True) as opened:
        yield opened


def pairs(capture):
    """Return metric and value of all answers."""
    return [(each.metric, each.value) for each in capture.answers]


@pytest.fixture
def registry_file(tmp_path, registry_text):
    """Write the registry of the tests."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text, "utf-8")
    return path


@pytest.fixture(autouse=True)
def before_init(monkeypatch):
    """Each test begins as a process does."""
    monkeypatch.setattr(deniable, "_client", None)


# the capture


def test_an_app_that_never_calls_init(capture):
    """Without `init` and without a registry a lenient capture takes everything as it was given, in order."""
    assert deniable.record("ui.theme", "dark") is True
    assert deniable.metric("size").record(7)
    assert deniable.record("ui.theme", None)
    assert capture.values("ui.theme") == ["dark", None]
    assert capture.values("nothing") == []
    assert pairs(capture) == [("ui.theme", "dark"), ("size", 7), ("ui.theme", None)]
    assert isinstance(capture.answers[0], Captured)
    capture.clear()
    assert capture.answers == []


def test_an_app_that_calls_init_in_the_test(capture, registry_file, state_directory, monkeypatch):
    """`init` in the test needs no server, writes nothing, starts nothing, and is undone at the end."""
    monkeypatch.setenv("DENIABLE_DSN", "https://pk@nowhere.invalid/other")
    before = threading.active_count()
    client = deniable.init("https://pk@nowhere.invalid/shop", registry=registry_file, consent=True, segments=SEGMENTS)
    assert deniable.record("ui.theme", "dark")
    assert client.record("ui.dark", value=True)
    assert deniable.flush()
    assert asyncio.run(deniable.aflush())
    assert asyncio.run(client.aflush(timeout=1.0))
    assert client.flush(timeout=1.0)
    assert client.close(timeout=1.0)
    assert deniable.close()
    assert deniable.explain("ui.theme").mechanism
    assert deniable.journal() == []
    assert deniable.stats()["recorded"] == 0
    deniable.set_consent(True)
    assert deniable.record("ui.theme", "light")
    assert [each.segments for each in capture.answers] == [{"platform": "linux"}, {}, {"platform": "linux"}]
    assert pairs(capture) == [("ui.theme", "dark"), ("ui.dark", True), ("ui.theme", "light")]
    assert threading.active_count() == before
    assert not state_directory.exists()
    assert os.environ["DENIABLE_DSN"]
    capture.__exit__(None, None, None)
    assert deniable._client is None
    assert deniable.record("ui.theme", "dark") is False


def test_an_app_that_was_there_before(registry, tmp_path):
    """Clients and handles made before the capture are captured, and afterwards they are as before, in every respect."""
    sent = []

    def post(body, _headers, _timeout):
        sent.append(body)
        return 202, {}, {}

    options = {"registry": registry, "consent": True, "segments": SEGMENTS, "settings": QUICK, "state": tmp_path / "kept"}
    with Client(dsn="https://pk@t.example/shop", post=post, **options) as client:
        handle = client.metric("ui.theme")
        methods = {name: getattr(Client, name) for name in ("__init__", "record", "set_consent", "flush", "aflush", "close")}
        with Capture() as capture:
            assert client.record("ui.theme", "dark")
            assert handle.record("light")
            assert client.flush(0.1)
            assert client.close(0.1)
            client.set_consent(False)
            client.set_consent(True)
        assert capture.values("ui.theme") == ["dark", "light"]
        assert methods == {name: getattr(Client, name) for name in methods}
        assert client.stats()["recorded"] == 0
        assert not (tmp_path / "kept").exists()
        assert handle.record("dark")  # it was not closed for good
        assert client.flush(60)
    assert capture.values("ui.theme") == ["dark", "light"]
    assert len(sent) == 1


def test_the_process_client_that_was_there_before(registry):
    """A client started by `init` before is the one that captures, and checks."""
    client = deniable.init(registry=registry, consent=True, segments=SEGMENTS)
    with Capture() as capture:
        assert deniable.record("ui.theme", "dark")
        with pytest.raises(ParameterError):
            deniable.record("ui.theme", "pink")
        deniable.init(registry=registry, consent=True, segments=SEGMENTS)
        assert deniable._client is not client
    assert deniable._client is client
    assert capture.values("ui.theme") == ["dark"]


@pytest.mark.parametrize(
    ("metric", "value", "message"),
    [
        ("ui.thme", "dark", "'ui.thme' is not declared in the registry; did you mean 'ui.theme'"),
        (
            "ui.theme",
            "dork-4711",
            "'dork-4711' is not declared: an answer to ui.theme must be one of the 3 declared values: light, dark, system",
        ),
    ],
)
def test_what_is_not_declared_fails(registry, metric, value, message):
    """An undeclared metric or answer raises, and is kept as a fault with the line that recorded it, and what was recorded."""
    with Capture(registry) as capture:
        for record in (lambda: deniable.record(metric, value), lambda: deniable.metric(metric).record(value)):
            with pytest.raises(ParameterError, match=message):
                record()
        assert capture.answers == []
        assert len(capture.faults) == 2
        assert all(fault.startswith(f"{__file__}:") and message in fault for fault in capture.faults)
        capture.clear()
        assert capture.faults == []


def test_no_registry_is_known(registry):
    """Nothing passes unchecked without a word: what to do is said, and it is a fault."""
    with Capture() as capture:
        with pytest.raises(ConfigurationError, match="no registry is known, so nothing can be checked: set deniable_registry = "):
            deniable.record("ui.theme", "dark")
        assert len(capture.faults) == 1
        assert capture.values("ui.theme") == []
        assert Client(registry=registry, consent=True, segments=SEGMENTS).record("ui.theme", "dark")
        assert capture.values("ui.dark") == []


def test_a_client_that_an_earlier_test_left(registry):
    """Its consent holds, but what is checked against is the capture's own registry."""
    deniable.init(registry=parse(NUMBERS), consent=False)
    with Capture(registry) as capture:
        assert deniable.record("ui.theme", "dark") is False
        deniable.set_consent(True)
        assert deniable.record("ui.theme", "dark")
        with pytest.raises(ParameterError, match="'mood' is not declared"):
            deniable.record("mood", "fair")
    assert capture.values("ui.theme") == ["dark"]


def test_consent_that_is_neither_yes_nor_no(registry):
    """The line of the capture says what was passed, as the log of a device does."""
    deniable.init(registry=registry, consent="yes")
    with Capture(registry) as capture:
        assert deniable.record("ui.theme", "dark") is False
    (line,) = capture.without_consent
    assert "nobody has agreed, so nothing is recorded (consent is the text 'yes', which is taken for a no: pass True or" in line


def test_a_number_beyond_the_range():
    """It is captured and listed, and pytest shows a warning with the line of the app. A block may take any time."""
    numbers = registry_toml(
        metric_toml("size", range=[1, 100], unit="kB", estimate="mean"),
        metric_toml("wait", range=[5000, 6000], unit="h", estimate="mean"),
    )
    with Capture(parse(numbers)) as capture:
        with pytest.warns(UserWarning, match="size: 3210000 is beyond the range, 1 to 100 kB: the nearer end") as caught:
            assert deniable.record("size", 3210000)
        assert [warning.filename for warning in caught] == [__file__]
        assert deniable.record("size", 100)
        with deniable.timed("wait"):
            pass
        assert [each.metric for each in capture.clipped] == ["size", "wait"]
        assert capture.values("size") == [3210000, 100]
        capture.clear()
        assert capture.clipped == []


def test_a_typo_in_the_test_itself(registry):
    """Values of what is not declared are an error: a test that expects none would pass for ever."""
    with Capture(registry) as capture:
        assert capture.values("ui.theme") == []
        with pytest.raises(ParameterError, match=r"'ui\.thme' is not declared in the registry; did you mean 'ui\.theme'\?"):
            capture.values("ui.thme")


def test_an_answer_that_is_reported_as_other():
    """The fault says what a device reports instead, and how a test takes it. A number asks for the text that has it."""
    declared = (
        'values = ["news", "1.5x", "something else"]\nother = "something else"\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    )
    with Capture(parse(f'format = 1\napp = "shop"\n[metrics.feeds]\ntype = "set"\n{declared}')) as capture:
        for answer, words in [
            (["news", "cooking"], r"'cooking' is not declared: .* A device reports 'something else' instead. If you"),
            (["newss"], r"did you mean 'news'\? A device reports 'something else' instead"),
            ([1.5], r"^1.5 is not declared: .*; did you mean '1.5x'\?"),
            ([2.5], r"^2.5 is not declared: (?!.*did you mean)"),
        ]:
            with pytest.raises(ParameterError, match=words):
                deniable.record("feeds", answer)
        capture.lenient = True
        assert deniable.record("feeds", ["news", "cooking"])
        assert capture.values("feeds") == [["news", "cooking"]]


def test_lenient(registry):
    """A lenient capture takes what nobody declared, also from a client whose registry has faults."""
    with Capture(registry, lenient=True) as capture:
        assert deniable.record("ui.thme", "dark")
        client = Client(registry="/nowhere/metrics.toml", consent=True)
        assert client.record("ui.theme", 3)
        assert pairs(capture) == [("ui.thme", "dark"), ("ui.theme", 3)]
        assert capture.faults == []


def test_a_registry_with_faults_fails(registry):
    """A registry that would switch the client off in production raises in a test; a missing segment where it counts."""
    with Capture() as capture:
        with pytest.raises(RegistryError):
            deniable.init(registry="/nowhere/metrics.toml", consent=True)
        deniable.init(registry=registry, consent=True)
        with pytest.raises(ParameterError, match='"platform": "linux"'):
            deniable.record("ui.theme", "dark")
        assert len(capture.faults) == 1
        with pytest.raises(TypeError):
            deniable.init(registry=registry, consent=True, segment=SEGMENTS)
    assert capture.answers == []


def test_consent(registry, monkeypatch, caplog):
    """Without consent nothing is captured, as in production; a developer's own DO_NOT_TRACK matters only if a test sets it."""
    agreed = [False]
    with Capture() as capture:
        client = Client(registry=registry, consent=lambda: agreed[0], segments=SEGMENTS)
        assert caplog.messages == []
        assert repr(client).startswith("<deniable.Client off: the answers are captured by a test, ")
        assert client.record("ui.theme", "dark") is False
        capture.needs_consent = False
        assert client.record("ui.theme", "dark")
        capture.needs_consent = True
        agreed[0] = True
        monkeypatch.setenv("DO_NOT_TRACK", "1")
        assert client.record("ui.theme", "dark") is False
        with Capture(registry) as inner:
            assert deniable.record("ui.theme", "dark")
        assert inner.values("ui.theme") == ["dark"]
        monkeypatch.delenv("DO_NOT_TRACK")
        assert client.record("ui.theme", "light")
        client.set_consent(False)
        assert client.record("ui.theme", "light") is False
    assert capture.values("ui.theme") == ["dark", "light"]


def test_what_is_kept_on_the_device_stays(registry, state_directory, monkeypatch):
    """A capture touches nothing that the same app keeps on the developer's machine, even under DO_NOT_TRACK."""
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    spooled = state_directory / "shop" / "spool" / "00000000-0000-4000-8000-000000000000.json.gz"
    spooled.parent.mkdir(parents=True)
    spooled.write_bytes(b"")
    with Capture():
        Client(registry=registry, consent=True, segments=SEGMENTS).record("ui.theme", "dark")
    assert spooled.exists()
    Client(registry=registry, consent=True, segments=SEGMENTS)
    assert not spooled.exists()


def test_answers_before_init_are_faults_once_it_is_called(registry, registry_file):
    """A device drops them. An app that never calls `init` in the test, or has called it before, has none."""
    lines = []
    for start in (True, False):
        with Capture(registry) as capture:
            assert deniable.record("ui.theme", "dark")
            if start:
                deniable.init(registry=registry_file, consent=True, segments=SEGMENTS)
            assert deniable.record("ui.theme", "light")
        lines.append(capture.faults)
        assert capture.values("ui.theme") == ["dark", "light"]
    assert lines[1] == []
    (fault,) = lines[0]
    assert fault.startswith(f"{__file__}:")
    assert fault.endswith("recorded before deniable.init, so a device drops it: call init first, where the app starts")
    deniable.init(registry=registry, consent=True, segments=SEGMENTS)
    with Capture(registry) as capture:
        assert deniable.record("ui.theme", "dark")
        deniable.init(registry=registry, consent=True, segments=SEGMENTS)
    assert capture.faults == []


def test_threads(capture):
    """Answers of all threads are captured."""
    threads = [threading.Thread(target=deniable.record, args=("n", i)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(capture.values("n")) == list(range(20))


NUMBERS = registry_toml(
    metric_toml("search.ms", range=[0, 60000], unit="ms", estimate="distribution", period="month"),
    metric_toml("steps", range=[0, 20000], unit="steps", estimate="mean", epsilon_permanent=2),
    metric_toml("plugins", type="set", values=["git", "spelling", "other"], other="other", period="month"),
    metric_toml("tools", type="set", values=["pen", "brush"], joint=True, period="month"),
    metric_toml("mood", type="ordinal", values=["bad", "fair", "good"], estimate="mean", period="month"),
)
GIVEN = {"search.ms": 412.5, "steps": 7041, "plugins": ["git"], "tools": {"pen", "brush"}, "mood": "fair"}


def test_numbers_and_sets_are_captured():
    """As they were given, and times in the unit of their metric; what is no number and no option is a fault."""
    with Capture(parse(NUMBERS)) as capture:
        for metric, value in GIVEN.items():
            assert deniable.record(metric, value)
        with deniable.timed("search.ms"):
            pass
        assert {metric: capture.values(metric)[0] for metric in GIVEN} == GIVEN
        assert 0 <= capture.values("search.ms")[1] < 60_000
        assert capture.faults == []
        for metric, value in (
            ("search.ms", "412"),
            ("steps", float("nan")),
            ("steps", None),
            ("plugins", ["git", "nosuch"]),
            ("tools", ["pencil"]),
            ("tools", "pen"),
            ("mood", 1),
        ):
            with pytest.raises(ParameterError, match=f"{metric} must be "):
                deniable.record(metric, value)
        with (
            pytest.raises(
                ParameterError, match="steps counts no time, since its unit is steps: declare one of us, ms, s, min, h"
            ),
            deniable.timed("steps"),
        ):
            pass
        assert len(capture.faults) == 7


def test_numbers_and_sets_are_received(tmp_path, capsys):
    """The stub takes their reports; the journal, `deniable sent` and `stats` tell of them."""
    registry, state = parse(NUMBERS), tmp_path / "state"
    with StubServer(registry) as server:
        with Client(dsn=server.dsn, registry=registry, consent=True, settings=QUICK, state=state, strict=True) as client:
            for metric, value in GIVEN.items():
                assert client.record(metric, value)
            assert not client.record("steps", 10)
            assert client.flush(60)
            assert sorted(entry.metric for entry in client.journal()) == sorted(GIVEN)
            stats = client.stats()
            assert (stats["sent"], stats["dropped"], stats["refusals"]) == (5, {"this_period": 1}, {})
        assert {report.metric: len(report.payload) for report in server.reports} == dict.fromkeys(GIVEN, 1)
    assert cli.main(["sent", str(state / "shop")]) == 0
    listed = capsys.readouterr().out
    assert all(metric in listed for metric in GIVEN)
    assert not any(value in listed for value in ("412", "7041", "git", "pen", "fair"))
    assert listed.endswith("\nNo report waits on this device.\n")


def test_what_waits_is_told_beside_what_was_sent(registry, tmp_path, capsys):
    """Whoever sees no report there learns that they are on the way, and when they go."""
    state, nowhere = tmp_path / "state", "http://key@127.0.0.1:1/shop"
    with Client(dsn=nowhere, registry=registry, consent=True, segments=SEGMENTS, settings=QUICK, state=state) as client:
        assert client.record("ui.theme", "dark")
        assert not client.flush(5)
    assert cli.main(["sent", str(state / "shop")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("nothing was sent by the app")
    assert lines[1] == "On this device wait: 1 report."
    assert lines[2].startswith("They travel with ")
    assert cli.main(["sent", str(state / "shop"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_people_are_captured(tmp_path):
    """Of people who agreed, also where the app made `people` before; nothing of the others, and nothing is kept."""
    agreed = {1}
    options = {"registry": parse(NUMBERS), "key": "0" * 32, "consent": lambda account: account in agreed}
    before = deniable.people("https://pk@t.example/shop", store=tmp_path / "before", **options)
    with Capture() as capture:
        for people in (before, deniable.people(store=tmp_path / "meanwhile", **options)):
            recorded = [people.person(account).record("mood", "good") for account in (1, 2, None)]
            assert recorded == [True, False, False]
            assert people.flush()
            with pytest.raises(ParameterError, match=r"did you mean 'mood'"):
                people.person(1).record("modo", "good")
        capture.needs_consent = False
        assert before.person(2).record("mood", "fair")
    assert capture.values("mood") == ["good", "good", "fair"]
    assert len(capture.faults) == 2
    assert before.stats()["recorded"] == 0
    assert not list(tmp_path.rglob("*people*"))
    before.close(0)


def test_flush_says_what_a_device_would_send(tmp_path):
    """One report of each person in each period, and none after the last day or of nothing; the values are all there."""
    registry = parse(
        registry_toml(metric_toml("seen", period="month"), metric_toml("old", period="month", expires=date(2027, 1, 31)))
    )
    with Capture(), Clock(datetime(2027, 1, 31, 23, tzinfo=UTC)) as clock:
        client = deniable.init(registry=registry, consent=True)
        assert str(client.flush()) == "nothing to send: nothing was recorded"
        for _ in range(2):
            client.record("seen", value=True)
        assert (bool(client.flush()), str(client.flush())) == (
            True,
            f"arrived: 1 report; 1 answer dropped as this_period; why: {ONCE}",
        )
        clock.advance(hours=1)
        client.record("seen", value=True)
        client.record("old", value=True)
        arrival = client.flush()
        assert (arrival.status, arrival.sent, arrival.dropped) == ("incomplete", 2, {"this_period": 1, "expired": 1})
    with Capture(registry) as capture:
        people = deniable.people(registry=registry, key="0" * 32, store=tmp_path, consent=lambda _: True)
        for account in (1, 1, 2):
            people.person(account).record("seen", value=True)
        assert people.flush().sent == 2
        assert len(capture.values("seen")) == 3
        capture.clear()
        assert not people.flush()


def test_times_of_people_are_captured(tmp_path):
    """With the consent of the person whose block it is."""
    people = deniable.people(registry=parse(NUMBERS), key="0" * 32, store=tmp_path, consent=lambda account: account == 1)
    with Capture() as capture:
        for account in (1, 2, None):
            with people.person(account).timed("search.ms"):
                pass
        assert len(capture.values("search.ms")) == 1


# the clock


def test_a_clock_stands_until_it_is_moved():
    """It says the period of clients made before, and what the stub takes; afterwards the time is that of the system."""
    registry = parse(registry_toml(metric_toml("seen", period="month")))
    with StubServer(registry) as server:
        client = Client(dsn=server.dsn, registry=registry, consent=True, state=None, settings=QUICK)
        with Clock(datetime(2027, 2, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))) as clock:
            assert clock.now == datetime(2027, 1, 31, 23, 30, tzinfo=UTC)
            assert [client.record("seen", value=True) for _ in range(2)] == [True, False]
            clock.advance(minutes=30)
            assert client.record("seen", value=True)
            assert client.flush(60)
            for mistake in (datetime(2027, 3, 1), "2027-03-01", 1.8e9):  # noqa: DTZ001 - that is one mistake
                with pytest.raises(ParameterError, match="write a datetime with a time zone"):
                    clock.set(mistake)
        assert sorted(report.period for report in server.reports) == ["2027-01", "2027-02"]
        client.close(60)
    assert abs(now() - time.time()) < 60


# the stub server


def address(server):
    """Where a server takes uploads."""
    return f"{Dsn.parse(server.dsn).url}/v1/reports"


@pytest.fixture
def stub(registry):
    """Serve the registry of the tests."""
    with StubServer(registry) as server:
        yield server


@pytest.fixture
def client_to(registry):
    """Make a client that sends to a server, and close it afterwards."""
    clients = []

    def make(server, **changes):
        options = {"registry": registry, "consent": True, "segments": SEGMENTS, "settings": QUICK, "state": None, "strict": True}
        clients.append(Client(dsn=server.dsn, **(options | changes)))
        return clients[-1]

    yield make
    for client in clients:
        client.close(0)


def test_reports_arrive(stub, client_to, registry):
    """What a client sends arrives, is checked and counted."""
    often = {id_: replace(metric, per_period=50) for id_, metric in registry.metrics.items()}
    free = Caps(budget=Budget(per_month=None, lifetime=None))
    client = client_to(stub, registry=replace(registry, metrics=often), settings=SenderSettings(flush_at=50), caps=free)
    for number in range(50):
        assert client.record("ui.theme", "dark")
        assert client.record("ui.dark", number % 2 == 0)
    assert stub.wait(100)
    assert client.flush(60)
    assert client.stats()["sent"] == 100
    assert {report.metric for report in stub.reports} == {"ui.theme", "ui.dark"}
    assert {report.metric: report.segments for report in stub.reports} == {"ui.theme": {"platform": "linux"}, "ui.dark": {}}
    assert sum(len(received.reports) for received in stub.batches) == 100
    assert stub.attempts == [Attempt(received.key, 202, "") for received in stub.batches]


def test_failures_are_planned(stub, client_to):
    """A client tries again with the same key after a failure, which happens as often as it was planned."""
    stub.fail(503, times=2, headers={"Retry-After": "0"})
    client = client_to(stub)
    assert client.record("ui.theme", "dark")
    assert stub.wait(1, timeout=120)
    assert [attempt.status for attempt in stub.attempts] == [503, 503, 202]
    assert len({attempt.key for attempt in stub.attempts}) == 1


@pytest.mark.parametrize("status", ["503", 99, 100, 600, True, None, 503.0])
def test_a_failure_that_is_no_status_is_refused_at_once(stub, status):
    """An answer with it could not be written."""
    with pytest.raises(ParameterError, match=r"^status.*: write the number of an HTTP status, such as 503$"):
        stub.fail(status)
    stub.fail(503)


def test_a_server_without_words_is_not_quoted(stub, client_to, caplog):
    """Empty quotes would look like a fault of the line."""
    stub.fail(401)
    client = client_to(stub)
    assert client.record("ui.theme", "dark")
    assert not client.flush(60)
    assert "(it says" not in caplog.text
    assert "planned" in caplog.text


def test_a_wait_says_what_came(stub, client_to, registry, monkeypatch):
    """And what was refused or dropped, and why: a bare False would not help whoever reads a failed assertion."""
    assert repr(stub.wait(1, timeout=0)) == "<0 reports of 1 came; the client is off: deniable.init was not called>"
    monkeypatch.setattr(deniable, "_client", client_to(stub, registry=registry))
    words = "<0 reports of 1 came; the client of this process has recorded nothing>"
    assert repr(stub.wait(1, timeout=0)) == words
    deniable.record("ui.theme", "dark")
    with pytest.raises(ParameterError):
        deniable.record("ui.colour", "dark")
    stub.fail(401)
    assert not deniable.flush(60)
    waited = stub.wait(1, timeout=0)
    assert (bool(waited), waited.in_time, waited.reports) == (False, False, 0)
    assert "1 request refused, 401 planned: " in waited.says
    assert "1 answer dropped as unknown_metric: the registry does not declare the metric; correct the name" in waited.says


def test_a_wait_names_what_came(stub, client_to):
    """Of several metrics with their numbers, so that the missing one is known."""
    client = client_to(stub)
    client.record("ui.theme", "dark")
    assert client.flush(60)
    assert stub.wait(2, timeout=0).says.startswith("1 report of 2 came (ui.theme); ")
    client.record("ui.dark", value=True)
    assert client.flush(60)
    assert stub.wait(3, timeout=0).says.startswith("2 reports of 3 came (ui.dark 1, ui.theme 1); ")


def test_a_wait_says_which_metric_is_off(stub, client_to, monkeypatch):
    """A test that waits in vain has the metric's name, and the line to change."""
    monkeypatch.setattr(deniable, "_client", client_to(stub, segments={"platform": "beos"}, strict=False))
    deniable.record("ui.theme", "dark")
    says = stub.wait(1, timeout=0).says
    assert "1 answer dropped as off" in says
    assert "; ui.theme: the segment platform is 'beos', which is not declared: pass segments={" in says


def test_a_wait_says_what_may_not_travel_yet(stub, client_to, monkeypatch):
    """A test that waits for a report of `timed` has the metric's name, and what to call; then the report comes."""
    registry = parse(registry_toml(metric_toml("search.ms", range=[0, 3_600_000], unit="ms", estimate="mean"), app="shop"))
    monkeypatch.setattr(deniable, "_client", client_to(stub, registry=registry, segments={}))
    stub.use(registry)
    with deniable.timed("search.ms"):
        pass
    says = f"1 report may not travel yet (search.ms): {LATER.words()}"
    assert deniable.flush(60).metrics == {"search.ms": {"waiting": 1}}
    assert stub.wait(1, timeout=0).says == f"0 reports of 1 came; {says}"
    assert stub.in_vain == [f"0 reports of 1 came; {says}"]
    make_due()
    assert stub.wait(1, timeout=120)
    assert len(stub.in_vain) == 1


def test_a_wait_that_is_over(stub, client_to):
    """It is true, and its text is short."""
    client = client_to(stub)
    assert client.record("ui.theme", "dark")
    waited = stub.wait(1, timeout=120)
    assert waited
    assert repr(waited) == "<1 report of 1 came (ui.theme)>"


def test_a_lasting_failure_ends(stub):
    """A failure without a number of times lasts until the server recovers."""
    stub.fail(500, times=None)
    url = address(stub)
    for _ in range(3):
        answer = requests.post(url, data=b"{}", timeout=60)
        assert (answer.status_code, answer.json()["code"]) == (500, "planned")
    stub.recover()
    assert requests.post(url, data=b"{}", timeout=60).json()["code"] == "missing_key"


def test_hanging(stub, client_to):
    """A server that hangs leaves a client without an answer, whose deadline holds, until it recovers."""
    stub.hang(times=1)
    client = client_to(stub, settings=SenderSettings(flush_at=1, timeout=60))
    assert client.record("ui.theme", "dark")
    began = time.monotonic()
    assert not client.flush(0.2)
    assert time.monotonic() - began < 60
    stub.recover()
    assert stub.wait(1, timeout=120)
    assert [attempt.status for attempt in stub.attempts] == [0, 202]


def test_a_hanging_server_ends(registry):
    """Leaving the server lets go of whoever hangs."""
    caught = []

    def upload(url):
        try:
            requests.post(url, data=b"{}", timeout=60)
        except requests.ConnectionError as error:
            caught.append(error)

    with StubServer(registry) as server:
        server.hang()
        hung = threading.Thread(target=upload, args=(address(server),))
        hung.start()
        with server._changed:
            assert server._changed.wait_for(lambda: server._attempts, 10)
    hung.join(60)
    assert not hung.is_alive()
    assert len(caught) == 1


def test_a_repeated_upload_counts_once(stub, client_to):
    """The same upload twice is there once; the same key with other bytes is refused."""
    uploads = []

    def post(body, headers, timeout):
        uploads.append((body, headers))
        answer = requests.post(address(stub), data=body, headers=headers, timeout=timeout)
        return answer.status_code, answer.headers, answer.json()

    client = client_to(stub, post=post)
    assert client.record("ui.theme", "dark")
    assert client.flush(60)
    body, headers = uploads[0]
    assert post(body, headers, 5)[2] == {"accepted": 1, "rejected": 0, "errors": [], "duplicate": True}
    other = body.replace(b'"format":1', b'"format": 1')
    assert post(other, headers, 5)[0] == 422
    assert len(stub.reports) == len(stub.batches) == 1
    assert stub.attempts[-1].code == "idempotency_mismatch"


def test_without_a_registry(registry, client_to):
    """A server without a registry looks at the shape alone; one may be given later, and names the app."""
    with StubServer() as server:
        assert server.dsn.endswith("/app")
        client = client_to(server, registry=replace(registry, app="app"))
        assert client.record("ui.theme", "dark")
        assert client.flush(60)
        assert len(server.reports) == 1
        assert requests.post(address(server), data=b"{}", timeout=60).json()["code"] == "missing_key"
        server.use(registry)
        assert server.dsn.endswith("/shop")


def test_other_addresses(stub):
    """What is not there is not found; a signed registry is served once there is one."""
    root = address(stub).removesuffix("/v1/reports")
    assert requests.get(f"{root}/v1/registry", timeout=60).status_code == 404
    assert requests.post(f"{root}/other", data=b"{}", timeout=60).json()["code"] == "not_found"
    stub.envelope = b"{}"
    assert requests.get(f"{root}/v1/registry", timeout=60).json() == {}


def test_an_address_only_while_it_serves(registry):
    """A server that does not serve has no DSN, and says what to write."""
    server = StubServer(registry)
    with pytest.raises(ConfigurationError, match="with StubServer"):
        _ = server.dsn
    with server:
        assert server.dsn.startswith("http://pk_stub@127.0.0.1:")
    with pytest.raises(ConfigurationError):
        _ = server.dsn


@pytest.mark.parametrize("begun", [True, False])
def test_an_explanation_is_the_same_under_a_capture(registry, monkeypatch, caplog, begun):
    """Of an undeclared answer, of an undeclared metric, and in strict mode: the capture changes what `record` does alone."""
    monkeypatch.setattr(deniable, "_client", None)
    with Capture(registry):
        if begun:
            deniable.init(registry=registry, consent=True, segments={"platform": "linux"})
        explained = deniable.explain("ui.theme", "drak")
        assert explained
        assert explained.metric == "ui.theme"
        assert deniable.explain("ui.thme") is None
        assert "error" not in "".join(caplog.messages)
        strict = deniable.Client(registry=registry, consent=True, segments={"platform": "linux"}, strict=True)
        with pytest.raises(ParameterError, match="'drak' is not declared"):
            strict.explain("ui.theme", "drak")
