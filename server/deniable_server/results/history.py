"""The history of what is asked: when each question with public results was declared, what was changed, and when it ended.

* ``GET /history``: for people, the newest line first
* ``GET /history.json``: the lines as they are stored, the oldest first

A line is noted when a server reads a registry. It has declared texts only. Lines are never changed or taken back: not when a
metric is erased, removed or no longer public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Blueprint, jsonify, make_response, render_template, request, url_for

from deniable.messages.plural import plural
from deniable_aggregator.audit import history as lines
from deniable_aggregator.store.errors import StoreError
from deniable_server.http import paging
from deniable_server.privacy import words
from deniable_server.privacy.about import HEADERS, listed_answers
from deniable_server.results.page import on_store, public_app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from deniable.declared import Declared
    from deniable_aggregator.audit.history import HistoryLine, Texts
    from deniable_server.service import App

blueprint = Blueprint("history", __name__)

_MOST_LINES = 50
_NAMES = {
    "question": "The question",
    "version": "Version",
    "type": "Kind of answer",
    "answers": "Answers",
    "number_of_answers": "Number of answers",
    "range": "Range",
    "unit": "Unit",
    "epsilon": "Epsilon of a report",
    "epsilon_permanent": "Epsilon of all reports of an answer",
    "period": "Period",
    "per_period": "Reports a period",
    "sample": "Share of answers that are reported",
    "min_reports": "Fewest reports behind a number",
    "expires": "Asked until",
    "fingerprint": "Fingerprint of the definition",
}
_SAYS = {"declared": "asked", "changed": "changed", "ended": "no longer asked, or its results are no longer public"}


class Event(NamedTuple):
    """A line of the history, as the page has it."""

    number: int
    day: str
    metric: str
    question: str
    says: str
    changes: Sequence[tuple[str, str, str]]  # name, before and after; before is empty where the question is new


def note(app: App) -> None:
    """Note what the app's registry changed about questions with public results. A trial has none."""
    if not app.trial:
        lines.note(app.audit, {id_: _texts(each) for id_, each in app.highest.items() if each.metric.public})


def _texts(declared: Declared) -> Texts:
    """Return what is declared of a question, without who owns it."""
    metric = declared.metric
    texts: Texts = {
        "question": metric.description,
        "version": metric.version,
        "type": metric.type,
        "answers": [] if metric.axis else listed_answers(metric),
        "number_of_answers": 0 if metric.axis else len(metric.values),
        "range": [float(metric.axis.low), float(metric.axis.high)] if metric.axis else [],
        "unit": metric.unit,
        "epsilon": float(metric.epsilon),
        "epsilon_permanent": None if metric.epsilon_permanent is None else float(metric.epsilon_permanent),
        "period": metric.period,
        "per_period": metric.per_period,
        "sample": float(metric.sample),
        "min_reports": metric.min_reports,
        "expires": metric.expires.isoformat() if metric.expires else "",
        "fingerprint": declared.fingerprint,
    }
    return {name: text for name, text in texts.items() if text not in ("", None, [], 0)}


@blueprint.get("/history")
def history() -> Response:
    """Show the history of an ``app``, by default of the first one; `_MOST_LINES` on each ``page``."""
    app = public_app("page")
    stored = lines.read(app.audit)
    part = paging.part(_events(stored)[::-1], _MOST_LINES)
    named = request.args.get("app")
    page = render_template(
        "history.html",
        home=url_for("results.results", app=named),
        name=app.name,
        asked=named,
        events=part.items,
        page=part.page,
        pages=part.pages,
        last=stored[-1] if stored else None,
        remembered={},
    )
    response = make_response(page)
    response.headers.update(HEADERS)
    return response


@blueprint.get("/history.json")
def history_file() -> Response:
    """Send the lines of the history, `_MOST_LINES` on each ``page``: a full page never changes."""
    app = public_app("page")
    part = paging.part(lines.read(app.audit), _MOST_LINES)
    response = jsonify(app=app.name, page=part.page, pages=part.pages, lines=[line.members() for line in part.items])
    response.headers.update(HEADERS)
    return response


def _events(history: Sequence[HistoryLine]) -> list[Event]:
    """Say of each line what happened."""
    latest: dict[str, Texts] = {}
    events = []
    for line in history:
        before, after = latest.get(line.metric, {}) if line.event == "changed" else {}, line.texts
        latest[line.metric] = after
        names = [name for name in _NAMES if before.get(name) != after.get(name)] if line.event != "ended" else []
        events.append(
            Event(
                line.number,
                line.time[:10],
                line.metric,
                str(after.get("question", "")),
                _SAYS[line.event],
                [(_NAMES[name], _written(name, before), _written(name, after)) for name in names if name != "question" or before],
            )
        )
    return events


def _written(name: str, texts: Texts) -> str:
    text: Any = texts.get(name)
    if text is None:
        return ""
    if name == "range":
        return f"{text[0]:g} to {text[1]:g}"
    if name == "sample":
        return words.percent(text)
    if isinstance(text, float):
        return f"{text:g}"
    if name == "min_reports":
        return plural(text, "report")
    return ", ".join(map(str, text)) if isinstance(text, list) else f"{text:,}" if isinstance(text, int) else str(text)


blueprint.register_error_handler(StoreError, on_store)
