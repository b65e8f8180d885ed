"""The client over time: permanent answers, budget, sampling, silence, the journal, and what consent takes back."""

from __future__ import annotations

import gzip
import json
import logging
import re
import sqlite3
from base64 import b64decode
from datetime import UTC, datetime
from time import monotonic, sleep

import pytest

from deniable import mechanisms
from deniable.client import Client
from deniable.errors import RegistryError
from deniable.registry import parse
from deniable.registry.tables import Budget, Caps
from deniable.transport import SenderSettings

DSN = "https://canary-key@t.example/shop"
CANARY = "canary-4c1e"
DAY = 86_400.0
HEAD = 'format = 1\napp = "shop"\n'
BODY = 'description = "d"\nowner = "o"\n'
KEPT = f"""{HEAD}
[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system", "not set"]
none = "not set"
mechanism = "rappor"
epsilon = 2
epsilon_permanent = 2
{BODY}"""
PLAIN = f'{HEAD}[metrics.m]\ntype = "boolean"\nepsilon = 1\n{BODY}'
MONTHLY = f'[metrics.n]\ntype = "boolean"\nepsilon = 1\nperiod = "month"\n{BODY}'
OFTEN = f'{HEAD}[metrics.m]\ntype = "boolean"\nepsilon = 1\nsample = 0.5\nper_period = 1000\n{BODY}'
FREE = Caps(budget=Budget(per_month=None, lifetime=None))
TEXTS = f'{HEAD}[metrics.m]\ntype = "string"\ncandidates = "c.txt"\nepsilon = 2\nepsilon_permanent = 4\n{BODY}'


class Fake:
    """A `Post` that takes everything and keeps it; or, with an error, nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.groups: list[dict] = []

    def __call__(self, body, headers, _timeout):
        if self.error:
            raise self.error
        body = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        self.groups += json.loads(body)["groups"]
        return 202, {}, None

    @property
    def reports(self) -> list[tuple[str, bytes]]:
        return [(group["period"], b64decode(group["payloads"])) for group in self.groups]


class Device:
    """A device whose app can be started again and again, at any time."""

    def __init__(self, directory, post) -> None:
        self.directory, self.post = directory, post
        self.now = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
        self.clients: list[Client] = []

    def start(self, registry, **options) -> Client:
        defaults = {"dsn": DSN, "consent": True, "state": self.directory, "post": self.post}
        settings = SenderSettings(flush_interval=60, max_tries=1)
        text = parse(registry) if isinstance(registry, str) else registry
        client = Client(registry=text, settings=settings, clock=lambda: self.now, **(defaults | options))
        self.clients.append(client)
        return client

    def await_reports(self, number: int) -> None:
        """Wait for what the spool sends when it has seen that the server is there."""
        deadline = monotonic() + 120
        while sum(group["count"] for group in self.post.groups) < number:
            assert monotonic() < deadline
            sleep(0.01)

    def files(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.directory.rglob("*")) if path.is_file())


@pytest.fixture
def device(tmp_path):
    """Give a device with a server that takes everything, and stop its apps after the test."""
    opened = Device(tmp_path / "state", Fake())
    yield opened
    for client in opened.clients:
        client.close(60)


def test_a_kept_answer_over_many_starts(device):
    """Day after day, start after start, the same answer gives the same permanent response, in one report a day."""
    for _ in range(20):
        client = device.start(KEPT)
        assert client.record("ui.theme", "dark")
        assert not client.record("ui.theme", "dark")
        assert client.stats()["dropped"] == {"this_period": 1}
        client.close(60)
        device.now += DAY
    days, payloads = zip(*device.post.reports, strict=True)
    assert len(set(days)) == 20
    assert len(set(payloads)) == 1  # without noise of its own, a report is the permanent response
    assert device.start(KEPT).stats()["spent"]["lifetime"] == pytest.approx(8, abs=1e-5)  # all that is reserved


def test_no_answer_is_an_answer(device):
    """None is recorded as the answer that stands for it, with a response like any other's."""
    client = device.start(KEPT)
    assert client.record("ui.theme", None)
    device.now += DAY
    assert client.record("ui.theme", "not set")
    client.flush(60)
    assert len({payload for _, payload in device.post.reports}) == 1


def test_texts_keep_their_answers(device):
    """A metric of texts has permanent responses, too, and the file names none of them."""
    for _ in range(3):
        client = device.start(TEXTS)
        assert client.record("m", CANARY)
        client.close(60)
        device.now += DAY
    rows = {payload[0] for _, payload in device.post.reports}
    assert len(rows) == 1  # the cohort of this device
    assert CANARY.encode() not in device.files()


def test_a_permanent_epsilon_needs_a_chain(device, caplog):
    """A mechanism that keeps nothing cannot promise it: the client is off, and says why."""
    client = device.start(PLAIN.replace("epsilon = 1", 'epsilon = 1\nepsilon_permanent = 2\nmechanism = "grr"'))
    assert not client.record("m", value=True)
    assert "l_grr" in client.stats()["disabled"]
    assert "deniable is off" in caplog.text


def test_once_a_period(device):
    """A metric is reported once a period, kept or not, unless it declares more: quietly for the app, visibly in the counts."""
    for registry, times in ((PLAIN, 1), (PLAIN.replace("epsilon = 1", "epsilon = 0.5\nper_period = 2\nversion = 2"), 2)):
        client = device.start(registry)
        for _ in range(3):
            assert sum(client.record("m", value=True) for _ in range(10)) == times
            device.now += DAY
        assert client.stats()["dropped"] == {"this_period": 3 * (10 - times)}
        client.close(60)
        device.now -= DAY
        client = device.start(registry)
        assert not client.record("m", value=True)
        device.now += DAY
    assert client.stats()["spent"]["lifetime"] == pytest.approx(6, abs=1e-5)


def test_the_lifetime_ends(device):
    """When what is reserved for its life is spent, a metric is silent for good."""
    caps = Caps(budget=Budget(per_month=31, lifetime=31))
    for _ in range(35):
        client = device.start(PLAIN, caps=caps)
        client.record("m", value=True)
        dropped = client.stats()["dropped"]
        client.close(60)
        device.now += 3 * DAY
    assert dropped == {"budget": 1}
    assert client.stats()["spent"] == {
        "month": 0,
        "month_left": 31,
        "lifetime": pytest.approx(31, abs=1e-5),
        "lifetime_left": pytest.approx(0, abs=1e-5),
    }
    assert len(device.post.groups) == 31


def test_a_metric_for_which_the_budget_has_no_room_is_off(device, caplog, monkeypatch):
    """The others go on, and the log names the line; strictly, it is an error."""
    monkeypatch.setattr("deniable.messages.notice._warned", set())
    caps, more = Caps(budget=Budget(per_month=30)), MONTHLY
    client = device.start(PLAIN + more, caps=caps)
    assert not client.record("m", value=True)
    assert client.record("n", value=True)
    stats = client.stats()
    assert (stats["disabled"], stats["dropped"]) == (None, {"off": 1})
    raised = "per_month = 32.0 in the budget of the app's Caps"
    line = f'period = "week" in [metrics."m"] (which saves most), or epsilon = 0.9 in [metrics."m"], or {raised}'
    assert stats["off"]["m"] == f"it needs 31 nats a month, and the budget has 30: write {line}"
    assert [record.message for record in caplog.records if "m: off: " in record.message and line in record.message]
    with pytest.raises(RegistryError, match=rf"write .*{re.escape(line)}"):
        device.start(PLAIN + more, caps=caps, strict=True)
    assert not device.start(PLAIN.replace("epsilon = 1", "epsilon = 1\nexpires = 2001-01-01"), caps=caps).stats()["off"]


def test_the_stricter_budget_holds(device):
    """Of the registry's budget and the app's, each bound is the stricter one."""
    registry = PLAIN.replace("[metrics", "[budget]\nper_month = 32\nlifetime = 100\n[metrics", 1)
    client = device.start(registry, caps=Caps(budget=Budget(per_month=50, lifetime=60)))
    assert client.record("m", value=True)
    spent = client.stats()["spent"]
    assert (spent["month_left"], spent["lifetime_left"]) == (31, 59)
    assert client.stats()["reserved"] == {"m": {"month": 31, "lifetime": 58}}  # whole reports of 31 * 60 / 32


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        (Caps(epsilon=0.5), 'and the app allows 0.5: write epsilon = 0.5 in [metrics."m"]'),
        (Caps(metrics={"m": 0.25}), "and the app allows 0.25: write "),
        (Caps(mechanisms=frozenset({"grr"})), 'add "binary" to mechanisms in the app\'s Caps'),
    ],
)
def test_caps_switch_off(device, caps, words, caplog, monkeypatch):
    """A metric that asks for more than the app allows is off, and no other; strictly, it is an error."""
    monkeypatch.setattr("deniable.messages.notice._warned", set())
    client = device.start(PLAIN + MONTHLY.replace("epsilon = 1", "epsilon = 0.4"), caps=caps)
    assert not client.record("m", value=True)
    assert client.record("n", value=True) == (caps.mechanisms is None)
    stats = client.stats()
    assert stats["disabled"] is None
    assert words in stats["off"]["m"]
    assert stats["dropped"]["off"] == len(stats["off"])
    assert any(re.search(r": (m|m, n|m and n): off: ", record.message) for record in caplog.records)
    assert client.explain("m") is None
    with pytest.raises(RegistryError, match=re.escape(words)):
        device.start(PLAIN, caps=caps, strict=True)


def test_caps_of_the_file_hold(device):
    """The table of the registry holds where the app's code gives no caps, and those of the code instead of it."""
    registry = "caps = { epsilon = 0.5 }\n" + PLAIN
    assert 'write epsilon = 0.5 in [metrics."m"]' in device.start(registry).stats()["off"]["m"]
    assert not device.start(registry, caps=Caps()).stats()["off"]


def test_caps_on_the_domain(device):
    """A metric with more answers than the app allows is off like any other excess."""
    client = device.start(KEPT, caps=Caps(domain_size=3))
    assert not client.record("ui.theme", "dark")
    assert "domain_size = 4 in the app's Caps" in client.stats()["off"]["ui.theme"]


def test_sampling_does_not_look(device):
    """Half of the answers are recorded, drawn before anybody looks at them: declared or not is all the same."""
    client = device.start(OFTEN, caps=FREE)
    taken = [sum(client.record("m", answer) for _ in range(400)) for answer in (True, CANARY)]
    assert all(100 < number < 300 for number in taken)  # ten standard deviations
    assert client.stats()["dropped"] == {"not_sampled": 800 - sum(taken)}
    assert client.stats()["undeclared"] == 400


def test_sampling_a_kept_answer_is_drawn_once_a_period(device):
    """Trying again in the same period is no second draw; what is not drawn costs nothing."""
    registry = KEPT.replace("epsilon = 2\n", "epsilon = 2\nsample = 0.5\n", 1)
    client = device.start(registry)
    taken = 0
    for _ in range(100):
        taken += sum(client.record("ui.theme", "dark") for _ in range(5))
        device.now += DAY
    assert 10 < taken < 90
    assert client.stats()["dropped"]["this_period"] == 400


def test_the_journal(device):
    """What was sent is listed, as it was sent; what waits is not."""
    client = device.start(PLAIN)
    client.record("m", value=True)
    assert client.journal() == []
    client.close(60)
    (entry,) = device.start(PLAIN).journal()
    assert (entry.metric, entry.period) == ("m", "2026-11-21")
    assert bytes.fromhex(entry.payload) == device.post.reports[0][1]


def test_what_could_not_be_sent_is_sent_by_the_next_start(device):
    """Reports outlive the process, with the same key, and are in the journal when they are sent."""
    device.post.error = ConnectionError()
    client = device.start(PLAIN)
    client.record("m", value=True)
    assert not client.close(5) or client.stats()["sent"] == 0
    device.post.error = None
    client = device.start(PLAIN)
    device.now += DAY
    client.record("m", value=False)
    assert client.flush(60)
    device.await_reports(2)
    client.close(60)
    assert sum(group["count"] for group in device.post.groups) == 2
    assert len(client.journal()) == 2


@pytest.mark.parametrize("variable", ["DO_NOT_TRACK", "DENIABLE_DISABLED"])
def test_opting_out_takes_back_what_waits(device, monkeypatch, variable):
    """Who switches telemetry off takes back what was not sent yet, on disk, too; ledger and responses stay."""
    device.post.error = ConnectionError()
    client = device.start(KEPT)
    client.record("ui.theme", "dark")
    client.close(60)
    monkeypatch.setenv(variable, "1")
    client = device.start(KEPT)
    assert not client.record("ui.theme", "dark")
    assert client.stats()["disabled"] == f"{variable} is set"
    monkeypatch.delenv(variable)
    device.post.error = None
    client = device.start(KEPT)
    device.now += DAY
    client.record("ui.theme", "dark")
    client.flush(60)
    assert len(device.post.groups) == 1
    assert client.stats()["spent"]["lifetime"] == pytest.approx(8, abs=1e-5)


def test_taking_consent_back_keeps_the_ledger(device):
    """Off and on again buys no fresh randomness and no budget, and takes back what waits in memory and on disk."""
    device.post.error = ConnectionError()
    client = device.start(KEPT)
    client.record("ui.theme", "dark")
    client.flush(60)
    client.set_consent(False)
    assert not client.record("ui.theme", "dark")
    device.post.error = None
    client.set_consent(True)
    for _ in range(3):
        device.now += DAY
        assert client.record("ui.theme", "dark")
    client.flush(60)
    assert len(device.post.groups) == 3
    assert len({payload for _, payload in device.post.reports}) == 1
    assert client.stats()["spent"]["lifetime"] == pytest.approx(8, abs=1e-5)


def test_without_consent_nothing_is_written(device):
    """No consent, no DSN, no record: no file."""
    device.start(KEPT, consent=False).record("ui.theme", "dark")
    device.start(KEPT, dsn=None).record("ui.theme", "dark")
    client = device.start(KEPT)
    client.explain("ui.theme", "dark")
    assert (client.stats()["spent"]["lifetime"], client.journal()) == (0, [])
    assert not device.directory.exists()


@pytest.mark.parametrize("function", [False, True])
def test_consent_taken_back_empties_the_journal(device, function):
    """Who takes consent back also has what was sent forgotten on the device, whether it was given before this start or in it."""
    client = device.start(PLAIN)
    client.record("m", value=True)
    client.close(60)
    assert len(device.start(PLAIN, consent=False).journal()) == 1  # nobody has said no yet
    client = device.start(PLAIN, consent=(lambda: False) if function else False)
    if function:
        client.record("m", value=True)
    else:
        client.set_consent(False)
    assert client.journal() == []


def test_opting_out_empties_the_journal(device, monkeypatch):
    """So does who switches telemetry off for all apps."""
    client = device.start(PLAIN)
    client.record("m", value=True)
    client.close(60)
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    device.start(PLAIN)
    monkeypatch.delenv("DO_NOT_TRACK")
    assert device.start(PLAIN).journal() == []


def test_waiting_for_consent_loses_nothing(device):
    """A start that does not know yet whether somebody agreed leaves what waits on disk for when they do."""
    device.post.error = ConnectionError()
    client = device.start(PLAIN)
    client.record("m", value=True)
    client.close(60)
    device.post.error = None
    client = device.start(PLAIN, consent=False)
    assert not client.record("m", value=True)
    client.flush(1)
    assert not device.post.groups
    client.set_consent(True)
    device.now += DAY
    client.record("m", value=True)
    assert client.flush(60)
    device.await_reports(2)


def test_a_deleted_state_stops(device):
    """Who deletes the file gets silence, and the reason; who removes the directory gets a new device."""
    client = device.start(KEPT)
    assert client.record("ui.theme", "dark")
    client.close(60)
    (device.directory / "shop" / "state.db").unlink()
    client = device.start(KEPT)
    device.now += DAY
    assert not client.record("ui.theme", "dark")
    assert not device.start(PLAIN).record("m", value=True)
    assert client.stats()["dropped"] == {"state": 1}
    assert "was deleted" in client.stats()["trouble"]
    assert client.stats()["spent"]["lifetime"] is None


def test_no_home_no_telemetry(monkeypatch, registry):
    """Where nothing can be kept, nothing is recorded, unless the app says where."""
    monkeypatch.delenv("DENIABLE_STATE_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def homeless(_cls):
        raise RuntimeError

    monkeypatch.setattr("pathlib.Path.home", classmethod(homeless))
    client = Client(dsn=DSN, registry=registry, consent=True, segments={"platform": "linux"}, post=Fake())
    assert not client.record("ui.dark", value=True)
    assert "there is no home directory" in client.stats()["disabled"]


def test_no_raw_answer_is_kept(device, caplog):
    """No file, log, count or text of the client has an answer, whatever becomes of it."""
    caplog.set_level(logging.DEBUG)
    values = f'["{CANARY}", "other"]'
    registry = KEPT.replace('["light", "dark", "system", "not set"]', values).replace('none = "not set"\n', "")
    client = device.start(registry)
    client.record("ui.theme", CANARY)
    client.record("ui.theme", CANARY)
    client.record("ui.theme", f"{CANARY}x")
    device.post.error = ConnectionError(CANARY)
    device.now += DAY
    client.record("ui.theme", CANARY)
    client.close(60)
    words = f"{client.stats()}{client!r}{client.journal()}{caplog.text}"
    assert CANARY not in words
    assert CANARY.encode() not in device.files()


ROWS = "".join(
    f"""
[metrics.m{number}]
type = "string"
candidates = "c.txt"
mechanism = "rappor"
epsilon = 1
epsilon_permanent = 2
{BODY}"""
    for number in range(4)
)


def test_rows_of_many_metrics_tell_no_more_than_those_of_one():
    """A device shows the same one of 128 cohorts in four metrics, on every day: 150 devices are in 128 groups and not unique."""
    registry, post = parse(HEAD + ROWS), Fake()
    now = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
    places = []
    for _ in range(150):
        day = [now]
        settings = SenderSettings(flush_interval=60)
        options = {"registry": registry, "consent": True, "state": None, "settings": settings, "clock": lambda day=day: day[0]}
        client = Client(dsn=DSN, post=post, **options)
        rows = set()
        for _ in range(2):
            post.groups.clear()
            assert all(client.record(f"m{number}", "a text") for number in range(4))
            assert client.flush(60)
            rows |= {mechanisms.of(registry.metrics["m0"]).layout.unpack(payload)[0] for _, payload in post.reports}
            day[0] += DAY
        client.close(60)
        (row,) = rows
        places.append(row)
    assert 64 < len(set(places)) <= 128  # of 128 cohorts, 150 devices leave fewer than 64 empty but for one run in 10^9


def test_a_journal_that_cannot_be_emptied_is_not_shown_and_emptied_later(device):
    """If another process holds the state when consent is taken back, the journal shows nothing, and is emptied when it can be."""
    client = device.start(PLAIN)
    assert client.record("m", value=True)
    assert client.flush(60)
    assert len(client.journal()) == 1
    holder = sqlite3.connect(device.directory / "shop" / "state.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    client.set_consent(False)
    assert client.journal() == []
    holder.execute("ROLLBACK")
    holder.close()
    client.close(60)
    assert device.start(PLAIN).journal() == []


def test_damage_stays_told(device):
    """What is found damaged is told for as long as the client runs, whatever else can still be written."""
    client = device.start(KEPT + PLAIN.removeprefix(HEAD), caps=FREE)
    assert client.record("m", value=True)
    with client._session.state.transaction() as db:
        db.execute("UPDATE facts SET value = NULL WHERE name = 'place'")
    assert not client.record("ui.theme", "dark")
    device.now += DAY
    assert client.record("m", value=True)
    assert client.stats()["dropped"] == {"state": 1}
    assert "cannot be used" in client.stats()["trouble"]


@pytest.mark.parametrize("value", ["NULL", "'x'", "x'00'"])
def test_stats_of_a_damaged_ledger(device, value):
    """Stats never raise, not even strictly, and what is wrong with the state stays told, however often one looks."""
    client = device.start(PLAIN, strict=True)
    assert client.record("m", value=True)
    with client._session.state.transaction() as db:
        db.execute(f"UPDATE facts SET value = {value} WHERE name = 'lifetime'")
    for _ in range(2):
        stats = client.stats()
        assert (stats["recorded"], stats["spent"]["lifetime"]) == (1, None)
        assert "cannot be used" in stats["trouble"]
    device.now += DAY
    assert not client.record("m", value=True)
    assert client.stats()["dropped"] == {"state": 1}
