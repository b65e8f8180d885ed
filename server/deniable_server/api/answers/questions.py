"""Questions about withheld cells, answered with central noise and paid for from the app's budget.

Whether a question is refused depends on releases and earlier questions, never on withheld numbers. Exact numbers are read only
for an answer that can be paid for.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from flask import Blueprint, Response, jsonify, request

from deniable.limits.allowance import MICRO
from deniable.registry import period
from deniable_aggregator.answer.model.fields import Span
from deniable_aggregator.answer.refusal import check_period, read_cell
from deniable_aggregator.answer.select import Published
from deniable_aggregator.audit.entry import LONGEST
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.strata import strata_by_period
from deniable_aggregator.publish.suppression.cube import Cube
from deniable_aggregator.questions import central_noise
from deniable_aggregator.questions.budgets import BudgetSpent, PaidQuestion
from deniable_server.api.answers.parameters import find_metric
from deniable_server.api.audit_trail import log_query
from deniable_server.api.auth import app_by_read_key
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.declared import Declared
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.breakdown import Box
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.questions.budgets import Answer
    from deniable_server.service import App

blueprint = Blueprint("analysts", __name__)

_LEAST = Decimal("0.01")  # nats; less would be spent on answers that say nothing
_LEVEL = 0.95
_OR = " or "


class Withheld(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many reports a withheld cell has; for several cells, which has most."""

    period: Annotated[str, msgspec.Meta(description="The release that the question is about")]
    cells: Annotated[list[str], msgspec.Meta(description="The withheld cell; or several, of which the largest is asked for")]
    epsilon: Annotated[float, msgspec.Meta(description="What the answer costs, in nats")]


@blueprint.after_request
def log(answer: Response) -> Response:
    """Log the question, as queries are logged."""
    return log_query(answer) if request.view_args else answer


@blueprint.post("/api/v1/metrics/<id_>/withheld")
def withheld(id_: str) -> Response:
    """Return how many reports a withheld cell has, or which of several has most, with noise."""
    app = app_by_read_key()
    if not central_noise.available():
        raise Problem(501, "no_questions", "this server answers no questions: install it with 'deniable[questions]'")
    declared, body = find_metric(app, id_), _body()
    # For the audit log, which has refused questions, too, as far as their words are valid.
    visit().question = {"question": "withheld", "period": body.period}
    cost = _cost(app, body.epsilon)
    breakdown = Breakdown.of(app.registry, declared.metric)
    named = _cells(breakdown, body.cells)
    cells = list(named.values())
    visit().question |= {"among": _OR.join(cells), "epsilon": str(Decimal(cost) / MICRO)}
    stratum, note = _closed(app, declared, body.period, cells)
    month = f"{period.bounds(stratum.period, declared.metric.period)[0]:%Y-%m}"

    # The budget calls this once the question can be paid for. So whether it is refused never depends on the exact numbers.
    def draw() -> int:
        cube = _exact(app, declared, breakdown, stratum, note)
        counts = [cube.total(cell) for cell in cells]
        return central_noise.most(counts, cost) if len(counts) > 1 else central_noise.count(counts[0], cost)

    answer = _paid(app, PaidQuestion(stratum, month, tuple(named), cost), draw)
    visit().question["spent"] = str(Decimal(answer.spent) / MICRO)
    return jsonify(
        trial=app.trial,
        metric=stratum.metric,
        version=stratum.version,
        period=Span(note.first or None, stratum.period),
        cells=cells,
        epsilon=cost / MICRO,
        spent=answer.spent / MICRO,
        left=answer.left / MICRO,
        guarantee=_guarantee(app, month, cost),
        level=_LEVEL,
        **_answer_fields(cells, answer.value, cost),
    )


@blueprint.get("/api/v1/budget")
def budget() -> Response:
    """Return what the key may still spend, for the months on which anything was spent."""
    app = app_by_read_key()
    analysts = app.registry.analysts
    months = [{"month": month, "left": min(app.budgets.left(_key(), month)) / MICRO} for month in app.budgets.spent()]
    return jsonify(app=app.name, trial=app.trial, epsilon=analysts.epsilon, per_key=analysts.per_key, months=months)


def _body() -> Withheld:
    if request.mimetype != "application/json":
        raise Problem(415, "media_type", "a question's Content-Type is application/json")
    try:
        return msgspec.json.decode(request.get_data(cache=False), type=Withheld)
    except msgspec.ValidationError:
        members = ", ".join(Withheld.__struct_fields__)
        raise Problem(400, "question_shape", f"a question is an object with {members}, each of its kind, and no more") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Problem(400, "json", "the body is not valid JSON") from None


def _cost(app: App, epsilon: float) -> int:
    """Return what a question costs, in millionths of a nat, rounded up."""
    analysts = app.registry.analysts
    price, most = Decimal(repr(epsilon)), Decimal(str(min(analysts.epsilon, analysts.per_key)))
    if not _LEAST <= price <= most:
        rule = f"epsilon: write a number of nats from {_LEAST} to {most}, a key's part of the budget"
        raise Problem(400, "epsilon", rule if most else "the registry allows no questions about withheld cells (analysts)")
    return int((price * MICRO).to_integral_value(ROUND_CEILING))


def _cells(breakdown: Breakdown, cells: Sequence[str]) -> dict[Box, str]:
    """Read the cells: by the boxes they stand for, in an order that does not depend on the request."""
    if not cells or len(_OR.join(cells)) > LONGEST:
        raise Problem(400, "cells", f"cells are one or more, of at most {LONGEST} characters together, with '{_OR}' between them")
    # The same cells in another order are the same question: it costs nothing again, and no second noise is drawn.
    return dict(sorted((breakdown.box(cell), cell) for cell in (read_cell(breakdown, each) for each in cells)))


def _closed(app: App, declared: Declared, name: str, cells: Sequence[str]) -> tuple[Stratum, Release]:
    """Find the closed release that covers a period, and check that the cells are withheld from it."""
    check_period(declared.metric, name)
    (published,) = Published.of_each(app, [declared])
    releases = (pair for each in published.cells.values() for pair in each.values())
    covering = {each: note for each, note in releases if note.closed and note.covers(each.period, name)}
    if not covering:
        detail = f"questions are about closed releases, and none covers this period: {app.awaited(declared)}"
        raise Problem(404, "nothing_published", detail)
    for cell in cells:
        if cell in {each.segment for each in covering}:
            where = f"GET /api/v1/metrics/{declared.metric.id} with this period and segment"
            raise Problem(409, "published", f"{cell or 'the number of all reports'} is published: {where} has it for free")
    return min(covering.items())


def _exact(app: App, declared: Declared, breakdown: Breakdown, released: Stratum, note: Release) -> Cube:
    """Read the numbers of reports that a release was made of."""
    layout, reports = declared.mechanism.layout, Counter[str]()
    strata = [
        stratum
        for each, listed in strata_by_period(app.store, declared.definition).items()
        if note.covers(released.period, each.period)
        for stratum in listed
    ]
    for stratum, sums in zip(strata, app.store.sums(layout, strata), strict=True):
        reports[breakdown.filed(stratum.segment)] += sums.n
    # If some of the sums were deleted, the others are not what the release was made of.
    if reports.total() != app.store.releases.read(layout, [released]).n:
        raise Problem(404, "not_kept", "the exact numbers that this release was made of are not kept, and this was never asked")
    return Cube.of(breakdown, reports)


def _paid(app: App, question: PaidQuestion, draw: Callable[[], int]) -> Answer:
    """Answer a question, or say what is left of the budget."""
    try:
        return app.budgets.ask(_key(), question, draw)
    except BudgetSpent:
        total, own = (micro / MICRO for micro in app.budgets.left(_key(), question.month))
        # Not 429: programs would wait and try again, here for ever, and the audit log leaves it out.
        left = f"for {question.month} this key has {own:g} left, and all keys together {total:g}"
        raise Problem(403, "budget_spent", f"this costs {question.cost / MICRO:g} nats; {left}", left=min(total, own)) from None


def _answer_fields(cells: Sequence[str], number: int, cost: int) -> dict[str, Any]:
    if len(cells) > 1:
        return {"most": cells[number], "margin": central_noise.margin(len(cells), cost, _LEVEL)}
    reach = central_noise.reach(cost, _LEVEL)
    return {"count": number, "stderr": central_noise.stderr(cost), "interval": [number - reach, number + reach]}


def _guarantee(app: App, month: str, cost: int) -> str:
    """State the guarantee of this answer, and of all answers, for a report beyond what is published."""
    together = app.registry.analysts.epsilon
    return (
        "Beyond the exact releases, whichever cell one report is in, or none: this answer is at most "
        f"e^{cost / MICRO:g} times as likely as otherwise, all answers about {month} together e^{together:g} times."
    )


def _key() -> str:
    return str(visit().actor).removeprefix("key:")
