"""The SDK's front: what goes in is randomised, counted or dropped, and never comes out of anything but `record`."""

from __future__ import annotations

import gzip
import json
import logging
import sys
import threading
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from traceback import walk_tb

import pytest
from senders import FINAL, problem
from waiting import eventually

import deniable
from deniable import mechanisms
from deniable.client import Client
from deniable.client.counts import Counts
from deniable.client.environment import sender_settings
from deniable.client.metrics import _UNEXPLAINED
from deniable.declared import fingerprint
from deniable.errors import ConfigurationError, DeniableError, ParameterError, RegistryError
from deniable.messages.reasons import ANSWERS, CODES
from deniable.registry import Registry, parse
from deniable.registry.tables import Budget, Caps
from deniable.source import OS, Source
from deniable.testing import StubServer
from deniable.transport import HttpPost, SenderSettings
from deniable.transport.dsn import Dsn

DSN = "https://canary-key@t.example/shop"
SEGMENTS = {"platform": "linux"}
CANARY = "canary-4c1e"
FREE = Caps(budget=Budget(per_month=None, lifetime=None))
MONTHLY = 'period = "month"\nper_period = 4'
LN3 = 1.0986122886681098


@pytest.fixture(scope="module")
def registry_text(registry_text):
    """Give the small registry with as many reports a day as a test likes."""
    return registry_text.replace(MONTHLY, "per_period = 100_000")


@pytest.fixture(scope="module")
def registry(registry_text):
    """Give the same, parsed."""
    return parse(registry_text)


class Fake:
    """A `Post` that takes everything and keeps it."""

    def __init__(self, status: int = 202) -> None:
        self.status = status
        self.groups: list[dict] = []
        self.raw: list[bytes] = []
        self.keys: list[str] = []

    def __call__(self, body, headers, _timeout):
        self.keys.append(headers["Authorization"])
        self.raw.append(gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body)
        self.groups += json.loads(self.raw[-1])["groups"]
        return self.status, {}, problem("planned") if self.status in FINAL else None


@pytest.fixture
def client_of(registry):
    """Make clients whose reports go to a fake server, and close them after the test."""
    clients: list[Client] = []

    def make(post=None, **options) -> Client:
        defaults = {
            "dsn": DSN,
            "registry": registry,
            "consent": True,
            "segments": SEGMENTS,
            "settings": SenderSettings(flush_interval=60),
            "caps": FREE,
        }
        clients.append(Client(post=post or Fake(), **(defaults | options)))
        return clients[-1]

    yield make
    for client in clients:
        client.close(60)


@pytest.mark.parametrize(
    ("consent", "delay", "sent"),
    [(True, "", True), (lambda: True, "", False), (False, "", False), (True, '\ndelay = "1h"', False)],
)
def test_what_an_earlier_run_left_is_sent_at_the_start(client_of, registry_text, tmp_path, sending_threads, consent, delay, sent):
    """Before anything is recorded, if a person agreed; but not where reports wait so that their moment does not show."""
    earlier = client_of(Fake(), state=tmp_path, exit="spool")
    assert earlier.record("ui.theme", "dark")
    earlier._leave(60)
    for thread in sending_threads():
        thread.join(60)
    text = registry_text.replace('[metrics."ui.theme"]', f'[metrics."ui.theme"]{delay}')
    post = Fake()
    client_of(post, state=tmp_path, consent=consent, registry=parse(text))
    if sent:
        assert eventually(lambda: post.groups)
    assert bool(sending_threads()) is sent


def test_a_recorded_answer_is_sent(client_of, registry):
    """An answer is randomised, and sent with its stratum."""
    post = Fake()
    client = client_of(post)
    assert client.record("ui.theme", "dark")
    assert client.record("ui.dark", value=True)
    assert client.flush(60)
    dark, theme = post.groups  # sorted, whichever was recorded first
    metric = registry.metrics["ui.theme"]
    mechanism = mechanisms.of(metric)
    assert theme.pop("payloads")
    assert theme == {
        "metric": "ui.theme",
        "version": 1,
        "fingerprint": fingerprint(metric, mechanism.canonical),
        "period": f"{datetime.now(UTC):%Y-%m-%d}",
        "segment": "platform=linux",
        "count": 1,
    }
    assert (dark["metric"], dark["segment"], dark["count"]) == ("ui.dark", "", 1)
    assert len(b64decode(dark["payloads"])) == 1


def test_stats(client_of, registry_text):
    """Everything is counted once: recorded, sent, dropped by reason, undeclared, and what was reserved and spent."""
    client = client_of(registry=parse(registry_text.replace("per_period = 100_000", MONTHLY)), caps=Caps())
    nothing = {"month": 0.0, "month_left": 32.0, "lifetime": 0.0, "lifetime_left": 1920.0}
    reserved = {
        "ui.theme": {"month": 4.0, "lifetime": 240.0},
        "ui.dark": {"month": pytest.approx(4 * LN3, abs=1e-4), "lifetime": pytest.approx(240 * LN3, abs=1e-3)},
        "old": {"month": 31.0, "lifetime": 1860.0},
    }
    assert client.stats() == {
        "recorded": 0,
        "sent": 0,
        "rejected": 0,
        "refusals": {},
        "spooled": 0,
        "pending": 0,
        "waiting": 0,
        "repeated": 0,
        "undeclared": 0,
        "clipped": 0,
        "faults": {},
        "dropped": {},
        "reserved": reserved,
        "spent": nothing,
        "off": {},
        "disabled": None,
        "trouble": None,
    }
    for answer in (False, True, "yes"):
        client.record("ui.dark", answer)
    client.record("nosuch", 1)
    client.record("old", value=True)
    client.flush(60)
    client.close(60)
    spent = 3 * LN3
    assert client.stats() == {
        "recorded": 3,
        "sent": 3,
        "rejected": 0,
        "refusals": {},
        "spooled": 0,
        "pending": 0,
        "waiting": 0,
        "repeated": 0,
        "undeclared": 1,
        "clipped": 0,
        "faults": {},
        "dropped": {"unknown_metric": 1, "expired": 1},
        "reserved": reserved,
        "spent": {
            "month": pytest.approx(spent, abs=1e-5),
            "month_left": pytest.approx(32 - spent, abs=1e-5),
            "lifetime": pytest.approx(spent, abs=1e-5),
            "lifetime_left": pytest.approx(1920 - spent, abs=1e-5),
        },
        "off": {},
        "disabled": None,
        "trouble": None,
    }


def test_handles(client_of):
    """A handle records its metric."""
    client = client_of()
    handle = client.metric("ui.theme")
    assert handle.record("light")
    assert handle.record("nosuch")
    assert not client.metric("nosuch").record("light")
    assert client.stats()["dropped"] == {"unknown_metric": 1}
    assert client.stats()["undeclared"] == 1


STRINGS = """
format = 1
app = "shop"
[metrics.page]
type = "string"
candidates = "not-on-the-device.txt"
max_length = 20
epsilon = 1
per_period = 100
description = "Which page"
owner = "web@shop.example"
[metrics.found]
type = "string"
discover = true
epsilon = 1
per_period = 100
description = "Which page"
owner = "web@shop.example"
[metrics.crash]
type = "key"
discover = true
epsilon = 1
per_period = 100
description = "Where"
owner = "web@shop.example"
[metrics.both]
type = "product"
factors = { a = ["x", "y"], b = ["no", "yes"] }
epsilon = 1
per_period = 100
description = "Both"
owner = "web@shop.example"
"""


def test_strings_keys_and_products(client_of, caplog, capsys):
    """Any text, key or combination is randomised to a payload of the metric's size; none is seen anywhere else."""
    post = Fake()
    client = client_of(post, registry=parse(STRINGS), segments={})
    caplog.set_level(logging.DEBUG)
    for text in (CANARY, "a", "größer", "日本"):
        assert client.record("page", text)
        assert client.record("found", text)
    for key in (0, 7, (1 << 64) - 1):
        assert client.record("crash", key)
    assert client.record("both", ("x", "yes"))
    assert client.record("both", {"b": "no", "a": "y"})
    for any_text in ("", CANARY * 9, "a\0", "\ud800"):
        assert client.record("page", any_text)
    assert client.stats()["undeclared"] == 0
    for none in (3, None):
        assert client.record("page", none)
    assert client.record("crash", "7")
    assert client.record("both", ("x",))
    assert client.flush(60)
    counts = {group["metric"]: group["count"] for group in post.groups}
    assert counts == {"page": 10, "found": 4, "crash": 4, "both": 3}
    for group in post.groups:
        size = mechanisms.of(parse(STRINGS).metrics[group["metric"]]).layout.payload_size
        assert len(b64decode(group["payloads"])) == group["count"] * size
    assert client.stats()["dropped"] == {}
    assert client.stats()["undeclared"] == 4
    seen = repr(client) + caplog.text + "".join(capsys.readouterr()) + str(client.stats()) + b"".join(post.raw).decode()
    assert CANARY not in seen
    assert "größer" not in seen
    assert str(client.explain("found", CANARY)).count(CANARY) == 0


# undeclared answers


@pytest.mark.parametrize("host", ["http://canary-key@localhost:8080", "http://canary-key@127.0.0.1", "https://canary-key@[::1]"])
def test_an_undeclared_answer_is_told_while_developing(client_of, registry_text, caplog, host):
    """Where reports stay on this machine, each metric's first undeclared answer is told: what stood in, and where to look."""
    text = registry_text.replace('"dark", "system"]', '"dark", "else"]\nother = "else"')
    client = client_of(dsn=f"{host}/shop", registry=parse(text))
    for answer in (CANARY, f"{CANARY}!", [CANARY]):
        assert client.record("ui.theme", answer)
        assert client.record("ui.dark", answer)
    listed = "one of the 3 declared values: light, dark, else"
    rule, where = f"'{CANARY}' is not declared: an answer to", "strict=True shows where"
    assert [record.message for record in caplog.records] == [
        f"deniable: ui.theme: undeclared: {rule} ui.theme must be {listed}. Its other was reported instead; {where}",
        f"deniable: ui.dark: undeclared: {rule} ui.dark must be True or False. A random one was reported instead; {where}",
    ]
    assert client.stats()["undeclared"] == 6


def test_what_stands_in_for_no_number_is_told(client_of, registry_text, caplog):
    """It is what the metric declares for none, or the low end, and never a random number."""
    number = '[metrics.wait]\ntype = "number"\nrange = [0, 9]\nunit = "s"\nestimate = "mean"\nepsilon = 1\n'
    number += 'description = "How long"\nowner = "core@shop.example"\n'
    later = number.replace("wait", "later").replace("range", "none = 3\nrange")
    client = client_of(dsn="http://canary-key@localhost:8080/shop", registry=parse(f"{registry_text}\n{number}\n{later}"))
    assert client.record("wait", CANARY)
    assert "an answer to wait must be a number. The low end of its range was reported instead" in caplog.records[0].message
    assert client.record("later", 3)
    assert not client.record("later", CANARY)
    assert "later must be a number. This time nothing was reported; strict=True" in caplog.records[-1].message


def test_an_undeclared_answer_is_not_told_elsewhere(client_of, caplog):
    """A log can leave a device without any noise, so nothing that depends on the answer is written there."""
    caplog.set_level(logging.DEBUG)
    client = client_of()
    assert client.record("ui.theme", CANARY)
    assert client.stats()["undeclared"] == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("dsn", "why"), [(None, "no DSN was given; pass one to init, or set DENIABLE_DSN"), (DSN, "DO_NOT_TRACK is set")]
)
def test_why_a_client_is_off_is_told(client_of, monkeypatch, caplog, dsn, why):
    """Whoever wonders where nothing arrives finds the reason in the log."""
    monkeypatch.setenv("DO_NOT_TRACK", "" if dsn is None else "1")
    client_of(dsn=dsn)
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", f"deniable is off: {why}")]


# arrival


@pytest.mark.parametrize("status", [401, 422])
def test_flush_says_whether_all_arrived(client_of, status):
    """Each call speaks of what was recorded since the last one. It is true if the server took all of it, and there was any."""
    post = Fake()
    client = client_of(post)
    assert not client.flush(5)
    client.record("ui.dark", value=True)
    assert client.flush(60)
    assert str(client.flush(60)) == "nothing to send: nothing was recorded since the last call"
    post.status = status
    client.record("ui.dark", value=True)
    lost = client.flush(5)
    assert (bool(lost), lost.pending, lost.refused) == (False, int(status == 401), int(status != 401))
    post.status = 202
    client.record("ui.dark", value=True)
    assert bool(client.flush(60)) is (status != 401)
    assert not client.close(5)


def test_a_report_that_the_server_takes_in_part_did_not_arrive(client_of):
    """Of a batch that was accepted, a report may have been rejected."""
    client = client_of(lambda *_: (202, {}, {"accepted": 1}))
    client.record("ui.dark", value=True)
    client.record("ui.dark", value=True)
    assert not client.flush(5)
    assert client.stats()["rejected"] == 1


def test_what_is_kept_for_later_did_not_arrive(client_of, tmp_path):
    """A report on disk waits for another start; what is closed with all arrived says so."""

    def away(*_):
        raise OSError

    client = client_of(away, state=tmp_path / "away", settings=SenderSettings(max_tries=1))
    client.record("ui.dark", value=True)
    assert not client.flush(5)
    assert not client.close(5)
    assert client.stats()["spooled"] == 1
    client = client_of(state=tmp_path / "there")
    client.record("ui.dark", value=True)
    assert client.close(60)


def test_nothing_arrives_from_a_client_that_is_off(client_of):
    """Nor before `init`."""
    client = client_of(dsn=None)
    client.record("ui.dark", value=True)
    assert not client.flush(5)
    assert not client.close(5)
    assert not deniable.flush(1)


# consent


def test_nothing_without_consent(client_of, sending_threads):
    """Without consent nothing is recorded, randomised or sent."""
    post = Fake()
    client = client_of(post, consent=False)
    assert not client.record("ui.dark", value=True)
    assert not client.flush(5)
    assert client.stats()["dropped"] == {"no_consent": 1}
    assert client.stats()["spent"]["lifetime"] == 0
    assert not post.raw
    assert not sending_threads()


def test_consent_taken_back_while_a_report_is_made(client_of):
    """A report that was being made when another thread took consent back is not sent, also when it is given again."""

    class Slow(Source):
        """In the middle of a draw, another thread takes consent back."""

        def bernoulli(self, num: int, den: int) -> bool:
            thread = threading.Thread(target=client.set_consent, args=(False,))
            thread.start()
            thread.join(60)
            return OS.bernoulli(num, den)

        def below(self, n: int) -> int:
            return OS.below(n)

    post = Fake()
    client = client_of(post, source=Slow())
    client.record("ui.dark", value=True)
    client.set_consent(True)
    assert not client.flush(5)
    assert not post.raw


def test_consent_taken_back_while_the_old_function_answers(client_of):
    """A yes of a function that was replaced by a no in the meantime counts no more: nothing is recorded, nothing is sent."""
    question, answer, post = threading.Event(), threading.Event(), Fake()

    def old():
        question.set()
        assert answer.wait(60)
        return True

    client = client_of(post, consent=old)
    recorded = []
    thread = threading.Thread(target=lambda: recorded.append(client.record("ui.theme", "dark")))
    thread.start()
    assert question.wait(60)
    client.set_consent(False)
    answer.set()
    thread.join(60)
    assert recorded == [False]
    client.flush(1)
    assert client.stats()["dropped"] == {"no_consent": 1}


def test_consent_is_asked_each_time(client_of):
    """A function is asked at each answer."""
    agreed = [False, True, False]
    client = client_of(consent=lambda: agreed.pop(0))
    assert [client.record("ui.dark", value=True) for _ in range(3)] == [False, True, False]


def test_a_consent_that_fails_is_none(client_of):
    """When asking for consent fails, nothing is recorded, and what was recorded before is taken back."""
    agreed = [True]

    def fail() -> bool:
        if agreed:
            return agreed.pop()
        raise RuntimeError(CANARY)

    post = Fake()
    client = client_of(post, consent=fail)
    assert client.record("ui.dark", value=True)
    assert not client.record("ui.dark", value=True)
    assert not client.flush(5)
    assert client.stats()["dropped"] == {"no_consent": 1, "purged": 1}
    assert not post.raw


@pytest.mark.parametrize("no", ["no", lambda: "no", lambda: 1 / 0])
@pytest.mark.parametrize("function", [False, True])
def test_strict_refuses_an_odd_consent_and_takes_it_for_a_no(client_of, no, function):
    """A consent that is neither True nor False raises where the app wants errors, once nothing more can be sent."""
    post, consent = Fake(), [True]
    client = client_of(post, strict=True, consent=(lambda: consent[0]) if function else True)
    assert client.record("ui.dark", value=True)
    consent[0] = no
    ask = (lambda: client.record("ui.dark", value=True)) if function and not callable(no) else (lambda: client.set_consent(no))
    with pytest.raises((ConfigurationError, ZeroDivisionError)):
        ask()
    assert not client.flush(5)
    assert not post.raw


def test_a_function_is_asked_at_once(client_of):
    """A consent that is replaced by a function holds no longer than the call: nothing leaves before that has said yes."""
    post = Fake()
    client = client_of(post)
    assert client.record("ui.dark", value=True)
    client.set_consent(lambda: False)
    assert not client.flush(5)
    assert not post.raw
    assert client.stats()["dropped"] == {"purged": 1}


@pytest.mark.parametrize("no", [False, 0, 1, None, "no", "false", "yes", "", [True], lambda: 1, lambda: "no", lambda: None])
def test_consent_taken_back(client_of, no):
    """Taking consent back drops what was not sent; giving it again begins anew."""
    post = Fake()
    client = client_of(post)
    client.record("ui.dark", value=True)
    client.set_consent(no)
    assert not client.record("ui.dark", value=True)
    assert not client.flush(5)
    assert not post.raw
    assert client.stats()["dropped"] == {"purged": 1, "no_consent": 1}
    client.set_consent(True)
    assert client.record("ui.dark", value=True)
    assert client.flush(60)
    assert sum(group["count"] for group in post.groups) == 1


# off


@pytest.mark.parametrize("name", ["DO_NOT_TRACK", "DENIABLE_DISABLED"])
@pytest.mark.parametrize(("value", "off"), [("1", True), ("true", True), ("no", True), ("0", False), ("", False)])
def test_switches(monkeypatch, client_of, name, value, off):
    """Either variable, set to anything but empty or 0, wins over consent and DSN."""
    monkeypatch.setenv(name, value)
    post = Fake()
    client = client_of(post)
    assert client.record("ui.dark", value=True) is not off
    assert client.flush(60) is not off
    assert bool(post.raw) is not off
    assert client.stats()["disabled"] == (f"{name} is set" if off else None)
    assert client.stats()["dropped"] == ({"disabled": 1} if off else {})


def test_no_dsn(client_of):
    """Without a DSN everything works and nothing is sent."""
    client = client_of(dsn=None)
    assert not client.record("ui.dark", value=True)
    assert not client.flush(1)
    assert not client.close(1)
    assert client.stats()["disabled"] == "no DSN was given; pass one to init, or set DENIABLE_DSN"
    assert "no DSN was given" in repr(client)


def test_dsn_from_the_environment(monkeypatch, client_of):
    """The argument beats the environment."""
    monkeypatch.setenv("DENIABLE_DSN", "https://other@t.example/shop")
    post = Fake()
    for options in ({}, {"dsn": None}):
        client = client_of(post, **options)
        assert client.record("ui.dark", value=True)
        assert client.flush(60)
    assert post.keys == ["Bearer canary-key", "Bearer other"]


def test_plain_http_takes_a_word_of_the_app(client_of, module, registry):
    """Reports go unencrypted to another machine only if the app says so; the environment cannot."""
    plain = DSN.replace("https", "http")
    assert "allow_http=True" in client_of(dsn=plain).stats()["disabled"]
    assert client_of(dsn=plain, allow_http=True).record("ui.dark", value=True)
    module.init(plain, registry=registry, consent=False, segments=SEGMENTS, allow_http=True, caps=FREE)
    assert module.stats()["disabled"] is None


UNUSABLE = [
    ({"registry": "/nonexistent/metrics.toml"}, RegistryError),
    ({"registry": "\0"}, ValueError),
    ({"registry": "~no-such-user-at-all/metrics.toml"}, RuntimeError),
    ({"registry": None}, ParameterError),
    ({"registry": 7}, ParameterError),
    ({"dsn": "nonsense"}, ConfigurationError),
    ({"dsn": "https://key@t.example/another"}, ConfigurationError),
    ({"dsn": "http://canary-key@t.example/shop"}, ConfigurationError),
    ({"segments": ["platform"]}, ParameterError),
    ({"settings": []}, ParameterError),
    ({"settings": {"flush_at": 1}}, ParameterError),
]


@pytest.mark.parametrize(("options", "error"), UNUSABLE)
def test_an_unusable_configuration_is_off(client_of, caplog, options, error):
    """A configuration that cannot be used turns the client off, with a line in the log, and raises nothing."""
    client = client_of(**options)
    assert not client.record("ui.dark", value=True)
    assert not client.record("nosuch", value=True)
    assert not client.flush(1)
    assert client.stats()["disabled"].startswith(error.__name__) is not issubclass(error, DeniableError)
    assert client.stats()["dropped"] == {"disabled": 2}
    assert "nosuch" not in caplog.text
    assert "deniable is off" in caplog.text
    assert "canary-key" not in caplog.text + repr(client)


@pytest.mark.parametrize(("options", "error"), UNUSABLE)
def test_an_unusable_configuration_raises_if_strict(client_of, options, error):
    """The same raises where the app asked for it."""
    with pytest.raises(error):
        client_of(strict=True, **options)


def test_a_mechanism_that_does_not_exist_is_off(client_of, registry_text, tmp_path):
    """So does a registry whose mechanism does not exist."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text.replace('"coin"', '"nosuch"\nepsilon = 1'), "utf-8")
    assert "ui.dark: mechanism = 'nosuch': write one of" in client_of(registry=path).stats()["disabled"]
    path.write_text(registry_text, "utf-8")
    assert client_of(registry=path).stats()["disabled"] is None
    assert client_of(registry=str(path)).record("ui.dark", value=True)


WRONG = [
    ("nosuch", True),
    ("ui.dark", CANARY),
    ("ui.theme", CANARY),
    ("ui.theme", [CANARY]),
    ("ui.theme", {CANARY: CANARY}),
    ("ui.dark", 1),
]


@pytest.mark.parametrize(("metric", "value"), WRONG)
def test_strict_raises_what_is_wrong(client_of, metric, value):
    """In strict mode an unknown metric or answer raises. The message has the answer, the frames have not, and it is reported."""
    client = client_of(strict=True)
    for record in (client.record, lambda id_, answer: client.metric(id_).record(answer)):
        with pytest.raises(ParameterError) as caught:
            record(metric, value)
        assert ("is not declared: an answer to" in str(caught.value)) is (metric != "nosuch")
        ours = [frame.f_locals for frame, _ in walk_tb(caught.tb) if "deniable" in Path(frame.f_code.co_filename).parts]
        assert ours
        assert not [local for frame in ours for local in frame.values() if local is value or local == (metric, value)]
    stats = client.stats()
    counted = (2, 0) if metric == "nosuch" else (0, 2)
    assert (stats["dropped"].get("unknown_metric", 0), stats["undeclared"]) == counted
    assert stats["recorded"] == stats["undeclared"]


class Treacherous:
    """An answer that makes as much trouble as it can, and shouts."""

    def __hash__(self) -> int:
        raise RuntimeError(CANARY)

    def __eq__(self, _other: object) -> bool:
        raise RuntimeError(CANARY)

    def __repr__(self) -> str:
        raise RuntimeError(CANARY)


@pytest.mark.parametrize("metric", ["nosuch", None, [], Treacherous()])
def test_nothing_raises(client_of, metric):
    """Whatever metric is asked for, `record` returns False and counts it."""
    client = client_of()
    assert client.record(metric, Treacherous()) is False
    assert sum(client.stats()["dropped"].values()) == 1


class Ending:
    """An answer during whose reading the program is told to end."""

    def __init__(self, how: type[BaseException]) -> None:
        self._how = how

    @property
    def __class__(self):
        raise self._how

    def __hash__(self) -> int:
        raise self._how


class Endless(list):
    """A list that never ends."""

    def __iter__(self):
        while True:
            yield "x"


class Boastful(int):
    """A number that lies about its size."""

    def __ge__(self, _other: object) -> bool:
        return True

    __le__ = __gt__ = __lt__ = __ge__

    def __int__(self) -> int:
        return 1 << 70


def test_hostile_answers_are_reported_like_others(client_of):
    """Whatever the host's object does when it is read, one report is queued; only the end of the program goes through."""
    declared = parse(STRINGS)
    client = client_of(registry=declared, segments={})
    for answer in (Boastful(5), Boastful(1 << 70), Boastful(-1)):
        assert client.record("crash", answer)
    for answer in (Endless(["x", "yes"]), Endless(), ["x"] * 10**6, Treacherous()):
        assert client.record("both", answer)
    assert client.stats()["recorded"] == 7
    for number, how in enumerate((KeyboardInterrupt, SystemExit), 1):
        for metric in declared.metrics:
            with pytest.raises(how):
                client.record(metric, Ending(how))
        assert client.stats()["recorded"] == 7 + number * len(declared.metrics)


def test_segments_that_never_end(client_of):
    """An object that gives something for every number is no table of segments, and is not read to its end."""

    class Forever:
        def __getitem__(self, _: object) -> str:
            return "linux"

        def get(self, _: object) -> str:
            return "linux"

    client = client_of(segments=Forever())
    assert client.record("ui.theme", "dark")


def test_swapped_arguments_are_told_without_the_answer(client_of, caplog):
    """Who gives the answer first and the metric second is told so, and the answer is not repeated."""
    with pytest.raises(ParameterError, match="the arguments are swapped") as caught:
        client_of(strict=True).record(CANARY, "ui.theme")
    assert CANARY not in str(caught.value)
    ours = [frame.f_locals for frame, _ in walk_tb(caught.tb) if "deniable" in Path(frame.f_code.co_filename).parts]
    assert CANARY not in str(ours)
    assert not client_of().record(CANARY, "ui.theme")
    for answer in ([CANARY], {CANARY}, None, 7):  # a set's answer cannot be looked up
        client = client_of()
        assert not client.record(answer, "ui.theme")
        assert client.stats()["dropped"] == {"swapped": 1}
        with pytest.raises(ParameterError, match="the arguments are swapped"):
            client_of(strict=True).record(answer, "ui.theme")
    assert CANARY not in caplog.text


def test_no_entropy_no_report(client_of, monkeypatch):
    """When the system refuses randomness, nothing is reported and the loss is counted."""
    post = Fake()
    client = client_of(post)
    assert client.record("ui.dark", value=True)  # so that there is a state, which needs a secret
    assert client.flush(60)
    post.raw.clear()
    mechanisms.of.cache_clear()
    fresh = client_of(post)

    def refuse(_size: int) -> bytes:
        raise OSError("no entropy")

    with monkeypatch.context() as patch:
        patch.setattr("deniable.source.os.urandom", refuse)
        assert not fresh.record("ui.theme", "dark")
    assert fresh.stats()["dropped"] == {"error": 1}
    assert fresh.stats()["recorded"] == 0
    assert client.flush(60).status == "nothing to send"
    assert not post.raw


def test_a_full_queue(client_of):
    """Reports beyond the queue are dropped and counted, and cost nothing."""
    client = client_of(settings=SenderSettings(flush_at=100, flush_interval=60, queue_size=3))
    assert [client.record("ui.dark", value=True) for _ in range(5)] == [True] * 3 + [False] * 2
    assert client.stats()["dropped"] == {"queue_full": 2}
    client.close(60)
    assert client.stats()["spent"]["lifetime"] == pytest.approx(3 * LN3, abs=1e-5)


def test_after_close(client_of):
    """A closed client takes nothing more."""
    post = Fake()
    client = client_of(post)
    with client as same:
        assert same is client
        assert client.record("ui.dark", value=True)
    assert len(post.raw) == 1
    assert not client.record("ui.dark", value=True)
    assert client.stats()["dropped"] == {"closed": 1}


def test_flush_and_close_keep_their_deadline(client_of):
    """While the server hangs, both return in time, and nothing has arrived, where nothing is kept for the next start."""
    release = threading.Event()
    client = client_of(lambda *_: release.wait(300) and (202, {}, None), state=None)
    client.record("ui.dark", value=True)
    try:
        began = monotonic()
        assert not client.flush(0.1)
        assert not client.close(0.1)
        assert monotonic() - began < 60
    finally:
        release.set()


@pytest.mark.parametrize("timeout", ["soon", None, float("inf"), float("nan")])
def test_a_strange_timeout_raises_nothing(client_of, timeout):
    """With nothing to wait for, no timeout does harm."""
    assert client_of().flush(timeout).status == "nothing to send"


# what a developer is told


def test_a_metric_that_is_not_declared_is_told_once(client_of, caplog):
    """Recording what the registry does not declare is a line in the log, without the answer."""
    client = client_of()
    for _ in range(3):
        client.record("ui.tehme", CANARY)
        client.metric("ui.drak").record(CANARY)
    about = f"{ANSWERS['unknown_metric'].words()}; the name itself is told where the DSN leads to localhost, and with strict=True"
    assert [record.message for record in caplog.records] == [
        f"deniable: ui.theme: unknown_metric: record was given a similar name, and {about}",
        f"deniable: ui.dark: unknown_metric: record was given a similar name, and {about}",
    ]
    assert client.stats()["dropped"] == {"unknown_metric": 6}


def test_a_mistyped_metric_in_the_place_of_the_answer_tells_no_answer(client_of, caplog):
    """With swapped arguments and a typo the first argument is the answer: it is in no warning."""
    client_of().record(CANARY, "ui.tehme")
    assert len(caplog.records) == 1
    assert CANARY not in caplog.text


def test_an_answer_in_the_place_of_the_metric_is_not_told(client_of, caplog):
    """Where metric and answer have changed places, it is the metric that is named."""
    client = client_of()
    client.record(CANARY, "ui.theme")
    client.record(CANARY.encode(), value=True)
    assert [record.message for record in caplog.records] == [
        "deniable: ui.theme: swapped: the arguments are swapped; write the metric first, and then the answer",
        "deniable: record: unknown_metric: the metric is no text but of type bytes; write its id first",
    ]
    assert client.stats()["dropped"] == {"swapped": 1, "unknown_metric": 1}


def test_a_segment_that_is_not_declared_is_told(client_of, caplog):
    """A segment that no registry knows is not sent, which is told; its value is not."""
    client = client_of(segments=SEGMENTS | {"color": CANARY})
    assert client.stats()["disabled"] is None
    client.record("ui.dark", value=True)
    (record,) = caplog.records
    assert record.message == "deniable: segment color: unknown_segment: the registry declares no such segment, so it is not sent"


def test_a_stale_registry_is_told(client_of, registry_text, caplog):
    """When the server knows a metric otherwise, or not at all, the log says which, and `stats` how many reports."""
    newer = registry_text.replace("epsilon = 1.0", "epsilon = 1.5").replace('"ui.dark"', '"ui.other"')
    with StubServer(parse(newer), key="pk_12345678") as server:
        client = client_of(HttpPost(f"{Dsn.parse(server.dsn).url}/v1/reports"), dsn=server.dsn)
        for _ in range(2):
            client.record("ui.theme", "dark")
            client.record("ui.dark", value=True)
            assert not client.flush(10)
    assert client.stats()["refusals"] == {"ui.dark: unknown_metric": 2, "ui.theme: definition_mismatch": 2}
    messages = [record.message for record in caplog.records]
    assert [line.rpartition(": ")[0] for line in messages] == [
        "deniable: ui.dark: unknown_metric",
        "deniable: ui.theme: definition_mismatch",
    ]


def test_a_wrong_key_is_told(client_of, registry, caplog):
    """When the server does not know the key, the log says so. What was made waits on disk, and nothing more is recorded."""
    with StubServer(registry, key="pk_12345678") as server:
        dsn = server.dsn.replace("pk_12345678", "canary-key")
        client = client_of(HttpPost(f"{Dsn.parse(server.dsn).url}/v1/reports"), dsn=dsn)
        for _ in range(2):
            client.record("ui.theme", "dark")
            assert not client.flush(10)
    assert (client.stats()["dropped"], client.stats()["spooled"]) == ({"refused_key": 1}, 1)
    first, second = caplog.messages
    assert first.startswith("deniable: status 401: unknown_key: ")
    assert second.startswith("deniable: all metrics: refused_key: ")
    assert "canary-key" not in caplog.text


def test_a_key_of_another_app_costs_no_report(client_of, registry, caplog):
    """The server says which app the key is of. What was made waits, and is sent once the DSN is correct."""
    with StubServer(replace(registry, app="blog")) as other, StubServer(registry) as right:
        client = client_of(HttpPost(f"{Dsn.parse(other.dsn).url}/v1/reports"), dsn=other.dsn.replace("/blog", "/shop"))
        client.record("ui.theme", "dark")
        arrival = client.flush(10)
        assert (arrival.status, arrival.pending, client.stats()["spooled"]) == ("not delivered", 1, 1)
        words = CODES["other_app"].words("it says 'the key is of app blog, and the reports are of app shop'")
        assert words.count("key") == words.count("write") == 1  # each thing is said once
        assert f"why: status 403: {words}" in str(arrival)
        assert f"status 403: other_app: {words}" in caplog.text
        client.close()
        assert client_of(HttpPost(f"{Dsn.parse(right.dsn).url}/v1/reports"), dsn=right.dsn).flush(10).sent == 1


# what the answer does not reach


def test_the_answer_is_nowhere(client_of, registry_text, caplog, capsys):
    """A raw answer is in no log, no output, no count, no repr and no request, whether it is valid or not."""
    caplog.set_level(logging.DEBUG)
    text = registry_text.replace('"dark"', f'"{CANARY}"')
    post = Fake(400)
    client = client_of(post, registry=parse(text))
    handle = client.metric("ui.theme")
    for value in (CANARY, f"{CANARY}!", [CANARY], {CANARY: 1}, CANARY.encode(), Treacherous()):
        client.record("ui.theme", value)
        handle.record(value)
        client.record("ui.dark", value)
        client.record("nosuch", value)
    assert not client.flush(10)
    out, err = capsys.readouterr()
    assert client.stats()["recorded"] == 18
    assert client.stats()["undeclared"] == 16
    sent = b"".join(post.raw).decode()
    for place in (caplog.text, out, err, repr(client), repr(client.stats()), sent):
        assert CANARY not in place
    assert "canary-key" not in caplog.text + out + err + repr(client) + sent
    assert [group["metric"] for group in post.groups] == ["ui.dark", "ui.theme"]


def test_nothing_keeps_the_answer(client_of):
    """Once `record` has returned, no object of the client refers to the answer."""
    import gc

    client = client_of()
    answer = b"dark".decode()  # an object of its own, equal to a declared value
    before = sys.getrefcount(answer)
    assert client.record("ui.theme", answer)
    gc.collect()
    assert sys.getrefcount(answer) == before


def test_reports_of_all_answers_have_one_size(client_of):
    """The body's length does not depend on the answers."""
    lengths = set()
    for value in ("light", "dark", "system"):
        post = Fake()
        client = client_of(post, caps=FREE)
        for _ in range(20):
            client.record("ui.theme", value)
        assert client.flush(60)
        lengths.add(len(b"".join(post.raw)))
    assert len(lengths) == 1


# threads


@pytest.fixture
def _busy_switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_busy_switching")
def test_threads_lose_no_count(client_of):
    """Eight threads record at once, and every answer is accounted for, on both ends."""
    post = Fake()
    client = client_of(post, settings=SenderSettings(flush_at=50, flush_interval=60, queue_size=100_000))
    start = threading.Barrier(8)
    queued: list[int] = []

    def work() -> None:
        start.wait()
        taken = 0
        for i in range(150):
            taken += client.record("ui.dark", value=bool(i % 2))
            taken += client.record("ui.theme", "light")
            client.record("nosuch", i)
            client.record("ui.theme", i)
        queued.append(taken)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    arrival = client.flush(60)
    assert (arrival.status, arrival.sent, arrival.dropped) == ("incomplete", 8 * 450, {"unknown_metric": 8 * 150})
    stats = client.stats()
    assert sum(queued) + 8 * 150 == stats["recorded"] == stats["sent"] == 8 * 450
    assert stats["dropped"] == {"unknown_metric": 8 * 150}
    assert stats["undeclared"] == 8 * 150
    assert sum(group["count"] for group in post.groups) == 8 * 450
    client.close(60)
    assert client.stats()["spent"]["lifetime"] == pytest.approx(8 * 150 * (LN3 + 2), abs=0.02)


def test_every_reason_is_ready(client_of):
    """No reason for a drop begins to exist at its first drop, where threads would lose a count."""

    class Odd(str):
        __slots__ = ()

        def __hash__(self) -> int:
            raise ZeroDivisionError

    client = client_of()
    assert client.stats()["dropped"] == {}
    client.record("nosuch", 1)
    client.record("old", value=True)
    client.record(Odd("ui.dark"), value=True)
    client.set_consent(False)
    client.record("ui.dark", value=True)
    client.set_consent(True)
    client.close(1)
    client.record("ui.dark", value=True)
    dropped = client.stats()["dropped"]
    assert set(dropped) == {"unknown_metric", "expired", "error", "no_consent", "closed"}
    assert set(dropped) <= set(Counts().dropped) == set(ANSWERS)


# periods


def test_the_period_follows_the_clock(client_of):
    """A report carries the period of its moment."""
    post = Fake()
    now = [datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()]
    client = client_of(post, clock=lambda: now[0])
    client.record("ui.dark", value=True)
    now[0] += 1
    client.record("ui.dark", value=True)
    assert client.flush(60)
    assert [group["period"] for group in post.groups] == ["2026-12-31", "2027-01-01"]


# settings


def test_settings_from_the_environment(monkeypatch):
    """Each setting has its variable."""
    for name, value in {"FLUSH_AT": "7", "FLUSH_INTERVAL": "2.5", "QUEUE_SIZE": "9", "TIMEOUT": "0.5", "MAX_TRIES": "2"}.items():
        monkeypatch.setenv(f"DENIABLE_{name}", value)
    assert sender_settings() == SenderSettings(7, 2.5, 9, 0.5, 2)


@pytest.mark.parametrize("value", ["", "x", "0", "-1", "nan", "inf", "1e300", "-inf"])
@pytest.mark.parametrize("name", ["FLUSH_AT", "FLUSH_INTERVAL", "QUEUE_SIZE", "TIMEOUT", "MAX_TRIES"])
def test_a_bad_setting_is_logged(monkeypatch, caplog, name, value):
    """A value that cannot be used is logged, and the default is used."""
    monkeypatch.setenv(f"DENIABLE_{name}", value)
    assert sender_settings() == SenderSettings()
    assert f"DENIABLE_{name} is " in caplog.text


def test_settings_reach_the_sender(monkeypatch, client_of):
    """The environment's settings are used where none are given."""
    monkeypatch.setenv("DENIABLE_QUEUE_SIZE", "1")
    client = client_of(settings=None)
    assert [client.record("ui.dark", value=True) for _ in range(2)] == [True, False]


# explanations


def test_explain_sends_nothing(client_of):
    """An explanation is drawn locally; nothing is recorded or sent."""
    post = Fake()
    client = client_of(post, consent=False)
    explanation = client.explain("ui.theme", "dark")
    assert explanation.report
    assert client.stats()["recorded"] == 0
    assert not client.flush(1)
    assert not post.raw


def test_explain_refuses(client_of):
    """An unknown metric has no explanation, and an undeclared answer the example of another; a strict client raises for both."""
    client = client_of()
    assert client.explain("nosuch") is None
    assert len(client.explain("ui.theme", CANARY).report) == 2 * client.explain("ui.theme").report_bytes
    assert client.stats()["dropped"] == {}, "it is no error of ours"
    strict = client_of(strict=True)
    with pytest.raises(ParameterError, match="'nosuch' is not declared in the registry"):
        strict.explain("nosuch")
    for explain in (strict.explain, strict.__class__.explain.__get__(strict)):
        with pytest.raises(DeniableError) as caught:
            explain("ui.theme", CANARY)
        assert str(caught.value).startswith(f"'{CANARY}' is not declared: an answer to ui.theme must be one of ")
        ours = [frame.f_locals for frame, _ in walk_tb(caught.tb) if "deniable" in Path(frame.f_code.co_filename).parts]
        assert ours
        assert CANARY not in str([{name: each for name, each in local.items() if name != "self"} for local in ours])


@pytest.mark.parametrize(
    ("metric", "answer", "words"),
    [
        ("ui.tehme", None, "explain: 'ui.tehme': not declared in the registry; did you mean 'ui.theme'?"),
        ("ui.theme", "drak", "ui.theme: explain: 'drak' is not declared: an answer to ui.theme must be one of "),
        ("dark", "ui.theme", "explain: 'dark': the arguments are swapped; write the metric first, and then the answer"),
    ],
)
def test_what_cannot_be_explained_is_told(client_of, caplog, monkeypatch, metric, answer, words):
    """While developing with what may have been meant; on people's devices nothing is said of an answer, or of what may be one."""
    monkeypatch.setattr("deniable.messages.notice._warned", set())
    client = client_of()
    client.developed = True  # as under `python -X dev`, with a DSN that leads elsewhere
    client.explain(metric, answer)
    private = [] if metric == "ui.theme" else [f"deniable: explain: unknown_metric: {_UNEXPLAINED}"]
    assert caplog.messages == private
    caplog.clear()
    client_of(dsn="http://canary-key@localhost/shop").explain(metric, answer)
    (line,) = caplog.messages
    assert line.startswith(f"deniable: {words}")
    assert ("did you mean 'dark'?" in line) is (answer == "drak")


def test_what_is_off_or_has_no_registry_is_explained_so(client_of, caplog, monkeypatch):
    """The log says why, since None does not."""
    monkeypatch.setattr("deniable.messages.notice._warned", set())
    client_of(segments={}).explain("ui.theme")
    assert caplog.messages[-1].startswith(
        "deniable: explain: 'ui.theme': ui.theme is off: the segment platform is missing: pass segments"
    )
    client_of(registry="/nowhere/metrics.toml").explain("ui.dark")
    assert 'no metric is declared, since no registry is in use; the line "deniable is off" says why' in caplog.messages[-1]


# the one of the process


@pytest.fixture
def module(monkeypatch):
    """Give the package as before `init`, whatever the tests did with it."""
    monkeypatch.setattr(deniable, "_client", None)
    monkeypatch.setattr(deniable, "_early", 0)
    monkeypatch.setattr("deniable.process.exits.at_exit", lambda *_: None)
    yield deniable
    deniable.close(60)


def test_before_init(module, client_of, caplog, monkeypatch):
    """Before `init` everything is a no-op that says so."""
    monkeypatch.setattr("deniable.messages.notice._warned", set())
    assert module.record("ui.dark", value=True) is False
    assert module.metric("ui.dark").record(value=True) is False
    assert not module.flush(1)
    assert not module.close(1)
    module.set_consent(True)
    stats = module.stats()
    begun = client_of(registry=Registry("shop", {})).stats()
    assert stats | {"disabled": None, "dropped": {}} == begun | {"spent": stats["spent"]}
    assert (stats["disabled"], stats["dropped"]) == ("deniable.init was not called", {"before_init": 2})
    assert set(stats["spent"].values()) == {None}
    assert module.explain("ui.dark") is None
    assert "deniable: explain: before_init: deniable.init was not called, so nothing can be explained" in caplog.text
    assert module.journal() == []


def test_one_client_for_the_process(module, registry):
    """`init` starts the client that the functions drive, also for handles made before; a second one replaces it."""
    handle = module.metric("ui.dark")
    first = module.init(registry=registry, consent=True, segments=SEGMENTS, caps=FREE)
    assert isinstance(first, Client)
    assert handle.record(value=True) is False
    assert module.stats()["dropped"] == {"disabled": 1}
    assert module.explain("ui.dark").mechanism == "coin"
    module.set_consent(False)
    second = module.init(DSN, registry=registry, consent=True, segments=SEGMENTS, caps=FREE)
    assert second is not first
    assert module.stats()["dropped"] == {}


def test_a_second_client_for_the_process_is_told_while_developing(module, registry, caplog):
    """Not where the first one was off or closed, nor on people's devices."""
    lines = []
    here = "http://k@localhost/shop"
    for dsn in (None, here, "close", here, DSN, here):
        if dsn == "close":
            module.close(1)
            continue
        module.init(dsn, registry=registry, consent=False, segments=SEGMENTS, caps=FREE)
        lines.append("deniable: init: again: this client has replaced the one of an earlier init; call init once" in caplog.text)
    assert lines == [False, False, False, False, True]


def test_the_public_names():
    """Everything public exists."""
    assert all(hasattr(deniable, name) for name in deniable.__all__)
    assert deniable.__all__ == sorted(deniable.__all__, key=lambda name: (name[0].islower(), name))


def test_a_consent_that_ends_takes_back_what_is_queued(client_of):
    """When a consent function turns False, what was recorded before and not sent is dropped at the next record."""
    agreed = [True]
    post = Fake()
    client = client_of(post, consent=lambda: agreed[0])
    assert client.record("ui.theme", "dark")
    agreed[0] = False
    assert not client.record("ui.theme", "dark")
    assert not client.flush(10)
    assert not post.groups
    assert client.stats()["dropped"]["purged"] == 1


def test_a_registry_that_is_no_path():
    """The client says what to write; the type is enough, since what was given may be anything."""
    client = Client(dsn="http://k@localhost/shop", registry={"app": "shop"}, consent=True)
    assert client.stats()["disabled"] == "registry: write the path of metrics.toml, not an object of type dict"
