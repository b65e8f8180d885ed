"""A visit: what is known of one request, from its arrival to its line in the log.

It holds what no log may: the request itself and the key. `deniable_aggregator.process.logs` has what may be logged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from flask import g

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.store.uploads.latest_reports import LatestReport

_NAME = "deniable.visit"  # in the WSGI environment


@dataclass(slots=True)
class Upload:
    """What became of the reports of an upload."""

    outcome: str = "internal"  # "accepted" or "duplicate", unless there is a problem
    accepted: int = 0  # reports
    refused: Sequence[tuple[str, int, str, str, int]] = ()  # metric, version, fingerprint, code, reports
    latest: Sequence[LatestReport] = ()  # in a trial: its last reports


@dataclass(slots=True)
class Visit:
    """One request, and what is found out about it on its way."""

    environ: dict[str, Any]
    began: float = field(default_factory=perf_counter)  # for the histogram of all requests; no log has it
    number: str = field(default_factory=lambda: str(uuid4()))
    source: str | None = ""  # number of its address; None if there is none; empty until somebody asks
    role: str = ""  # of the key that the address takes
    app: str = ""  # whose key it has
    actor: str | None = None  # in the audit log
    holder: str = ""  # id of the key with which the visitor of a page signed in
    problem: str = ""  # its code
    decided: Callable[[], Any] | None = None  # what is left to do, if the store was asked before Flask; it answers or raises
    question: dict[str, Any] = field(default_factory=dict)  # parameters of a query that are not in its address
    details: dict[str, Any] = field(default_factory=dict)  # of a query, as the audit log has them
    upload: Upload = field(default_factory=Upload)

    @classmethod
    def of(cls, environ: dict[str, Any]) -> Visit:
        """Return the visit of a request. It has begun, if the request was looked at before Flask was asked."""
        begun: Visit | None = environ.pop(_NAME, None)
        return begun or cls(environ)

    def decision(self) -> Callable[[], Any]:
        """Return what is left to do, once. Nothing keeps it here: it may hold an error, and that the frames it passes."""
        assert self.decided  # noqa: S101 - who asks has looked
        decided, self.decided = self.decided, None
        return decided

    def hand_on(self, decided: Callable[[], Any]) -> None:
        """Let Flask continue this visit, with the same environment."""
        self.decided = decided
        self.environ[_NAME] = self


def visit() -> Visit:
    """Return the visit of Flask's current request."""
    return cast("Visit", g.visit)
