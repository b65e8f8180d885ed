"""The sender: bounded, lazy, patient with servers, and never in the app's way."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from time import monotonic, sleep

import pytest
from senders import QUICK, STRATUM, Fake, Hanging, payloads, problem, reports
from waiting import eventually

from deniable.errors import ParameterError
from deniable.source import jitter
from deniable.transport import Sender, SenderSettings, Spool
from deniable.transport.backlog import Backlog
from deniable.transport.http import UnreachedError
from deniable.wire.batch import Batch
from deniable.wire.report import Report

BEGIN = Backlog.begin_now  # which `sending` replaces


class NoJitter:
    """Stands in for the source of jitter: always the least."""

    @staticmethod
    def below(_n: int) -> int:
        return 0


@pytest.fixture
def no_jitter(monkeypatch):
    """Retries wait as little as the server allows."""
    monkeypatch.setattr("deniable.source.OS", NoJitter)


def test_no_thread_before_the_first_report(sending, sending_threads):
    """The thread starts with the first report and not before."""
    sender = sending(Fake())
    assert sender.flush(0.1)
    assert not sending_threads()
    sender.submit(reports(1)[0])
    assert sending_threads()
    assert all(thread.daemon for thread in sending_threads())


def test_a_flush_sends_everything(sending):
    """A flush sends what is queued, in one batch, and counts it."""
    post = Fake()
    sender = sending(post, count=7)
    assert sender.flush(60)
    ((body, headers, timeout),) = post.calls
    assert payloads(body, headers) == [r.payload for r in reports(7)]
    assert timeout == QUICK.timeout
    assert sender.counts == {"sent": 7}


def test_what_a_request_says(sending):
    """A request has the public key, a random idempotency key, and nothing about the device."""
    post = Fake()
    assert sending(post, count=1).flush(60)
    (_, headers, _) = post.calls[0]
    assert headers.pop("Idempotency-Key")
    assert headers == {"Authorization": "Bearer public-key", "Content-Type": "application/json"}


def test_large_bodies_are_compressed(sending):
    """Above a kilobyte a body is gzip without a time stamp."""
    post = Fake()
    assert sending(post, count=900).flush(60)
    ((body, headers, _),) = post.calls
    assert headers["Content-Encoding"] == "gzip"
    assert body[4:8] == bytes(4)
    assert len(payloads(body, headers)) == 900


def test_a_full_batch_is_sent_at_once(sending):
    """Enough reports are sent without a flush, however many batches they make."""
    post = Fake()
    sending(post, SenderSettings(flush_at=10, flush_interval=60), count=30)
    assert eventually(lambda: sum(len(payloads(b, h)) for b, h, _ in post.calls) == 30)
    assert [len(payloads(b, h)) for b, h, _ in post.calls] == [10, 10, 10]
    assert len(set(post.keys)) == 3


def test_the_interval_sends_the_rest(sending):
    """An incomplete batch is sent after the interval, also after an idle one."""
    post = Fake()
    sender = sending(post, SenderSettings(flush_at=100, flush_interval=0.05), count=2)
    assert eventually(lambda: sender.counts["sent"] == 2)
    sleep(0.15)
    sender.submit(reports(1)[0])
    assert eventually(lambda: sender.counts["sent"] == 3)


def test_large_payloads_make_smaller_batches(sending):
    """A batch's payloads stay within what a server accepts, and a payload above that is sent alone."""
    post = Fake()
    sender = sending(post)
    for _ in range(3):
        sender.submit(Report(STRATUM, b"x" * 60_000))
    sender.submit(Report(STRATUM, b"x" * 200_000))
    assert sender.flush(60)
    assert [len(b"".join(payloads(b, h))) for b, h, _ in post.calls] == [120_000, 60_000, 200_000]


def test_a_full_queue_drops_the_newest(sending):
    """A report that finds the queue full is not taken, and the ones before it are kept."""
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=5, queue_size=5, flush_interval=60), count=5)
    assert post.entered.wait(60)
    first = reports(6)
    assert [sender.submit(r) for r in first] == [None] * 5 + ["queue_full"]
    post.release.set()
    assert sender.flush(60)
    assert sender.counts == {"sent": 10}


# retries


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_retries_send_the_same(sending, status):
    """A server that is busy gets the very same bytes under the very same key until it takes them."""
    post = Fake(status, status, 202)
    sender = sending(post, count=600)
    assert sender.flush(60)
    assert len(post.calls) == 3
    assert len({body for body, _, _ in post.calls}) == 1
    assert len(set(post.keys)) == 1
    assert sender.counts == {"sent": 600}


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("error", [OSError("down"), ConnectionResetError(), TimeoutError()])
def test_no_answer_is_tried_again(sending, error):
    """No answer is like a busy server: the server may have counted the batch, so it is the same batch."""
    post = Fake(error, error, error, 202)
    sender = sending(post, count=2)
    assert sender.flush(60)
    assert len(set(post.keys)) == 1
    assert sender.counts == {"sent": 2}


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("answer", [OSError("down"), 503])
def test_tries_end(sending, answer):
    """After the last try the reports are counted as undelivered, and flush has nothing to wait for."""
    post = Fake(*[answer] * 4)
    sender = sending(post, count=3)
    assert sender.flush(60)
    assert len(post.calls) == 4
    assert sender.counts == {"undelivered": 3}


def test_waits_between_tries_are_random(sending, monkeypatch):
    """A wait is drawn between nothing and a time that doubles with each try: devices do not all come back at once."""

    class Quarters:
        @staticmethod
        def below(n: int) -> int:
            return n // 4

    monkeypatch.setattr("deniable.source.OS", Quarters)
    waits: dict[int, list[float]] = defaultdict(list)  # by thread: senders of other tests may still wait
    monkeypatch.setattr(
        "deniable.transport.delivery.jitter", lambda most: (waits[threading.get_ident()].append(most), jitter(most / 10))[1]
    )
    post = Fake(503, 503, 503, 202)
    assert sending(post, count=1).flush(60)
    assert [1, 2, 4] in waits.values()
    assert post.times[-1] - post.times[0] >= (1 + 2 + 4) / 4 / 10
    assert jitter(4) == 1


@pytest.mark.usefixtures("no_jitter")
def test_the_server_may_ask_for_time(sending):
    """Retry-After is the least to wait."""
    post = Fake((429, {"Retry-After": "1"}, None), 202)
    assert sending(post, count=1).flush(60)
    assert post.times[1] - post.times[0] >= 1


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("retry_after", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "0"])
def test_a_strange_retry_after(sending, retry_after):
    """A Retry-After that is no number of seconds is as good as none."""
    post = Fake((503, {"Retry-After": retry_after}, None), 202)
    assert sending(post, count=1).flush(60)


# refusals


def test_too_large_is_split(sending):
    """A batch that is too large is sent in halves, each under a new key, and nothing is lost."""

    def answer(body, headers):
        return 413 if len(payloads(body, headers)) > 3 else 202

    post = Fake(*[answer] * 20)
    sender = sending(post, count=11)
    assert sender.flush(60)
    assert len(set(post.keys)) == len(post.calls)
    taken = [p for body, headers, _ in post.calls for p in payloads(body, headers) if len(payloads(body, headers)) <= 3]
    assert taken == [r.payload for r in reports(11)]
    assert sender.counts == {"sent": 11}


def test_one_that_is_too_large(sending):
    """A single report that is too large cannot be split and is counted."""
    sender = sending(Fake(413), count=1)
    assert sender.flush(60)
    assert sender.counts == {"http_413": 1}


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_key_keeps_the_reports(sending, spool, status):
    """A key that is refused stops the sender. What waits is kept, and a later run with a good key sends it, the same bytes."""
    post = Fake(lambda _b, _h: held.wait(60) and status)
    held = threading.Event()
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=6, spool=spool)
    held.set()
    assert sender.flush(60)
    assert sender.submit(reports(1)[0]) == "refused_key"
    assert (sender.counts, len(post.calls), sender._backlog.due) == ({"spooled": 6}, 1, False)
    sender.close(60)
    assert (len(post.calls), len(spool)) == (1, 3)
    good = Fake()
    later = sending(good, spool=spool)
    assert later.flush(60)
    assert later.counts == {"sent": 6}
    assert (post.calls[0][0], post.keys[0]) in zip([body for body, *_ in good.calls], good.keys, strict=True)


@pytest.mark.parametrize(("status", "helped"), [(401, 0), (503, 1)])
def test_a_refused_key_starts_no_helper(sending, spool, status, helped):
    """Nothing is sent until the next start, and not by another process either."""
    calls = []
    once = SenderSettings(flush_at=1000, flush_interval=60, max_tries=1)
    sender = sending(Fake(status), once, count=1, spool=spool, exit="helper", helper=lambda: calls.append(1))
    assert sender.flush(60)
    sender.leave(60)
    assert (len(calls), len(spool)) == (helped, 1)


def test_what_a_flush_could_not_deliver_is_not_tried_twice(sending, spool, monkeypatch):
    """On a busy machine the batch may be on disk already when `flush` looks: it was queued, so nothing is tried anyhow."""
    post = Fake(503)
    sender = sending(post, SenderSettings(flush_at=1000, flush_interval=60, max_tries=1), count=1, spool=spool)
    hurry = sender._outbox.hurry

    def late(look):
        assert sender._orders.changed.wait_for(lambda: sender._outbox.settled == 1, 60)
        return hurry(look)

    monkeypatch.setattr(sender._outbox, "hurry", late)
    assert sender.flush(60)
    assert (len(post.calls), len(spool)) == (1, 1)


def test_a_refused_key_without_a_spool(sending):
    """Where nothing is kept on disk, what was queued is lost, and counted."""
    queued = threading.Event()
    sender = sending(Fake(lambda _b, _h: queued.wait(60) and 401), SenderSettings(flush_at=2, flush_interval=60), count=6)
    queued.set()
    assert sender.flush(60)
    assert sender.counts == {"undelivered": 6}


@pytest.mark.parametrize("status", [400, 409, 411, 415, 422])
def test_other_statuses_are_counted(sending, status):
    """Another refusal of a deniable server drops the batch at once, counted under its status."""
    post = Fake(status)
    sender = sending(post, count=2)
    assert sender.flush(60)
    assert len(post.calls) == 1
    assert sender.counts == {f"http_{status}": 2}


def test_rejected_reports_are_counted(sending):
    """Reports that the server did not accept are counted and not sent again."""
    post = Fake((202, {}, {"accepted": 3, "rejected": 2}))
    sender = sending(post, count=5)
    assert sender.flush(60)
    assert sender.counts == {"sent": 3, "rejected": 2}
    assert len(post.calls) == 1


def test_refusals_are_counted_by_metric_and_reason(sending, spool):
    """What the server says of rejected reports is added up over batches, also of the spool, and does not grow without end."""
    spool.put(Batch.of("shop", tuple(reports(4))))

    def refused(code):
        return 422, {}, problem("all_rejected", errors=[{"group": 0, "code": code, "count": 2}])

    partly = 202, {}, {"accepted": 1, "errors": [{"group": 0, "code": "padding_bits", "count": 1}]}
    many = [(202, {}, {"accepted": 0, "errors": [{"group": 0, "code": f"x{i}_{j}"} for j in range(90)]}) for i in range(3)]
    sender = sending(Fake(partly, refused("segment"), *many), count=2, spool=spool)
    assert sender.flush(60)
    assert eventually(lambda: sender.refusals == {"m: padding_bits": 1, "m: segment": 2})
    for report in reports(3):
        sender.submit(report)
        assert sender.flush(60)
    assert len(sender.refusals) == 100
    assert sender.counts == {"sent": 1, "rejected": 4, "http_422": 4}


@pytest.mark.parametrize(
    "document", [None, [], "x", {}, {"accepted": "all"}, {"accepted": None}, {"accepted": 99}, {"accepted": -1}]
)
def test_a_strange_answer_breaks_nothing(sending, document):
    """Whatever the server says, the next batch is sent and flush ends."""
    sender = sending(Fake((202, {}, document)), count=3)
    assert sender.flush(60)
    sender.submit(reports(1)[0])
    assert sender.flush(60)
    assert sender.counts["sent"] >= 1


def test_an_unexpected_error_costs_one_batch(sending):
    """An error that nobody thought of loses its batch, counted, and the thread lives on."""
    post = Fake(RuntimeError("boom"), 202)
    sender = sending(post, count=2)
    assert sender.flush(60)
    sender.submit(reports(1)[0])
    assert sender.flush(60)
    assert sender.counts == {"error": 2, "sent": 1}


def test_an_unexpected_error_in_a_half(sending):
    """An error in one half of a split batch does not count the other half twice."""
    post = Fake(413, 202, RuntimeError("boom"))
    sender = sending(post, count=4)
    assert sender.flush(60)
    assert sender.counts == {"sent": 2, "error": 2}
    assert sender.submit(reports(1)[0]) is None
    assert sender.flush(60), "nothing more is waited for, and nothing less"
    assert sender.counts == {"sent": 3, "error": 2}


# deadlines


def test_flush_keeps_its_deadline(sending):
    """While the server hangs, flush returns False in time."""
    post = Hanging()
    sender = sending(post, count=3)
    began = monotonic()
    assert sender.flush(0.2) is False
    assert 0.15 <= monotonic() - began < 60
    post.release.set()
    assert sender.flush(60)


def test_close_keeps_its_deadline(sending):
    """So does close, and afterwards nothing is taken."""
    post = Hanging()
    sender = sending(post, count=3)
    began = monotonic()
    assert sender.close(0.2) is False
    assert monotonic() - began < 60
    assert sender.submit(reports(1)[0]) == "closed"


def test_flush_keeps_its_deadline_in_a_retry(sending):
    """While the server asks for minutes, flush returns False in time and close ends the wait."""
    post = Fake((503, {"Retry-After": "200"}, None), 202)
    sender = sending(post, count=1)
    began = monotonic()
    assert sender.flush(0.2) is False
    sender.close(0.2)
    assert monotonic() - began < 60
    assert eventually(lambda: sender.counts["undelivered"] == 1)
    assert len(post.calls) == 1


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("post", [Hanging, lambda: Fake((503, {"Retry-After": "200"}, None))], ids=["answer", "retry"])
def test_the_upkeep_does_not_wait_for_a_server(sending, post):
    """What the app's thread would else do itself is done while a server hangs, and costs no batch if it fails."""
    done = []

    def upkeep():
        done.append(threading.current_thread().name)
        raise OSError

    server = post()
    sender = sending(server, count=3, upkeep=upkeep)
    sender.flush(0)
    assert eventually(lambda: server.calls)
    for times in (1, 2):
        sender.look_after()
        assert eventually(lambda times=times: done == ["deniable-sender"] * times)
    assert sender.pending == 3
    assert not sender.counts


@pytest.mark.parametrize("timeout", [0, -1])
def test_no_time_at_all(sending, timeout):
    """A flush without time returns at once."""
    post = Hanging()
    sender = sending(post, count=1)
    assert sender.flush(timeout) is False


def test_a_flush_in_vain_does_not_end_batching(sending):
    """After a flush that ran out of time, later reports wait for their batch again.

    Else each would be sent by itself the moment it is recorded, and the time of a request would tell the time of an answer.
    """
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=1)
    assert sender.flush(0.05) is False
    post.release.set()
    assert eventually(lambda: sender.counts["sent"] == 1)
    post.release.clear()
    post.entered.clear()
    for report in reports(2):
        sender.submit(report)
    assert post.entered.wait(60)
    sender.submit(reports(1)[0])
    post.release.set()
    assert eventually(lambda: sender.counts["sent"] == 3)
    assert post.calls == 2


def test_close_sends_what_is_queued(sending, sending_threads):
    """Close sends the rest and ends the thread; closing twice is closing once."""
    post = Fake()
    sender = sending(post, count=3)
    assert sender.close(60)
    assert sender.close(60)
    assert sender.counts == {"sent": 3}
    assert eventually(lambda: not sending_threads())


def test_at_the_end_one_that_is_broken_stops_no_other(sending, monkeypatch):
    """What another sender has queued is sent, and nothing is raised."""
    broken, post = sending(Fake()), Fake()
    working = sending(post, count=1)
    with monkeypatch.context() as patch:
        patch.setattr(Sender, "_alive", [broken, working])
        patch.setattr(broken, "_outbox", None)
        Sender.leave_all(60)
    assert len(post.calls) == 1
    assert working.full == "closed"


def test_several_flushes_at_once(sending):
    """Flushes in several threads all end."""
    sender = sending(Fake(), count=50)
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(sender.flush(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [True] * 4


# consent


def test_purge_drops_what_is_queued(sending):
    """What is purged is counted and never sent."""
    post = Fake()
    sender = sending(post, count=4)
    sender.purge()
    assert sender.flush(60)
    assert sender.counts == {"purged": 4}
    assert not post.calls


def test_purge_drops_what_waits_for_a_retry(sending):
    """A batch between two tries is not yet sent, and is dropped too, soon."""
    post = Fake((503, {"Retry-After": "100"}, None), 202)
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=2)
    assert eventually(lambda: len(post.calls) == 1)
    sleep(0.05)
    sender.purge()
    assert sender.flush(60)
    assert sender.counts == {"purged": 2}
    assert len(post.calls) == 1


def test_purge_drops_the_half_not_sent(sending):
    """Neither are the halves of a batch sent that was too large when consent was taken back."""
    sender: Sender

    def refuse(_body, _headers):
        sender.purge()
        return 413

    post = Fake(refuse, 202, 202)
    sender = sending(post, SenderSettings(flush_at=4, flush_interval=60))
    for report in reports(4):
        sender.submit(report)
    assert eventually(lambda: sender.counts["purged"] == 4)
    assert len(post.calls) == 1


def test_sending_goes_on_after_a_purge(sending):
    """Reports made after consent is given again are sent."""
    post = Fake()
    sender = sending(post, count=4)
    sender.purge()
    sender.submit(reports(1)[0])
    assert sender.flush(60)
    assert sender.counts == {"purged": 4, "sent": 1}


# what is logged


@pytest.mark.usefixtures("no_jitter")
def test_logs_name_no_key_and_no_payload(sending, caplog):
    """At the lowest level the log has statuses, the server's words and kinds of error, and neither the key nor a payload."""
    caplog.set_level(logging.DEBUG)
    post = Fake(
        OSError("secret-detail public-key"),
        (400, {}, problem("bad_json", detail="no JSON")),
        RuntimeError("secret-detail"),
    )
    sender = sending(post)
    for payload in (b"\xfe\xdc", b"\xfe\xdd"):
        sender.submit(Report(STRATUM, payload))
        assert sender.flush(60)
    assert "no answer from http://t.example: OSError" in caplog.text
    assert "status 400: bad_json: the server refuses it (it says 'no JSON')" in caplog.text
    assert "a batch was lost to an unexpected RuntimeError" in caplog.text
    for secret in ("secret-detail", "public-key", "fedc", "/tw=", "\\xfe"):
        assert secret not in caplog.text


def test_flush_does_not_wait_for_later_reports(sending):
    """Under steady traffic a flush ends with the reports queued when it began."""
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=100, flush_interval=60), count=1)
    flushed = []
    waiting = threading.Thread(target=lambda: flushed.append(sender.flush(60)))
    waiting.start()
    assert post.entered.wait(60)
    for report in reports(3):
        sender.submit(report)
    post.release.set()
    waiting.join(60)
    assert flushed == [True]
    assert sender.counts == {"sent": 1}


@pytest.mark.parametrize("setting", ["flush_at", "flush_interval", "queue_size", "timeout", "max_tries"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), 1e300])
def test_settings_are_in_range(setting, value):
    """A setting that would stop or hang the thread is refused when it is given."""
    with pytest.raises(ParameterError, match=setting):
        SenderSettings(**{setting: value})


# the spool


ONE_TRY = SenderSettings(flush_at=1000, flush_interval=60, max_tries=1)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


def test_what_was_not_delivered_is_spooled(sending, spool):
    """Reports that nobody took are settled once they are on the disk, and sent after a delivery that succeeds."""
    post = Fake(OSError("down"))
    sender = sending(post, ONE_TRY, count=3, spool=spool)
    assert sender.flush(60)
    assert (sender.counts, len(spool)) == ({"spooled": 3}, 1)
    sender.submit(reports(1)[0])
    assert sender.flush(60)
    assert eventually(lambda: sender.counts == {"spooled": 3, "sent": 4})
    assert len(spool) == 0
    assert post.keys[0] == post.keys[2] != post.keys[1]
    assert post.calls[0][0] == post.calls[2][0]


@pytest.mark.parametrize(("error", "same"), [(UnreachedError("refused"), False), (OSError("cut off"), True)])
def test_the_key_of_a_batch_that_nobody_saw_is_not_repeated(sending, spool, tmp_path, error, same):
    """Tries of one round have one key. The next start has another, if no connection came about; else the key stays."""
    before, twice = Fake(error, error), SenderSettings(flush_at=1000, flush_interval=60, max_tries=2)
    first = sending(before, twice, count=3, spool=spool)
    assert first.flush(60)
    assert first.close(60)
    assert before.keys[0] == before.keys[1]
    after = Fake()
    second = sending(after, ONE_TRY, count=1, spool=Spool(tmp_path / "spool"))
    assert second.flush(60)
    assert eventually(lambda: len(after.calls) == 2)
    (tried,) = [headers["Idempotency-Key"] for body, headers, _ in after.calls if body == before.calls[0][0]]
    assert (tried == before.keys[0]) == same


def test_a_start_sends_what_the_last_run_left(sending, spool, tmp_path):
    """After a restart the spool goes out, oldest first, with the bytes and keys of before, and not before a report."""
    before = Fake(*[OSError("down")] * 3)
    first = sending(before, ONE_TRY, spool=Spool(tmp_path / "spool"))
    for count in (3, 600, 5):
        for report in reports(count):
            first.submit(report)
        assert first.flush(60)
    assert first.close(60)
    after = Fake()
    second = sending(after, ONE_TRY, spool=spool)
    assert not after.calls
    second.submit(reports(1)[0])
    assert second.flush(60)
    assert eventually(lambda: second.counts["sent"] == 609)
    assert after.keys[1:] == before.keys
    assert [body for body, _, _ in after.calls[1:]] == [body for body, _, _ in before.calls]


def test_a_server_without_tls_is_named(sending, spool, caplog):
    """At the first try the log says what to look for: the last one may come after the app has ended."""

    class SSLError(OSError):
        """What requests raises where the server speaks no TLS."""

    sender = sending(Fake(*[SSLError("wrong version")] * 9), ONE_TRY, count=1, spool=spool)
    assert sender.flush(60)
    assert sum(each.message.startswith("deniable: http://t.example: tls: ") for each in caplog.records) == 1


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_run_without_a_report_sends_what_is_left(sending, spool, end):
    """An app that has nothing new to tell, and runs for a moment only, delivers what its last run could not."""
    for report in reports(3):
        assert spool.put(Batch.of("shop", (report,)))
    post = Fake()
    sender = sending(post, spool=spool)
    assert getattr(sender, end)(10)
    assert len(post.calls) == 3
    assert not len(spool)
    assert (sender.counts, sender.from_disk, sender.pending) == ({"sent": 3}, 3, 0)


def test_a_run_without_a_report_does_not_wait_for_a_server_that_is_away(sending, spool):
    """One try, and then the batch waits for another run."""
    assert spool.put(Batch.of("shop", tuple(reports(3))))
    post = Fake(*[OSError("away")] * 9)
    sender = sending(post, spool=spool)
    began = monotonic()
    sender.flush(300)
    assert monotonic() - began < 60
    assert len(post.calls) == 1
    assert len(spool) == 1


def test_nothing_is_started_where_nothing_is_left(sending, spool, sending_threads):
    """A flush of nothing, and a report that was refused, cost no thread."""
    sender = sending(Fake(), spool=spool)
    sender.wake()
    assert sender.flush(1)
    assert not sending_threads()


def test_a_refused_report_wakes_the_sender(sending, spool):
    """What is left goes out some time later, where the app runs on; it is looked for once."""
    assert spool.put(Batch.of("shop", tuple(reports(3))))
    post = Fake()
    sender = sending(post, SenderSettings(flush_interval=0.2), spool=spool)
    sender.wake()
    sender.wake()
    assert eventually(lambda: len(post.calls) == 1)
    assert eventually(lambda: not len(spool))


def test_a_run_begins_with_what_is_left(sending, spool, monkeypatch):
    """It is sent before anything is recorded, without a pause. Runs within the next hour leave a server alone."""
    monkeypatch.setattr(Backlog, "begin_now", BEGIN)
    assert spool.put(Batch.of("shop", tuple(reports(3))), seen=False)
    calls = []
    for seconds in (0, 3500, 100):  # from one run to the next
        for marker in spool._directory.glob("begun"):
            os.utime(marker, (marker.stat().st_mtime - seconds,) * 2)
        post = Fake(*[UnreachedError("away")] * (seconds == 0))
        sender = sending(post, spool=spool)
        sender.begin()
        assert eventually(lambda sender=sender: sender._backlog.left > 1)  # it was tried, or is put off
        sender.leave(60)
        calls.append(len(post.calls))
    assert calls == [1, 0, 1]
    assert not len(spool)


@pytest.mark.parametrize("young", [True, False])
def test_the_chore_waits_for_the_first_request(sending, monkeypatch, young):
    """A program that ends soon and sends nothing does not import what calls the server. Where it sends, the chore comes first."""
    monkeypatch.setattr("deniable.transport.network._YOUNG", 3600.0 if young else 0.0)
    calls = []
    sender = sending(Fake(lambda *_: calls.append("request") or 202), count=1, chore=lambda: calls.append("chore") or 3600.0)
    if young:
        assert sender.flush(60)
    assert eventually(lambda: calls == ["chore", "request"][: 1 + young])


@pytest.mark.parametrize("reached", [False, True])
def test_a_try_that_the_end_cuts(sending, spool, monkeypatch, reached):
    """The batch stays: under its key if it may have arrived, else as one that nobody has seen, and it is not sent any more."""
    monkeypatch.setattr(Backlog, "begin_now", BEGIN)
    batch = Batch.of("shop", tuple(reports(3)))
    assert spool.put(batch, seen=False)
    post, imported = Hanging(), threading.Event()
    sender = sending(post, spool=spool)
    if not reached:  # the library that sends is being imported
        monkeypatch.setattr(sender, "_make_post", lambda: (post.entered.set(), imported.wait(60)) and post)
    sender.begin()
    assert post.entered.wait(60)
    sender.leave(60)
    (path,) = spool._directory.glob("*.gz")
    assert (path.name == f"{batch.key}.json.gz", ".unseen" in path.name) == (reached, not reached)
    imported.set()
    post.release.set()
    sender._courier.thread.join(60)
    assert post.calls == reached
    later = Fake()
    again = sending(later, spool=spool)  # which may try at once: nobody knows whether the server answers
    again.begin()
    assert eventually(lambda: later.calls and not len(spool))
    assert spool.cut == 0


def test_nothing_that_is_left_goes_without_consent(sending, spool):
    """While sending is paused nothing leaves the device."""
    assert spool.put(Batch.of("shop", tuple(reports(3))))
    post = Fake()
    sender = sending(post, spool=spool)
    sender.pause(paused=True)
    sender.wake()
    sender.flush(0.3)
    assert not post.calls
    assert len(spool) == 1


def test_the_spool_is_tried_without_a_new_report(sending, spool):
    """What the last run left goes out after the interval also where no delivery of this one tells that the server is there."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    post = Fake(*[lambda body, headers: 400 if len(payloads(body, headers)) == 1 else 202] * 2)
    sender = sending(post, SenderSettings(flush_at=100, flush_interval=0.05), spool=spool)
    sender.submit(reports(1)[0])
    assert eventually(lambda: sender.counts == {"sent": 4, "http_400": 1})


def test_what_this_run_spooled_is_tried_without_a_new_report(sending, spool):
    """A batch that was not delivered is tried again in a minute, whatever else is recorded."""
    sender = sending(Fake(202, OSError("down")), ONE_TRY, spool=spool)
    for expected in ({"sent": 1}, {"sent": 1, "spooled": 1}):
        sender.submit(reports(1)[0])
        assert sender.flush(60)
        assert eventually(lambda expected=expected: sender.counts == expected and not sender._backlog.due)
    assert 40 < sender._backlog.left < 80


def test_a_server_that_is_away_is_asked_seldom(sending, spool):
    """A spooled batch that is not taken stays, is tried once, and then not for a minute."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    post = Fake(202, OSError("down"))
    sender = sending(post, count=1, spool=spool)
    assert sender.flush(60)
    assert eventually(lambda: len(post.calls) == 2)
    assert eventually(lambda: 40 < sender._backlog.left < 80)
    assert len(spool) == 1
    sender._backlog.put_off()
    assert 90 < sender._backlog.left < 150, "twice as long the next time"


@pytest.mark.parametrize(("status", "counts"), [(400, {"http_400": 4}), (422, {"http_422": 4})])
def test_a_spooled_batch_that_nobody_wants(sending, spool, status, counts):
    """A spooled batch that the server will never take is removed and counted."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    sender = sending(Fake(202, status), count=1, spool=spool)
    assert sender.flush(60)
    assert eventually(lambda: sender.counts == {"sent": 1} | counts)
    assert len(spool) == 0


def test_a_spooled_batch_that_is_too_large(sending, spool):
    """It is replaced by its halves, and nothing is lost."""
    before = Batch.of("shop", tuple(reports(5)))
    spool.put(before)
    post = Fake(202, 413)
    sender = sending(post, count=1, spool=spool)
    assert sender.flush(60)
    assert eventually(lambda: sender.counts["sent"] == 6)
    assert post.keys[1:] == [before.key, *[half.key for half in before.halves()]]
    assert len(spool) == 0


def test_a_refused_key_leaves_the_spool(sending, spool):
    """A key that is refused stops the sender, and the spool stays for a key that is known."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    post = Fake(202, 401)
    sender = sending(post, count=1, spool=spool)
    assert sender.flush(60)
    assert eventually(lambda: sender.full == "refused_key")
    assert sender.submit(reports(1)[0]) == "refused_key"
    assert len(spool) == 1
    assert len(post.calls) == 2


def test_a_spooled_batch_that_breaks_the_sender(sending, spool):
    """A batch at which the sender errs is removed, else it would err at every start."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    sender = sending(Fake(202, RuntimeError("boom")), count=1, spool=spool)
    assert sender.flush(60)
    assert eventually(lambda: sender.counts == {"sent": 1, "error": 4})
    assert len(spool) == 0


@pytest.mark.parametrize("function", ["put", "take"])
def test_a_spool_that_fails(sending, spool, monkeypatch, function):
    """With a disk that is full or gone the sender goes on, and the loss is counted."""
    monkeypatch.setattr(spool, function, lambda *_, **__: False if function == "put" else None)
    sender = sending(Fake(OSError("down")), ONE_TRY, count=3, spool=spool)
    assert sender.flush(60)
    assert sender.counts == {"spool_failed" if function == "put" else "spooled": 3}
    sender.submit(reports(1)[0])
    assert sender.flush(60)
    assert sender.counts["sent"] == 1


@pytest.mark.usefixtures("time_for_the_disk")
def test_close_spools_the_rest(sending, spool):
    """What a hanging server did not take is on the disk when close returns, in time, and so is what was queued behind it."""
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=10, flush_interval=60), count=2500, spool=spool)
    assert post.entered.wait(60)
    began = monotonic()
    assert sender.close(60)
    assert monotonic() - began < 60
    assert sender.counts == {"spooled": 2500}
    assert 4 <= len(spool) <= 5, "what is left goes in large batches"


@pytest.mark.usefixtures("time_for_the_disk")
def test_close_in_a_long_wait(sending, spool):
    """Nor does close wait for a server that asked for minutes."""
    sender = sending(Fake((503, {"Retry-After": "300"}, None)), count=3, spool=spool)
    began = monotonic()
    assert sender.close(60)
    assert monotonic() - began < 60
    assert (sender.counts, len(spool)) == ({"spooled": 3}, 1)


def test_close_keeps_its_deadline_on_a_slow_disk(sending, spool, monkeypatch):
    """A disk that hangs does not hold the app up."""
    release = threading.Event()
    monkeypatch.setattr(spool, "put", lambda *_, **__: release.wait(300))
    sender = sending(Fake(OSError("down")), ONE_TRY, count=3, spool=spool)
    began = monotonic()
    assert sender.close(0.3) is False
    assert monotonic() - began < 60
    release.set()


def test_close_sends_the_spool_while_there_is_time(sending, spool):
    """An app that never runs for long empties its spool as it closes, if the server answers."""
    for _ in range(3):
        spool.put(Batch.of("shop", tuple(reports(4))))
    sender = sending(Fake(), count=1, spool=spool)
    assert sender.close(60)
    assert (sender.counts, len(spool)) == ({"sent": 13}, 0)


def test_after_close(sending, spool):
    """A closed sender takes nothing, flushes at once, and closes again at once."""
    sender = sending(Fake(), count=1, spool=spool)
    assert sender.close(60)
    began = monotonic()
    assert sender.flush(300)
    assert sender.close(300)
    assert monotonic() - began < 60
    assert sender.full == sender.submit(reports(1)[0]) == "closed"


def test_purge_empties_the_spool(sending, sending_threads, spool):
    """What was spooled before consent was taken back is gone when purge returns, without a thread where there was none."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    sender = sending(Fake(), spool=spool)
    sender.purge()
    assert len(spool) == 0
    assert sender.counts == {"purged": 4}
    assert not sending_threads()


def test_purge_also_after_a_purge(sending, spool):
    """What was spooled between two purges is purged, however soon the second comes."""
    sender = sending(Fake(OSError("down")), ONE_TRY, spool=spool)
    sender.purge()
    for report in reports(2):
        sender.submit(report)
    assert sender.flush(60)
    assert len(spool) == 1
    sender.purge()
    assert len(spool) == 0


def test_purges_of_an_empty_spool_are_cheap(sending, spool, monkeypatch):
    """An app that keeps recording without consent does not keep reading its disk."""
    purges = []
    monkeypatch.setattr(spool, "purge", lambda: purges.append(1))
    sender = sending(Fake(), spool=spool)
    for _ in range(50):
        sender.purge()
    assert len(purges) == 1


def test_purge_on_a_slow_disk(sending, spool, monkeypatch):
    """A disk that hangs holds purge up for a second, and meanwhile nothing of the spool is sent."""
    release = threading.Event()
    spool.put(Batch.of("shop", tuple(reports(4))))
    monkeypatch.setattr(spool, "purge", lambda: release.wait(300))
    post = Fake()
    sender = sending(post, spool=spool)
    began = monotonic()
    sender.purge()
    assert monotonic() - began < 60
    sender.submit(reports(1)[0])
    assert sender.flush(0.3) is False
    assert [len(payloads(b, h)) for b, h, _ in post.calls] == [1]
    release.set()
    assert sender.flush(60)


def test_purge_while_a_batch_is_on_its_way_to_the_disk(sending, spool, monkeypatch):
    """A batch that was being written when consent was taken back does not stay."""
    entered, release = threading.Event(), threading.Event()
    put = spool.put

    def slow(batch, **options):
        entered.set()
        assert release.wait(300)
        return put(batch, **options)

    monkeypatch.setattr(spool, "put", slow)
    sender = sending(Fake(OSError("down")), ONE_TRY, spool=spool)
    sender.submit(reports(1)[0])
    flushing = threading.Thread(target=sender.flush, args=(10,))
    flushing.start()
    assert entered.wait(60)
    sender.purge()
    release.set()
    flushing.join(60)
    assert len(spool) == 0


# a pause


def test_a_pause_sends_nothing_and_loses_nothing(sending, spool):
    """While paused neither the queue nor the spool is sent, also when a batch is full; then both are."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    post = Fake()
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=0.02), spool=spool)
    sender.pause(True)  # noqa: FBT003
    for report in reports(5):
        sender.submit(report)
    began = monotonic()
    assert sender.flush(300) is False
    assert monotonic() - began < 60, "there is nothing to wait for"
    sleep(0.2)
    assert not post.calls
    sender.pause(False)  # noqa: FBT003
    assert eventually(lambda: sender.counts["sent"] == 9)


def test_close_in_a_pause(sending, spool):
    """What was not sent for a pause is kept when the app ends."""
    post = Fake()
    sender = sending(post, spool=spool)
    sender.pause(True)  # noqa: FBT003
    for report in reports(5):
        sender.submit(report)
    assert sender.close(60)
    assert (sender.counts, len(spool), post.calls) == ({"spooled": 5}, 1, [])


# those who are called


def test_delivered_is_told(sending, spool):
    """What need not be sent again is told once, batch by batch, with the reports in it and what became of them."""
    batches = []
    sender = sending(
        Fake(400, 202),
        spool=spool,
        delivered=lambda batch, verdict: batches.append((len(batch.reports), verdict.kind)),
    )
    for _ in range(2):
        for report in reports(3):
            sender.submit(report)
        assert sender.flush(60)
        spool.put(Batch.of("shop", tuple(reports(4))))
    assert sender.flush(60)
    # Which of the queue and the spool is sent first is not promised.
    assert (batches[0], sorted(batches[1:])) == ((3, "dropped"), [(3, "accepted"), (4, "accepted"), (4, "accepted")])


def test_delivered_may_err(sending):
    """An error there is counted, and the batch is sent all the same."""

    def delivered(*_):
        raise RuntimeError("boom")

    sender = sending(Fake(), count=3, delivered=delivered)
    assert sender.flush(60)
    assert sender.counts == {"sent": 3, "delivered_error": 1}


def test_a_flush_from_inside(sending):
    """A flush, a close and a purge in the sending threads return at once."""
    answers = []

    def delivered(*_):
        began = monotonic()
        answers.extend([sender.flush(300), sender.close(300)])
        sender.purge()
        answers.append(monotonic() - began < 60)

    sender = sending(lambda *_: (sender.flush(300), (202, {}, None))[1], count=3, delivered=delivered)
    began = monotonic()
    sender.flush(300)
    assert monotonic() - began < 60
    assert eventually(lambda: len(answers) == 3)
    assert answers == [False, False, True]


def test_a_chore_is_done_when_the_thread_starts(sending, monkeypatch):
    """A chore is done with the first report and not before, not in the app's thread, and again after the time it asks for."""
    monkeypatch.setattr("deniable.transport.network._YOUNG", 0.0)
    monkeypatch.setattr("deniable.transport.network._SHORTEST", 0.01)
    done = []

    def chore() -> float:
        done.append(threading.current_thread().name)
        return 0.0  # no sooner than the shortest time

    sender = sending(Fake(), chore=chore)
    assert not done
    sender.submit(reports(1)[0])
    assert eventually(lambda: len(done) >= 2)
    assert set(done) == {"deniable-courier"}
    assert sender.flush(60)


@pytest.mark.parametrize("answer", [RuntimeError("boom"), "soon", None])
def test_a_chore_that_errs(sending, answer):
    """An error in a chore is counted, and sending goes on."""

    def chore():
        if isinstance(answer, Exception):
            raise answer
        return answer

    sender = sending(Fake(), count=1, chore=chore)
    assert sender.flush(60)
    assert eventually(lambda: sender.counts == {"sent": 1, "chore_error": 1})


def test_a_report_that_must_wait_makes_no_request(sending):
    """Neither does the chore, whose request would tell the moment; it is done before the first upload."""
    calls: list[str] = []

    def post(*_):
        calls.append("upload")
        return 202, {}, None

    def chore() -> float:
        calls.append("chore")
        return 60.0

    sender = sending(post, chore=chore)
    assert sender.submit(sender.later(3600, reports(1)[0])) is None
    sender.flush(1)
    sleep(0.1)
    assert calls == []
    sender.submit(reports(1)[0])
    assert sender.flush(60)
    assert calls == ["chore", "upload"]


def test_no_chore_in_a_pause(sending, monkeypatch):
    """Without consent the server is not asked for anything."""
    monkeypatch.setattr("deniable.transport.network._YOUNG", 0.0)
    done = threading.Event()
    sender = sending(Fake(), chore=lambda: done.set() or 100)
    sender.pause(True)  # noqa: FBT003
    sender.submit(reports(1)[0])
    assert not done.wait(0.2)
    sender.pause(False)  # noqa: FBT003
    assert done.wait(60)


@pytest.mark.usefixtures("time_for_the_disk")
def test_a_chore_that_hangs(sending, spool):
    """A chore that hangs holds up neither flush nor close beyond their time, and no report is lost."""
    release = threading.Event()
    sender = sending(Fake(), count=3, spool=spool, chore=lambda: release.wait(300) or 100)
    began = monotonic()
    assert sender.flush(0.2) is False
    assert sender.close(60)
    assert monotonic() - began < 60
    assert len(spool) == 1
    release.set()


def test_full_tells_what_submit_would(sending):
    """Why a report would be dropped is told without one, and without the lock."""
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=2, queue_size=2, flush_interval=60), count=2)
    assert post.entered.wait(60)
    assert sender.full is None
    for report in reports(2):
        sender.submit(report)
    with sender._orders.changed:
        assert sender.full == "queue_full"


@pytest.mark.parametrize("method", ["__init__", "start"])
def test_where_no_thread_can_start(sending, monkeypatch, method):
    """Where the system gives no thread, the report is dropped with that reason, and the next one tries again."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't start")

    sender = sending(Fake())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, method, fail)
        assert sender.submit(reports(1)[0]) == "no_thread"
    assert sender.submit(reports(1)[0]) is None
    assert sender.flush(60)
    assert sender.counts == {"sent": 1}


@pytest.mark.usefixtures("time_for_the_disk")
@pytest.mark.parametrize(
    ("exit_", "age", "sent"),
    [("auto", 0, False), ("auto", 11, True), ("wait", 0, True), ("spool", 11, False), ("helper", 11, False)],
)
def test_the_end_of_a_process(sending, spool, exit_, age, sent):
    """What is queued is sent, or is on disk without a try; then a helper is called, which only an app's own wish brings."""
    calls: list[int] = []
    post = Fake()
    sender = sending(post, count=3, spool=spool, exit=exit_, helper=lambda: calls.append(len(spool)))
    sender._begun -= age
    sender.leave(60)
    assert (len(post.calls), len(spool)) == ((1, 0) if sent else (0, 1))
    assert sender.counts == ({"sent": 3} if sent else {"spooled": 3})
    assert calls == ([] if sent else [1])


def test_an_unknown_end_is_refused(sending):
    with pytest.raises(ParameterError, match="exit = 'soon': write one of auto, wait, spool, helper"):
        sending(Fake(), exit="soon")


def test_without_a_spool_the_end_waits(sending):
    """What cannot be kept is sent."""
    sender = sending(Fake(), count=3)
    sender.leave(60)
    assert sender.counts == {"sent": 3}


@pytest.mark.usefixtures("time_for_the_disk")
def test_without_randomness_close_ends(sending, spool, monkeypatch):
    """Where the system gives no randomness nothing is sent, and close ends in time."""

    class Broken:
        @staticmethod
        def below(_n: int) -> int:
            raise OSError("no randomness")

    monkeypatch.setattr("deniable.source.OS", Broken)
    post = Fake()
    sender = sending(post, count=3, spool=spool)
    began = monotonic()
    assert sender.close(60)
    assert monotonic() - began < 60
    assert not post.calls
    assert len(spool) == 1
