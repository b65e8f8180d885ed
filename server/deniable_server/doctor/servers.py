"""The doctor's check that servers of an app live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deniable.messages.finding import Finding
from deniable.messages.plural import few
from deniable_aggregator.store.uploads import registries
from deniable_server.access.keys import KeyStore
from deniable_server.agreement import words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.store import Store

_LOOK_SECONDS = 0.25
NOT_KNOWN = ("what runs is not known from here", "do what the finding writes says, and run the doctor again a minute later")
"""Meaning and remedy of a check for signs of life, while the store takes none."""
_NOT_SERVED = "with a key of this app uploads and queries are answered 503 (app_not_served): devices keep their reports"


def servers(
    store: Store,
    serving: Callable[[], Sequence[str]] = list,  # returns the apps that a living server serves
    deadline: Callable[[], float] = float,  # returns until when servers are waited for that may just start
    silenced: Callable[[], str] = str,  # returns why no process can say that it lives; empty if it can
) -> Finding:
    """Check that servers live, of which one takes reports and one shows results; the same may do both."""
    running, uploads, answers = _heard(store, deadline)
    alive = f"{words(running)} alive"
    if uploads and answers:
        return Finding("servers", "ok", alive, app=store.app)
    if uploads:
        remedy = _start("gunicorn with DENIABLE_SERVES=query (deploy/private/query.env)")
        return Finding("servers", "warning", f"no server answers questions: {alive}", "nobody sees results", remedy, store.app)
    if answers:
        remedy = _start("gunicorn with DENIABLE_SERVES=ingest (deploy/private/ingest.env)")
        meaning = "no report is taken: devices keep theirs for later"
        return Finding("servers", "fault", f"no server takes uploads: {alive}", meaning, remedy, store.app)
    return _none(store, serving, silenced)


def _start(what: str) -> str:
    return f"start {what}; if it runs already (such as with a former password), or does not start, its log says why"


def _none(store: Store, serving: Callable[[], Sequence[str]], silenced: Callable[[], str]) -> Finding:
    """Say why no server serves the app."""
    if any(each.is_server for each in registries.running(store)):
        remedy = "mend what the finding registry says, then send SIGHUP to gunicorn's first process"
        return Finding("servers", "fault", "servers run, and leave this app off", _NOT_SERVED, remedy, store.app)
    if elsewhere := serving():
        seen = f"servers run, but serve {few(elsewhere)} only"
        remedy = "restart them: they read the environment at their start, and SIGHUP has them read files only"
        return Finding("servers", "fault", seen, _NOT_SERVED, remedy, store.app)
    if why := silenced():
        return Finding("servers", "skipped", f"no server can say that it runs: {why}", *NOT_KNOWN, store.app)
    served = store.backlog() or KeyStore(store).load()
    meaning = "no report is taken, and nobody sees results" + ("" if served else "; the app was not served yet")
    seen = "no server reports that it runs"
    return Finding("servers", "fault" if served else "warning", seen, meaning, _start("gunicorn, or `deniable serve`"), store.app)


def _heard(store: Store, deadline: Callable[[], float]) -> tuple[list[registries.Loaded], bool, bool]:
    """Return the living servers, and whether both kinds are there; look again while the store or a server may just start."""
    while True:
        running = [each for each in registries.running(store) if each.serves]
        uploads, answers = any(each.takes_uploads for each in running), any(each.answers for each in running)
        if (uploads and answers) or (registries.heard(store) and time.monotonic() >= deadline()):
            return running, uploads, answers
        time.sleep(_LOOK_SECONDS)
