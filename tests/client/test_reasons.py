"""Nothing is dropped silently: each reason is said once, with what to do, and the table of reasons is complete."""

from __future__ import annotations

import ast
import logging
import re
import socket
import threading
from datetime import UTC, date, datetime, time
from pathlib import Path

import pytest
from registries import metric_toml, registry_toml
from senders import Fake as Post
from senders import problem, reports
from waiting import eventually

import deniable
from deniable.arrival import Arrival
from deniable.client import Client
from deniable.client.undeclared import clipped
from deniable.errors import ParameterError, StateError
from deniable.limits.caps import Caps
from deniable.messages import notice
from deniable.messages.reasons import (
    ANSWERS,
    CODES,
    FAILURES,
    INSTEAD,
    LOSSES,
    OF_PEOPLE,
    REFUSALS,
    SERVED,
    STATUSES,
    of_answer,
    of_refusal,
)
from deniable.registry import parse
from deniable.registry.tables import Budget
from deniable.testing import StubServer
from deniable.transport import SenderSettings, Spool
from deniable.transport.delivery import Delivery
from deniable.transport.dsn import Dsn
from deniable.transport.failures import failure
from deniable.transport.http import HttpPost
from deniable.transport.network import Courier, Orders
from deniable.wire.batch import Batch

ROOT = Path(__file__).parents[2]
DSN = "https://canary-key@t.example/shop"
CANARY = "canary-4c1e"
FREE = Caps(budget=Budget(per_month=None, lifetime=None))
OFTEN = metric_toml("often", per_period=100)
REGISTRY = registry_toml(
    metric_toml("ui.theme", values=["light", "dark"]),
    metric_toml("rare", sample=0.000001),
    metric_toml("old", expires=date(2001, 1, 1)),
    OFTEN,
    metric_toml("size", range=[0, 10], unit="bytes", estimate="mean"),
    metric_toml("split", segments=["arm"]),
    segments={"arm": ["a", "b"]},
    budget={},
    caps={},
)


@pytest.fixture
def client_of(caplog):
    """Make clients whose reports go to a fake server, and close them after the test."""
    caplog.set_level(logging.INFO)
    clients: list[Client] = []

    def make(post=None, **options) -> Client:
        defaults = {
            "dsn": DSN,
            "registry": parse(REGISTRY),
            "consent": True,
            "segments": {"arm": "a"},
            "settings": SenderSettings(flush_interval=60),
            "caps": FREE,
        }
        clients.append(Client(post=post or (lambda *_: (202, {}, None)), **(defaults | options)))
        return clients[-1]

    yield make
    for client in clients:
        client.close(60)


class Case:
    """What a drop is made with: clients, and patches that last as long as the test."""

    def __init__(self, client_of, patch, folder) -> None:
        self.client = client_of
        self.patch = patch
        self.folder = folder


@pytest.fixture
def case(client_of, monkeypatch, tmp_path):
    return Case(client_of, monkeypatch, tmp_path)


def _before_init(case):
    case.patch.setattr(deniable, "_client", None)
    case.patch.setattr(deniable, "_early", 0)
    case.patch.setattr(deniable, "_early_seen", False, raising=False)
    case.patch.setattr(notice, "_warned", set())
    return lambda: deniable.record("ui.theme", CANARY)


def _disabled(case):
    client = case.client(dsn=None)
    return lambda: client.record("ui.theme", CANARY)


def _nobody(case):
    people = deniable.people(registry=case.client()._metrics.registry, key="0" * 32, store=case.folder, consent=lambda _: True)
    return lambda: people.person(None).record("ui.theme", CANARY)


def _no_consent(case):
    client = case.client(consent=False)
    return lambda: client.record("ui.theme", CANARY) or client.record("often", CANARY)


def _unknown_metric(case):
    client = case.client()
    return lambda: client.record("nothing.like.it", CANARY)


def _swapped(case):
    client = case.client()
    return lambda: client.record(CANARY, "ui.theme")


def _off(case):
    client = case.client(segments={})
    return lambda: client.record("split", CANARY)


def _expired(case):
    client = case.client()
    return lambda: client.record("old", CANARY)


def _unit(case):
    client = case.client()
    return lambda: client.record_time("size", 1.0)


def _not_sampled(case):
    case.patch.setattr("deniable.device.prepared.Prepared.sampled", lambda *_: False)
    client = case.client()
    return lambda: client.record("often", CANARY)


def _this_period(case):
    client = case.client()
    assert client.record("ui.theme", "dark")
    return lambda: client.record("ui.theme", CANARY)


def _refused_period(case):
    refusal = {"errors": [{"group": 0, "code": "unknown_metric", "count": 1}]}
    client = case.client(lambda *_: (422, {}, problem("all_rejected", **refusal)))
    assert client.record("ui.theme", "dark")
    assert not client.flush(60)
    client.close(60)
    later = case.client()  # an earlier run's refusal is known, too
    return lambda: client.record("ui.theme", CANARY) or later.record("ui.theme", CANARY)


def _budget(case):
    now = [datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()]
    registry = parse(REGISTRY.partition('[metrics."rare"]')[0] + 'period = "month"\n')
    client = case.client(
        registry=registry,
        caps=Caps(budget=Budget(per_month=1, lifetime=2)),
        segments={},
        state=None,
        clock=lambda: now[0],
    )
    for _ in range(2):
        assert client.record("ui.theme", "dark")
        now[0] += 31 * 86_400
    return lambda: client.record("ui.theme", CANARY)


def _state(case):
    client = case.client()

    def fail(*_):
        raise StateError

    case.patch.setattr(client._session.state, "transaction", fail)
    client._session.state.trouble = case.trouble = "/some/folder is full; make room"
    return lambda: client.record("ui.theme", CANARY) or client.record("often", CANARY)


def _queue_full(case):
    client = case.client(settings=SenderSettings(flush_interval=60, queue_size=1))
    assert client.record("often", value=True)
    return lambda: client.record("ui.theme", CANARY) or client.record("often", CANARY)


def _closed(case):
    client = case.client()
    client.close(60)
    return lambda: client.record("ui.theme", CANARY) or client.record("often", CANARY)


def _refused_key(case):
    client = case.client(lambda *_: (401, {}, problem("unknown_key")))
    client.record("often", value=True)
    assert not client.flush(60)
    return lambda: client.record("ui.theme", CANARY)


def _no_thread(case):
    case.patch.setattr("deniable.transport.Sender._start", lambda *_, **__: False)
    client = case.client()
    return lambda: client.record("ui.theme", CANARY)


def _interrupted(case):
    def consent() -> bool:
        assert not client.record("ui.theme", CANARY)
        return True

    client = case.client(consent=consent)
    return lambda: not client.record("often", value=True)


def _error(case):
    client = case.client()

    def fail(*_, **__):
        raise ZeroDivisionError(CANARY)

    case.patch.setattr(client._session.ledger, "spend", fail)
    return lambda: client.record("ui.theme", CANARY)


DROPS = {
    "before_init": (_before_init, "all metrics"),
    "disabled": (_disabled, None),
    "nobody": (_nobody, "all metrics"),
    "no_consent": (_no_consent, "all metrics"),
    "unknown_metric": (_unknown_metric, "record"),
    "swapped": (_swapped, "ui.theme"),
    "off": (_off, "split"),
    "expired": (_expired, "old"),
    "unit": (_unit, "size"),
    "not_sampled": (_not_sampled, "often"),
    "this_period": (_this_period, "ui.theme"),
    "refused_period": (_refused_period, "ui.theme"),
    "budget": (_budget, "ui.theme"),
    "state": (_state, "all metrics"),
    "queue_full": (_queue_full, "all metrics"),
    "closed": (_closed, "all metrics"),
    "refused_key": (_refused_key, "all metrics"),
    "no_thread": (_no_thread, "all metrics"),
    "interrupted": (_interrupted, "all metrics"),
    "error": (_error, "record"),
}
"""How an answer is dropped for each reason, and of what the log speaks then."""


@pytest.mark.parametrize("reason", ANSWERS)
def test_an_answer_that_is_dropped_is_told_once(case, caplog, reason):
    """Each reason is a warning at once, with what happened and what to do, and only once; no line has the answer."""
    drop, subject = DROPS[reason]
    dropped = drop(case)
    for _ in range(3):
        assert not dropped()
    words = ANSWERS[reason]
    if subject is None:
        lines = [line for line in caplog.messages if line.startswith("deniable is off: no DSN was given; pass one to init")]
    else:
        lines = [line for line in caplog.messages if line.startswith(f"deniable: {subject}: {reason}: {words.happened}")]
        assert all((FACTS[reason] if words.in_facts else words.remedy) in line for line in lines)
    assert len(lines) == 1, caplog.messages
    assert all(record.levelname == "WARNING" for record in caplog.records if record.message in lines)
    assert CANARY not in caplog.text


def test_a_store_that_refuses_the_server_may_run_all_the_same():
    """It may be away, full of clients, or refuse the password: only the server knows, and its operator reads it there."""
    words = of_answer(503, "store_unavailable").words()
    assert words.startswith("the server cannot use its store; ")
    assert words.endswith("; the server's log says why, and so does `deniable doctor` there")


def test_every_reason_is_dropped_for():
    """The table above has each of them."""
    assert set(DROPS) == set(ANSWERS)


FACTS = {
    "expired": "on 2001-01-01",
    "unit": "it is bytes",
    "this_period": "1 in each day",
    "refused_period": f"unknown_metric: {REFUSALS['unknown_metric'].happened}",
    "budget": "2 nats ever; raise `lifetime` of the budget",
    "state": "/some/folder is full",
    "off": 'the segment arm is missing: pass segments={"arm": "a"} to init, with one of a, b',
    "error": "ZeroDivisionError",
    "not_sampled": "it is 1",
}


@pytest.mark.parametrize(("reason", "facts"), FACTS.items())
def test_the_facts_of_a_case(case, caplog, reason, facts):
    """Where the registry or the device knows more, a line has it."""
    DROPS[reason][0](case)()
    assert f": {reason}: {ANSWERS[reason].words(facts)}" in caplog.text


@pytest.mark.parametrize(
    ("lifetime", "period", "facts"),
    [
        (900, "month", "3 nats in this month; it goes on next month"),
        (15, "month", "3 nats ever; raise `lifetime` of the budget"),
        (15, "week", "15 nats ever; raise `lifetime` of the budget, or declare a longer `period`, so that its part lasts"),
    ],
)
def test_what_to_do_about_a_budget_that_is_spent(client_of, caplog, tmp_path, lifetime, period, facts):
    """An earlier file of the app has spent this month's, or that of all months. A longer period is advised where there is one."""

    def record(version, epsilon, period):
        metric = metric_toml("a", epsilon=epsilon, period=period, version=version)
        text = registry_toml(metric, budget={"per_month": 15, "lifetime": lifetime}, caps={"epsilon": 16})
        client = client_of(registry=parse(text), caps=None, segments={}, state=tmp_path)
        return client.record("a", value=True)

    assert record(1, 14, "month")
    assert not record(2, 3, period)
    assert [line.partition("spend: ")[2] for line in caplog.messages if ": budget: " in line] == [facts]


def test_each_metric_has_its_own_line(client_of, caplog):
    """A reason of one metric is told of another one, too."""
    client = client_of()
    for metric in ("ui.theme", "ui.theme", "size", "size"):
        client.record(metric, 1)
    assert [line.split(": ")[1:3] for line in caplog.messages] == [["ui.theme", "this_period"], ["size", "this_period"]]


@pytest.mark.parametrize("developed", [True, False])
def test_a_repeated_answer_is_named_alone(client_of, caplog, tmp_path, developed):
    """A line names what was dropped, and no metric that was not recorded again; while developing it says how to do so."""
    options = {"dsn": "http://canary-key@localhost/shop" if developed else DSN, "state": tmp_path}
    answers = {"ui.theme": "dark", "size": 1, "split": True}
    for recorded in (answers, ("ui.theme",), ("ui.theme", "size")):
        client = client_of(**options)
        for metric in recorded:
            client.record(metric, answers[metric])
        client.close(60)
    words = ANSWERS["this_period"].words("1 in each day")
    of = {metric: f"deniable: {metric}: this_period: {words}" for metric in answers}
    hint = [f"deniable: while developing: this_period: {ANSWERS['this_period'].developing}"] if developed else []
    expected = [of["ui.theme"], *hint, of["ui.theme"], *hint, of["size"]]
    assert [line for line in caplog.messages if ": this_period: " in line] == expected
    assert all(len(line) < 180 for line in expected)


def test_drops_are_in_the_table():
    """Whoever drops an answer or counts a loss names a reason of the table."""
    known = {*ANSWERS, *LOSSES, "sent", "rejected", "spooled"}
    calls = {"drop", "_drop", "count", "settle"}
    named = set()
    for path in (ROOT / "client" / "deniable").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            function = node.func if isinstance(node, ast.Call) else None
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
            if name in calls and path.parent.name in ("client", "transport", "device"):
                texts = [part.value for argument in node.args for part in ast.walk(argument) if isinstance(part, ast.Constant)]
                named |= {
                    text for text in texts if isinstance(text, str) and text.isidentifier() and text not in ("http_", "refused")
                }
    assert {"budget", "interrupted"} - named == {"budget"}, "the search finds what is written as text"
    assert named - known == set()


def test_every_code_of_the_server_has_words():
    """Each code by which a server refuses an upload, or reports in it, is in the table with what to do; and no other."""
    folder = ROOT / "docs" / "reference" / "http"
    common, page = ((folder / name).read_text("utf-8") for name in ("index.md", "uploads.md"))
    upload, _, groups = page.partition("## `GET /v1/registry`")[0].partition("Codes of rejected groups and reports:")

    def codes(text, column):
        rows = [line.split("|")[column] for line in text.splitlines() if line.startswith("|")]
        return {code for row in rows for code in re.findall(r"`(\w+)`", row)}

    assert codes(groups, 1) == set(REFUSALS)
    assert codes(common, 2) | codes(upload, 2) == set(CODES)


@pytest.mark.parametrize("table", [ANSWERS, OF_PEOPLE, LOSSES, FAILURES, CODES, STATUSES, REFUSALS, SERVED])
def test_reasons_are_short_lines(table):
    """Each says what happened and what to do, in one line that the log does not cut."""
    for name, reason in table.items():
        assert reason.happened, name
        assert reason.remedy, name
        words = reason.words("x" * 200)
        assert words.isascii(), name
        assert words.isprintable(), name
        assert len(words) <= notice._LONGEST_WORDS, name
        assert "|" not in words, "it is a cell of a table"


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (401, "unknown_key", CODES["unknown_key"]),
        (401, None, STATUSES[400]),
        (200, None, STATUSES[200]),
        (418, "teapot", of_answer(400, "of_tomorrow")),
        (418, None, STATUSES[400]),
        (307, None, STATUSES[300]),
        (501, None, STATUSES[400]),  # of a server that knows no POST
        (599, None, STATUSES[500]),
    ],
)
def test_an_answer_has_words(status, code, reason):
    """A code that is known, or the status, or its kind."""
    assert of_answer(status, code) is reason
    assert of_answer(777, None).remedy
    assert of_refusal("of_tomorrow").remedy


# segments


@pytest.mark.parametrize(
    ("segments", "wrong", "meant"),
    [
        ({}, "is missing", "a"),
        ({"arm": "c"}, "is 'c', which is not declared", "a"),
        ({"arm": "B"}, "is 'B', which is not declared", "b"),
        ({"amr": "a"}, "is missing", "a"),
    ],
)
def test_only_metrics_with_the_segment_stop(client_of, caplog, segments, wrong, meant):
    """What lacks a value, or has another one than declared, is told at once; other metrics go on."""
    client = client_of(segments=segments)
    (line,) = [line for line in caplog.messages if ": off: " in line]
    why = f'the segment arm {wrong}: pass segments={{"arm": "{meant}"}} to init, with one of a, b'
    assert f"split: off: the metric is off ({why}); " in line
    assert ("the registry declares no such segment, so it is not sent; did you mean 'arm'?" in caplog.text) is ("amr" in segments)
    assert client.record("ui.theme", "dark")
    assert not client.record("split", value=True)
    assert client.stats()["dropped"] == {"off": 1}
    assert client.explain("split") is None
    assert client.flush(60).sent == 1


def test_a_missing_segment_raises_if_strict(client_of):
    """A strict client says at once what is missing."""
    with pytest.raises(
        ParameterError, match=r'the segment arm is missing: pass segments=\{"arm": "a"\} to init, with one of a, b'
    ):
        client_of(segments={}, strict=True)


def test_metrics_that_stop_for_one_reason_share_a_line(client_of, caplog):
    """It names them, and of many the first."""
    many = "".join(metric_toml(f"split{number:02}", segments=["arm"], period="month") for number in range(28))
    client = client_of(registry=parse(registry_toml(many, segments={"arm": ["a", "b"]})), segments={})
    (line,) = caplog.messages
    first = ", ".join(f"split{number:02}" for number in range(20))
    assert line.startswith(f"deniable: {first} and 8 more: off: the metric is off (the segment arm is ")
    assert len(client.stats()["off"]) == 28


def test_a_metric_that_has_expired_raises_if_strict(client_of):
    """A strict client says when it ended, and what to do; nothing is spent."""
    client = client_of(strict=True)
    for record in (lambda: client.record("old", value=True), lambda: client.metric("old").record(value=True)):
        with pytest.raises(ParameterError, match=r"old: its collection has ended \(on 2001-01-01\); write a later `expires`"):
            record()
    assert client.stats()["dropped"] == {"expired": 2}


@pytest.mark.parametrize(
    ("metric", "answer", "words"),
    [
        (
            "ui.theme",
            "drak",
            "'drak' is not declared: an answer to ui.theme must be one of the 2 declared values: light, dark; did you mean 'dark",
        ),
        (
            "ui.theme",
            "DARK",
            "'DARK' is not declared: an answer to ui.theme must be one of the 2 declared values: light, dark; did you mean 'dark",
        ),
        (
            "ui.theme",
            None,
            "None is not declared: an answer to ui.theme must be one of the 2 declared values: light, dark; declare `none` for",
        ),
        ("ui.theme", [["x"], 1 << 999], "[an object of type list, an object of type int] is not declared: an answer to "),
        ("ui.theme", "x" * 999, f"'{'x' * 60}' is not declared: "),
        ("often", None, "None is not declared: an answer to often must be True or False; for no answer, make it categorical"),
        ("size", None, "None is not declared: an answer to size must be a number; declare `none` for no answer"),
        ("size", "3", "'3' is not declared: an answer to size must be a number; did you mean 3, without quotes?"),
        ("size", "three", "'three' is not declared: an answer to size must be a number"),
        ("often", object(), "an object of type object is not declared: an answer to often must be "),
    ],
)
def test_an_undeclared_answer_is_named_while_developing(client_of, caplog, metric, answer, words):
    """With what may have been meant. Of what is no plain value the type is enough, and of a long one the beginning."""
    with pytest.raises(ParameterError) as caught:
        client_of(strict=True, state=None).record(metric, answer)
    assert str(caught.value).startswith(words)
    assert client_of(dsn="http://k@localhost/shop", state=None).record(metric, answer)
    assert caplog.messages[-1].startswith(f"deniable: {metric}: undeclared: {words}")


@pytest.mark.parametrize(
    ("other", "answer", "words"),
    [
        (True, ["a", "tiktok", 3], "'tiktok' is not declared: {rule}: a, b, c. It counts as 'c', and the other options stay; "),
        (True, ["a", ["x"]], "['x'] is not declared: {rule}: a, b, c. It counts as 'c', and the other options stay"),
        (
            False,
            ["a", "tiktok"],
            "'tiktok' is not declared: {rule}: a, b, c. The whole answer is lost with it: declare `other` in ",
        ),
        (False, ["tiktok"], "'tiktok' is not declared: {rule}: a, b, c. A random set was reported instead; "),
        (True, "a", "'a' is not declared: an answer to to must be a set or list of options: a, b, c; did you mean ['a']? Its"),
        (True, "tiktok", "'tiktok' is not declared: an answer to to must be a set or list of options: a, b, c. Its other was"),
        (True, ["a"] * 2000, "['a', 'a', 'a', 'a', 'a'] is not declared: an answer to to must be a set or list of options: a, b"),
    ],
)
def test_an_undeclared_option_leaves_the_others(client_of, caplog, other, answer, words):
    """The line names the option alone, and says what becomes of it and of the others."""
    metric = metric_toml("to", type="set", values=["a", "b", "c"], **({"other": "c"} if other else {}))
    client = client_of(registry=parse(registry_toml(metric)), dsn="http://k@localhost/shop", segments={})
    assert client.record("to", answer)
    expected = words.format(rule="an option of to must be one of the 3 declared")
    assert caplog.messages[-1].startswith(f"deniable: to: undeclared: {expected}")


@pytest.mark.parametrize(("other", "lost"), [("", True), ("b", False)])
def test_an_undeclared_option_costs_the_whole_answer(client_of, caplog, other, lost):
    """Where it does, a strict client and one that is developed say so. On people's devices no line depends on an answer."""
    words = "The whole answer is lost with it: declare `other` in metrics.toml, so that the other options stay"
    metric = metric_toml("to", type="set", values=["a", "b"], **({"other": other} if other else {}))
    registry = parse(registry_toml(metric))
    with pytest.raises(ParameterError) as caught:
        client_of(registry=registry, strict=True, state=None, segments={}).record("to", ["a", "A"])
    assert (words in str(caught.value)) == lost
    assert client_of(registry=registry, dsn="http://k@localhost/shop", segments={}).record("to", ["a", "A"])
    assert (words in caplog.messages[-1]) == lost
    caplog.clear()
    assert client_of(registry=registry, segments={}, state=None).record("to", ["a", "A"])
    assert not any("undeclared" in message or "lost" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("options", "named"), [({"dsn": "http://k@localhost/shop"}, True), ({"strict": True}, True), ({}, False)]
)
def test_a_number_beyond_the_range_is_named_while_developing(client_of, caplog, options, named):
    """Once, and `flush` counts such numbers. It is no error in strict mode, and on people's devices nothing shows it."""
    client = client_of(registry=parse(REGISTRY.replace('unit = "bytes"', 'unit = "bytes"\nper_period = 100')), **options)
    for number in (10, 3210000, -1):
        assert client.record("size", number)
    words = "3210000 is beyond the range, 0 to 10 bytes: the nearer end was reported instead; stats() counts such answers"
    assert caplog.messages == [f"deniable: size: clipped: {words}"] * named
    arrival = client.flush(60)
    assert arrival.clipped == ({"size": 2} if named else {})
    clipped = f"; 2 clipped answers (size); why: size: {INSTEAD['clipped'].words()}"
    assert str(arrival) == f"arrived: 3 reports (size){clipped * named}"
    assert client.stats()["clipped"] == 2


@pytest.mark.parametrize(
    ("unit", "number", "words"),
    [
        ("h", 36000, "36000 is beyond the range, 0 to 48 h (36000 s are 10 h)"),
        ("ms", 0.2e9, "200000000.0 is beyond the range, 0 to 48 ms"),
        ("ms", 30000, "30000 is beyond the range, 0 to 48 ms (30000 us are 30 ms)"),
        ("bytes", 3600, "3600 is beyond the range, 0 to 48 bytes"),
        ("s", -1, "-1 is beyond the range, 0 to 48 s"),
    ],
)
def test_a_time_in_another_unit_is_guessed(unit, number, words):
    """While developing only: where another unit of time would be within the range, the text says what it would be."""
    registry = parse(registry_toml(metric_toml("size", range=[0, 48], unit=unit, estimate="mean")))
    assert clipped(registry.metrics["size"], number, reported=False).partition(": ")[0] == words


@pytest.mark.parametrize(("options", "named"), [({"dsn": "http://k@localhost/shop"}, True), ({}, False)])
def test_a_set_that_is_cut_is_named_while_developing(client_of, caplog, options, named):
    """Once, and `flush` counts such answers. On people's devices nothing shows it, but a count that stays there."""
    metric = metric_toml("to", type="set", values=["a", "b", "c"], most=2, per_period=100)
    client = client_of(registry=parse(registry_toml(metric)), segments={}, **options)
    for answer in (["a", "b"], ["a", "b", "c"], {"c", "a", "b"}, ["a", "a", "a"]):
        assert client.record("to", answer)
    words = "['a', 'b', 'c'] has more than 2 options: 2 of them, drawn at random, counted; stats() counts such answers"
    assert caplog.messages == [f"deniable: to: clipped: {words}"] * named
    arrival = client.flush(60)
    assert arrival.clipped == ({"to": 2} if named else {})
    assert str(arrival).endswith(f"2 clipped answers (to); why: to: {INSTEAD['cut'].words()}") is named
    assert "nearer end" not in str(arrival)
    assert client.stats()["clipped"] == 2


@pytest.mark.parametrize(
    ("id_", "answer", "counted"),
    [("ui.theme", CANARY, "undeclared"), ("size", 3210000, "clipped"), ("to", ["a", "b"], "clipped")],
)
def test_flush_counts_as_reported_what_was_reported_alone(client_of, id_, answer, counted):
    """The second answer of the period made no report, so nothing was reported in its place."""
    text = REGISTRY + metric_toml("to", type="set", values=["a", "b", "c"], most=1)
    client = client_of(registry=parse(text), dsn="http://k@localhost/shop")
    assert client.record(id_, answer)
    assert not client.record(id_, answer)
    arrival = client.flush(60)
    assert (getattr(arrival, counted), arrival.dropped) == ({id_: 1}, {"this_period": 1})
    assert not client.record(id_, answer)
    again = client.flush(60)
    assert (getattr(again, counted), again.dropped) == ({}, {"this_period": 1})
    assert "reported as" not in str(again)
    assert client.stats()[counted] == 3


def test_flush_says_that_arguments_are_swapped(client_of):
    """It names the metric, which stands in the place of the answer, and not the answer."""
    client = client_of()
    assert not client.record(CANARY, "ui.theme")
    arrival = client.flush(5)
    words = f"1 answer dropped as swapped (ui.theme); why: ui.theme: {ANSWERS['swapped'].words()}"
    assert str(arrival) == f"nothing to send: {words}"


# names


def test_a_mistyped_name_is_told_while_developing(client_of, caplog):
    """Where reports stay on this machine, the name itself is told, and the declared one that is like it."""
    client = client_of(dsn="http://k@localhost/shop")
    for _ in range(2):
        client.record("ui.tehme", CANARY)
        client.record("nothing.like.it", CANARY)
    first, second = caplog.messages
    assert first.startswith("deniable: 'ui.tehme': unknown_metric: the registry does not declare the metric; ")
    assert first.endswith("; did you mean 'ui.theme'?")
    assert second.startswith("deniable: 'nothing.like.it': unknown_metric: the registry does not declare the metric; ")


def test_a_mistyped_name_is_raised_if_strict(client_of):
    """A strict client names both, too."""
    with pytest.raises(ParameterError, match=r"'ui\.tehme' is not declared in the registry; did you mean 'ui\.theme'\?"):
        client_of(strict=True).record("ui.tehme", CANARY)


def test_a_name_that_is_none_is_told(client_of, caplog):
    """Of what is no text, the type alone is told."""
    client_of().record(CANARY.encode(), value=True)
    assert caplog.messages == ["deniable: record: unknown_metric: the metric is no text but of type bytes; write its id first"]


@pytest.mark.parametrize(
    ("consent", "words"),
    [
        ("yes", "consent is the text 'yes', which is taken for a no: pass True or False"),
        (lambda: 1 / 0, "the consent function raised ZeroDivisionError, which is taken for a no; strict=True shows where"),
    ],
)
def test_a_consent_that_is_no_answer_is_told_once(client_of, caplog, consent, words):
    """With its own remedy, and not with that of a person who has not agreed; `flush` says it, too."""
    client = client_of(consent=consent)
    client.record("ui.theme", "dark")
    assert caplog.messages == [f"deniable: {words}"]
    assert words in client.flush(1).why


def test_a_mistyped_segment_is_told_before_what_it_turns_off(client_of, caplog):
    """The cause comes first."""
    client_of(segments={"amr": "a"})
    assert [line.split(": ")[1] for line in caplog.messages] == ["segment amr", "split"]


# what `flush` returns


def test_a_timeout_is_a_number_of_seconds(client_of, caplog):
    """Anything else is said, and does not stop the app."""
    words = "timeout: write a number of seconds, such as 5.0"
    client = client_of()
    for call in (client.flush, client.close):
        assert call(timeout="5").status == call(None).status == "nothing to send"
    used = {"flush": "5 seconds are used instead", "close": "2 seconds are used instead"}
    assert caplog.messages == [f"deniable: {name}: {words}; {instead}" for name, instead in used.items()]
    with pytest.raises(ParameterError, match=words):
        client_of(strict=True).flush("5")


def test_nothing_to_send(client_of, monkeypatch):
    """It is false, and says why there is nothing."""
    assert str(client_of().flush(1)) == "nothing to send: nothing was recorded"
    client = client_of(consent=False)
    client.record("ui.theme", "dark")
    arrival = client.flush(1)
    assert (bool(arrival), arrival.status) == (False, "nothing to send")
    words = f"1 answer dropped as no_consent (ui.theme); why: {ANSWERS['no_consent'].words()}"
    assert str(arrival) == f"nothing to send: {words}"
    client = client_of(dsn=None)
    assert str(client.flush(1)).startswith("nothing to send: the client is off: no DSN was given")
    client.record("ui.theme", "dark")
    assert str(client.close(1)).startswith(
        "nothing to send: 1 answer dropped as disabled (ui.theme); why: the client is off: no DSN"
    )
    monkeypatch.setattr(deniable, "_client", None)
    monkeypatch.setattr(deniable, "_early", 0)
    assert str(deniable.flush(1)) == str(deniable.close(1)) == "nothing to send: deniable.init was not called"


def test_what_arrived_and_what_did_not(client_of):
    """What has arrived is true; what has not says how much and why. A later call says nothing of it."""
    answers = [202, 400, 202]
    client = client_of(lambda *_: (answers.pop(0), {}, problem("json")))
    for words in (
        "arrived: 1 report (often)",
        "not delivered: 1 report refused (often); why: status 400: the server cannot read the upload; ",
        "arrived: 1 ",
    ):
        client.record("often", value=True)
        arrival = client.flush(60)
        assert bool(arrival) is words.startswith("arrived")
        assert str(arrival).startswith(words)
        assert repr(arrival) == f"<deniable.Arrival {arrival}>"


def test_what_an_earlier_run_left(client_of):
    """A flush sends it, also beside new reports, and says so. While the server is away it is kept, and why is told."""
    away = "not delivered: 1 report kept for another try (often); why: status 503: the server is not ready; "
    first = client_of(lambda *_: (503, {}, None), settings=SenderSettings(flush_interval=60, max_tries=1))
    first.record("often", value=True)
    assert str(first.flush(60)).startswith(away)
    first.close(60)
    assert str(client_of(lambda *_: (503, {}, None)).flush(60)).startswith(away)
    second = client_of()
    second.record("often", value=True)
    assert str(second.flush(60)) == "arrived: 2 reports (often), 1 left by an earlier run or try"


def test_an_answer_that_was_dropped_makes_it_incomplete(client_of):
    """It is true in spite of what is normal, and not where something is to be mended."""
    client = client_of()
    client.record("ui.theme", "dark")
    client.record("ui.theme", "dark")
    arrival = client.flush(60)
    assert (bool(arrival), arrival.dropped) == (True, {"this_period": 1})
    client.record("often", value=True)
    client.record("offten", value=True)
    words = f"incomplete: 1 report arrived (often); 1 answer dropped as unknown_metric; why: {ANSWERS['unknown_metric'].words()}"
    assert str(client.flush(60)) == words


def test_an_arrival_says_of_each_metric_what_became_of_it(case, monkeypatch):
    """What was sent and what was not, why, and what was recorded before `init`; undeclared answers while developing only."""
    monkeypatch.setattr("deniable.process.exits.at_exit", lambda *_: None)
    _before_init(case)()
    error = {"group": 0, "code": "definition_mismatch", "count": 1}  # groups are sorted, so it is that of `often`
    local = "http://canary-key@localhost/shop"
    client = deniable.init(local, registry=parse(REGISTRY), consent=True, caps=FREE)
    client._session.sender._given_post = lambda *_: (202, {}, {"accepted": 3, "errors": [error]})
    for metric, answer in (("often", True), ("size", 3), ("ui.theme", "dark"), ("ui.theme", "dark"), ("old", True)):
        client.record(metric, answer)
    for metric, answer in (("rare", True), ("split", True), ("often", CANARY), ("offten", True)):
        client.record(metric, answer)
    arrival = client.close(60)
    off = 'the segment arm is missing: pass segments={"arm": "a"} to init, with one of a, b'
    assert str(arrival) == (
        "incomplete: 1 report refused (often); 3 reports arrived (often 1, size 1, ui.theme 1); "
        "1 answer dropped as before_init; 1 answer dropped as unknown_metric (offten); 1 answer dropped as off (split); "
        "1 answer dropped as expired (old); 1 answer dropped as not_sampled (rare); 1 answer dropped as this_period (ui.theme); "
        f"1 undeclared answer (often); why: the server refused often: definition_mismatch: "
        f"{REFUSALS['definition_mismatch'].words()}; {ANSWERS['before_init'].words()}; "
        f"offten: {ANSWERS['unknown_metric'].words()}; split: {ANSWERS['off'].words(off)}; "
        f"old: {ANSWERS['expired'].words('on 2001-01-01')}; rare: {ANSWERS['not_sampled'].words('it is 0.000001')}; "
        f"ui.theme: {ANSWERS['this_period'].words('1 in each day')}; often: {INSTEAD['undeclared'].words()}"
    )
    assert arrival.metrics["often"] == {"refused": 1, "sent": 1}
    assert arrival.metrics["ui.theme"] == {"sent": 1, "this_period": 1}
    assert arrival.undeclared == {"often": 1}


def test_an_arrival_elsewhere_tells_nothing_of_an_answer(client_of):
    """On people's devices its text is the same whatever the answer was, also if it was undeclared or in the metric's place."""
    texts = set()
    for metric, answer in (("often", True), ("often", CANARY), (CANARY, "often"), ("another", "often"), ("oftem", True)):
        client = client_of()
        client.record(metric, answer)
        texts.add(str(client.flush(60)))
    assert texts == {
        "arrived: 1 report (often)",
        f"nothing to send: 1 answer dropped as swapped (often); why: often: {ANSWERS['swapped'].words()}",
        f"nothing to send: 1 answer dropped as unknown_metric; why: {ANSWERS['unknown_metric'].words()}",
    }


def test_what_is_refused_in_part(client_of):
    """The metrics and the server's codes are named."""
    error = {"group": 0, "code": "definition_mismatch", "count": 1}
    client = client_of(lambda *_: (202, {}, {"accepted": 0, "errors": [error]}))
    client.record("often", value=True)
    words = f"the server refused often: definition_mismatch: {REFUSALS['definition_mismatch'].words()}"
    assert str(client.flush(60)) == f"not delivered: 1 report refused (often); why: {words}"


def test_what_is_refused_of_many_is_said_once(client_of):
    """A reason is written once for all metrics that it concerns, and of many metrics the first are named."""
    names = [f"m{number}" for number in range(7)]
    errors = [{"group": group, "code": "definition_mismatch", "count": 1} for group in range(7)]
    registry = parse(registry_toml(*map(metric_toml, names), budget={}, caps={}))
    client = client_of(lambda *_: (202, {}, {"accepted": 0, "errors": errors}), registry=registry, segments={})
    for name in names:
        client.record(name, value=True)
    words = f"the server refused m0, m1, m2, m3 and 3 more: definition_mismatch: {REFUSALS['definition_mismatch'].words()}"
    of_each = "m0 1, m1 1, m2 1, m3 1 and 3 more"
    assert str(client.flush(60)) == f"not delivered: 7 reports refused ({of_each}); why: {words}"


def test_a_timeout_says_that_no_answer_has_come(client_of):
    """While the server is silent, nothing is known."""
    release = threading.Event()
    client = client_of(lambda *_: release.wait(300) and (202, {}, None), state=None)
    client.record("often", value=True)
    words = "not delivered: 1 report kept for another try (often); why: no answer has come yet; a longer timeout may bring one"
    assert str(client.flush(0.1)) == words
    release.set()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {}, problem("unknown_key")), f"status 401: {CODES['unknown_key'].words()}"),
        (ConnectionRefusedError(), f"https://t.example: {FAILURES['refused'].words()}"),
    ],
    ids=["unknown key", "no answer"],
)
def test_why_reports_were_lost_without_a_disk(client_of, monkeypatch, answer, words):
    """`close` counts what it could not send as lost, and says what the log says: the cause, and that no disk keeps it."""

    def post(*_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("deniable.transport._END_SHARE", 0.99)  # time enough to count what is lost, on any machine
    client = client_of(post, state=None, settings=SenderSettings(flush_interval=60, max_tries=100))
    client.record("often", value=True)
    arrival = client.close(60)
    assert (arrival.lost, arrival.pending, arrival.status) == (1, 0, "not delivered")
    assert arrival.why == f"{words}; {LOSSES['undelivered'].words()}"


def test_a_server_that_asks_to_wait(client_of):
    """While nothing may be sent, `flush` says until when, of each batch that waits for it."""
    begun = datetime.now().astimezone()
    client = client_of(lambda *_: (429, {"Retry-After": "100"}, problem("rate_limited")), settings=SenderSettings(max_tries=1))
    for _ in range(2):
        client.record("often", value=True)
        arrival = client.flush(0.5)
        words, _, until = arrival.why.rpartition("; it asks to wait until ")
        assert words == f"status 429: {CODES['rate_limited'].words()}"
        moment = datetime.combine(begun.date(), time.fromisoformat(until), begun.tzinfo)
        assert 99 <= (moment - begun).total_seconds() % 86400 <= 700


def test_withdrawn_reports_are_told(client_of, caplog):
    """What a withdrawal deletes is told, and is why nothing arrived. It is no failure of delivery."""
    client = client_of()
    client.record("often", value=True)
    client.set_consent(False)
    words = LOSSES["purged"].words()
    assert f"deniable: reports: purged: {words}" in caplog.messages
    arrival = client.flush(1)
    assert (arrival.deleted, arrival.lost, arrival.metrics) == (1, 0, {"often": {"deleted": 1}})
    assert str(arrival) == f"nothing to send: 1 report deleted (often); why: {words}"
    client.set_consent(True)
    assert client.record("often", value=True)
    assert str(client.flush(60)) == "arrived: 1 report (often)"


def test_deleted_reports_are_not_missing():
    """What came is all that should come."""
    assert Arrival(sent=1, deleted=2)
    assert str(Arrival(sent=1, deleted=2)) == "arrived: 2 reports deleted; 1 report"


def test_a_faulty_handler_of_the_app_changes_nothing(client_of, monkeypatch):
    """What a filter of the app's log raises does not reach the app."""

    def fail(_):
        raise ZeroDivisionError

    monkeypatch.setattr(logging.getLogger("deniable"), "filters", [fail])
    client = client_of()
    assert client.record("ui.theme", "dark")
    assert not client.record("ui.theme", "dark")
    assert client.stats()["dropped"] == {"this_period": 1}


# losses


def test_lost_reports_are_told(sending, caplog):
    """What the sender loses is told once."""
    sender = sending(Post(*[OSError()] * 9), SenderSettings(max_tries=1, flush_interval=60))
    for report in reports(3):
        sender.submit(report)
        sender.flush(60)
    assert eventually(lambda: f"deniable: reports: undelivered: {LOSSES['undelivered'].words()}" in caplog.messages)
    assert sum(": undelivered: " in line for line in caplog.messages) == 1


def test_a_spool_that_loses_is_told(sending, tmp_path, caplog):
    """The spool's losses are told, too."""
    spool = Spool(tmp_path / "spool", max_files=1)
    sender = sending(Post(*[OSError()] * 9), SenderSettings(max_tries=1, flush_interval=60), spool=spool)
    for report in reports(2):
        sender.submit(report)
        sender.flush(60)
    assert eventually(lambda: f"deniable: reports: spool_full: {LOSSES['spool_full'].words()}" in caplog.messages)


# no answer


def _listening(answer):
    if answer is None:  # a port that is taken, and accepts nothing
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        return closed
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(1)
                if answer:
                    connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("scheme", "answer", "reason"),
    [
        ("http", None, "refused"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "no_tls"),
        ("http", b"", "cut"),
    ],
)
def test_why_there_is_no_answer(scheme, answer, reason):
    """A connection that is refused, and a port that speaks no TLS, are told apart."""
    server = _listening(answer)
    with server, pytest.raises(OSError) as caught:
        HttpPost(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/")(b"{}", {}, 30.0)
    assert failure(caught.value) == reason


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["UnreachedError"], "timeout"),
        (["UnreachedError", "gaierror"], "no_name"),
        (["ConnectionError", "SSLError", "SSLCertVerificationError"], "certificate"),
        (["SSLError"], "tls"),
        (["TimeoutError"], "timeout"),
        (["OSError", "IncompleteRead"], "cut"),
        (["OSError"], "no_answer"),
    ],
)
def test_kinds_of_failures(names, reason):
    """An error, or what it was made of, tells why."""
    error = None
    for name in reversed(names):
        outer = type(name, (OSError,), {})()
        outer.__cause__ = error
        error = outer
    assert failure(error) == reason
    circular = OSError()
    circular.__cause__ = circular
    assert failure(circular) == "no_answer"


def delivered_later(caplog, answer):
    """Deliver a batch in two tries that get the same answer; return how many lines each try found, and what is noted of it."""
    orders = Orders(spooled=False)
    lines: list[int] = []

    def post(*_):
        lines.append(len(caplog.records))
        return answer()

    courier = Courier(orders, lambda: post, None, lambda: None)
    courier.thread.start()
    try:
        delivery = Delivery(Dsn("http://t.example", "canary-key", "shop"), 60.0, orders, courier)
        assert delivery.deliver(Batch.of("shop", tuple(reports(1))), 2).kind == "later"
    finally:
        courier.stop()
        courier.thread.join(60)
    return lines, orders.trouble


@pytest.mark.parametrize(("host", "reason"), [("localhost", "no_tls_here"), ("t.example", "no_tls")])
def test_a_port_without_tls_has_one_remedy(host, reason):
    """On this machine the DSN is to be written with http://; elsewhere the server has to speak https."""
    orders = Orders(spooled=False)
    error = type("SSLError", (OSError,), {"reason": "WRONG_VERSION_NUMBER"})()
    Delivery(Dsn(f"https://{host}", "canary-key", "shop"), 60.0, orders, None)._complain(error)
    mended = f": http://PUBLIC_KEY@{host}/shop" if host == "localhost" else ""
    assert orders.trouble == f"https://{host}: {FAILURES[reason].words()}{mended}"
    assert ("http://" in FAILURES[reason].remedy) is (host == "localhost")


def test_no_answer_is_told_at_the_first_try(caplog):
    """A first try that fails is told while others follow; they are quiet."""

    def refuse():
        raise ConnectionRefusedError

    words = f"http://t.example: {FAILURES['refused'].words()}"
    assert delivered_later(caplog, refuse) == ([0, 1], words)
    assert caplog.messages == [f"deniable: http://t.example: refused: {FAILURES['refused'].words()}"]


def test_a_server_that_is_not_ready_is_told_at_the_first_try(caplog):
    """So is a status after which is tried again."""
    lines, _ = delivered_later(caplog, lambda: (503, {}, problem("store_full", detail="no room")))
    assert lines == [0, 1]
    assert caplog.messages == [
        f"deniable: status 503: store_full: {CODES['store_full'].words(chr(105) + 't says ' + repr('no room'))}"
    ]


def test_a_definition_that_changed_is_told_with_its_remedy(client_of, caplog):
    """The server's reason comes with what to do about it."""
    changed = parse(REGISTRY.replace(OFTEN, metric_toml("often", per_period=100, epsilon=1.5)))
    with StubServer(changed, key="pk_12345678") as server:
        client = client_of(HttpPost(f"{Dsn.parse(server.dsn).url}/v1/reports"), dsn=server.dsn)
        client.record("often", value=True)
        assert not client.flush(60)
    assert f"deniable: often: definition_mismatch: {REFUSALS['definition_mismatch'].words()}" in caplog.messages


def test_a_refusal_of_several_metrics_is_one_line(client_of, caplog):
    """The server runs another registry: all metrics that it refuses for one reason are named together, and none again."""
    away = parse(REGISTRY.replace("ui.theme", "ui.other").replace('"size"', '"sizes"'))
    with StubServer(away, key="pk_12345678") as server:
        client = client_of(HttpPost(f"{Dsn.parse(server.dsn).url}/v1/reports"), dsn=server.dsn)
        for metric, answer in (("ui.theme", "dark"), ("size", 3)):
            client.record(metric, answer)
            client.record("often", value=True)
        client.flush(60)
        client.record("size", 3)
        client.flush(60)
    words = REFUSALS["unknown_metric"]
    assert [line for line in caplog.messages if line.split(": ")[2] == "unknown_metric"] == [
        f"deniable: size, ui.theme: unknown_metric: {words.words()}",
    ]
    (line,) = [line for line in caplog.messages if ": refused_period: " in line and "while developing" not in line]
    assert line.startswith("deniable: size: refused_period: ")


def test_a_refusal_of_an_upload_is_told_with_its_code_later(client_of, caplog):
    """Not with the status alone: the line of a later answer says what was refused."""
    client = client_of(lambda *_: (400, {}, problem("json")))
    client.record("ui.theme", "dark")
    assert not client.flush(60)
    client.record("ui.theme", "dark")
    assert caplog.messages[-1].endswith(f": json: {CODES['json'].words()}")


# who sees it

RUNS = pytest.mark.parametrize(
    ("module", "file", "source"),
    [
        ("__main__", "", True),
        ("shop.start", "shop/start.py", True),
        ("shop.start", "site-packages/shop/start.py", False),
        ("shop.start", "dist-packages/shop/start.py", False),
        ("shop.start", "shop.pyz/shop/start.py", False),
    ],
)
"""Who calls the SDK, and whether the app is run from its source."""


@pytest.fixture
def unheard(monkeypatch):
    """Give the handlers of the logger, as in a fresh process."""
    log = logging.getLogger("deniable")
    notice.log.debug("the first line makes the handler")
    monkeypatch.setattr(log, "handlers", [notice.log.unheard])
    monkeypatch.setattr(notice.log, "_visible", False)
    return log


@pytest.mark.parametrize(
    ("options", "visible"),
    [
        ({}, False),
        ({"dsn": None}, True),
        ({"dsn": None, "consent": False}, False),
        ({"dsn": "http://k@localhost:8000/shop"}, True),
        ({"dsn": "http://127.0.0.1:8000/shop"}, True),
        ({"dsn": "http://["}, True),
        ({"dsn": "http://k@telemetry.internal/shop"}, True),
        ({"dsn": "https://PUBLIC_KEY@telemetry.example.org/shop"}, True),
        ({"registry": "/nowhere/metrics.toml"}, True),
        ({"strict": True}, True),
    ],
)
def test_warnings_are_shown_while_developing(client_of, unheard, options, visible):
    """Python writes them to stderr while the DSN leads to this machine, cannot be used or is missing, and if strict."""
    client_of(**options)
    assert unheard.handlers == ([] if visible else [notice.log.unheard])


@pytest.mark.parametrize(
    ("options", "lines"), [({"dsn": None}, 1), ({"registry": "/nowhere/metrics.toml"}, 1), ({}, 0), ({"packed": True}, 0)]
)
@RUNS
@pytest.mark.usefixtures("unheard")
def test_who_runs_an_app_from_its_source_sees_that_it_is_off(monkeypatch, capsys, tmp_path, options, lines, module, file, source):
    """Where a script, a notebook, a prompt or a module of the app calls us. On people's devices it is installed, or packed."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    if options == {"packed": True}:
        monkeypatch.setattr("sys.frozen", True, raising=False)
    arguments = {"dsn": DSN if "packed" not in options else None, "registry": parse(REGISTRY), "consent": True} | options
    arguments |= {"segments": {"arm": "a"}, "caps": FREE, "state": None}
    arguments.pop("packed", None)
    _run("Client(**arguments)", module, file and tmp_path / file, Client=Client, arguments=arguments)
    assert len(capsys.readouterr().err.splitlines()) == (lines if source else 0)


def _run(code, module, path, **names):
    """Run code as a module of an app, in a file that exists unless it is in an archive."""
    if path and ".pyz" not in str(path):
        path.parent.mkdir(parents=True)
        path.write_text("", "utf-8")
    exec(compile(code, str(path or "<stdin>"), "exec"), {"__name__": module, **names})


@RUNS
@pytest.mark.parametrize("call", ["record('ui.theme', 'dark')", "explain('ui.theme')", "timed('size').__enter__()"])
def test_who_runs_an_app_from_its_source_sees_that_init_is_missing(
    case, unheard, monkeypatch, capsys, tmp_path, call, module, file, source
):
    """One line, though no log is set up. `init` does not repeat it, and later warnings are shown only while developing."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr("deniable.process.exits.at_exit", lambda *_: None)
    _before_init(case)
    _run(f"deniable.{call}; deniable.{call}", module, file and tmp_path / file, deniable=deniable)
    assert capsys.readouterr().err.count(": before_init: ") == source
    assert unheard.handlers == [notice.log.unheard]
    deniable.init("http://k@localhost/shop", registry=parse(REGISTRY), consent=False, segments={"arm": "a"}, caps=FREE).close(1)
    assert capsys.readouterr().err.count(": before_init: ") == (0 if source or "explain" in call else 1)


def test_an_answer_before_init_is_told_again_while_developing(case, caplog, tmp_path):
    """By an `init` that knows that an installed app is being developed: the first line may have been seen by nobody."""
    case.patch.setattr("deniable.process.exits.at_exit", lambda *_: None)
    _before_init(case)
    _run("deniable.record('ui.theme', 'dark')", "shop", tmp_path / "site-packages/shop.py", deniable=deniable)
    deniable.init("http://k@localhost/shop", registry=parse(REGISTRY), consent=False, segments={"arm": "a"}, caps=FREE).close(1)
    words = ANSWERS["before_init"].words()
    assert caplog.messages == [f"deniable: {subject}: before_init: {words}" for subject in ("all metrics", "1 answer")]


def test_an_arrival():
    """It is a plain value."""
    cases = {
        "nothing to send": Arrival(),
        "arrived: 2 reports, 1 left by an earlier run or try; 3 reports may not travel yet": Arrival(2, 1, waiting=3),
        "not delivered: 1 report kept for another try; 3 reports refused; 1 report lost": Arrival(pending=1, refused=3, lost=1),
        "incomplete: 1 report kept for another try; 3 reports refused; 1 report lost; 2 reports arrived": Arrival(
            2, pending=1, refused=3, lost=1
        ),
        "arrived: 7 reports (a 1, b 1, c 1, d 1 and 3 more)": Arrival(7, metrics={name: {"sent": 1} for name in "abcdefg"}),
        "arrived: 5 reports (a 2, b 1, others 2)": Arrival(5, metrics={"a": {"sent": 2}, "b": {"sent": 1}}),
    }
    assert {str(arrival): bool(arrival) for arrival in cases.values()} == {words: words.startswith("arrived") for words in cases}
    assert len({*cases.values(), Arrival()}) == 6
