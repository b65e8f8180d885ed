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
    in_facts: bool = False  # whether the facts of a case, where there are any, say what to do
    developing: str = ""  # what to do while the app is developed, as a line of its own; empty if nothing

    def words(self, facts: str = "") -> str:
        """Write it as one sentence, with facts of the case. No fact may be, or depend on, an answer."""
        if facts and self.in_facts:
            return f"{self.happened}: {facts}"
        return f"{self.happened}{f' ({facts})' if facts else ''}; {self.remedy}"


_KEY = "write a key into the DSN that the server knows, such as the one that `deniable serve` prints"
_FORGED = "the SDK makes no such report: look for what changes uploads on their way, or for another client"
_VERSIONS = "the SDK makes no such upload: look for a proxy that changes it, or bring SDK and server to one version"
_KEPT = "the reports are kept, and sent again later"
_OURS = (
    "give the server the metrics.toml of this app, which `deniable serve` reads by itself and other servers at a restart; "
    "its log says if the file cannot be used"
)
_ONCE_MORE = "to record once more, start with an empty state directory (state= or DENIABLE_STATE_DIR)"

ANSWERS: Mapping[str, Reason] = {
    "before_init": Reason(
        "record was called before deniable.init, so the answer is lost", "call init first, where the app starts", alike=True
    ),
    "disabled": Reason(
        "the client is off: no DSN, switched off by the user, or a configuration that cannot be used",
        'see stats()["disabled"], or the line "deniable is off" in the log',
        alike=True,
    ),
    "no_consent": Reason(
        "nobody has agreed, so nothing is recorded",
        "call set_consent(True) once the person has said yes",
        alike=True,
        normal=True,
    ),
    "unknown_metric": Reason(
        "the registry does not declare the metric",
        "correct the name, or add the metric to metrics.toml",
    ),
    "swapped": Reason("the arguments are swapped", "write the metric first, and then the answer"),
    "off": Reason("the metric is off", "mend that; each metric that is on is recorded"),
    "expired": Reason(
        "its collection has ended",
        "write a later `expires` in metrics.toml, for the app and for the server",
    ),
    "unit": Reason("its unit is not one of time", "use `record`: `timed` is for metrics whose unit is us, ms, s, min or h"),
    "not_sampled": Reason(
        "`sample` has left this answer out",
        "that is normal; for more reports raise `sample` in metrics.toml",
        normal=True,
    ),
    "this_period": Reason(
        "this answer was left out: the device has already reported in this period",
        "that is expected: each person counts that often",
        normal=True,
        developing=_ONCE_MORE,
    ),
    "refused_period": Reason(
        "the server has refused the report of this period, and the device makes no other one before the next",
        "mend what the server refused",
        in_facts=True,
        developing=_ONCE_MORE,
    ),
    "nobody": Reason(
        "the person has no identifier",
        "record for people who are signed in, with an identifier that stays, such as the number of the account",
        alike=True,
    ),
    "budget": Reason(
        "the metric, or an earlier metrics.toml of the app, has spent what it may spend",
        "it goes on next month; if what it may spend ever is spent, raise `lifetime` of the budget, or declare a longer `period`",
        in_facts=True,
        developing=_ONCE_MORE,
    ),
    "state": Reason(
        "what the device has spent of its budget cannot be read or written, so nothing is recorded",
        "name a state directory that can be written, with state= or DENIABLE_STATE_DIR",
        alike=True,
        in_facts=True,
    ),
    "queue_full": Reason(
        "too many answers wait to be sent",
        "see whether the server answers; record less, or raise DENIABLE_QUEUE_SIZE or SenderSettings.queue_size",
        alike=True,
    ),
    "closed": Reason("it was recorded after close()", "call close at the end only", alike=True),
    "refused_key": Reason(
        "the server has refused the key or the path of the DSN, so nothing is recorded until the next start",
        "correct the DSN, and start again; what waits on disk is kept",
        alike=True,
    ),
    "no_thread": Reason(
        "no thread can be started: the program is ending, there are too many threads, or this is an isolated subinterpreter",
        "record earlier, or in the main interpreter",
        alike=True,
    ),
    "interrupted": Reason(
        "record was called inside another record: by a consent function, a signal handler, a finaliser or a handler of the log; "
        "or one of these has forked",
        "record in other code",
        alike=True,
    ),
    "error": Reason(
        "an unexpected error happened, and the app was not disturbed",
        "strict=True raises it; if it is ours, please report it",
        alike=True,
    ),
}
"""Reasons why an answer is not reported."""

OF_PEOPLE: Mapping[str, Reason] = {
    "no_consent": Reason(
        "a person has not agreed: consent did not return True",
        "that is normal for those who said no; for those who said yes, return True",
        alike=True,
    ),
    "this_period": Reason(
        "this answer was left out: the person has already reported in this period",
        "that is expected: each person counts that often",
        normal=True,
        developing="to record once more, take another identifier",
    ),
    "state": Reason(
        "what a person has spent of the budget cannot be read or written, so nothing is recorded",
        "see that the store of deniable.people can be read and written",
        alike=True,
        in_facts=True,
    ),
}
"""The same where answers are those of the people of a web app, if the words differ."""

ONE_PERSON = Reason(
    "many answers were dropped as this_period, since one device is one person",
    "if this process records for several people, as a web server does for its visitors, use deniable.people",
)
"""Another remedy where many answers are dropped as ``this_period``."""

INSTEAD: Mapping[str, Reason] = {
    "undeclared": Reason(
        "an answer that is not declared was reported as another one", "record a declared answer, or declare it in metrics.toml"
    ),
    "clipped": Reason(
        "a number beyond the range was reported as the nearer end", "see what the app measures, or widen `range` in metrics.toml"
    ),
    "cut": Reason(
        "a set of more options than `most` was cut: those that counted were drawn at random",
        "raise `most` in metrics.toml if such answers are frequent",
    ),
    "shortened": Reason(
        "a text longer than `max_length` was cut, and its beginning was reported",
        "record shorter texts, or raise `max_length` in metrics.toml",
    ),
}
"""Why what was reported is not what was recorded. `flush` counts undeclared answers, and all others as clipped."""

LOSSES: Mapping[str, Reason] = {
    "purged": Reason(
        "consent was withdrawn, so what was not sent yet was deleted, as promised", "there is nothing to do", normal=True
    ),
    "undelivered": Reason(
        "reports could not be delivered, and are not kept on disk",
        "mend the cause that is named before; without state=None such reports wait on disk",
        alike=True,
    ),
    "spool_failed": Reason(
        "reports could not be delivered, and could not be written to disk",
        "name a state directory that can be written, with state= or DENIABLE_STATE_DIR",
    ),
    "spool_full": Reason("too many reports wait on disk, so the oldest are deleted", "find out why the server does not answer"),
    "spool_expired": Reason(
        "reports have waited on disk for so long that no server would count them, so they are deleted",
        "find out why the server does not answer, or run the program more often",
    ),
    "spool_damaged": Reason("a file of waiting reports is damaged, so it is deleted", "check the disk"),
    "delivered_error": Reason("what was sent could not be written to the journal", "see that the state directory can be written"),
    "chore_error": Reason("asking for the served registry failed", "it is tried again within the hour; please report the error"),
}
"""Reasons why a report is lost once it was made, and faults that cost none."""

LATER = Reason(
    "a report of `timed`, or of a metric with a `delay`, travels later, so that its moment reveals nothing",
    "in a test, call deniable.testing.make_due() before",
)
"""Why a report may not travel yet."""

FAILURES: Mapping[str, Reason] = {
    "refused": Reason("nothing accepts connections there", "start the server (`deniable serve`) at the host and port of the DSN"),
    "no_name": Reason("the host's name cannot be found", "correct the host of the DSN, or see whether the device is online"),
    "no_tls": Reason(
        "the port does not speak TLS",
        "set up https at the server, or at the proxy before it; or correct the port of the DSN",
    ),
    "no_tls_here": Reason("the port does not speak TLS, and is on this machine", "write http:// in the DSN"),
    "tls": Reason(
        "the secure connection failed",
        "see which versions of TLS the server, or the proxy before it, allows",
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
        "call flush(timeout=5) before; what is kept on disk is sent after the next start",
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
    "expired": Reason("the last day of the served registry is over", "sign it again: `deniable registry sign --valid-for`"),
}
"""Reasons why a registry from the server is not used. The app's own stays in use."""

CODES: Mapping[str, Reason] = {
    "missing_key": Reason("the upload came without its key", "see whether a proxy removes the header Authorization"),
    "unknown_key": Reason("the server does not know the DSN's key", f"{_KEY}; what waits on disk is kept for two days"),
    "other_app": Reason(
        "the DSN is not that of this app",
        "write the DSN that `deniable serve` prints for it; what waits on disk is kept for two days",
    ),
    **dict.fromkeys(
        ("not_found", "serves_ingest"),
        Reason("the server has no such address", "correct the path of the DSN: https://KEY@host[/prefix]/app"),
    ),
    "method_not_allowed": Reason("the address takes no uploads", "correct host and path of the DSN"),
    "rate_limited": Reason(
        "the server's limit of requests is reached",
        f"{_KEPT}; if it lasts, raise DENIABLE_RATE_LIMIT_SOURCE or DENIABLE_RATE_LIMIT_KEY there",
    ),
    "backlog_full": Reason("too many uploads wait at the server to be counted", f"{_KEPT}; see whether a worker runs there"),
    "store_full": Reason("the server's store has no room", f"{_KEPT}; raise maxmemory of the store, or give it a larger disk"),
    "store_unavailable": Reason(
        "the server cannot use its store", f"{_KEPT}; the server's log says why, and so does `deniable doctor` there"
    ),
    "app_not_served": Reason(
        "the server does not serve this app now",
        f"{_KEPT}; its metrics.toml has a fault there, or is not in DENIABLE_REGISTRY: `deniable doctor` says which",
    ),
    "serves_query": Reason(
        "the server answers queries only",
        f"{_KEPT}; have the proxy send uploads to the server with DENIABLE_SERVES=ingest",
    ),
    "internal": Reason("the server has failed", "read its log, and report the bug"),
    "all_rejected": Reason("no report of the upload can be counted", "the log has the reason for each metric"),
    "idempotency_mismatch": Reason("the key of the upload was used for another one", _VERSIONS),
    **dict.fromkeys(
        ("body_too_large", "inflated_too_large"),
        Reason("a report is larger than a server takes", "declare fewer values, or a mechanism with smaller reports"),
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
    501: _FOREIGN,
    502: Reason("the proxy before the server does not reach it", f"{_KEPT}; start the server"),
    503: Reason("the server is not ready", f"{_KEPT}; read its log, or ask `deniable doctor` there"),
    504: Reason("the proxy before the server got no answer from it in time", f"{_KEPT}; read its log"),
}
"""Statuses of answers without a code that we know: a proxy's, or another program's. A hundred stands for all of its kind."""

REFUSALS: Mapping[str, Reason] = {
    "unknown_metric": Reason("the server's metrics.toml does not declare the metric", _OURS),
    "unknown_version": Reason(
        "the server's metrics.toml does not declare this version",
        f"{_OURS}; if other versions of the app are in use, give it a folder of all: `deniable registry publish`",
    ),
    "definition_mismatch": Reason(
        "the server's metrics.toml defines the same version of the metric in another way",
        f"if you changed the metric, raise its `version`; {_OURS}",
    ),
    "relay_only": Reason(
        "its reports are sealed for a relay, and the DSN leads to a server, which takes none from devices",
        "write the DSN of the relay",
    ),
    "metric_expired": Reason(
        "its collection has ended at the server", "write a later `expires` in metrics.toml, for the app and for the server"
    ),
    "period": Reason("the server's metrics.toml has another `period`", _OURS),
    "period_closed": Reason(
        "it came too late, after the period's `grace`",
        "see whether the device's clock is right; else raise `grace`. In a test, flush before you move the clock on",
    ),
    "period_not_open": Reason("its period has not begun for the server", "set the clock of the device, or of the server"),
    "segment": Reason("the server's metrics.toml has other segments", _OURS),
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
    return f"{code}: {about.words()}"
