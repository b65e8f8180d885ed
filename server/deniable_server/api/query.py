"""Query API: what was published, decoded, with its uncertainty. Nothing here sees what was counted and not published yet."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite, nan
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Blueprint, jsonify, request

from deniable.errors import ParameterError
from deniable.mechanisms.permanent import Chain
from deniable.mechanisms.prefix import PrefixTree
from deniable.registry.period import bounds
from deniable.wire.report import Stratum
from deniable_aggregator import decode
from deniable_aggregator.decode.combination import combine
from deniable_aggregator.decode.discovery import discover
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.joint import from_product
from deniable_aggregator.publish import release
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.release import Summary
from deniable_server.api.audit_trail import kept
from deniable_server.api.auth import app_by_read_key
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from flask import Response

    from deniable.declared import Definition
    from deniable.registry import Metric
    from deniable.registry.metric import Value
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.tally import Tally
    from deniable_server.service import App, Question

__all__ = [
    "LEVEL",
    "awaited",
    "blueprint",
    "cell_of",
    "declared",
    "description",
    "estimated",
    "latest",
    "level_asked",
    "measure",
    "missing",
    "only_parameters",
    "releases_of",
]

blueprint = Blueprint("query", __name__)
blueprint.after_request(kept)

LEVEL = 0.95
"""Of intervals, where nothing else is asked."""
_MOST_COMBINATIONS = 1024  # whose covariance is a matrix that a page can wait for
_MOST_REMEMBERED = 32
_MOST_LISTED = 100  # metrics in one answer
_HOMOGENEOUS = 0.9  # share of a segment with one answer, at least
_remembered: dict[tuple[str, tuple[int, ...], bytes], tuple[Sequence[int], Estimate]] = {}
_lock = Lock()


@blueprint.get("/api/v1/metrics")
def metrics() -> Response:
    """List the metrics of the key's app: at most ``limit``, those that follow the one ``after``."""
    app = app_by_read_key()
    only_parameters("limit", "after")
    limit = _limit_asked()
    ids = list(app.questions)
    after = request.args.get("after")
    if after is not None and after not in app.questions:
        raise Problem(400, "after", "after is the id of a metric in this list: the `next` of an earlier answer")
    begin = 0 if after is None else ids.index(after) + 1
    shown = ids[begin : begin + limit]
    known = release.summaries(app.store)
    listed = [describe(app, id_, known) for id_ in shown]
    return jsonify(app=app.name, trial=app.trial, metrics=listed, next=shown[-1] if begin + limit < len(ids) else None)


def _limit_asked() -> int:
    text = request.args.get("limit", str(_MOST_LISTED))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST_LISTED:
        raise Problem(400, "limit", f"limit is a whole number from 1 to {_MOST_LISTED}")
    return int(text)


@blueprint.get("/api/v1/metrics/<id_>")
def metric(id_: str) -> Response:
    """Estimate one metric: over everything published, or over one ``period`` or ``segment``; intervals at ``level``.

    ``id`` is that of the metric, or ``metric@version`` for no other version.
    """
    app = app_by_read_key()
    only_parameters("period", "segment", "level", "only")
    if request.args.get("only", "detected") != "detected":
        raise Problem(400, "only", "only is detected, or not given")
    answer = measure(app, id_, request.args.get("period"), request.args.get("segment"), level_asked())
    if "only" in request.args:
        answer["estimates"] = [row for row in answer["estimates"] if row["detected"]]
    return jsonify(answer)


def only_parameters(*names: str) -> None:
    """Refuse a request with parameters that it does not have."""
    unknown = sorted(set(request.args) - set(names))
    if unknown:
        allowed = f"parameters are {', '.join(names)}" if names else "there are no parameters"
        raise Problem(400, "unknown_parameter", f"{allowed}; got {', '.join(unknown)}")


def declared(app: App, id_: str) -> Question:
    """Return the metric that is asked for, as ``metric`` or ``metric@version``, or say that there is none."""
    question = app.find(id_)
    if question is None:
        known = ", ".join(str(each.metric.version) for each in app.versions_of(id_.partition("@")[0]))
        if known:
            raise Problem(404, "unknown_version", f"versions of this metric are {known}")
        raise Problem(404, "unknown_metric", f"the registry of {app.name} declares no such metric")
    return question


def level_asked() -> float:
    """Read the level that is asked for, or say what is wrong with it."""
    text = request.args.get("level", str(LEVEL))
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    if not 0.5 <= level <= 0.999999:  # noqa: PLR2004
        raise Problem(400, "level", "level is a confidence between 0.5 and 0.999999")
    return level


def describe(app: App, id_: str, known: Mapping[Definition, Summary]) -> dict[str, Any]:
    """Describe a metric and how much of it was published, in the highest version and in each."""
    question, versions = app.questions[id_], versions_known(app, id_, known)
    return description(app, question) | {"n": versions[0]["n"], "updated": versions[0]["updated"], "versions": versions}


def versions_known(app: App, id_: str, known: Mapping[Definition, Summary]) -> list[dict[str, Any]]:
    """Tell how much of each version of a metric was published, the highest first."""
    listed = []
    for question in app.versions_of(id_):
        summary = known.get(question.definition, Summary())
        listed.append(
            {
                "version": question.metric.version,
                "expires": question.metric.expires.isoformat() if question.metric.expires else None,
                "n": summary.n,
                "updated": datetime.fromtimestamp(summary.updated, UTC).isoformat() if summary.n else None,
            }
        )
    return listed


def latest(app: App, ids: Sequence[str], known: Mapping[Definition, Summary]) -> list[dict[str, Any]]:
    """Estimate metrics, each from its last release, in the highest version of which there is any.

    Returns
    -------
    list of dict
        What `measure` says of the whole of that period, but for what else there is.
    """
    questions = [next((each for each in app.versions_of(id_) if each.definition in known), app.questions[id_]) for id_ in ids]
    wholes = [Stratum(*each.definition, known.get(each.definition, Summary()).last, "") for each in questions]
    notes = release.noted(app.store, wholes)
    tallies = app.store.releases.some([each.layout for each in questions], wholes)
    return [
        description(app, question)
        | {
            "updated": _updated(chosen),
            "included": _spans(chosen),
            "versions": versions_known(app, question.metric.id, known),
            **estimated(question, counted, LEVEL),
        }
        for question, whole, counted in zip(questions, wholes, tallies, strict=True)
        for chosen in ({whole: notes[whole]} if whole in notes else {},)
    ]


class _Measured(NamedTuple):
    """What was published of one version, and what is said of it."""

    question: Question
    values: Sequence[int]
    estimate: Estimate
    answer: dict[str, Any]


def measure(app: App, name: str, period: str | None = None, segment: str | None = None, level: float = LEVEL) -> dict[str, Any]:
    """Estimate a metric over one period or, if none is given, over all; over the latest where permanent responses are kept.

    Parameters
    ----------
    app
        Whose metric it is.
    name
        ``metric@version``; or ``metric``, for the highest version of which anything was published.
    period, segment
        What to estimate.
    level
        Of the intervals.

    Returns
    -------
    dict
        What `_measure` says of the version; the ``versions`` there are, with the reports published of each; and ``merged``: where
        several versions have something published and values in common, one estimate of these, else null.

    Raises
    ------
    Problem
        As `declared` and `_measure` do, of the highest version where no other one has an answer.
    """
    highest = declared(app, name)
    found: list[_Measured] = []
    problem = None
    for question in [highest] if "@" in name else app.versions_of(highest.metric.id):
        try:
            found.append(_measure(app, question, period, segment, level))
        except Problem as each:
            problem = problem or each
    answered = [each for each in found if each.estimate.n]
    if problem and not answered:
        raise problem
    first = (answered or found)[0]
    if highest.metric.kept:  # an answer of another period is none of this one
        answered = [each for each in answered if each.answer["included"] == first.answer["included"]]
    versions = versions_known(app, highest.metric.id, release.summaries(app.store))
    return first.answer | {"versions": versions, "merged": _merged(answered, level)}


def _merged(several: Sequence[_Measured], level: float) -> dict[str, Any] | None:
    """Estimate the values that mean the same in all versions, each version weighted by its precision."""
    if len(several) < 2 or any(each.question.metric.discover for each in several):  # noqa: PLR2004
        return None
    places = [{_meaning(each.question.metric, position): place for place, position in enumerate(each.values)} for each in several]
    estimates = [each.estimate for each in several]

    def known(meaning: _Meaning) -> bool:  # candidates that share all their hashes are not
        each = zip(places, estimates, strict=True)
        return all(meaning in own and isfinite(estimate.frequency[own[meaning]]) for own, estimate in each)

    common = list(filter(known, places[0]))
    if not common:
        return None
    combined = combine(estimates, [[own[meaning] for meaning in common] for own in places])
    columns = (combined.frequency, combined.stderr, *combined.interval(level), *combined.interval(level, simultaneous=True))
    first, values = several[0].question.metric, several[0].values
    return {
        "versions": [
            {
                "version": each.question.metric.version,
                "n": each.estimate.n,
                "weight": float(weight),
                "included": each.answer["included"],
            }
            for each, weight in zip(several, combined.weights, strict=True)
        ],
        "n": sum(each.estimate.n for each in several),
        "p_value": finite(combined.p_value),
        "estimates": [
            {
                "value": meaning.value,
                "label": first.label(values[places[0][meaning]]),
                "frequency": frequency,
                "stderr": stderr,
                "interval": [low, high],
                "simultaneous": [lowest, highest],
            }
            for meaning, frequency, stderr, low, high, lowest, highest in zip(
                common, *(map(finite, column) for column in columns), strict=True
            )
        ],
    }


class _Meaning(NamedTuple):
    """A value with all that is reported as it: versions where any of this differs are not merged.

    Parameters
    ----------
    value
        As declared.
    kind
        Its type, since True and 1 are equal.
    absent
        Whether having no answer is reported as it.
    others
        If undeclared answers are reported as it, which ones are declared; else None.
    """

    value: Value
    kind: type
    absent: bool
    others: frozenset[Value] | None


def _meaning(metric: Metric, position: int) -> _Meaning:
    value = metric.value(position)
    others = frozenset(metric.values) if metric.other is not None and value == metric.other else None
    return _Meaning(value, type(value), metric.none is not None and value == metric.none, others)


def _measure(app: App, question: Question, period: str | None, segment: str | None, level: float) -> _Measured:
    """Estimate one version of a metric.

    Returns
    -------
    _Measured
        The description; ``n``, the reports in the releases that this rests on;
        ``updated``; the ``periods`` and the cells of ``segments`` that were published, those ``included`` that this rests on,
        and whether they are ``closed``; ``warnings``; and for each value its unbiased
        ``frequency`` and ``count`` with ``stderr``, the pointwise ``interval`` and the ``simultaneous`` one, and whether it is
        ``detected`` at the level, all values considered. ``detection_frequency`` is the share at which a value would be detected
        half of the time, ``unallocated`` the share that no detected value accounts for; ``association``, of a product, the test
        that its factors are independent. Numbers are null where there are no reports.

    Raises
    ------
    Problem
        400, if the period or the segment is none of the metric's; 403, if it is withheld; 404, if nothing was published for the
        period.
    """
    published = releases_of(app, question)
    breakdown = Breakdown.of(app.registry, question.metric)
    cell = cell_of(breakdown, segment or "")
    if period is not None:
        try:
            bounds(period, question.metric.period)
        except ParameterError as error:
            raise Problem(400, "period", error.rule) from None
    if period is None and question.metric.kept:
        # A device's reports of several periods are copies of one permanent response: pooled, their errors would be understated.
        period = max((stratum.period for stratum in published if stratum.segment == cell), default=None)
    within = {stratum: each for stratum, each in published.items() if period is None or each.covers(stratum.period, period)}
    chosen = {stratum: each for stratum, each in within.items() if stratum.segment == cell}
    if not chosen and (within or period is not None):
        raise missing(app, question, breakdown, cell, {stratum.segment for stratum in within})
    counted = app.store.releases.read(question.layout, list(chosen))
    values, estimate = _decoded(question, counted)
    numbers = _numbers(question, counted, values, estimate, level)
    answer = description(app, question) | {
        "updated": _updated(chosen),
        "closed": all(each.closed for each in chosen.values()),
        "level": level,
        "periods": _spans({stratum: each for stratum, each in published.items() if not stratum.segment}),
        "segments": sorted({stratum.segment for stratum in within} - {""}),
        "period": period,
        "segment": cell or None,
        "included": _spans(chosen),
        "warnings": _warnings(question, numbers["estimates"]) if cell else [],
        **numbers,
    }
    return _Measured(question, values, estimate, answer)


def estimated(question: Question, counted: Tally, level: float) -> dict[str, Any]:
    """Estimate a metric from reports, whichever they are; the names are those of `measure`."""
    return _numbers(question, counted, *_decoded(question, counted), level)


def _numbers(question: Question, counted: Tally, values: Sequence[int], estimate: Estimate, level: float) -> dict[str, Any]:
    """Write what was decoded of a metric."""
    rest, rest_stderr = estimate.unallocated(1 - level) if estimate.n else (nan, nan)
    return {
        "n": estimate.n,
        "detection_frequency": finite(estimate.detection_frequency(1 - level)),
        "unallocated": {"frequency": finite(rest), "stderr": finite(rest_stderr)},
        "association": _association(question, counted),
        "estimates": _rows(question, values, estimate, level),
    }


def cell_of(breakdown: Breakdown, segment: str) -> str:
    """Read the cell that is asked for, or say what is wrong with it."""
    try:
        return breakdown.canonical(segment)
    except ParameterError as error:
        raise Problem(400, "segment", error.rule) from None


def missing(app: App, question: Question, breakdown: Breakdown, cell: str, published: Collection[str]) -> Problem:
    """Say why there is nothing; in the same words whether there are few reports or none, or these would give others away."""
    least = question.metric.min_reports
    if not published:
        return Problem(404, "nothing_published", f"nothing was published for this period yet: {awaited(app, question)}")
    instead = next((each for each in breakdown.coarser(cell) if each in published), "")
    what = f"ask for {instead}" if instead else "ask for all segments"
    rule = f"what is published rests on {least} reports, and nothing computed from it on fewer: this segment is withheld"
    return Problem(403, "withheld", f"{rule}; {what}", instead=instead or None)


def next_release(app: App, question: Question) -> datetime | None:
    """Return when the next period closes; None where that is not waited for: in a trial, or once collection has ended."""
    metric = question.metric
    name = metric.next_to_close(datetime.now(UTC))
    begins, _ = bounds(name, metric.period)
    return None if app.trial or metric.expired(begins.date()) else metric.closes(name)


def awaited(app: App, question: Question) -> str:
    """Say what the next release takes, and when it is due; in the same words whether few reports came or none."""
    least, due = question.metric.min_reports, next_release(app, question)
    if due is None:
        return "everything is published at once" if app.trial else "collection has ended"
    steps = app.registry.publication.early and not question.metric.segments
    before = f", or earlier once there are some {2 * least:,}" if steps else ""
    needed = f"{least:,} report{'s are' if least > 1 else ' is'} needed"
    wait = "" if question.metric.kept else f"; fewer wait for those of the next {question.metric.period}"
    return f"{needed}, and the next release is due {due:%Y-%m-%d %H:%M} UTC{before}{wait}"


def _spans(releases: Mapping[Stratum, Release]) -> list[dict[str, str | None]]:
    """Tell which periods releases cover, each from its first one (None: all before) to its last one."""
    return [{"first": releases[each].first or None, "last": each.period} for each in sorted(releases)]


def _warnings(question: Question, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warn of a group all but all of whom gave one answer: whoever is known to be in it has then told it."""
    if not any(low is not None and low >= _HOMOGENEOUS for low, _ in (row["simultaneous"] for row in rows)):
        return []
    return [f"at least {_HOMOGENEOUS:.0%} of this segment gave the same answer to {question.metric.id}: it tells of each of them"]


def _association(question: Question, counted: Tally) -> dict[str, Any] | None:
    """Test whether the factors of a product are independent; None where there are none, or where it cannot be told."""
    factors = question.metric.factors
    if not factors or not counted.n or question.metric.domain_size > _MOST_COMBINATIONS:
        return None
    try:
        test = from_product(question.mechanism, counted, [len(listed) for _, listed in factors]).independence()
    except ParameterError:  # the mechanism declared has no such table, or it is too large
        return None
    return {
        "factors": {name: list(listed) for name, listed in factors},
        "statistic": finite(test.statistic),
        "degrees": test.degrees,
        "p_value": finite(test.p_value),
    }


def _decoded(question: Question, counted: Tally) -> tuple[Sequence[int], Estimate]:
    """Estimate all values, the candidates, or what was discovered; what takes long is remembered for the next reader."""
    metric, mechanism = question.metric, question.mechanism
    if not metric.open:
        return range(metric.domain_size), decode.estimate(mechanism, counted)
    key = (question.fingerprint, question.candidates, sha256(counted.cells.tobytes()).digest())
    with _lock:
        found = _remembered.get(key)
    if found is None:
        if isinstance(mechanism, PrefixTree):
            discovery = discover(mechanism, counted, text=metric.type == "string")
            found = discovery.values, discovery
        else:
            found = question.candidates, decode.estimate(mechanism, counted, question.candidates)
        with _lock:
            _remembered[key] = found
            while len(_remembered) > _MOST_REMEMBERED:
                del _remembered[next(iter(_remembered))]
    return found


def releases_of(app: App, question: Question) -> dict[Stratum, Release]:
    """List what was published under the very definition that the registry has now."""
    return {
        stratum: each
        for stratum, each in release.listed(app.store, question.metric.id).items()
        if stratum[:3] == question.definition
    }


def description(app: App, question: Question) -> dict[str, Any]:
    """Describe a metric, whatever was counted of it."""
    metric, mechanism = question.metric, question.mechanism
    due = next_release(app, question)
    return {
        "trial": app.trial,
        "id": metric.id,
        "type": metric.type,
        "version": metric.version,
        "description": metric.description,
        "owner": metric.owner,
        "expires": metric.expires.isoformat() if metric.expires else None,
        "period_length": metric.period,
        "domain_size": None if metric.open else metric.domain_size,
        "candidates": len(question.candidates) if metric.candidates else None,
        "discover": metric.discover,
        "mechanism": mechanism.name,
        "epsilon": mechanism.epsilon,
        "epsilon_permanent": mechanism.epsilon_permanent if metric.kept and isinstance(mechanism, Chain) else None,
        "sample": float(metric.sample),
        "min_reports": metric.min_reports,
        "next_release": due.isoformat() if due else None,
        "report_bytes": mechanism.layout.payload_size,
    }


def _updated(releases: Mapping[Stratum, Release]) -> str | None:
    hours = [each.published for each in releases.values()]
    return datetime.fromtimestamp(max(hours), UTC).isoformat() if hours else None


def _rows(question: Question, values: Sequence[int], estimate: Estimate, level: float) -> list[dict[str, Any]]:
    pointwise, simultaneous = estimate.interval(level), estimate.interval(level, simultaneous=True)
    columns = (estimate.frequency, estimate.count, estimate.stderr, *pointwise, *simultaneous)
    numbers = zip(*(map(finite, column) for column in columns), strict=True)
    rows = [
        {
            "value": question.metric.value(position),
            "label": question.metric.label(position),
            "frequency": frequency,
            "count": count,
            "stderr": stderr,
            "interval": [low, high],
            "simultaneous": [lowest, highest],
            "detected": bool(detected),
        }
        for position, detected, (frequency, count, stderr, low, high, lowest, highest) in zip(
            values, estimate.detected(1 - level), numbers, strict=True
        )
    ]
    # What a search tried and could not confirm is not an answer that anybody is known to have given.
    return [row for row in rows if row["detected"]] if question.metric.discover else rows
