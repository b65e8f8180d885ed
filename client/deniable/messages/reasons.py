"""Why a report is not made, not sent or not taken: for each reason what happened and what to do.

Whatever drops a report asks here for its words: warnings, `flush`, and the page of the site that lists all reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.frozen import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Reason(NamedTuple):
    """A reason, in words."""

    happened: str
    remedy: str
    alike: bool = False  # whether it concerns all metrics alike, so that it is said once for all of them
    normal: bool = False  # whether nothing is wrong
    developing: str = ""  # what to do while the app is developed, as a line of its own; empty if nothing

    def words(self, facts: str = "") -> str:
        """Write it as one sentence, with facts of the case. No fact may be, or depend on, an answer."""
        return f"{self.happened}{f' ({facts})' if facts else ''}; {self.remedy}"


_KEY = "write a key into the DSN that the server knows, such as the one that `deniable serve` prints"
_FORGED = "the SDK makes no such report: look for what changes uploads on their way, or for another client"
_VERSIONS = "the SDK makes no such upload: look for a proxy that changes it, or bring SDK and server to one version"
_KEPT = "what is not delivered is kept and tried again"
_ONCE_MORE = "to record once more, start with an empty state directory (state= or DENIABLE_STATE_DIR)"

ANSWERS: Mapping[str, Reason] = {
    "before_init": Reason(
        "record was called before deniable.init, so the answer is lost", "call init where the app starts", alike=True
    ),
    "disabled": Reason(
        "the client is off: no DSN, switched off by the user, or a configuration that cannot be used",
        'stats()["disabled"] and the line "deniable is off" say which',
        alike=True,
    ),
    "no_consent": Reason(
        "nobody has agreed, so nothing is recorded",
        "once the person has said yes, call set_consent(True)",
        alike=True,
        normal=True,
    ),
    "unknown_metric": Reason(
        "the registry does not declare the metric",
        "correct the name, or declare it in metrics.toml",
    ),
    "off": Reason("the metric is off", "other metrics go on"),
    "expired": Reason(
        "its collection has ended",
        "set a later `expires` in each metrics.toml that has it",
    ),
    "unit": Reason("its unit is not one of time", "pass the number to `record`: `timed` is for metrics of us, ms, s, min or h"),
    "not_sampled": Reason(
        "`sample` has left this answer out",
        "that is normal; for more reports raise `sample` in metrics.toml",
        normal=True,
    ),
    "this_period": Reason(
        "the device has already made its reports of this period",
        "that is normal: each person counts that often",
        normal=True,
        developing=_ONCE_MORE,
    ),
    "refused_period": Reason(
        "the server has refused the report of this period, and the device makes no other one",
        "mend what it refused, and the next period is reported",
        developing=_ONCE_MORE,
    ),
    "nobody": Reason(
        "the person has no identifier",
        "record for people who are signed in, with an identifier that stays, such as the number of the account",
        alike=True,
    ),
    "budget": Reason(
        "its part of the budget is spent, or what an earlier registry of the app has spent leaves no room yet",
        "declare a longer `period` in metrics.toml, so that its part lasts",
        developing=_ONCE_MORE,
    ),
    "state": Reason(
        "what the device has spent cannot be read or written, so it may spend nothing",
        "name a state directory that can be written, with state= or DENIABLE_STATE_DIR",
        alike=True,
    ),
    "queue_full": Reason(
        "the queue is full",
        "see whether the server answers; record less, or raise DENIABLE_QUEUE_SIZE or SenderSettings.queue_size",
        alike=True,
    ),
    "closed": Reason("it was recorded after close()", "call close last", alike=True),
    "refused_key": Reason(
        "the server has refused the key or the path of the DSN, so nothing is recorded until the next start",
        "start again with a DSN that it accepts; what was recorded before waits on disk",
        alike=True,
    ),
    "no_thread": Reason(
        "no thread can be started: the interpreter is ending, there are too many threads, or this is an isolated subinterpreter",
        "record earlier, or in the main interpreter",
        alike=True,
    ),
    "interrupted": Reason(
        "record was called during another record of its thread, by a consent function, a signal handler, a finaliser or a log's "
        "handler; or that code forked",
        "record elsewhere",
        alike=True,
    ),
    "error": Reason("an unexpected error was swallowed", "strict=True raises it; if it is ours, please report it", alike=True),
}
"""Reasons why an answer is not reported."""

OF_PEOPLE: Mapping[str, Reason] = {
    "no_consent": Reason(
        "a person has not agreed: consent returned something else than True",
        "that is normal for those who said no; when they say yes, have it return True",
        alike=True,
    ),
    "this_period": Reason(
        "a person has already made the reports of this period",
        "that is normal: each person counts that often",
        normal=True,
        developing="to record once more, take another identifier",
    ),
    "state": Reason(
        "what a person has spent cannot be read or written, so nothing may be spent",
        "mend the store of deniable.people",
        alike=True,
    ),
}
"""The same where answers are those of the people of a web app, if the words differ."""

ONE_PERSON = Reason(
    "so many answers were dropped as this_period, since one device = one person",
    "if this process records for several people, as a web server does for its visitors, use deniable.people",
)
"""Another remedy where many answers are dropped as ``this_period``."""

LOSSES: Mapping[str, Reason] = {
    "purged": Reason("consent was withdrawn, so what was not sent yet is deleted", "that is what a withdrawal is for"),
    "undelivered": Reason(
        "reports could not be delivered, and nothing keeps them for later",
        "let the client keep its state on disk: leave out state=None",
        alike=True,
    ),
    "spool_failed": Reason(
        "reports could not be delivered, and the disk does not keep them for later",
        "name a state directory that can be written, with state= or DENIABLE_STATE_DIR",
    ),
    "spool_full": Reason("too many reports wait on disk, so the oldest are deleted", "see why the server does not answer"),
    "spool_expired": Reason(
        "reports have waited on disk for so long that no server would count them, so they are deleted",
        "see why the server does not answer, or how often the program runs",
    ),
    "spool_damaged": Reason("a file of waiting reports is damaged, so it is deleted", "see whether the disk is sound"),
    "delivered_error": Reason("what was sent could not be noted in the journal", "mend the state directory"),
    "chore_error": Reason("the served registry could not be asked for", "tried again within the hour; please report it"),
}
"""Reasons why a report is lost once it was made, and faults that cost none."""

FAILURES: Mapping[str, Reason] = {
    "refused": Reason("nothing accepts connections there", "start the server (`deniable serve`) at the host and port of the DSN"),
    "no_name": Reason("the host's name cannot be found", "correct the host of the DSN, or see whether the device is online"),
    "no_tls": Reason(
        "the port does not speak TLS",
        "have the server, or the proxy before it, speak https",
    ),
    "no_tls_here": Reason("the port does not speak TLS, and is on this machine", "write http:// in the DSN"),
    "tls": Reason(
        "no secure connection came about",
        "see which versions of TLS the server, or the proxy before it, speaks",
    ),
    "certificate": Reason(
        "the server's certificate is not trusted",
        "give the server one for the DSN's host; or name the file of your own authority in REQUESTS_CA_BUNDLE",
    ),
    "timeout": Reason(
        "no answer came in time",
        "see whether host and port of the DSN are right, and whether a firewall or a proxy is between: the SDK uses no proxy",
    ),
    "cut": Reason(
        "the connection was closed without an answer", "see whether the port speaks https, or another program listens there"
    ),
    "ended": Reason(
        "the client was closed before an answer came",
        "give it more time, as by flush(timeout=5) before; what is kept on disk is sent at the next start",
    ),
    "no_answer": Reason("no answer came", "see whether the server of the DSN is running"),
}
"""Reasons why there was no answer. All are tried again."""

SERVED: Mapping[str, Reason] = {
    "status": Reason(
        "the server hands out no signed registry", "give it one (DENIABLE_SIGNED_REGISTRY), or leave out registry_key in the app"
    ),
    "no_registry": Reason(
        "what came is no signed registry, and changes nothing",
        "see whether the login page of a network answers in the server's place; `deniable registry sign` makes one",
    ),
    "expired": Reason("the days of the served registry are over", "sign it again: `deniable registry sign --valid-for`"),
}
"""Reasons why a registry from the server is not used. The app's own stays in use."""

CODES: Mapping[str, Reason] = {
    "missing_key": Reason("the upload came without its key", "see whether a proxy takes the header Authorization away"),
    "unknown_key": Reason("the server does not know the DSN's key", f"{_KEY}; what waits is kept for two days"),
    "not_found": Reason("the server has no such address", "correct the path of the DSN: https://KEY@host[/prefix]/app"),
    "method_not_allowed": Reason("the address takes no uploads", "correct host and path of the DSN"),
    "rate_limited": Reason(
        "the server's limit of requests is reached", f"{_KEPT}; else raise DENIABLE_RATE_LIMIT_SOURCE or ..._KEY there"
    ),
    "backlog_full": Reason("too many uploads wait in the server to be counted", f"{_KEPT}; see there whether a worker runs"),
    "store_full": Reason("the server's store has no room", f"{_KEPT}; raise its maxmemory"),
    "store_unavailable": Reason("the server cannot reach its store", f"{_KEPT}; `deniable doctor` on the server says why"),
    "internal": Reason("the server has failed", "read its log, and report the bug"),
    "all_rejected": Reason("no report of the upload can be counted", "the reasons stand with each metric"),
    "idempotency_mismatch": Reason("the key of the upload was used for another one", _VERSIONS),
    **dict.fromkeys(
        ("body_too_large", "inflated_too_large"),
        Reason("a report is larger than a server takes", "declare fewer values or a smaller mechanism"),
    ),
    **dict.fromkeys(
        ("idempotency_key", "gzip", "json", "batch_shape", "batch_format", "media_type", "content_encoding", "length_required"),
        Reason("the server cannot read the upload", _VERSIONS),
    ),
    **dict.fromkeys(
        ("malformed_request", "repeated_parameter", "address_too_long", "headers_too_large", "expectation", "transfer_coding"),
        Reason("the server cannot read the request", _VERSIONS),
    ),
}
"""Codes of a server that refuses an upload as a whole, as `docs/reference/http` lists them."""

_FOREIGN = Reason(
    "what answered is no deniable server",
    f"{_KEPT}; see which program listens at the DSN's host and port, or what stands before the server",
)

STATUSES: Mapping[int, Reason] = {
    202: Reason("the server took fewer reports than it was sent, and does not say why", "read its log"),
    300: Reason(
        "what answered is no deniable server: it redirects, which the SDK does not follow",
        f"{_KEPT}; write the address that it leads to into the DSN",
    ),
    200: _FOREIGN,
    400: _FOREIGN,
    408: Reason("the server did not get the upload in time", _KEPT),
    413: CODES["body_too_large"],
    429: CODES["rate_limited"],
    500: Reason("the server has failed", f"{_KEPT}; read the log of the server, or of a proxy before it"),
    502: Reason("the proxy before the server does not reach it", f"{_KEPT}; start the server"),
    503: Reason("the server is not ready", f"{_KEPT}; read its log, or ask `deniable doctor` there"),
    504: Reason("the proxy before the server got no answer from it in time", f"{_KEPT}; read its log"),
}
"""Statuses of answers without a code that we know: a proxy's, or another program's. A hundred stands for all of its kind."""

REFUSALS: Mapping[str, Reason] = {
    "unknown_metric": Reason(
        "the server's metrics.toml does not declare the metric", "give the server the metrics.toml of this app"
    ),
    "unknown_version": Reason(
        "the server's metrics.toml does not declare this version",
        "give the server the metrics.toml of this app, beside earlier ones",
    ),
    "definition_mismatch": Reason(
        "the server runs another metrics.toml, which means something else by the same version",
        "give it the one of this app, and start it again",
    ),
    "metric_expired": Reason(
        "its collection has ended at the server", "set a later `expires` in metrics.toml, for app and server"
    ),
    "period": Reason("the server's metrics.toml has another `period`", "give the server the metrics.toml of this app"),
    "period_closed": Reason(
        "it came too late, after the period's `grace`", "see whether the device's clock is right; else raise `grace`"
    ),
    "period_not_open": Reason("its period has not begun for the server", "set the clock of the device, or of the server"),
    "segment": Reason("the server's metrics.toml has other segments", "give the server the metrics.toml of this app"),
    **dict.fromkeys(
        ("base64", "payload_length", "index_range", "row_range", "padding_bits"),
        Reason("the server cannot read the report", _FORGED),
    ),
}
"""Codes of a server that refuses reports of a metric, as `docs/reference/http` lists them."""

_OTHER = Reason("the server refuses it", "read the server's log")


def of_answer(
    status: int,  # status of an answer that refuses an upload
    code: str | None,  # the server's code, if there is one
) -> Reason:
    """Return why a server refuses an upload as a whole."""
    if code:  # of a deniable server
        return CODES.get(code, _OTHER)
    return STATUSES.get(status) or STATUSES.get(status // 100 * 100) or _OTHER


def of_refusal(
    code: str,  # the server's code
) -> Reason:
    """Return why a server refuses reports of a metric."""
    return REFUSALS.get(code, _OTHER)


def of_code(
    code: str,  # as `Verdict.refused` has it: the server's code, or "status" and a status
) -> str:
    """Say why a server refused a report of a period."""
    about = REFUSALS.get(code) or CODES.get(code, _OTHER)
    return f"{code}: {about.happened}"
