"""Sending: a bounded queue, one lazy daemon thread, and HTTP that retries with the same bytes.

Only randomised reports pass here; the raw answer ended in `deniable.client`. Nothing in this module raises into the host app
or makes it wait, except `Sender.flush` and `Sender.close`, whose deadlines always hold.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from dataclasses import dataclass, fields
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import uuid4
from weakref import WeakSet

from deniable.errors import ParameterError
from deniable.report import encode
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.dsn import Dsn
    from deniable.report import Report

__all__ = ["Batch", "HttpPost", "Post", "Sender", "SenderSettings"]

log = logging.getLogger("deniable")

_MAX_PAYLOAD_BYTES = 128 * 1024  # of a batch, so that its base64 stays within what a server accepts
_GZIP_ABOVE = 1024
_RETRY = frozenset({408, 429, 502, 503, 504})
_STOP = frozenset({401, 403})
_ACCEPTED, _TOO_LARGE = 202, 413
_LARGEST_SETTING = 10_000_000
_LONGEST_WAIT = 30.0
_LONGEST_RETRY_AFTER = 300.0


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """How a sender batches and retries.

    Parameters
    ----------
    flush_at
        Reports that make a batch.
    flush_interval
        Seconds after which an incomplete batch is sent, give or take a fifth.
    queue_size
        Reports held; further ones are dropped and counted.
    timeout
        Seconds one request may take.
    max_tries
        Attempts at a batch before it is given up.
    """

    flush_at: int = 100
    flush_interval: float = 60.0
    queue_size: int = 10_000
    timeout: float = 10.0
    max_tries: int = 4

    def __post_init__(self) -> None:
        for each in fields(self):
            number = getattr(self, each.name)
            if not 0 < number <= _LARGEST_SETTING:
                raise ParameterError(f"{each.name} is a number above 0 and at most {_LARGEST_SETTING}", number)


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded upload; every attempt sends these very bytes under this very key."""

    key: str
    body: bytes
    reports: tuple[Report, ...]

    @classmethod
    def of(cls, reports: tuple[Report, ...]) -> Batch:
        """Encode reports under a fresh random key."""
        return cls(str(uuid4()), encode(reports), reports)


class Post(Protocol):
    """Sends one request; raises OSError when no answer came."""

    def __call__(self, body: bytes, headers: Mapping[str, str], timeout: float) -> tuple[int, Mapping[str, str], Any]:
        """Return status, headers and the JSON of the answer (None where there is none)."""


class HttpPost:
    """`Post` by the requests library, which is imported only here, in the sending thread."""

    def __init__(self, url: str) -> None:
        import requests  # noqa: PLC0415

        self._url = url
        self._session = requests.Session()
        # No cookies, and no proxies or credentials of the host app: nothing that could link two uploads.
        self._session.trust_env = False
        self._session.headers.clear()
        self._session.headers["User-Agent"] = "deniable"  # else urllib3 adds its own, with a version

    def __call__(self, body: bytes, headers: Mapping[str, str], timeout: float) -> tuple[int, Mapping[str, str], Any]:
        """Send one request."""
        answer = self._session.post(self._url, data=body, headers=dict(headers), timeout=timeout, allow_redirects=False)
        self._session.cookies.clear()
        try:
            document = answer.json()
        except ValueError:
            document = None
        return answer.status_code, answer.headers, document


class Sender:
    """Queue reports and send them from a thread of its own.

    Parameters
    ----------
    dsn
        Where to.
    settings
        How to batch and retry.
    post
        How to send a request; made in the thread on first use when None.
    """

    _alive: ClassVar[WeakSet[Sender]] = WeakSet()

    def __init__(self, dsn: Dsn, settings: SenderSettings, post: Post | None = None) -> None:
        self._dsn = dsn
        self._settings = settings
        self._given_post = post
        self._closed = False
        self._refused = False
        self.counts: Counter[str] = Counter()
        self.begin()
        self._alive.add(self)

    def begin(self) -> None:
        """Begin with an empty queue, no thread and a lock that nobody holds."""
        self._post = self._given_post
        self._queue: deque[Report] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._submitted = 0  # reports ever queued
        self._settled = 0  # of these, no longer queued or in flight
        self._flush_to = 0  # reports that somebody waits for
        self._purges = 0
        self._purges_seen = 0  # when the reports in flight were taken from the queue

    @classmethod
    def begin_all(cls) -> None:
        """Begin anew in a forked child: it has no sending thread, and its parent will send the parent's reports."""
        for each in cls._alive:
            each.begin()

    def submit(self, report: Report) -> str | None:
        """Queue a report; return None, or why it was dropped."""
        with self._changed:
            if self._closed or self._refused:
                return "closed" if self._closed else "refused_key"
            if len(self._queue) >= self._settings.queue_size:
                return "queue_full"
            self._queue.append(report)
            self._submitted += 1
            if self._thread is None:
                self._thread = Thread(target=self._run, name="deniable-sender", daemon=True)
                self._thread.start()
            elif len(self._queue) == self._settings.flush_at:
                self._changed.notify_all()
        return None

    def flush(self, timeout: float) -> bool:
        """Send what is queued now; return whether all of it was settled within `timeout` seconds.

        Reports recorded meanwhile are not waited for, and are batched as ever.
        """
        with self._changed:
            target = self._flush_to = self._submitted
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._settled >= target, timeout)

    def close(self, timeout: float) -> bool:
        """Send what is queued within `timeout` seconds, then stop for good."""
        done = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return done

    def purge(self) -> None:
        """Drop everything not yet sent: what is queued, and a batch that waits for another try."""
        with self._changed:
            self._purges += 1
            self._settle("purged", len(self._queue))
            self._queue.clear()
            self._changed.notify_all()

    def _settle(self, outcome: str, reports: int) -> None:
        if reports:
            self.counts[outcome] += reports
            self._settled += reports
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            try:
                reports = self._take()
            except OSError as error:  # no randomness, hence no jitter: send nothing that could be timed
                log.warning("deniable: no batch can be made: %s", type(error).__name__)
                time.sleep(1.0)
                continue
            if not reports:
                return
            self._deliver_safely(reports)

    def _deliver_safely(self, reports: tuple[Report, ...]) -> None:
        try:
            self._deliver(reports)
        except Exception as error:  # noqa: BLE001 - the host app must never notice; the loss is counted
            log.warning("deniable: a batch was lost to an unexpected %s", type(error).__name__)
            with self._changed:
                self._settle("error", len(reports))

    def _take(self) -> tuple[Report, ...]:
        """Wait for a batch's worth of reports; empty means stop."""
        jitter = 0.8 + 0.4 * OS.below(1 << 16) / (1 << 16)
        deadline = time.monotonic() + self._settings.flush_interval * jitter
        with self._changed:
            while not self._due():
                left = deadline - time.monotonic()
                if left <= 0:
                    if self._queue:
                        break
                    left = self._settings.flush_interval
                self._changed.wait(left)
            taken: list[Report] = []
            size = 0
            while self._queue and len(taken) < self._settings.flush_at:
                size += len(self._queue[0].payload)
                if taken and size > _MAX_PAYLOAD_BYTES:
                    break
                taken.append(self._queue.popleft())
            self._purges_seen = self._purges
            return tuple(taken)

    def _due(self) -> bool:
        """Tell whether a batch is to be made before its time is up."""
        flushing = self._queue and self._settled < self._flush_to
        return self._closed or bool(flushing) or len(self._queue) >= self._settings.flush_at

    def _deliver(self, reports: tuple[Report, ...]) -> None:
        if self._refused or self._purged():
            with self._changed:
                self._settle("refused_key" if self._refused else "purged", len(reports))
            return
        status, answer = self._persist(Batch.of(reports))
        if status == _TOO_LARGE and len(reports) > 1:
            half = len(reports) // 2
            self._deliver_safely(reports[:half])
            self._deliver_safely(reports[half:])
            return
        with self._changed:
            if status == _ACCEPTED:
                accepted = answer.get("accepted") if isinstance(answer, dict) else None
                if not isinstance(accepted, int) or not 0 <= accepted <= len(reports):
                    accepted = len(reports)
                self._settle("sent", accepted)
                self._settle("rejected", len(reports) - accepted)
                return
            self._refused = self._refused or status in _STOP
            given_up = "purged" if self._purged() else "undelivered"
            self._settle(given_up if status in _RETRY or status == 0 else f"http_{status}", len(reports))
        code = answer.get("code") if isinstance(answer, dict) else None
        log.warning("deniable: %d reports not delivered: status %d, code %s", len(reports), status, code)

    def _persist(self, batch: Batch) -> tuple[int, Any]:
        """Try until there is an answer to stay with, tries end, or nobody wants the batch sent any more."""
        status, answer = 0, None
        for attempt in range(self._settings.max_tries):
            status, headers, answer = self._try(batch)
            if status not in _RETRY and status != 0:
                break
            if attempt + 1 == self._settings.max_tries or not self._wait(attempt, headers):
                break
        return status, answer

    def _try(self, batch: Batch) -> tuple[int, Mapping[str, str], Any]:
        headers = {
            "Authorization": f"Bearer {self._dsn.key}",
            "Content-Type": "application/json",
            "Idempotency-Key": batch.key,
        }
        body = batch.body
        if len(body) > _GZIP_ABOVE:
            import gzip  # noqa: PLC0415

            body = gzip.compress(body, mtime=0)
            headers["Content-Encoding"] = "gzip"
        try:
            if self._post is None:
                self._post = HttpPost(f"{self._dsn.url}/v1/reports")
            return self._post(body, headers, self._settings.timeout)
        except OSError as error:  # requests' exceptions are OSErrors
            log.debug("deniable: no answer from %s: %s", self._dsn.url, type(error).__name__)
            return 0, {}, None

    def _wait(self, attempt: int, headers: Mapping[str, str]) -> bool:
        """Wait before the next attempt; False when closed or purged meanwhile."""
        longest = min(_LONGEST_WAIT, 2.0**attempt)
        seconds = longest * OS.below(1 << 16) / (1 << 16)  # full jitter
        retry_after = headers.get("Retry-After", "")
        if retry_after.isdecimal():
            seconds = max(seconds, min(float(retry_after), _LONGEST_RETRY_AFTER))
        with self._changed:
            return not self._changed.wait_for(lambda: self._closed or self._purged(), seconds)

    def _purged(self) -> bool:
        """Tell whether everything was purged since the reports in flight were taken."""
        return self._purges != self._purges_seen


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=Sender.begin_all)
