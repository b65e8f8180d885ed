"""Query API: what was counted, decoded, with its uncertainty."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

import redis
from flask import Blueprint, jsonify, request

from deniable_aggregator import decode
from deniable_server.auth import app_by_read_key
from deniable_server.problem import Problem
from deniable_server.service import service

if TYPE_CHECKING:
    from flask import Response

    from deniable.report import Stratum
    from deniable_aggregator.estimate import Estimate
    from deniable_server.service import App, Question

__all__ = ["blueprint", "describe", "measure"]

blueprint = Blueprint("query", __name__)

_LEVEL = 0.95


@blueprint.get("/healthz")
def healthz() -> Response:
    """Tell that the process lives."""
    return jsonify(status="ok")


@blueprint.get("/readyz")
def readyz() -> tuple[Response, int]:
    """Tell whether reports can be taken, part by part."""
    limit = service().settings.max_backlog
    parts: dict[str, Any] = {}
    for app in service().apps.values():
        try:
            backlog = app.store.backlog()
        except redis.RedisError:
            parts["store"] = {"ok": False}
            break
        parts["store"] = {"ok": True}
        parts[f"backlog:{app.name}"] = {"ok": backlog < limit, "batches": backlog, "limit": limit}
    ready = all(part["ok"] for part in parts.values())
    return jsonify(status="ok" if ready else "unavailable", parts=parts), 200 if ready else 503


@blueprint.get("/api/v1/metrics")
def metrics() -> Response:
    """List the metrics of the key's app."""
    app = app_by_read_key()
    return jsonify(app=app.name, metrics=[describe(app, question) for question in app.questions.values()])


@blueprint.get("/api/v1/metrics/<id_>")
def metric(id_: str) -> Response:
    """Estimate one metric: over everything counted, or over one ``period`` or ``segment``; intervals at ``level``."""
    app = app_by_read_key()
    question = app.questions.get(id_)
    if question is None:
        raise Problem(404, "unknown_metric", f"the registry of {app.name} declares no such metric")
    unknown = set(request.args) - {"period", "segment", "level"}
    if unknown:
        raise Problem(400, "unknown_parameter", f"parameters are period, segment and level; got {', '.join(sorted(unknown))}")
    return jsonify(measure(app, question, request.args.get("period"), request.args.get("segment"), _level()))


def _level() -> float:
    text = request.args.get("level", str(_LEVEL))
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    if not 0.5 <= level <= 0.999999:  # noqa: PLR2004
        raise Problem(400, "level", "level is a confidence between 0.5 and 0.999999")
    return level


def describe(app: App, question: Question) -> dict[str, Any]:
    """Describe a metric and how much of it was counted."""
    strata = _current(app, question)
    return _description(question) | {
        "n": app.store.read(question.mechanism.layout, list(strata)).n,
        "updated": _updated(strata),
    }


def measure(
    app: App, question: Question, period: str | None = None, segment: str | None = None, level: float = _LEVEL
) -> dict[str, Any]:
    """Estimate a metric.

    Returns
    -------
    dict
        The description, ``n``, ``updated``, the ``periods`` and ``segments`` there are, and for each value its unbiased
        ``frequency`` and ``count`` with ``stderr``, the pointwise ``interval`` and the ``simultaneous`` one. Numbers are
        null where there are no reports.

    Raises
    ------
    Problem
        404, if nothing was counted for the period or segment asked for.
    """
    strata = _current(app, question)
    chosen = [stratum for stratum in strata if period in (None, stratum.period) and segment in (None, stratum.segment)]
    if not chosen and (period is not None or segment is not None):
        raise Problem(404, "nothing_counted", "nothing was counted for this period and segment")
    estimate = decode.estimate(question.mechanism, app.store.read(question.mechanism.layout, chosen))
    return _description(question) | {
        "n": estimate.n,
        "updated": _updated({stratum: strata[stratum] for stratum in chosen}),
        "level": level,
        "periods": sorted({stratum.period for stratum in strata}),
        "segments": sorted({stratum.segment for stratum in strata} - {""}),
        "period": period,
        "segment": segment,
        "estimates": _rows(question, estimate, level),
    }


def _current(app: App, question: Question) -> dict[Stratum, int]:
    """List what was counted under the very definition that the registry has now."""
    return {
        stratum: updated
        for stratum, updated in app.store.strata(question.metric.id).items()
        if (stratum.version, stratum.fingerprint) == (question.metric.version, question.fingerprint)
    }


def _description(question: Question) -> dict[str, Any]:
    metric, mechanism = question.metric, question.mechanism
    return {
        "id": metric.id,
        "type": metric.type,
        "version": metric.version,
        "description": metric.description,
        "owner": metric.owner,
        "expires": metric.expires.isoformat() if metric.expires else None,
        "period_length": metric.period,
        "domain_size": metric.domain_size,
        "mechanism": mechanism.name,
        "epsilon": mechanism.epsilon,
        "report_bytes": mechanism.layout.payload_size,
    }


def _updated(strata: dict[Stratum, int]) -> str | None:
    return datetime.fromtimestamp(max(strata.values()), UTC).isoformat() if strata else None


def _rows(question: Question, estimate: Estimate, level: float) -> list[dict[str, Any]]:
    pointwise, simultaneous = estimate.interval(level), estimate.interval(level, simultaneous=True)
    columns = (estimate.frequency, estimate.count, estimate.stderr, *pointwise, *simultaneous)
    return [
        {
            "value": value,
            "label": question.metric.label(position),
            "frequency": frequency,
            "count": count,
            "stderr": stderr,
            "interval": [low, high],
            "simultaneous": [lowest, highest],
        }
        for position, (value, (frequency, count, stderr, low, high, lowest, highest)) in enumerate(
            zip(question.metric.values, zip(*(map(_number, column) for column in columns), strict=True), strict=True)
        )
    ]


def _number(value: float) -> float | None:
    """JSON has no nan."""
    return float(value) if isfinite(value) else None
