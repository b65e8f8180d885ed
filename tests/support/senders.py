"""Senders whose server is a function of the test. A conftest imports the fixture."""

from __future__ import annotations

import gzip
import json
import threading
from base64 import b64decode
from time import monotonic

import pytest

from deniable.transport import Sender, SenderSettings
from deniable.transport.dsn import Dsn
from deniable.wire.report import Report, Stratum

DSN = Dsn("http://t.example", "public-key", "shop")
STRATUM = Stratum("m", 1, "0" * 16, "2026-01-01", "")
QUICK = SenderSettings(flush_at=1000, flush_interval=60)


@pytest.fixture
def time_for_the_disk(monkeypatch):
    """Let a close wait briefly for the server, and long for the spool, however slow the disk is."""
    monkeypatch.setattr("deniable.transport._END_SHARE", 0.99)


def reports(count: int) -> list[Report]:
    return [Report(STRATUM, i.to_bytes(2, "big")) for i in range(count)]


def payloads(body: bytes, headers) -> list[bytes]:
    raw = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
    data = b"".join(b64decode(group["payloads"]) for group in json.loads(raw)["groups"])
    return [data[i : i + 2] for i in range(0, len(data), 2)]


FINAL = (400, 401, 403, 404, 409, 411, 413, 415, 422)


def problem(code: str, **more) -> dict:
    """Write a refusal as a deniable server does."""
    return {"type": f"urn:deniable:problem:{code}", "code": code, **more}


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
        return answer if isinstance(answer, tuple) else (answer, {}, problem("planned") if answer in FINAL else None)

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
        assert self.release.wait(300)
        return 202, {}, None


@pytest.fixture
def sending(sending_threads, monkeypatch):
    """Make senders, and end their threads after the test. None sends what an earlier one left soon, however slow the test is."""
    monkeypatch.setattr("deniable.transport.backlog.Backlog.begin_now", lambda _: None)
    senders: list[Sender] = []
    releases: list[threading.Event] = []

    def make(post, settings: SenderSettings = QUICK, count: int = 0, **options) -> Sender:
        if isinstance(post, Hanging):
            releases.append(post.release)
        sender = Sender(DSN, settings, post, **options)
        senders.append(sender)
        for report in reports(count):
            assert sender.submit(report) is None
        return sender

    yield make
    for event in releases:
        event.set()
    for sender in senders:
        sender.close(2)
    for thread in sending_threads():
        thread.join(60)
        assert not thread.is_alive()
