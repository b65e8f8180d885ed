"""The sender: bounded, lazy, patient with servers, and never in the app's way."""

from __future__ import annotations

import gzip
import json
import logging
import os
import threading
from base64 import b64decode
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep

import pytest

from deniable.dsn import Dsn
from deniable.errors import ParameterError
from deniable.report import Report, Stratum
from deniable.transport import Batch, HttpPost, Sender, SenderSettings

DSN = Dsn("http://t.example", "public-key", "shop")
STRATUM = Stratum("m", 1, "0" * 16, "2026-01-01", "")
QUICK = SenderSettings(flush_at=1000, flush_interval=60)


def reports(count: int) -> list[Report]:
    return [Report(STRATUM, i.to_bytes(2, "big")) for i in range(count)]


def payloads(body: bytes, headers) -> list[bytes]:
    raw = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
    data = b"".join(b64decode(group["payloads"]) for group in json.loads(raw)["groups"])
    return [data[i : i + 2] for i in range(0, len(data), 2)]


class Fake:
    """A `Post` that answers as told, then 202 for ever, and keeps what it was sent and when."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[bytes, dict[str, str], float]] = []
        self.times: list[float] = []

    def __call__(self, body, headers, timeout):
        self.calls.append((body, dict(headers), timeout))
        self.times.append(monotonic())
        answer = self.answers.pop(0) if self.answers else 202
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = answer(body, headers)
        return answer if isinstance(answer, tuple) else (answer, {}, None)

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for _, headers, _ in self.calls]


class Hanging:
    """A `Post` that hangs until released."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, _body, _headers, _timeout):
        self.calls += 1
        self.entered.set()
        assert self.release.wait(30)
        return 202, {}, None


class NoJitter:
    """Stands in for the source of jitter: always the least."""

    @staticmethod
    def below(_n: int) -> int:
        return 0


@pytest.fixture
def sending():
    """Make senders, and end their threads after the test."""
    made: list[Sender] = []
    releases: list[threading.Event] = []

    def make(post, settings: SenderSettings = QUICK, count: int = 0) -> Sender:
        if isinstance(post, Hanging):
            releases.append(post.release)
        sender = Sender(DSN, settings, post)
        made.append(sender)
        for report in reports(count):
            assert sender.submit(report) is None
        return sender

    yield make
    for event in releases:
        event.set()
    for sender in made:
        sender.close(2)
        if sender._thread is not None:
            sender._thread.join(10)
            assert not sender._thread.is_alive()


@pytest.fixture
def no_jitter(monkeypatch):
    """Retries wait as little as the server allows."""
    monkeypatch.setattr("deniable.transport.OS", NoJitter)


def eventually(condition, seconds: float = 10) -> bool:
    end = monotonic() + seconds
    while not condition():
        if monotonic() > end:
            return False
        sleep(0.005)
    return True


def test_no_thread_before_the_first_report(sending):
    """The thread starts with the first report and not before."""
    sender = sending(Fake())
    assert sender._thread is None
    assert sender.flush(0.1)
    sender.submit(reports(1)[0])
    assert sender._thread is not None
    assert sender._thread.daemon


def test_a_flush_sends_everything(sending):
    """A flush sends what is queued, in one batch, and counts it."""
    post = Fake()
    sender = sending(post, count=7)
    assert sender.flush(10)
    ((body, headers, timeout),) = post.calls
    assert payloads(body, headers) == [r.payload for r in reports(7)]
    assert timeout == QUICK.timeout
    assert sender.counts == {"sent": 7}


def test_what_a_request_says(sending):
    """A request has the public key, a random idempotency key, and nothing about the device."""
    post = Fake()
    assert sending(post, count=1).flush(10)
    (_, headers, _) = post.calls[0]
    assert headers.pop("Idempotency-Key")
    assert headers == {"Authorization": "Bearer public-key", "Content-Type": "application/json"}


def test_large_bodies_are_compressed(sending):
    """Above a kilobyte a body is gzip without a time stamp."""
    post = Fake()
    assert sending(post, count=900).flush(10)
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
    assert sender.flush(10)
    assert [len(b"".join(payloads(b, h))) for b, h, _ in post.calls] == [120_000, 60_000, 200_000]


def test_a_full_queue_drops_the_newest(sending):
    """A report that finds the queue full is not taken, and the ones before it are kept."""
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=5, queue_size=5, flush_interval=60), count=5)
    assert post.entered.wait(10)
    first = reports(6)
    assert [sender.submit(r) for r in first] == [None] * 5 + ["queue_full"]
    assert list(sender._queue) == first[:5]


# retries


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_retries_send_the_same(sending, status):
    """A server that is busy gets the very same bytes under the very same key until it takes them."""
    post = Fake(status, status, 202)
    sender = sending(post, count=600)
    assert sender.flush(10)
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
    assert sender.flush(10)
    assert len(set(post.keys)) == 1
    assert sender.counts == {"sent": 2}


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("answer", [OSError("down"), 503])
def test_tries_end(sending, answer):
    """After the last try the reports are counted as undelivered, and flush has nothing to wait for."""
    post = Fake(*[answer] * 4)
    sender = sending(post, count=3)
    assert sender.flush(10)
    assert len(post.calls) == 4
    assert sender.counts == {"undelivered": 3}


@pytest.mark.usefixtures("no_jitter")
def test_the_server_may_ask_for_time(sending):
    """Retry-After is the least to wait."""
    post = Fake((429, {"Retry-After": "1"}, None), 202)
    assert sending(post, count=1).flush(10)
    assert post.times[1] - post.times[0] >= 1


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("retry_after", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "0"])
def test_a_strange_retry_after(sending, retry_after):
    """A Retry-After that is no number of seconds is as good as none."""
    post = Fake((503, {"Retry-After": retry_after}, None), 202)
    assert sending(post, count=1).flush(10)


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize("retry_after", ["600", "9" * 400])
def test_nobody_waits_for_ever(sending, monkeypatch, retry_after):
    """Retry-After is clamped to 300 seconds."""
    waits = []
    post = Fake((503, {"Retry-After": retry_after}, None), 202)
    sender = sending(post)

    def wait_for(_predicate, seconds):
        waits.append(seconds)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(sender._changed, "wait_for", wait_for)
        sender.submit(reports(1)[0])
        with sender._changed:
            sender._flush_to = 1
            sender._changed.notify_all()
        assert eventually(lambda: sender.counts["sent"] == 1)
    assert waits == [300.0]


def test_backoff_grows_and_has_a_cap(sending, monkeypatch):
    """Waits are drawn from [0, 1, 2, 4, ...) seconds, never above 30."""
    waits = []

    class MostJitter:
        @staticmethod
        def below(n: int) -> int:
            return n - 1

    monkeypatch.setattr("deniable.transport.OS", MostJitter)
    sender = sending(Fake())
    monkeypatch.setattr(sender._changed, "wait_for", lambda _predicate, seconds: waits.append(seconds))
    for attempt in range(8):
        sender._wait(attempt, {})
    assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30], rel=1e-4)
    monkeypatch.undo()


# refusals


def test_too_large_is_split(sending):
    """A batch that is too large is sent in halves, each under a new key, and nothing is lost."""

    def answer(body, headers):
        return 413 if len(payloads(body, headers)) > 3 else 202

    post = Fake(*[answer] * 20)
    sender = sending(post, count=11)
    assert sender.flush(10)
    assert len(set(post.keys)) == len(post.calls)
    taken = [p for body, headers, _ in post.calls for p in payloads(body, headers) if len(payloads(body, headers)) <= 3]
    assert taken == [r.payload for r in reports(11)]
    assert sender.counts == {"sent": 11}


def test_one_that_is_too_large(sending):
    """A single report that is too large cannot be split and is counted."""
    sender = sending(Fake(413), count=1)
    assert sender.flush(10)
    assert sender.counts == {"http_413": 1}


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_stops(sending, status):
    """A key that is refused stops the sender: nothing more is taken and nothing more is sent."""
    post = Fake(status)
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=2)
    assert eventually(lambda: sender.counts[f"http_{status}"] == 2)
    assert sender.submit(reports(1)[0]) == "refused_key"
    assert sender.flush(10)
    assert len(post.calls) == 1


def test_a_refused_key_stops_what_is_queued(sending):
    """What was queued when the key was refused is counted, not sent."""
    post = Fake(lambda _b, _h: held.wait(10) and 401)
    held = threading.Event()
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=6)
    held.set()
    assert sender.flush(10)
    assert sender.counts == {"http_401": 2, "refused_key": 4}
    assert len(post.calls) == 1


@pytest.mark.parametrize("status", [400, 404, 409, 411, 415, 422, 500, 200, 301])
def test_other_statuses_are_counted(sending, status):
    """Another refusal drops the batch at once, counted under its status."""
    post = Fake(status)
    sender = sending(post, count=2)
    assert sender.flush(10)
    assert len(post.calls) == 1
    assert sender.counts == {f"http_{status}": 2}


def test_rejected_reports_are_counted(sending):
    """Reports that the server did not accept are counted and not sent again."""
    post = Fake((202, {}, {"accepted": 3, "rejected": 2}))
    sender = sending(post, count=5)
    assert sender.flush(10)
    assert sender.counts == {"sent": 3, "rejected": 2}
    assert len(post.calls) == 1


@pytest.mark.parametrize(
    "document", [None, [], "x", {}, {"accepted": "all"}, {"accepted": None}, {"accepted": 99}, {"accepted": -1}]
)
def test_a_strange_answer_breaks_nothing(sending, document):
    """Whatever the server says, the next batch is sent and flush ends."""
    sender = sending(Fake((202, {}, document)), count=3)
    assert sender.flush(10)
    sender.submit(reports(1)[0])
    assert sender.flush(10)
    assert sender.counts["sent"] >= 1


def test_an_unexpected_error_costs_one_batch(sending):
    """An error that nobody thought of loses its batch, counted, and the thread lives on."""
    post = Fake(RuntimeError("boom"), 202)
    sender = sending(post, count=2)
    assert sender.flush(10)
    sender.submit(reports(1)[0])
    assert sender.flush(10)
    assert sender.counts == {"error": 2, "sent": 1}


def test_an_unexpected_error_in_a_half(sending):
    """An error in one half of a split batch does not count the other half twice."""
    post = Fake(413, 202, RuntimeError("boom"))
    sender = sending(post, count=4)
    assert sender.flush(10)
    assert sender.counts == {"sent": 2, "error": 2}
    assert sender._settled == sender._submitted == 4


# deadlines


def test_flush_keeps_its_deadline(sending):
    """While the server hangs, flush returns False in time."""
    post = Hanging()
    sender = sending(post, count=3)
    began = monotonic()
    assert sender.flush(0.2) is False
    assert 0.15 <= monotonic() - began < 2
    post.release.set()
    assert sender.flush(10)


def test_close_keeps_its_deadline(sending):
    """So does close, and afterwards nothing is taken."""
    post = Hanging()
    sender = sending(post, count=3)
    began = monotonic()
    assert sender.close(0.2) is False
    assert monotonic() - began < 2
    assert sender.submit(reports(1)[0]) == "closed"


def test_flush_keeps_its_deadline_in_a_retry(sending):
    """While the server asks for minutes, flush returns False in time and close ends the wait."""
    post = Fake((503, {"Retry-After": "200"}, None), 202)
    sender = sending(post, count=1)
    began = monotonic()
    assert sender.flush(0.2) is False
    assert sender.close(0.2) is False
    assert monotonic() - began < 3
    assert eventually(lambda: sender.counts["undelivered"] == 1)
    assert len(post.calls) == 1


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
    assert post.entered.wait(10)
    sender.submit(reports(1)[0])
    post.release.set()
    assert eventually(lambda: sender.counts["sent"] == 3)
    sleep(0.1)
    assert post.calls == 2
    assert len(sender._queue) == 1


def test_close_sends_what_is_queued(sending):
    """Close sends the rest and ends the thread; closing twice is closing once."""
    post = Fake()
    sender = sending(post, count=3)
    assert sender.close(10)
    assert sender.close(10)
    assert sender.counts == {"sent": 3}
    assert eventually(lambda: not sender._thread.is_alive())


def test_several_flushes_at_once(sending):
    """Flushes in several threads all end."""
    sender = sending(Fake(), count=50)
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(sender.flush(10))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert answers == [True] * 4


# consent


def test_purge_drops_what_is_queued(sending):
    """What is purged is counted and never sent."""
    post = Fake()
    sender = sending(post, count=4)
    sender.purge()
    assert sender.flush(10)
    assert sender.counts == {"purged": 4}
    assert not post.calls


def test_purge_drops_what_waits_for_a_retry(sending):
    """A batch between two tries is not yet sent, and is dropped too, soon."""
    post = Fake((503, {"Retry-After": "100"}, None), 202)
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=2)
    assert eventually(lambda: len(post.calls) == 1)
    sleep(0.05)
    sender.purge()
    assert sender.flush(10)
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
    assert sender.flush(10)
    assert sender.counts == {"purged": 4, "sent": 1}


# processes


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_begins_anew(sending, in_child):
    """A child sends none of its parent's reports, and its own from a thread of its own."""
    post = Fake()
    sender = sending(post, count=3)

    def child() -> bytes:
        held = len(sender._queue)
        sender.submit(Report(STRATUM, b"ch"))
        done = sender.flush(10)
        return json.dumps([held, done, sender.counts, [p.decode() for b, h, _ in post.calls for p in payloads(b, h)]]).encode()

    assert json.loads(in_child(child)) == [0, True, {"sent": 1}, ["ch"]]
    assert sender.flush(10)
    assert sender.counts == {"sent": 3}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_under_a_held_lock(sending, in_child):
    """A child made while another thread held the lock does not wait for it for ever."""
    sender = sending(Fake(), count=1)
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        with sender._changed:
            entered.set()
            release.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(10)

    def child() -> bytes:
        import signal

        signal.alarm(5)  # the child dies of it rather than wait for ever
        return repr(sender.submit(reports(1)[0])).encode()

    try:
        assert in_child(child) == b"None"
    finally:
        release.set()
        holder.join(10)


# the real thing


@contextmanager
def server(*statuses: int):
    """Run a local HTTP server that keeps what it is sent, sets a cookie, and answers as told."""
    seen: list[tuple[str, dict[str, str], bytes]] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, dict(self.headers.items()), body))
            status = left.pop(0) if left else 202
            answer = b'{"accepted": 1, "rejected": 1}' if status == 202 else b"<html>"
            self.send_response(status)
            self.send_header("Set-Cookie", "who=you; Path=/")
            self.send_header("Retry-After", "0")
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_args) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", seen
    finally:
        httpd.shutdown()
        thread.join(10)
        httpd.server_close()


@pytest.fixture
def _end_sessions(monkeypatch):
    """Close what `requests` keeps open, so that no socket is left to the garbage collector."""
    made: list[HttpPost] = []
    begin = HttpPost.__init__

    def init(self, url: str) -> None:
        begin(self, url)
        made.append(self)

    monkeypatch.setattr(HttpPost, "__init__", init)
    yield
    for each in made:
        each._session.close()


@pytest.mark.usefixtures("_end_sessions", "no_jitter")
def test_over_http(monkeypatch):
    """Batches arrive over HTTP, whole, without cookies and without a word about the device's software."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server(503, 202, 202) as (url, seen):
        sender = Sender(Dsn(f"{url}/prefix", "public-key", "shop"), QUICK)
        for count in (2, 900):
            for report in reports(count):
                sender.submit(report)
            assert sender.flush(20)
        assert sender.close(5)
        sender._thread.join(10)
    assert [path for path, _, _ in seen] == ["/prefix/v1/reports"] * 3
    assert seen[0][1:] == seen[1][1:], "a retry is the same request"
    for (_, headers, body), size in zip(seen, (2, 2, 900), strict=True):
        assert len(payloads(body, headers)) == size
        assert headers.pop("Idempotency-Key")
        assert headers.pop("Content-Length") == str(len(body))
        assert headers.pop("Content-Encoding", None) == ("gzip" if size == 900 else None)
        assert headers.pop("Host").startswith("127.0.0.1:")
        assert headers == {
            "Accept-Encoding": "identity",
            "Authorization": "Bearer public-key",
            "Content-Type": "application/json",
            "User-Agent": "deniable",
        }
    assert sender.counts == {"sent": 2, "rejected": 900}


@pytest.mark.usefixtures("_end_sessions")
@pytest.mark.parametrize("status", [301, 302, 307])
def test_redirects_are_not_followed(status):
    """The key and the reports go where the DSN says and nowhere else."""
    with server(status) as (url, seen):
        answered, headers, document = HttpPost(f"{url}/v1/reports")(b"{}", {"Content-Type": "application/json"}, 10)
    assert (answered, document, len(seen)) == (status, None, 1)
    assert headers["retry-after"] == "0", "headers are looked up in any case"


@pytest.mark.usefixtures("_end_sessions")
def test_no_server_at_all():
    """Where nobody listens, the error is an OSError."""
    with pytest.raises(OSError, match="refused"):
        HttpPost("http://127.0.0.1:9/v1/reports")(b"{}", {}, 5)


def test_requests_is_imported_by_the_thread_only():
    """Importing the SDK, and recording with another `post`, never imports requests."""
    import subprocess
    import sys

    code = (
        "import sys, deniable, deniable.transport; print('requests' in sys.modules, 'ssl' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.split() == ["False", "False", "False"]


# what is logged


@pytest.mark.usefixtures("no_jitter")
def test_logs_name_no_key_and_no_payload(sending, caplog):
    """At the lowest level the log has statuses, codes and kinds of error, and neither the key nor a payload."""
    caplog.set_level(logging.DEBUG)
    post = Fake(
        OSError("secret-detail public-key"),
        (400, {}, {"code": "bad_json", "detail": "secret-detail"}),
        RuntimeError("secret-detail"),
    )
    sender = sending(post)
    for payload in (b"\xfe\xdc", b"\xfe\xdd"):
        sender.submit(Report(STRATUM, payload))
        assert sender.flush(10)
    assert "no answer from http://t.example: OSError" in caplog.text
    assert "1 reports not delivered: status 400, code bad_json" in caplog.text
    assert "a batch was lost to an unexpected RuntimeError" in caplog.text
    for secret in ("secret-detail", "public-key", "fedc", "/tw=", "\\xfe"):
        assert secret not in caplog.text


def test_batches_have_keys_of_their_own():
    """Two batches of the same reports have different random keys."""
    first, second = Batch.of(tuple(reports(2))), Batch.of(tuple(reports(2)))
    assert first.body == second.body
    assert first.key != second.key
    assert Counter(first.key)["-"] == 4
    assert first.key[14] == "4", "a random UUID, not one of clock and machine"


def test_flush_does_not_wait_for_later_reports(sending):
    """Under steady traffic a flush ends with the reports queued when it began."""
    release = threading.Event()
    sender = sending(Fake(202))
    sender._post = lambda *_: (release.wait(10), (202, {}, None))[1]
    sender.submit(reports(1)[0])
    flushed = []
    waiting = threading.Thread(target=lambda: flushed.append(sender.flush(10)))
    waiting.start()
    assert eventually(lambda: not sender._queue)
    for report in reports(3):
        sender.submit(report)
    release.set()
    waiting.join(10)
    assert flushed == [True]
    assert len(sender._queue) == 3


@pytest.mark.parametrize("setting", ["flush_at", "flush_interval", "queue_size", "timeout", "max_tries"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), 1e300])
def test_settings_are_in_range(setting, value):
    """A setting that would stop or hang the thread is refused when it is given."""
    with pytest.raises(ParameterError, match=setting):
        SenderSettings(**{setting: value})
