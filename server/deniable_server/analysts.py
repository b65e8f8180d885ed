"""Questions about exact numbers of reports, answered with central noise and paid for from the budget of the key that asks.

Only about what was published and is closed. What a key has left depends on its questions alone, and tells nothing of the reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from flask import Blueprint, Response, g, jsonify, request

from deniable.allowance import MICRO
from deniable_aggregator import census, central
from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.budgets import Asked, BudgetSpent
from deniable_server.auth import app_by_read_key
from deniable_server.problem import Problem
from deniable_server.query import cell_of, declared, missing, releases_of
from deniable_server.trail import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.report import Stratum
    from deniable_aggregator.budgets import Answer, Left
    from deniable_aggregator.census import Count
    from deniable_server.service import App, Question

__all__ = ["Participants", "Popular", "blueprint"]

blueprint = Blueprint("analysts", __name__)

_LEAST = Decimal("0.01")  # nats, so that no budget is split into answers that say nothing
_LEVEL = 0.95


class Participants(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many reports a cell has."""

    period: str
    segment: str = ""
    epsilon: float


class Popular(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which value of a segment has the most reports, in a cell."""

    period: str
    by: str
    segment: str = ""
    epsilon: float


_Body = TypeVar("_Body", Participants, Popular)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is asked about: a cell of a closed release."""

    app: App
    question: Question
    breakdown: Breakdown
    stratum: Stratum
    cost: int


@blueprint.after_request
def log(answer: Response) -> Response:
    """Log what was asked of a metric, as queries are."""
    return kept(answer) if request.view_args else answer


@blueprint.post("/api/v1/metrics/<id_>/participants")
def participants(id_: str) -> Response:
    """Tell how many reports a cell has, with discrete Laplace noise."""
    app, question = _asked(id_)
    subject = _subject(app, question, _body(Participants))
    counts = census.read(app.store, [subject.stratum])

    def draw() -> dict[str, Any]:
        return {"count": central.participants(_known(subject, counts).n, subject.cost)}

    answer = _answered(subject, "", counts, draw)
    told, reach = answer.told["count"], central.reach(subject.cost, _LEVEL)
    return jsonify(
        _told(subject, answer)
        | {"count": told, "stderr": central.stderr(subject.cost), "interval": [told - reach, told + reach], "level": _LEVEL}
    )


@blueprint.post("/api/v1/metrics/<id_>/popular")
def popular(id_: str) -> Response:
    """Name the value of a segment that has the most reports, or nearly as many."""
    app, question = _asked(id_)
    body = _body(Popular)
    breakdown = Breakdown.of(app.registry, question.metric)
    words = breakdown.words(cell_of(breakdown, body.segment))
    if body.by not in breakdown.names or words[breakdown.names.index(body.by)] is not None:
        free = ", ".join(name for name, word in zip(breakdown.names, words, strict=True) if word is None)
        raise Problem(400, "by", f"by is a segment of the metric that the question leaves open: {free or 'there is none'}")
    g.asked = {"among": body.by}
    subject = _subject(app, question, body)
    place = breakdown.names.index(body.by)
    cells = {
        value: subject.stratum._replace(segment=breakdown.text((*words[:place], value, *words[place + 1 :])))
        for value in breakdown.values[body.by]
    }
    counts = census.read(app.store, [subject.stratum, *cells.values()])

    def draw() -> dict[str, Any]:
        _known(subject, counts)
        candidates = {value: counts[stratum].n for value, stratum in cells.items() if stratum in counts}
        if len(candidates) < 2:  # noqa: PLR2004
            least = question.metric.min_reports
            raise Problem(403, "withheld", f"fewer than two values of {body.by} were published, each with {least} reports")
        names = list(candidates)
        return {"value": names[central.popular(list(candidates.values()), subject.cost)], "candidates": names}

    answer = _answered(subject, body.by, counts, draw)
    margin = central.margin(len(answer.told["candidates"]), subject.cost, _LEVEL)
    return jsonify(_told(subject, answer) | answer.told | {"by": body.by, "margin": margin, "level": _LEVEL})


@blueprint.get("/api/v1/budget")
def budget() -> Response:
    """Tell what the key has left for each metric, and when it has more again."""
    app = app_by_read_key()
    analysts = app.registry.analysts
    metrics = [_budget(app, question) for question in app.questions.values()]
    return jsonify(app=app.name, trial=app.trial, epsilon=analysts.epsilon, window_days=analysts.window, metrics=metrics)


def _asked(id_: str) -> tuple[App, Question]:
    app = app_by_read_key()
    return app, declared(app, id_)


def _body(kind: type[_Body]) -> _Body:
    if request.mimetype != "application/json":
        raise Problem(415, "media_type", "a question's Content-Type is application/json")
    try:
        body = msgspec.json.decode(request.get_data(cache=False), type=kind)
    except msgspec.ValidationError:
        members = ", ".join(kind.__struct_fields__)
        raise Problem(400, "question_shape", f"a question is an object with {members}, each of its kind, and no more") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Problem(400, "json", "the body is not valid JSON") from None
    return body


def _subject(app: App, question: Question, body: Participants | Popular) -> _Subject:
    """Find what a question is about, among what was published and is closed."""
    g.asked = g.get("asked", {}) | {"question": type(body).__name__.lower(), "period": body.period, "segment": body.segment}
    cost = _cost(app, body.epsilon)
    g.asked["epsilon"] = str(Decimal(cost) / MICRO)
    breakdown = Breakdown.of(app.registry, question.metric)
    cell = cell_of(breakdown, body.segment)
    found = releases_of(app, question).items()
    closed = [stratum for stratum, each in found if each.closed and stratum.period == body.period]
    if not closed:
        detail = "questions are about periods that are closed and were published; this one is not"
        raise Problem(404, "nothing_published", detail)
    for stratum in closed:
        if stratum.segment == cell:
            return _Subject(app, question, breakdown, stratum, cost)
    raise missing(app, question, breakdown, cell, {stratum.segment for stratum in closed})


def _cost(app: App, epsilon: float) -> int:
    """Return what a question costs, in millionths of a nat, rounded up."""
    given, most = Decimal(repr(epsilon)), Decimal(str(app.registry.analysts.epsilon))
    if not _LEAST <= given <= most:
        rule = f"epsilon is a number of nats from {_LEAST} to {most}, the budget of a key for a metric"
        raise Problem(400, "epsilon", rule if most else "the registry allows no questions about exact numbers (analysts.epsilon)")
    return int((given * MICRO).to_integral_value(ROUND_CEILING))


def _known(subject: _Subject, counts: Mapping[Stratum, Count]) -> Count:
    """Return the exact number of what is asked about; it may be gone while what was answered before is still there."""
    count = counts.get(subject.stratum)
    if count is None:
        raise Problem(404, "not_kept", "exact numbers of this period are not kept any more, and this was never asked")
    return count


def _answered(subject: _Subject, among: str, counts: Mapping[Stratum, Count], draw: Callable[[], dict[str, Any]]) -> Answer:
    """Have a question answered, or say that the budget is spent."""
    asked = Asked(subject.stratum, "popular" if among else "participants", among, subject.cost)
    count = counts.get(subject.stratum)
    breakdown = subject.breakdown if count and count.fits(subject.breakdown) else None
    try:
        answer = subject.app.budgets.ask(_key(), asked, breakdown, draw)
    except BudgetSpent as spent:
        nats = spent.left / MICRO
        # Not 429, after which programs wait by themselves, here for days; and which the audit log leaves out.
        detail = f"this key has {nats:g} nats left for these reports; ask for less, or when enough has come back (Retry-After)"
        raise Problem(403, "budget_spent", detail, retry_after=spent.seconds, left=nats) from None
    g.asked["spent"] = str(Decimal(answer.spent) / MICRO)
    return answer


def _told(subject: _Subject, answer: Answer) -> dict[str, Any]:
    stratum = subject.stratum
    return {
        "trial": subject.app.trial,
        "metric": stratum.metric,
        "version": stratum.version,
        "period": stratum.period,
        "segment": stratum.segment or None,
        "epsilon": subject.cost / MICRO,
        "spent": answer.spent / MICRO,
        **_left(answer.left),
    }


def _budget(app: App, question: Question) -> dict[str, Any]:
    metric, breakdown = question.metric, Breakdown.of(app.registry, question.metric)

    def cells_of(wholes: list[Stratum]) -> dict[Stratum, Breakdown | None]:
        counts = census.read(app.store, wholes)  # what is not in it can be asked no more
        return {whole: breakdown if count.fits(breakdown) else None for whole, count in counts.items()}

    found = app.budgets.left(_key(), metric.id, cells_of)
    lefts = {
        whole.period: left
        for whole, left in sorted(found.items())
        if (whole.version, whole.fingerprint) == (metric.version, question.fingerprint) and left.refills is not None
    }
    least = min((left.micro for left in lefts.values()), default=None)
    # What is left of the metric rises when the last of the periods that have least does.
    refills = max((left.refills or 0 for left in lefts.values() if left.micro == least), default=None)
    return {
        "metric": metric.id,
        "version": metric.version,
        "left": app.registry.analysts.epsilon if least is None else least / MICRO,
        "refills": _moment(refills),
        "periods": [{"period": period, **_left(left)} for period, left in lefts.items()],
    }


def _left(left: Left) -> dict[str, Any]:
    return {"left": left.micro / MICRO, "refills": _moment(left.refills)}


def _moment(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _key() -> str:
    return str(g.actor).removeprefix("key:")
