"""``GET /metrics``: the server's counters, for Prometheus.

What a request was is read from its `Visit` after the answer. All labels come from the registries and from lists in the code, so
clients cannot create more series.

If ``PROMETHEUS_MULTIPROC_DIR`` names a directory, as under gunicorn, all processes count there
(`deniable_server.prometheus.process_slots`), and each of them answers for all.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, cast

import prometheus_client
from flask import Flask, Response, request
from prometheus_client import CollectorRegistry, Counter, Histogram, values
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from deniable.wire import addresses
from deniable_server.access.roles import ROLES
from deniable_server.api.auth import bearer
from deniable_server.api.openapi import OPERATIONS
from deniable_server.api.uploads.batches import REJECTIONS
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit
from deniable_server.prometheus.looked_up import Gauges
from deniable_server.service import service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

    from deniable_server.http.visit import Upload, Visit
    from deniable_server.service import Service

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_UPLOAD = next(each for each in OPERATIONS if each.path == addresses.REPORTS)
_READY = "/readyz"  # says by its status whether reports can be taken: that is no failure of its own
_FAILURES = ("store_unavailable", "internal")
_KEYLESS = (*_FAILURES, "length_required", "body_too_large", "missing_key", "unknown_key", "rate_limited")
_KEYED = (
    *_FAILURES,
    "accepted",
    "duplicate",
    *(code for status, codes in (_UPLOAD.codes or {}).items() if status != HTTPStatus.UNAUTHORIZED for code in codes),
)
"""Outcomes of an upload before its app is known, and after."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # else each counter has a second series, of its start


class Vitals:
    """The counters of a server."""

    def __init__(
        self,
        apps: Iterable[str],  # names of its apps; all their series exist from the start
    ) -> None:
        shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if shared:
            from deniable_server.prometheus.process_slots import Slot  # noqa: PLC0415 - not on Windows, which has no fork

            values.ValueClass = values.MultiProcessValue(Slot(Path(shared)))  # type: ignore[no-untyped-call]
        own = CollectorRegistry()
        self.counted: Collector = _Shared(Path(shared)) if shared else own

        # The library takes a lock to look up labels. There are few, so they are cached.
        def counter(name: str, about: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(f"deniable_{name}", about, labels, registry=own).labels)

        self._accepted = counter("reports_accepted", "Reports taken to be counted", "app")
        self._rejected = counter("reports_rejected", "Reports refused", "app", "code")
        self._uploads = counter("uploads", "Uploads by outcome", "app", "code")
        self._limited = counter("rate_limited", "Requests above a rate limit", "app", "role")
        self._failures = counter("server_errors", "Answers of 500 and above", "code")
        about = "From a request's arrival to its answer"
        name = "deniable_request_duration_seconds"
        self._seconds = cache(Histogram(name, about, ["route", "status"], buckets=_BUCKETS, registry=own).labels)
        for app in (*apps, ""):
            for code in _KEYED if app else _KEYLESS:
                self._uploads(app, code)
            for role in ROLES if app else (*ROLES, "login", "metrics"):
                self._limited(app, role)
            if app:
                self._accepted(app)
                for code in REJECTIONS:
                    self._rejected(app, code)
        for code in (*_FAILURES, "backlog_full", "store_full", "page"):
            self._failures(code)

    def answered(
        self,
        visit: Visit,  # the request
        route: str,  # the rule of its address; `unknown` if there is none
        status: int,  # status of the answer
    ) -> None:
        """Count a request."""
        self._seconds(route, f"{status // 100}xx").observe(perf_counter() - visit.began)
        if route == _UPLOAD.path and visit.environ["REQUEST_METHOD"] == "POST":
            self._upload(visit.app, visit.problem or visit.upload.outcome, visit.upload)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self._limited(visit.app, visit.role or "login").inc()
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR and route != _READY:
            self._failures(visit.problem or "page").inc()

    def _upload(self, app: str, outcome: str, upload: Upload) -> None:
        self._uploads(app, outcome).inc()
        if outcome == "accepted":
            self._accepted(app).inc(upload.accepted)
        if outcome in ("accepted", "all_rejected"):  # repeated uploads are left out
            for *_, code, reports in upload.refused:
                self._rejected(app, code).inc(reports)


class _Shared(Collector):
    """The counts of all processes, including those that have ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Add up the files."""
        # A new file is empty for a moment, and cannot be read then.
        files = [str(path) for path in self._folder.glob("*.db") if path.stat().st_size]
        return cast("Iterable[Metric]", MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]


def register(
    app: Flask,  # the server
    known: Service,  # its settings have the key
) -> Callable[[Visit, str, int], None] | None:
    """Count requests for holders of the metrics key; return what counts a request that Flask does not see."""
    # Without a metrics key in the settings nothing is counted, and None is returned.
    # `deniable_server.http.trace` is registered before: it begins the visit that is read here.
    settings = known.settings
    digest = sha256(settings.metrics_key.encode()).digest()
    everything = CollectorRegistry()

    @app.get("/metrics", endpoint="vitals")
    def metrics() -> Response:
        if not settings.metrics_key:
            raise Problem(404, "not_found", "this server was given no metrics key, and shows no metrics")
        visit().role = "metrics"
        if not compare_digest(digest, sha256(bearer(visit(), "the server's metrics key").encode()).digest()):
            service().limits.stranger(visit())  # against guessing
            raise Problem(401, "unknown_key", "this is not the metrics key of this server")
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(everything), content_type=kind)

    if not settings.metrics_key:
        return None
    vitals = Vitals(known.apps)
    everything.register(vitals.counted)
    everything.register(Gauges(known))

    @app.after_request
    def count(answer: Response) -> Response:
        vitals.answered(visit(), request.url_rule.rule if request.url_rule else "unknown", answer.status_code)
        return answer

    return vitals.answered
