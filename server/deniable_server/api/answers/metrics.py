"""Query API: estimates of what was published. Nothing here reads reports that are counted but not published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from flask import Blueprint, jsonify, request
from msgspec import Meta, Struct
from msgspec.structs import replace

from deniable_aggregator.answer import measurement
from deniable_aggregator.answer.absence.diagnosis import diagnose
from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.model.fields import Simulated, Trial
from deniable_aggregator.answer.model.metric import Listed
from deniable_aggregator.answer.over_time import looks, series
from deniable_aggregator.answer.over_time.arms import arms_of
from deniable_aggregator.answer.select import state_of
from deniable_aggregator.publish import release
from deniable_server.api.answers.parameters import (
    LONGEST_SHOWN,
    dates_asked,
    find_metric,
    level_asked,
    only_parameters,
    published_of,
    versions_asked,
)
from deniable_server.api.audit_trail import log_query
from deniable_server.api.auth import app_by_read_key
from deniable_server.http.etag import answered
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flask import Response

    from deniable_aggregator.answer.select import Published
    from deniable_server.service import App

blueprint = Blueprint("query", __name__)
blueprint.after_request(log_query)

_MOST_LISTED = 100  # metrics in one answer


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics of an app."""

    app: Annotated[str, Meta(description="Name of the app")]
    trial: Trial
    simulated: Simulated
    metrics: Annotated[list[Listed], Meta(description="Up to `limit` metrics, in the registry's order")]
    next: Annotated[str | None, Meta(description="`after` of the next request; null: there are no more")]


@blueprint.get("/api/v1/metrics")
def metrics() -> Response:
    """List the metrics of the key's app: at most ``limit``, those that follow ``after``."""
    app = app_by_read_key()
    only_parameters("limit", "after")
    limit = _limit_asked()
    ids = list(app.highest)
    after = request.args.get("after")
    if after is not None and after not in app.highest:
        raise Problem(400, "after", "after is the id of a metric in this list: the `next` of an earlier answer")
    begin = 0 if after is None else ids.index(after) + 1
    page = ids[begin : begin + limit]
    known = release.summaries(app.store)
    listed = [measurement.listed(app, id_, known) for id_ in page]
    return jsonify(Metrics(app.name, app.trial, app.simulated, listed, page[-1] if begin + limit < len(ids) else None))


def _limit_asked() -> int:
    text = request.args.get("limit", str(_MOST_LISTED))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST_LISTED:
        raise Problem(400, "limit", f"limit is a whole number from 1 to {_MOST_LISTED}; this is {text[:LONGEST_SHOWN]}")
    return int(text)


@blueprint.get("/api/v1/metrics/<id_>")
def metric(id_: str) -> Response:
    """Estimate one metric: of all reports or a ``segment``; over everything published, a ``date_range`` or one ``period``."""
    # `id` is the metric's id, or `metric@version` for one version only.
    app = app_by_read_key()
    only_parameters("date_range", "period", "segment", "value", "level", "only", "bands")
    if request.args.get("only", "detected") != "detected":
        raise Problem(400, "only", f"only is detected, or not given; this is {request.args['only'][:LONGEST_SHOWN]}")
    period, segment, strict = request.args.get("period"), request.args.get("segment"), _strict_asked(app, id_)
    within = request.args.get("value")
    level, versions, known = level_asked(), published_of(app, id_), release.summaries(app.store)
    dates = dates_asked(versions[0].length)
    context = (
        dates,
        [app.next_release(each.declared) for each in versions],
        measurement.versions_of(app, versions[0].declared.metric.id, known),
    )

    def write() -> Response:
        answer = measurement.measure(versions, known, period, segment, level, within=within, strict=strict, dates=dates)
        answer = replace(answer, arms=arms_of(versions, period, segment, level, ranged=dates is not None))
        if "only" in request.args:
            answer = replace(answer, estimates=[row for row in answer.estimates if row.detected])
        return jsonify(answer)

    return _answered(versions, write, context)


def _answered(versions: Sequence[Published], write: Callable[[], Response], context: object = None) -> Response:
    """Answer the question in the address, unless the client has the answer. `context` is what else the answer depends on."""
    return answered((request.full_path, state_of(versions[0].app, versions), context), write)


def _strict_asked(app: App, name: str) -> bool:
    """Read the parameter ``bands``: of a number with quantiles, and without permanent responses, it may be strict."""
    if "bands" not in request.args:
        return False
    if request.args["bands"] != "strict":
        raise Problem(400, "bands", f"bands is strict, or not given; this is {request.args['bands'][:LONGEST_SHOWN]}")
    if not any(each.metric.estimate == "distribution" and not each.metric.permanent for each in versions_asked(app, name)):
        rule = "strict bands are of quantiles: of a number whose distribution is estimated, without permanent responses"
        raise Problem(400, "bands", rule)
    return True


@blueprint.get("/api/v1/metrics/<id_>/diagnosis")
def diagnosis(id_: str) -> Response:
    """Say why nothing is published of a metric: what must hold, in order, and whether it does."""
    app = app_by_read_key()
    only_parameters()
    return jsonify(diagnose(app, find_metric(app, id_)))


@blueprint.get("/api/v1/metrics/<id_>/series")
def series_of(id_: str) -> Response:
    """Estimate one metric in each of its last periods, or those of a ``date_range``, as a whole or one ``segment``."""
    app = app_by_read_key()
    only_parameters("date_range", "segment", "level")
    level, versions = level_asked(), published_of(app, id_)
    dates = dates_asked(versions[0].length)
    return _answered(versions, lambda: jsonify(series(versions, request.args.get("segment"), level, dates=dates)), dates)


@blueprint.get("/api/v1/metrics/<id_>/experiment")
def experiment(id_: str) -> Response:
    """Compare the arms of an experiment with its base, as reports came in: the arms are values of a ``segment``."""
    app = app_by_read_key()
    only_parameters("segment", "value", "level")
    level, versions = level_asked(), published_of(app, id_)
    segment, value = request.args.get("segment"), request.args.get("value")
    return _answered(versions, lambda: jsonify(looks.experiment(versions, segment, value, level)))


@blueprint.get("/api/v1/metrics/<id_>/compare")
def comparison(id_: str) -> Response:
    """Compare ``a`` and ``b``: two periods or ranges, within one ``segment`` if named; or two segments, within one ``period``."""
    app = app_by_read_key()
    only_parameters("a", "b", "period", "segment", "level")
    a, b = (request.args.get(name, "") for name in ("a", "b"))
    if not a or not b:
        raise Problem(
            400, "incomparable", f"a and b name what to compare: two periods, or two segments; {'a' if not a else 'b'} is missing"
        )
    period, segment = (request.args.get(name) for name in ("period", "segment"))
    level, versions = level_asked(), published_of(app, id_)
    return _answered(versions, lambda: jsonify(compare(versions, a, b, period=period, segment=segment, level=level)))
