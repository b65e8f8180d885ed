"""The public page about an app: what it asks, how answers are randomised, and what a report tells. It reads nothing collected.

* ``GET /about``: for everybody, without a key, where ``DENIABLE_ABOUT=public`` says so
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import exp
from typing import TYPE_CHECKING

from flask import Blueprint, make_response, render_template, request, url_for

from deniable.explanation import mixed
from deniable_aggregator.accounting.crowds import relay
from deniable_server.http import paging
from deniable_server.http.problem import Problem
from deniable_server.privacy import words
from deniable_server.service import service

if TYPE_CHECKING:
    from flask import Response

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_server.service import App

blueprint = Blueprint("about", __name__)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "max-age=3600",
}
_MOST_QUESTIONS = 24
_MOST_VALUES, _MOST_CHARACTERS = 100, 4000


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how."""

    # id, description: as declared
    id: str
    description: str
    answers: str  # what an answer is, in words
    values: tuple[str, ...]  # the possible answers, `_MOST_VALUES` at most, and of `_MOST_CHARACTERS` together
    often: str  # how often a device reports, in words
    # summary, says: how an answer is randomised, and what a report says of it
    summary: str
    says: str
    # odds, belief: by how much a report may shift the odds between two answers, and what it makes of even odds
    odds: str
    belief: str
    odds_kept: str  # the same of all reports of an answer; empty if each is random anew
    mixed: str  # what is claimed once a relay has mixed the reports; empty if none does


@blueprint.get("/about")
def about() -> Response:
    """Describe what an ``app`` asks, by default the first one; `_MOST_QUESTIONS` on each ``page``."""
    app, today = app_named(), datetime.now(UTC).date()
    questions = [each for each in app.highest.values() if not each.metric.expired(today)]
    part = paging.part(questions, _MOST_QUESTIONS)
    page = render_template(
        "about.html",
        home=url_for(".about", app=request.args.get("app")),
        name=app.name,
        names=list(service().apps),
        trial=app.trial,
        asked=request.args.get("app"),
        number=len(questions),
        questions=[_question(app, each) for each in part.items],
        page=part.page,
        pages=part.pages,
        remembered={},
    )
    response = make_response(page)
    response.headers.update(HEADERS)
    return response


def app_named() -> App:
    """Return the app that a request without a key names, by default the first one."""
    apps = service().apps
    name = request.args.get("app") or next(iter(apps))
    if name not in apps:
        raise Problem(404, "unknown_app", "no app of this name is counted here")
    return apps[name]


def _question(app: App, declared: Declared) -> Question:
    metric, mechanism = declared.metric, declared.mechanism
    listed = [] if metric.open or metric.axis else listed_answers(metric)
    times = "once" if metric.per_period == 1 else f"{metric.per_period} times"
    part = "" if float(metric.sample) == 1 else f" Only {100 * float(metric.sample):.3g}% of answers are reported."
    if metric.delay is not None:
        part += f" A report waits on the device for a random time of up to {metric.delay}."
    permanent = float(metric.epsilon_permanent or 0)
    return Question(
        id=metric.id,
        description=metric.description,
        answers=_answers(metric, len(listed)),
        values=tuple(listed),
        often=f"A device reports {times} a {metric.period} at most.{part}",
        summary=mechanism.summary,
        says=mechanism.says,
        odds=words.odds(mechanism.epsilon),
        belief=words.percent(1 / (1 + exp(-mechanism.epsilon))),
        odds_kept=words.odds(permanent) if permanent else "",
        mixed=_mixed(app, metric),
    )


def _mixed(app: App, metric: Metric) -> str:
    operator = app.registry.relay
    return mixed(metric.shuffled, operator.operator, relay.claimed(metric)) if metric.shuffled and operator else ""


def listed_answers(metric: Metric) -> list[str]:
    """Return the possible answers that are shown."""
    labels = [metric.label(at) for at in range(len(metric.values[:_MOST_VALUES]))]
    ends = accumulate(map(len, labels))
    return [label for label, end in zip(labels, ends, strict=True) if end <= _MOST_CHARACTERS]


def _answers(metric: Metric, listed: int) -> str:
    """Return in words what an answer is."""
    left = len(metric.values) - listed
    more = f" {words.count(left)} more are not listed here." if left else ""
    if metric.axis:
        more = " What lies beyond counts as the nearer end."
    what = metric.kind.described(metric)
    return f"{what[0].upper()}{what[1:]}.{more}"
