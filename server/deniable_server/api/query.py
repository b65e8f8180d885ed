"""Query API: estimates of what was published. Nothing here reads reports that are counted but not published."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

from flask import Blueprint, jsonify, request
from msgspec import Meta, Struct
from msgspec.structs import replace

from deniable_aggregator.answer import published
from deniable_aggregator.answer.comparison import compare
from deniable_aggregator.answer.estimates import LEVEL
from deniable_aggregator.answer.measurement import Listed
from deniable_aggregator.answer.query import LEVELS, RULES
from deniable_aggregator.answer.refusal import next_release
from deniable_aggregator.answer.select import Published, state_of
from deniable_aggregator.answer.series import series
from deniable_aggregator.publish import release
from deniable_server.api.audit_trail import kept
from deniable_server.api.auth import app_by_read_key
from deniable_server.http.etag import answered
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flask import Response

    from deniable.declared import Declared
    from deniable_server.service import App

blueprint = Blueprint("query", __name__)
blueprint.after_request(kept)

LONGEST_SHOWN = 40
"""Most characters of what was given that a refusal repeats."""
_MOST_LISTED = 100  # metrics in one answer


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics of an app."""

    app: Annotated[str, Meta(description="Name of the app")]
    trial: Annotated[bool, Meta(description="Whether everything is published at once, however few reports there are")]
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
    shown = ids[begin : begin + limit]
    known = release.summaries(app.store)
    listed = [published.listed(app, id_, known) for id_ in shown]
    return jsonify(Metrics(app.name, app.trial, listed, shown[-1] if begin + limit < len(ids) else None))


def _limit_asked() -> int:
    text = request.args.get("limit", str(_MOST_LISTED))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST_LISTED:
        raise Problem(400, "limit", f"limit is a whole number from 1 to {_MOST_LISTED}")
    return int(text)


@blueprint.get("/api/v1/metrics/<id_>")
def metric(id_: str) -> Response:
    """Estimate one metric: over everything published, or over one ``period`` or ``segment``; intervals at ``level``.

    ``id`` is the metric's id, or ``metric@version`` for one version only.
    """
    app = app_by_read_key()
    only_parameters("period", "segment", "level", "only", "bands")
    if request.args.get("only", "detected") != "detected":
        raise Problem(400, "only", "only is detected, or not given")
    period, segment, strict = request.args.get("period"), request.args.get("segment"), _strict_asked(app, id_)
    level, found, known = level_asked(), published_of(app, id_), release.summaries(app.store)
    shown = [next_release(app, each.declared) for each in found], published.versions_of(app, found[0].declared.metric.id, known)

    def write() -> Response:
        answer = published.measure(found, known, period, segment, level, strict=strict)
        if "only" in request.args:
            answer = replace(answer, estimates=[row for row in answer.estimates if row.detected])
        return jsonify(answer)

    return _answered(found, write, shown)


def _answered(found: Sequence[Published], write: Callable[[], Response], shown: object = None) -> Response:
    """Answer a question in the address, unless the client has the answer: to what was published, and what else is `shown`."""
    return answered((request.full_path, state_of(found[0].app, found), shown), write)


def _strict_asked(app: App, name: str) -> bool:
    """Read the parameter ``bands``: of a number with quantiles, and without permanent responses, it may be strict."""
    if "bands" not in request.args:
        return False
    if request.args["bands"] != "strict":
        raise Problem(400, "bands", "bands is strict, or not given")
    if not any(each.metric.estimate == "distribution" and not each.metric.permanent for each in versions_asked(app, name)):
        rule = "strict bands are of quantiles: of a number whose distribution is estimated, without permanent responses"
        raise Problem(400, "bands", rule)
    return True


@blueprint.get("/api/v1/metrics/<id_>/series")
def series_of(id_: str) -> Response:
    """Estimate one metric in each of its last periods, as a whole or one ``segment``; intervals at ``level``."""
    app = app_by_read_key()
    only_parameters("segment", "level")
    level, found = level_asked(), published_of(app, id_)
    return _answered(found, lambda: jsonify(series(found, request.args.get("segment"), level)))


@blueprint.get("/api/v1/metrics/<id_>/compare")
def comparison(id_: str) -> Response:
    """Compare ``a`` and ``b``: two periods, of one ``segment`` if it is named; or two segments, of one ``period`` likewise."""
    app = app_by_read_key()
    only_parameters("a", "b", "period", "segment", "level")
    a, b = (request.args.get(name, "") for name in ("a", "b"))
    if not a or not b:
        raise Problem(400, "incomparable", "a and b name what to compare: two periods, or two segments")
    period, segment = (request.args.get(name) for name in ("period", "segment"))
    level, found = level_asked(), published_of(app, id_)
    return _answered(found, lambda: jsonify(compare(found, a, b, period=period, segment=segment, level=level)))


def published_of(app: App, name: str) -> list[Published]:
    """Look up what was published of ``metric@version``; or of all versions of a ``metric``, the highest first."""
    return Published.of_each(app, versions_asked(app, name))


def versions_asked(app: App, name: str) -> list[Declared]:
    """Return the version of a name ``metric@version``; or all versions of a ``metric``, the highest first."""
    found = find_metric(app, name)
    return [found] if "@" in name else app.versions_of(found.metric.id)


def only_parameters(*names: str) -> None:
    """Refuse a request with unknown parameters."""
    unknown = sorted(set(request.args) - set(names))
    if unknown:
        allowed = f"parameters are {', '.join(names)}" if names else "there are no parameters"
        raise Problem(400, "unknown_parameter", f"{allowed}; got {', '.join(unknown)}")


def find_metric(app: App, id_: str) -> Declared:
    """Return the metric of a name ``metric`` or ``metric@version``."""
    found = app.find(id_)
    if found is None:
        known = ", ".join(str(each.metric.version) for each in app.versions_of(id_.partition("@")[0]))
        if known:
            raise Problem(404, "unknown_version", f"versions of this metric are {known}")
        near = get_close_matches(id_, app.highest, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Problem(404, "unknown_metric", f"the registry of {app.name} declares no such metric{hint}")
    return found


def level_asked() -> float:
    """Read the parameter ``level``."""
    text = request.args.get("level", str(LEVEL))
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    least, most = LEVELS
    if not least <= level <= most:
        raise Problem(400, "level", f"{RULES['level']}; got {text[:LONGEST_SHOWN]}")
    return level
