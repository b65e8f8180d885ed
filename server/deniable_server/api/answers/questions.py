"""Questions about withheld cells, answered with central noise and paid for from the app's budget.

Whether a question is refused depends on releases and earlier questions, never on withheld numbers. Exact numbers are read only
for an answer that can be paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from operator import contains
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from flask import Blueprint, Response, jsonify, request

from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable.messages.lookalike import did_you_mean
from deniable.registry import period
from deniable_aggregator.answer import figures as in_words
from deniable_aggregator.answer.model.fields import Span
from deniable_aggregator.answer.refusal import check_period, read_cell
from deniable_aggregator.answer.select import Published
from deniable_aggregator.audit.entry import LONGEST
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.strata import strata_by_period
from deniable_aggregator.questions import central_noise, figures
from deniable_aggregator.questions.budgets import BudgetSpent, PaidQuestion, Payer
from deniable_aggregator.store.sums.tallies import total
from deniable_server.api.answers import shape
from deniable_server.api.answers.parameters import find_metric
from deniable_server.api.audit_trail import log_query
from deniable_server.api.auth import app_and_read_key
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.declared import Declared
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.breakdown import Box, Words
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.questions.budgets import Answer
    from deniable_aggregator.questions.figures import Figure
    from deniable_aggregator.store.sums.tallies import Stored
    from deniable_aggregator.tally import Tally
    from deniable_server.access.keys import Key
    from deniable_server.service import App

__all__ = ["Withheld", "ask", "blueprint", "budgets_of", "payer_of"]

blueprint = Blueprint("analysts", __name__)

_LEAST = Decimal("0.01")  # nats; less would be spent on answers that say nothing
_LEVEL = 0.95
_RULES = {
    "period": 'a closed period of the metric, such as "2026-11-20"',
    "cells": 'a list of withheld segments, such as ["platform=beos"]',
    "epsilon": "a number of nats, such as 0.1",
    "figure": " or ".join(f'"{name}"' for name in figures.NAMES),
}
_OR = " or "


class Withheld(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many reports a withheld cell has; for several cells, which has most; for one, also another figure of its answers."""

    period: Annotated[str, msgspec.Meta(description="The release that the question is about")]
    cells: Annotated[list[str], msgspec.Meta(description="The withheld cell; or several, of which the largest is asked for")]
    epsilon: Annotated[float, msgspec.Meta(description="What the answer costs, in nats")]
    figure: Annotated[
        str, msgspec.Meta(description="What is asked of the cell", extra_json_schema={"enum": [*figures.NAMES]})
    ] = figures.COUNT


@blueprint.after_request
def log(answer: Response) -> Response:
    """Log the question, as queries are logged."""
    return log_query(answer) if request.view_args else answer


@blueprint.post("/api/v1/metrics/<id_>/withheld")
def withheld(id_: str) -> Response:
    """Return how many reports a withheld cell has, which of several has most, or a figure of one, with noise."""
    app, key = app_and_read_key()
    _check_available()
    declared = find_metric(app, id_)
    return jsonify(ask(app, payer_of(key), declared, _body()))


def ask(app: App, payer: Payer, declared: Declared, question: Withheld) -> dict[str, Any]:
    """Answer a question and have it paid; or raise a `Problem` or a `Refusal`. The API and the page both ask by this."""
    _check_available()
    # For the audit log, which has refused questions, too, as far as their words are valid.
    visit().question = {"question": "withheld", "period": question.period}
    cost = _cost(app, payer, question.epsilon)
    if question.figure not in figures.NAMES:
        near = did_you_mean(question.figure, figures.NAMES)
        raise Problem(400, "figure", f"figure: write one of {', '.join(figures.NAMES)}{near}")
    breakdown = Breakdown.of(app.registry, declared.metric)
    named = _cells(breakdown, question.cells)
    cells = list(named.values())
    visit().question |= {"among": _OR.join(cells), "epsilon": str(Decimal(cost) / MICRO), "figure": question.figure}
    stratum, note = _closed(app, declared, question.period, cells)
    figure = None if question.figure == figures.COUNT else _figure(declared, question.figure, cells, stratum, note)
    month = f"{period.bounds(stratum.period, declared.metric.period)[0]:%Y-%m}"

    # The budget calls this once the question can be paid for. So whether it is refused never depends on the exact numbers.
    def draw() -> list[int]:
        exact = _Exact.of(app, declared, breakdown, stratum, note)
        counts = [exact.reports(cell) for cell in cells]
        if figure:
            of_count, of_figure = figures.halves(cost)
            return [central_noise.count(counts[0], of_count), figure.draw(exact.tally(cells[0]), of_figure)]
        return [central_noise.most(counts, cost) if len(counts) > 1 else central_noise.count(counts[0], cost)]

    answer = _paid(app, payer, PaidQuestion(stratum, month, tuple(named), cost, question.figure), draw)
    visit().question["spent"] = str(Decimal(answer.spent) / MICRO)
    fields = _with_figure(figure, answer.numbers, cost, note.n) if figure else _counted(cells, answer.numbers[0], cost)
    return {
        "trial": app.trial,
        "metric": stratum.metric,
        "version": stratum.version,
        "period": Span(note.first or None, stratum.period),
        "cells": cells,
        "figure": question.figure,
        "epsilon": cost / MICRO,
        "spent": answer.spent / MICRO,
        "left": answer.left / MICRO,
        "guarantee": _guarantee(app, month, cost),
        "level": _LEVEL,
        "says": _says(question.figure, fields),
        **fields,
    }


@blueprint.get("/api/v1/budgets")
def budgets() -> Response:
    """Return what all keys together, and this one, may spend, and have spent; for an admin key also what each has spent."""
    app, key = app_and_read_key()
    return jsonify(budgets_of(app, key))


def budgets_of(app: App, key: Key) -> dict[str, Any]:
    """Return the budgets of an app, as a key may know them."""
    payer, analysts = payer_of(key), app.registry.analysts
    by_key = [
        {"id": id_, "month": month, "spent": micro / MICRO}
        for month, spent in app.budgets.spent().items()
        for id_, micro in spent.items()
        if id_
    ]
    return {
        "app": app.name,
        "trial": app.trial,
        "epsilon": analysts.epsilon,
        "per_key": analysts.per_key,
        "reason": _unanswered() or ("nothing is withheld in a trial, so there is nothing to ask" if app.trial else None),
        "own": app.budgets.limits(payer)[1] / MICRO,
        "months": [
            {"month": each.name, "spent": each.spent / MICRO, "left": each.left / MICRO, "left_of_app": each.app / MICRO}
            for each in app.budgets.months(payer)
        ],
        "keys": by_key if key.opens("admin") else None,
    }


def payer_of(key: Key) -> Payer:
    """Return the key as the budget knows it."""
    return Payer(key.id, key.epsilon)


def _check_available() -> None:
    if reason := _unanswered():
        raise Problem(501, "no_questions", reason)


def _unanswered() -> str | None:
    """Say why this server answers no question; None if it does."""
    if central_noise.available():
        return None
    return "this server answers no questions about withheld segments: ask its operator to install 'deniable[questions]'"


def _body() -> Withheld:
    if request.mimetype != "application/json":
        raise Problem(415, "media_type", "a question's Content-Type is application/json")
    try:
        table = msgspec.json.decode(request.get_data(cache=False))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Problem(400, "json", "the body is not valid JSON") from None
    try:
        return msgspec.convert(table, Withheld)
    except msgspec.ValidationError as error:
        raise Problem(400, "question_shape", shape.fault(table, str(error), "a question", _RULES, list(_RULES))) from None


def _cost(app: App, payer: Payer, epsilon: float) -> int:
    """Return what a question costs, in millionths of a nat, rounded up."""
    price, most = Decimal(repr(epsilon)), Decimal(app.budgets.limits(payer)[1]) / MICRO
    if not most:
        who = "this key" if payer.epsilon == 0 else "the registry"
        raise Problem(400, "epsilon", f"{who} allows no questions about withheld cells (budget 0)")
    if not _LEAST <= price <= most:
        raise Problem(
            400, "epsilon", f"epsilon: write a number of nats from {_LEAST} to {most}, the budget of this key for a month"
        )
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


def _figure(declared: Declared, name: str, cells: Sequence[str], released: Stratum, note: Release) -> Figure:
    """Return a figure of one cell."""
    if len(cells) > 1:
        raise Problem(400, "figure", f"figure: {name} is for one cell; name one, or ask which of several has most by count")
    # If the first period is not known, the release is taken to be of its last one, as in `release.by_period`.
    length, last, periods = declared.metric.period, released.period, 1
    first = note.first or last
    while first < last:
        first, periods = period.of(period.bounds(first, length)[1], length), periods + 1
    try:
        return figures.figure_of(name, declared, periods)
    except ParameterError as error:
        raise Problem(400, "figure", error.rule) from None


@dataclass(frozen=True, slots=True)
class _Exact:
    """The exact sums that a release was made of."""

    breakdown: Breakdown
    sums: Sequence[tuple[Words, Stored]]  # each with the values of all segments

    def __repr__(self) -> str:
        """Show only the size: exact numbers are not for logs."""
        return f"_Exact({len(self.sums)} sums)"

    @classmethod
    def of(cls, app: App, declared: Declared, breakdown: Breakdown, released: Stratum, note: Release) -> _Exact:
        """Read them."""
        layout = declared.mechanism.layout
        strata = [
            stratum
            for each, listed in strata_by_period(app.store, declared.definition).items()
            if note.covers(released.period, each.period)
            for stratum in listed
        ]
        leaves = [breakdown.leaf(breakdown.filed(stratum.segment)) for stratum in strata]
        exact = cls(breakdown, list(zip(leaves, app.store.sums(layout, strata), strict=True)))
        # If some of the sums were deleted, the others are not what the release was made of.
        if exact.reports("") != app.store.releases.read(layout, [released]).n:
            raise Problem(
                404, "not_kept", "the exact numbers that this release was made of are not kept, and this was never asked"
            )
        return exact

    def reports(self, cell: str) -> int:
        """Return how many reports a cell has."""
        return sum(stored.n for stored in self._within(cell))

    def tally(self, cell: str) -> Tally:
        """Return the tally of a cell."""
        return total(self.sums[0][1].layout, self._within(cell))

    def _within(self, cell: str) -> list[Stored]:
        box = self.breakdown.box(cell)
        return [stored for leaf, stored in self.sums if all(map(contains, box, leaf))]


def _paid(app: App, payer: Payer, question: PaidQuestion, draw: Callable[[], Sequence[int]]) -> Answer:
    """Answer a question, or say what is left of the budget."""
    try:
        return app.budgets.ask(payer, question, draw)
    except BudgetSpent:
        total, own = (micro / MICRO for micro in app.budgets.left(payer, question.month))
        # Not 429: programs would wait and try again, here for ever, and the audit log leaves it out.
        left = f"for {question.month} this key has {own:g} left, and all keys together {total:g}"
        raise Problem(403, "budget_spent", f"this costs {question.cost / MICRO:g} nats; {left}", left=min(total, own)) from None


def _with_figure(figure: Figure, numbers: Sequence[int], cost: int, most: int) -> dict[str, Any]:
    """Write a figure, and beside it the number of reports."""
    n, noisy = numbers
    reach = central_noise.reach(figures.halves(cost)[0], _LEVEL)
    return figure.fields(noisy, n, cost, _LEVEL, most) | {"count": n, "count_interval": [n - reach, n + reach]}


def _counted(cells: Sequence[str], number: int, cost: int) -> dict[str, Any]:
    if len(cells) > 1:
        return {"most": cells[number], "margin": central_noise.margin(len(cells), cost, _LEVEL)}
    reach = central_noise.reach(cost, _LEVEL)
    return {"count": number, "stderr": central_noise.stderr(cost), "interval": [number - reach, number + reach]}


def _says(figure: str, fields: dict[str, Any]) -> str:
    """Say the answer in words."""
    level = f"({100 * _LEVEL:g}%)"
    if "most" in fields:
        cell, margin = in_words.group(fields["most"]), in_words.count(fields["margin"])
        return f"{in_words.beginning(cell)} has most reports, or at most {margin} fewer than the first {level}."
    low, high = (in_words.count(max(end, 0)) for end in fields["interval" if figure == figures.COUNT else "count_interval"])
    reports = f"{in_words.count(fields['count'])} reports, {low} to {high} {level}."
    if figure == figures.COUNT:
        return reports
    if figure == "value":
        behind = f"at most {100 * fields['behind']:.0f} points behind the largest share {level}"
        return f"{in_words.quoted(fields['value'])} is the most frequent answer, or {behind}. {reports}"
    estimate, ends, unit = fields["estimate"], tuple(fields["interval"]), fields["unit"]
    least, greatest = (in_words.number(end, ends, unit) for end in ends)
    between = f"{least} to {greatest} {level}"
    known = f"{in_words.number(estimate, ends, unit)}, {between}" if estimate is not None else between
    return f"The {figure} is {known}. {reports}"


def _guarantee(app: App, month: str, cost: int) -> str:
    """State the guarantee of this answer, and of all answers, for a report beyond what is published."""
    together = app.registry.analysts.epsilon
    return (
        "Beyond the exact releases, whichever cell one report is in, or none: this answer is at most "
        f"e^{cost / MICRO:g} times as likely as otherwise, all answers about {month} together e^{together:g} times."
    )
