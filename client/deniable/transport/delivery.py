"""Delivery of one batch: attempts, waits between them, and the meaning of the last answer."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from deniable.frozen import dataclass, field
from deniable.messages.log import log
from deniable.messages.notice import warn_once
from deniable.messages.plural import few
from deniable.messages.reasons import FAILURES, of_answer, of_refusal
from deniable.source import jitter
from deniable.transport.failures import failure
from deniable.transport.http import UnreachedError
from deniable.wire.addresses import PROBLEM
from deniable.wire.report import grouped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.device.journal import Journal
    from deniable.messages.reasons import Reason
    from deniable.transport.dsn import Dsn
    from deniable.transport.network import Answer, Courier, Orders
    from deniable.wire.batch import Batch
    from deniable.wire.report import Report

_GZIP_ABOVE = 1024
_NO_ANSWER = 0
_RETRY = frozenset({_NO_ANSWER, 408, 429, 502, 503, 504})
_STOP = frozenset({401, 403, 404})
_ACCEPTED, _TOO_LARGE = 202, 413
_FAILED = 500  # from this status on the server, or something before it, has failed
_LONGEST_WAIT = 30.0
_LONGEST_RETRY_AFTER = 300.0
_LONGEST_CODE = 40
_LONGEST_DETAIL = 200  # characters of a server's words
_MOST_ERRORS = 100  # most errors in the answer to a batch


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a batch."""

    # accepted: the server took the batch. large: it must be split. later: it was not delivered yet. refused: the server refuses
    # the key or the path, and would refuse all other batches; another DSN may do. dropped: the server will never take it.
    kind: Literal["accepted", "large", "later", "refused", "dropped"]
    status: int  # status of the last answer; 0 if there was none
    accepted: int = 0  # number of reports that the server took from an accepted batch
    # Reports that the server refused, by metric and reason, as far as it says.
    refusals: Counter[str] = field(default_factory=Counter)
    why: str = ""  # why the server did not take all of it
    seen: bool = True  # whether somebody may have seen the batch on its way, or the server has it although no answer came
    code: str = ""  # the server's code of the last answer, if it has one

    def divided(self, batch: Batch) -> tuple[list[Report], list[Report]]:
        """Divide the reports of an accepted batch into those that the server took and others; empty where it does not say."""
        left: Counter[str] = Counter()
        for refusal, number in self.refusals.items():
            left[refusal.split(": ")[0]] += number
        taken: list[Report] = []
        rejected: list[Report] = []
        for report in batch.reports:  # which of a metric's reports it was, nobody asks
            metric = report.stratum.metric
            (rejected if left[metric] > 0 else taken).append(report)
            left[metric] -= 1
        return (taken, rejected) if len(taken) == self.accepted else ([], [])

    def refused(self, batch: Batch) -> list[tuple[str, str, str]]:
        """Return the metrics of a batch of which the server refused reports for good, each with the period and why, in short."""
        periods = {report.stratum.metric: report.stratum.period for report in batch.reports}
        if self.kind == "dropped" and not self.refusals:
            return [(metric, period, self.code or f"status {self.status}") for metric, period in periods.items()]
        refusals = [refusal.split(": ") for refusal in self.refusals]
        return [(metric, periods[metric], code) for metric, code in refusals]

    def write(self, batch: Batch, journal: Journal) -> None:
        """Write to the journal what became of a batch."""
        if self.kind == "accepted":
            journal.add(batch.reports)
        if refused := self.refused(batch):
            journal.refuse(refused)


class Delivery:
    """Delivers batches to a server, one after another."""

    def __init__(
        self,
        dsn: Dsn,  # where to send
        timeout: float,  # seconds one request may take
        orders: Orders,  # what the app wants
        courier: Courier,  # makes the requests
    ) -> None:
        self.app = dsn.app  # whose reports it delivers
        self._dsn = dsn
        self.timeout = timeout
        self._orders = orders
        self._courier = courier
        self._not_before = -math.inf  # the server's Retry-After, which holds for all batches

    def deliver(self, batch: Batch, tries: int) -> Verdict:
        """Try until an answer is final, no tries are left, or the batch must not be sent any more."""
        answer: Any = None
        status = _NO_ANSWER
        seconds, seen = 0.0, False
        for attempt in range(tries):
            if not self._wait(seconds):
                break
            if not attempt:
                self._note(None)  # not before: while this batch waits for the server's Retry-After, that is why
            try:
                status, headers, answer = self._try(batch)
                seen = True
            except UnreachedError as error:
                status, headers = _NO_ANSWER, {}
                self._complain(error)
            if not _again(status, answer):
                break
            pause = _retry_after(headers)
            if status != _NO_ANSWER:  # at once: the last try may come after the app has ended
                self._note(_refused(status, answer) + _until(pause))
            # At random, so that devices that failed at one moment do not come back at one moment.
            seconds = jitter(min(_LONGEST_WAIT, 2.0**attempt))
            self._not_before = time.monotonic() + pause
        verdict = _verdict(batch, status, answer, seen=seen)
        if verdict.kind == "refused":
            self._note(verdict.why)
        return verdict

    def _wait(self, seconds: float) -> bool:
        """Wait for some seconds, and for the server's Retry-After; return False if nothing may be sent any more."""
        orders = self._orders
        begun = time.monotonic()
        with orders.changed:
            while not orders.purged:
                left = max(begun + seconds, self._not_before) - time.monotonic()
                if orders.closed and (orders.spooled or orders.paused or left > 0):
                    return False
                if left <= 0 and not orders.paused:
                    return True
                orders.wait(left if left > 0 else None)
            return False

    def _try(self, batch: Batch) -> Answer:
        headers = {
            "Authorization": f"Bearer {self._dsn.key}",
            "Content-Type": "application/json",
            "Idempotency-Key": batch.key,
        }
        body = batch.body
        if len(body) > _GZIP_ABOVE:
            import gzip  # noqa: PLC0415 - the app's thread never needs it

            # Without the time that gzip would write into the head: it tells of this device's clock.
            body = gzip.compress(body, mtime=0)
            headers["Content-Encoding"] = "gzip"
        try:
            return self._courier.ask(body, headers, self.timeout)
        except UnreachedError:
            raise
        except OSError as error:
            self._complain(error)
            return _NO_ANSWER, {}, None

    def _complain(self, error: BaseException) -> None:
        """Say once why there was no answer, unless nobody waits for it any more, or the app wants to wait for none."""
        log.debug("deniable: no answer from %s: %s", self._dsn.url, type(error).__name__)
        if not (self._orders.purged or self._orders.to_disk):
            reason = "ended" if self._orders.abandoned else failure(error)
            reason = "no_tls_here" if reason == "no_tls" and self._dsn.local else reason
            words = FAILURES[reason].words() + (f": {self._dsn.by_http}" if reason == "no_tls_here" else "")
            warn_once(self._dsn.url, reason, words)
            self._note(f"{self._dsn.url}: {words}")

    def _note(self, why: str | None) -> None:
        """Note why a batch waits for another try."""
        with self._orders.changed:
            self._orders.trouble = why


def _again(status: int, answer: Any) -> bool:
    """Return whether another try may do better. Only a refusal of our own server is final; a proxy's or a portal's is not."""
    if status == _ACCEPTED:
        return False
    return status in _RETRY or status >= _FAILED or not _ours(answer)


def _ours(answer: Any) -> bool:
    """Return whether an answer is a problem of a deniable server."""
    document = answer if isinstance(answer, dict) else {}
    code = _code(document)
    return code is not None and document.get("type") == f"{PROBLEM}{code}"


def _verdict(batch: Batch, status: int, answer: Any, *, seen: bool = True) -> Verdict:
    document = answer if isinstance(answer, dict) else {}
    reports = len(batch.reports)
    refusals, lines = _refusals(batch, document.get("errors"))
    if status == _ACCEPTED:
        accepted = document.get("accepted")
        # The server has the batch, whatever number it names. So nothing of it is sent again.
        if type(accepted) is not int or not 0 <= accepted <= reports:
            accepted = reports
        why = "" if accepted == reports else _why(lines, status, document)
        return Verdict("accepted", status, accepted, refusals, why)
    if status == _TOO_LARGE and reports > 1:
        return Verdict("large", status)
    if _again(status, answer):
        log.info("deniable: %d reports not delivered yet", reports)
        return Verdict("later", status, seen=seen)
    why = _why(lines, status, document)
    kind: Literal["refused", "dropped"] = "refused" if status in _STOP else "dropped"
    return Verdict(kind, status, refusals=refusals, why=why, code=_code(document) or "")


def _why(refusals: Sequence[str], status: int, document: dict[str, Any]) -> str:
    """Return why a server did not take all of an upload. What it refused of some metrics was logged with their names."""
    return f"the server refused {'; '.join(refusals)}" if refusals else _refused(status, document)


def _refused(status: int, answer: Any) -> str:
    """Say once why a server refuses an upload as a whole; return the words."""
    document = answer if isinstance(answer, dict) else {}
    code = _code(document) if _ours(document) else None
    words = _words(document, of_answer(status, code))
    warn_once(f"status {status}", code or "no code", words)
    return f"status {status}: {words}"


def _refusals(batch: Batch, errors: Any) -> tuple[Counter[str], list[str]]:
    """Count the reports that a server says it refused, and log why; return the words also."""
    # The server may lie, so metrics are named from the batch.
    refused: Counter[str] = Counter()
    groups = grouped(batch.reports) if errors else []
    lines: dict[tuple[str, str], list[str]] = {}
    for error in errors[:_MOST_ERRORS] if isinstance(errors, list) else ():
        place, code = (error.get("group"), _code(error)) if isinstance(error, dict) else (None, None)
        if code is None or type(place) is not int or not 0 <= place < len(groups):
            continue
        stratum, reports = groups[place]
        count = error.get("count")
        refused[f"{stratum.metric}: {code}"] += count if type(count) is int and 0 < count < len(reports) else len(reports)
        lines.setdefault((code, _words(error, of_refusal(code))), []).append(stratum.metric)
    for about, metrics in lines.items():
        warn_once(metrics, *about)
    return refused, [f"{few(metrics)}: {code}: {words}" for (code, words), metrics in lines.items()]


def _code(document: dict[str, Any]) -> str | None:
    code = document.get("code")
    plain = isinstance(code, str) and code.isascii() and code.isidentifier() and len(code) <= _LONGEST_CODE
    return code if plain else None


def _words(document: dict[str, Any], reason: Reason) -> str:
    """Return a reason with the server's own words, cut."""
    detail = document.get("detail")
    return reason.words(f"it says {ascii(detail)[:_LONGEST_DETAIL]}" if isinstance(detail, str) and detail else "")


def _until(pause: float) -> str:
    """Say until when a server asks to wait; empty if it does not."""
    return f"; it asks to wait until {time.strftime('%H:%M:%S', time.localtime(time.time() + pause))}" if pause else ""


def _retry_after(headers: Mapping[str, str]) -> float:
    """Read the seconds to wait from an answer's Retry-After, at most 300; 0 if it has no valid one."""
    text = headers.get("Retry-After", "")
    if text.isascii() and text.isdecimal():
        return min(float(text), _LONGEST_RETRY_AFTER)
    if not text.endswith("GMT"):
        return 0.0
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - rare, and loaded with `http.client` anyway

    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, min(seconds, _LONGEST_RETRY_AFTER))
