"""The page that asks about withheld segments of a metric, paid from the budget of the visitor's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import request

from deniable.errors import ParameterError
from deniable_aggregator.answer.refusal import Refusal
from deniable_aggregator.answer.select import Published
from deniable_aggregator.process import logs
from deniable_aggregator.questions import figures
from deniable_server.api.answers.questions import Withheld, ask, budgets_of, payer_of
from deniable_server.http.problem import Problem, refused
from deniable_server.pages.frame import page, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flask import Response

    from deniable.declared import Declared
    from deniable_server.access.keys import Key
    from deniable_server.service import App

_MOST_PERIODS = 60
_WORDS = {
    "count": "how many reports it has",
    "sum": "the sum",
    "mean": "the mean",
    "value": "the most frequent answer",
}


def form(app: App, key: Key, declared: Declared) -> Response:
    """Show the form."""
    return _page(app, key, declared, request.args, {})


def answered(app: App, key: Key, declared: Declared) -> Response:
    """Ask what the form says, have it paid, and show the answer; or why there is none, which costs nothing."""
    try:
        answer = ask(app, payer_of(key), declared, _question(request.form))
    except (Problem, Refusal) as error:
        problem = refused(error) if isinstance(error, Refusal) else error
        logs.note(code=problem.code)
        return _page(app, key, declared, request.form, {"refused": sentence(problem.detail)}, problem.status)
    return _page(app, key, declared, request.form, {"answer": answer})


def _question(fields: Mapping[str, str]) -> Withheld:
    text = fields.get("epsilon", "")
    try:
        epsilon = float(text)
    except ValueError:
        raise Problem(400, "epsilon", "the price is a number of nats, such as 0.1") from None
    cell, figure = fields.get("cell", ""), fields.get("figure") or figures.COUNT
    return Withheld(period=fields.get("period", ""), cells=[cell], epsilon=epsilon, figure=figure)


def _page(app: App, key: Key, declared: Declared, chosen: Mapping[str, str], more: dict[str, Any], status: int = 200) -> Response:
    (published,) = Published.of_each(app, [declared])
    closed = {period for cell in published.cells.values() for period, (_, note) in cell.items() if note.closed}
    return page(
        "withheld.html",
        status,
        app=app,
        m=declared.metric,
        periods=sorted(closed, reverse=True)[:_MOST_PERIODS],
        cells=published.withheld(),
        figures={name: _WORDS[name] for name in figures.NAMES if _has(declared, name)},
        chosen=chosen,
        budgets=budgets_of(app, key),
        **more,
    )


def _has(declared: Declared, name: str) -> bool:
    if name == figures.COUNT:
        return True
    try:
        figures.figure_of(name, declared, 1)
    except ParameterError:
        return False
    return True
