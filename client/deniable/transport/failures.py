"""Why a request got no answer, and what is told of lost reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.messages.notice import warn_once
from deniable.messages.reasons import LOSSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# By the names of Python's own classes, the more telling ones first: to import the classes would bring TLS into every app.
_BY_NAME = (
    ("certificate", {"SSLCertVerificationError"}),
    ("tls", {"SSLError", "SSLEOFError", "SSLZeroReturnError"}),
    ("no_name", {"gaierror", "herror", "UnicodeError", "InvalidURL"}),
    ("refused", {"ConnectionRefusedError"}),
    ("timeout", {"TimeoutError"}),
    (
        "cut",
        {
            "ConnectionResetError",
            "ConnectionAbortedError",
            "BrokenPipeError",
            "RemoteDisconnected",
            "BadStatusLine",
            "IncompleteRead",
        },
    ),
)
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_MOST = 30  # errors that are looked at


def tell_losses(outcomes: Iterable[str]) -> None:
    """Say once why reports were lost. The caller must hold no lock of ours: a handler of the app's log may record."""
    for outcome in outcomes:
        if outcome in LOSSES:
            warn_once("reports", outcome, LOSSES[outcome].words())


def failure(error: BaseException) -> str:
    """Return why a request got no answer, as one of `FAILURES`."""
    errors = list(_causes(error))
    names = {type(each).__name__ for each in errors}
    for reason, classes in _BY_NAME:
        if names & classes:
            spoken = " ".join(str(getattr(each, "reason", "")) for each in errors) if reason == "tls" else ""
            return "no_tls" if any(word in spoken for word in _NO_TLS) else reason
    # Nothing was sent, and nobody says why: a name service or a connection has not ended in time.
    return "timeout" if names == {"UnreachedError"} else "no_answer"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those that it was made of."""
    left: list[object] = [error]
    seen: list[BaseException] = []
    while left and len(seen) < _MOST:
        cause = left.pop()
        if isinstance(cause, BaseException) and not any(cause is other for other in seen):
            seen.append(cause)
            left += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
            yield cause
