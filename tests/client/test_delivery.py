"""Attempts at one batch: how long a server may ask to be left alone, and what its last answer means."""

from __future__ import annotations

import logging
import threading
import time
from email.utils import formatdate

import pytest
from senders import Fake, problem

from deniable.messages.reasons import CODES, REFUSALS, STATUSES
from deniable.transport.delivery import Delivery, _refused, _retry_after, _verdict
from deniable.transport.dsn import Dsn
from deniable.transport.network import Courier, Orders
from deniable.wire.batch import Batch
from deniable.wire.report import Report, Stratum

BATCH = Batch.of("shop", tuple(Report(Stratum("m", 1, "0" * 16, "2026-01-01", ""), bytes([i])) for i in range(4)))
DSN = Dsn("http://t.example", "public-key", "shop")


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("7", 7), ("300", 300), ("301", 300), ("9" * 400, 300)])
def test_seconds(text, seconds):
    """Retry-After is a number of seconds, never more than 300."""
    assert _retry_after({"Retry-After": text}) == seconds


@pytest.mark.parametrize(("ahead", "seconds"), [(100, 100), (-100, 0), (1e7, 300)])
def test_a_date(ahead, seconds):
    """Or a date: the time until then, never more than 300 seconds, none if it is past."""
    text = formatdate(time.time() + ahead, usegmt=True)
    assert _retry_after({"Retry-After": text}) == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1.5", "²", "٣", "GMT", "Wed, 99 Xxx 2026 07:28:00 GMT", "Wed, 21 Oct 99999 07:28:00 GMT"]
)
def test_what_says_nothing(text):
    """Anything else is as good as none."""
    assert _retry_after({"Retry-After": text}) == 0
    assert _retry_after({}) == 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [(202, "accepted"), (413, "large"), (401, "refused"), (403, "refused"), (400, "dropped"), (404, "refused"), (422, "dropped")]
    + [(status, "later") for status in (0, 408, 429, 500, 501, 502, 503, 504)],
)
def test_statuses(status, kind):
    """Each status of a deniable server means one thing."""
    assert _verdict(BATCH, status, problem("x")).kind == kind


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 405, 422, 500, 501])
@pytest.mark.parametrize("document", [None, "<html>", {"code": "all_rejected"}, {"type": "about:blank", "code": "x"}])
def test_what_is_no_deniable_server(status, document):
    """Its answers are final for nothing: a batch is kept."""
    assert _verdict(BATCH, status, document).kind == "later"


def test_a_portal_loses_nothing(line, caplog, monkeypatch):
    """While something else answers, the batch is tried with one key, and the log says what answered."""
    monkeypatch.setattr("deniable.transport.delivery.jitter", lambda _: 0.0)
    post = Fake((404, {}, None), (200, {}, {"hello": 1}), 202)
    verdict = line(post, spooled=True).delivery.deliver(BATCH, 3)
    assert (verdict.kind, post.keys) == ("accepted", [BATCH.key] * 3)
    assert f"deniable: status 404: no code: {STATUSES[400].happened}" in caplog.text


@pytest.mark.parametrize(
    ("document", "accepted"),
    [({"accepted": n}, n) for n in range(5)]
    + [
        (d, 4)
        for d in (None, [], "x", {}, {"accepted": 5}, {"accepted": -1}, {"accepted": True}, {"accepted": 2.0}, {"accepted": "2"})
    ],
)
def test_how_many_were_accepted(document, accepted):
    """The server's number counts if it is one that can be."""
    assert _verdict(BATCH, 202, document).accepted == accepted


def test_a_server_writes_no_lines_in_the_log(caplog):
    """A server that lies writes no lines of its own: a code is a word or nothing, and its words are a part of a line."""
    caplog.set_level(logging.DEBUG)
    for status, lie in enumerate(("x\nERROR: fake line", "y" * 10_000, {"z": 1}, "\x1b[2J", "", "größer", 7, None), 404):
        _refused(status, {"code": lie, "detail": lie})
        _refused(status + 100, {"code": lie, "detail": "x\ny"})
    messages = [record.message for record in caplog.records if "not delivered yet" not in record.message]
    assert all(line.startswith(("deniable: status 4", "deniable: status 5")) for line in messages)
    assert all(": no code: " in line and line.isascii() and line.isprintable() and len(line) < 500 for line in messages)
    assert messages[0] == "deniable: status 404: no code: " + STATUSES[400].words(r"it says 'x\nERROR: fake line'")
    assert "deniable: status 409: no code: " + STATUSES[400].words(r"it says 'gr\xf6\xdfer'") in messages
    assert len(messages) == 16


GROUPS = Batch.of(
    "shop", tuple(Report(Stratum(metric, 1, "0" * 16, "2026-01-01", ""), bytes([i])) for i in range(3) for metric in ("n", "m"))
)


def test_why_reports_were_refused(caplog):
    """Of each group that the server refused, all or in part, the metric, the code and the words are told; once, but counted."""
    errors = [
        {"group": 0, "code": "padding_bits", "count": 1, "detail": "a bit too many"},
        {"group": 1, "code": "definition_mismatch", "count": 3, "detail": "the device's registry defines n otherwise"},
    ]
    for _ in range(2):
        verdict = _verdict(GROUPS, 202, {"accepted": 2, "errors": errors})
        assert (verdict.kind, verdict.accepted) == ("accepted", 2)
        assert verdict.refusals == {"m: padding_bits": 1, "n: definition_mismatch": 3}
    assert [record.message for record in caplog.records] == [
        "deniable: m: padding_bits: " + REFUSALS["padding_bits"].words("it says 'a bit too many'"),
        "deniable: n: definition_mismatch: "
        + REFUSALS["definition_mismatch"].words('it says "the device\'s registry defines n otherwise"'),
    ]


def test_why_all_were_refused(caplog):
    """The same of a batch of which nothing can be counted."""
    errors = [{"group": 1, "code": "unknown_metric", "count": 3, "detail": "no such"}]
    verdict = _verdict(GROUPS, 422, problem("all_rejected", detail="nothing", errors=errors))
    assert (verdict.kind, verdict.refusals) == ("dropped", {"n: unknown_metric": 3})
    assert [record.message for record in caplog.records] == [
        "deniable: n: unknown_metric: " + REFUSALS["unknown_metric"].words("it says 'no such'")
    ]


def test_a_key_that_is_wrong_is_told(caplog):
    """What concerns all reports alike is told by the status, with the server's code and words, once."""
    for _ in range(2):
        assert _verdict(BATCH, 401, problem("unknown_key", detail="no app has this key")).kind == "refused"
        assert _refused(500, None).startswith("status 500: ")
    assert [record.message for record in caplog.records] == [
        "deniable: status 401: unknown_key: " + CODES["unknown_key"].words("it says 'no app has this key'"),
        f"deniable: status 500: no code: {STATUSES[500].words()}",
    ]


@pytest.mark.parametrize(
    "error",
    [None, 7, "x", [], {}, {"group": 0}, {"code": "x"}]
    + [{"group": place, "code": "x", "count": 1} for place in (-1, 2, True, 0.0, "0", None, 10**30)]
    + [{"group": 0, "code": code, "count": 1} for code in ("", "a b", "x\n", "größer", 7, None, [], "y" * 41)],
)
def test_errors_that_say_nothing(caplog, error):
    """An error that names no group of the batch, or no code, is passed over."""
    assert _verdict(GROUPS, 202, {"accepted": 6, "errors": [error]}).refusals == {}
    assert _verdict(GROUPS, 202, {"accepted": 6, "errors": error}).refusals == {}
    assert not caplog.records


@pytest.mark.parametrize("count", [0, -1, 4, 10**30, True, 1.0, "1", None])
def test_a_count_that_cannot_be(count):
    """A server that miscounts has refused the whole group."""
    errors = [{"group": 0, "code": "x", "count": count}]
    assert _verdict(GROUPS, 202, {"accepted": 3, "errors": errors}).refusals == {"m: x": 3}


def test_no_more_errors_than_a_server_tells():
    """Of endless errors the first hundred are looked at."""
    errors = [{"group": 0, "code": f"x{number}", "count": 1} for number in range(1000)]
    assert len(_verdict(GROUPS, 202, {"accepted": 3, "errors": errors}).refusals) == 100


class Line:
    """A delivery whose requests a function answers, and the times of these."""

    def __init__(self, post, *, spooled: bool = False) -> None:
        self.times: list[float] = []
        self.orders = Orders(spooled=spooled)
        self.chores_failed = 0

        def timed(body, headers, timeout):
            self.times.append(time.monotonic())
            return post(body, headers, timeout)

        self.courier = Courier(self.orders, lambda: timed, None, lambda: None)
        self.courier.thread.start()
        self.delivery = Delivery(DSN, 5.0, self.orders, self.courier)

    def tell(self, **wishes) -> None:
        with self.orders.changed:
            for name, value in wishes.items():
                setattr(self.orders, name, value)
            self.orders.changed.notify_all()


@pytest.fixture
def line():
    lines: list[Line] = []

    def make(post, **options) -> Line:
        lines.append(Line(post, **options))
        return lines[-1]

    yield make
    for line in lines:
        line.courier.stop()
        line.courier.thread.join(60)
        assert not line.courier.thread.is_alive()


def test_the_next_batch_waits_as_well(line):
    """What one batch was told to wait, the next one waits, too: it is the same server."""
    answers = [(503, {"Retry-After": "1"}, None), (202, {}, None)]
    slow = line(lambda *_: answers.pop(0))
    assert slow.delivery.deliver(BATCH, 1).kind == "later"
    assert slow.delivery.deliver(BATCH, 1).kind == "accepted"
    assert slow.times[1] - slow.times[0] >= 0.99


def test_a_pause_holds_an_attempt(line):
    """While paused nothing is sent; afterwards it is."""
    paused = line(lambda *_: (202, {}, None))
    paused.delivery.timeout = 0.05  # a pause is no part of it
    paused.tell(held=True)
    kinds: list[str] = []
    thread = threading.Thread(target=lambda: kinds.append(paused.delivery.deliver(BATCH, 1).kind))
    thread.start()
    thread.join(0.2)
    assert (paused.times, kinds) == ([], [])
    paused.delivery.timeout = 60
    paused.tell(held=False)
    thread.join(60)
    assert kinds == ["accepted"]


@pytest.mark.parametrize(
    ("wish", "expected"), [({"purges": 1}, False), ({"closed": True}, True), ({"closed": True, "to_disk": True}, False)]
)
def test_an_answer_that_nobody_waits_for(line, wish, expected, caplog):
    """When consent is taken back, or the app ends and there is a spool, a request under way holds nothing up.

    An app that ends is told so, unless it wants its reports to wait on disk.
    """
    entered, release = threading.Event(), threading.Event()

    def hang(*_):
        entered.set()
        release.wait(300)
        return 202, {}, None

    hanging = line(hang, spooled=True)
    kinds: list[str] = []
    thread = threading.Thread(target=lambda: kinds.append(hanging.delivery.deliver(BATCH, 3).kind))
    thread.start()
    assert entered.wait(60)
    hanging.tell(**wish)
    thread.join(60)
    assert kinds == ["later"]
    assert ("ended: the client was closed" in caplog.text) is expected
    release.set()


def test_a_request_that_never_ends(line):
    """A request has its time, however it is spent; while it hangs on, the next one has no answer, and sends nothing."""
    release = threading.Event()
    calls: list[int] = []

    def hang(*_):
        calls.append(1)
        release.wait(300)
        return 202, {}, None

    hanging = line(hang)
    hanging.delivery.timeout = 0.2
    began = time.monotonic()
    assert hanging.delivery.deliver(BATCH, 1).kind == "later"
    assert hanging.delivery.deliver(BATCH, 1).kind == "later"
    assert time.monotonic() - began < 60
    assert len(calls) == 1
    release.set()
    hanging.delivery.timeout = 60
    assert hanging.delivery.deliver(BATCH, 1).kind == "accepted"
