"""What the list of an app's metrics shows: those that were searched for, by what happened to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from flask import request

from deniable.messages import reasons
from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.measurement import latest
from deniable_aggregator.answer.over_time import looks, series
from deniable_aggregator.answer.over_time.recent import recent, recent_segments
from deniable_aggregator.answer.select import Published
from deniable_aggregator.decode.multiple_testing import holm_adjusted
from deniable_aggregator.publish import release
from deniable_aggregator.publish.release import Summary
from deniable_server.http import paging
from deniable_server.pages import frame, series_page, visitor
from deniable_server.pages.parts import memo, strip
from deniable_server.pages.parts.choice import choice_asked
from deniable_server.pages.parts.row import TITLES, row
from deniable_server.pages.segments.clearest import clearest, dimensions, dimensions_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from flask import Response

    from deniable.declared import Declared, Definition
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.series import Series
    from deniable_server.pages.parts.row import Row, State
    from deniable_server.service import App

MOST_ROWS = 48
"""Metrics on one page of a list."""
FILTERS = ("q", "type", "owner", "state")
"""What the list is searched by, as parameters."""
SORTS = {"": "as declared", "name": "by name", "owner": "by owner", "reports": "by reports"}
"""The orders of the list, in which metrics stand within each group."""
_STATES: dict[State, str] = {"changed": "Changed", "unpublished": "Not shown", "steady": "No change", "single": "One period"}
_MOST_LABELS = 100  # answers of a metric among which words are looked for
_MOST_NAMED, _MOST_OTHERS = 3, 4  # changes that the first sentences name with the way they went, and without
_MOST_LETTERS = 8192  # of what is searched, that a page holds for its script
_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics to which the same happened."""

    state: State
    title: str
    rows: list[Row]


def page_of(app: App) -> Response:
    """List the metrics of an app that ``q``, ``type``, ``owner`` and ``state`` ask for, by ``sort``, on one ``page``."""
    known = release.summaries(app.store)
    search = _search()
    ids, sort = ordered(app, matching(app, *(search.get(name, "") for name in FILTERS[:3])), known)
    counts = dict[str, int | None]()
    listed: Sequence[Row]
    if search.get("state") or len(ids) <= MOST_ROWS:
        everything = rows(app, ids, known)
        counts = {state: sum(each.state == state for each in everything) for state in TITLES}
        selected = [each for each in everything if search.get("state") in (None, each.state)]
        listed, page, pages = paging.part(selected, MOST_ROWS)
        matches = len(selected)
    else:  # Of very many metrics only those of one page are looked at, so that their states are not counted.
        names, page, pages = paging.part(ids, MOST_ROWS)
        listed, matches = rows(app, names, known), len(ids)
    remembered, refused = visitor.remembered(), strip.refused_lately(app)
    texts = {each.id: searched(app, each.id) for each in listed}
    return frame.page(
        "index.html",
        app=app,
        doubt=frame.doubt(app),
        lights=strip.lights(app, known, refused),
        refused={id_: reasons.of_refusal(code).happened for id_, code in refused.items()},
        groups=groups(listed),
        headline=headline(listed, refused),
        effects=effects(app, [each.id for each in listed], known),
        texts=texts if len(listed) == len(app.highest) and sum(map(len, texts.values())) <= _MOST_LETTERS else {},
        metrics=len(app.highest),
        types=types(app),
        owners=owners(app),
        states={state: (text, counts.get(state)) for state, text in _STATES.items()},
        search=search,
        sorts=SORTS,
        sort=sort.get("sort", ""),
        links=remembered | search | sort,
        without_state=remembered | sort | {name: value for name, value in search.items() if name != "state"},
        matches=matches,
        page=page,
        pages=pages,
        total=sum(known[one.definition].n for one in app.versions.values() if one.definition in known),
    )


def sought(app: App) -> list[Row]:
    """Return the rows of all metrics that the request asks for."""
    search, known = _search(), release.summaries(app.store)
    ids, _ = ordered(app, matching(app, *(search.get(name, "") for name in FILTERS[:3])), known)
    return [each for each in rows(app, ids, known) if search.get("state") in (None, each.state)]


def _search() -> dict[str, str]:
    """Return what the list is searched by."""
    choice_asked("state", TITLES)
    return {name: request.args[name] for name in FILTERS if request.args.get(name)}


def matching(app: AppMetrics, text: str = "", type_: str = "", owner: str = "") -> list[str]:
    """Return the metrics of a type and an owner with a text in their id, description, owner or answers; without any, all."""
    words = text.lower().split()

    def is_match(id_: str) -> bool:
        metric = app.highest[id_].metric
        if (type_ and metric.type != type_) or (owner and metric.owner != owner):
            return False
        if not words:
            return True
        texts = searched(app, id_)
        return all(word in texts for word in words)

    return [id_ for id_ in app.highest if is_match(id_)]


def ordered(app: AppMetrics, ids: Sequence[str], known: Mapping[Definition, Summary]) -> tuple[list[str], dict[str, str]]:
    """Sort metrics as ``sort`` asks for; return them, and the parameter that links repeat. As declared by default."""
    sort = choice_asked("sort", [name for name in SORTS if name])

    def reports(id_: str) -> int:
        return sum(known[each.definition].n for each in app.versions_of(id_) if each.definition in known)

    if sort == "name":
        ids = sorted(ids)
    elif sort == "owner":
        ids = sorted(ids, key=lambda id_: (not app.highest[id_].metric.owner, app.highest[id_].metric.owner.lower(), id_))
    elif sort == "reports":
        ids = sorted(ids, key=lambda id_: (-reports(id_), id_))
    return list(ids), {"sort": sort} if sort else {}


def searched(app: AppMetrics, id_: str) -> str:
    """Return the text of a metric in which words are looked for, here and by the page's script."""
    metric = app.highest[id_].metric
    labels = (metric.label(at) for at in range(min(len(metric.values), _MOST_LABELS)))
    return " ".join((id_, metric.description, metric.owner, *labels)).lower()


def types(app: AppMetrics) -> list[str]:
    """Name the types of the app's metrics."""
    return sorted({declared.metric.type for declared in app.highest.values()})


def owners(app: AppMetrics) -> list[str]:
    """Name the owners of the app's metrics."""
    return sorted({declared.metric.owner for declared in app.highest.values() if declared.metric.owner})


def rows(app: AppMetrics, ids: Sequence[str], known: Mapping[Definition, Summary]) -> list[Row]:
    """Describe metrics, each as often as something of it is published, with what is found of all of the app's together."""
    today = datetime.now(UTC).date()
    # What is found must not depend on what is searched for. Of very many metrics only those sought are looked at.
    tested = list(app.highest) if len(app.highest) <= MOST_ROWS else ids
    sources = {id_: ("row", id_, *_source(app, id_, known, today)) for id_ in tested}

    def make() -> dict[str, Row]:
        described = memo.parts(app.store, sources, lambda missing: _new(app, missing, known, today))
        listed = together([described[id_] for id_ in tested], len(app.highest) - len(tested))
        return dict(zip(tested, listed, strict=True))

    listed = memo.once(app.store, ("list", *sources.values()), make)
    return [listed[id_] for id_ in ids]


class Effects(NamedTuple):
    """What is found in experiments."""

    says: str
    sentences: list[tuple[str, str]]  # metrics with the clearest effects, and each effect in a sentence
    more: str  # which others have one


def effects(app: AppMetrics, ids: Sequence[str], known: Mapping[Definition, Summary]) -> Effects | None:
    """Say which experiments on some metrics show an effect; None if no two arms are published."""
    today, declared = datetime.now(UTC).date(), app.registry.experiments
    with_arms = {id_: sum(name in declared for name in each.metric.segments) for id_, each in app.highest.items()}
    sources = {id_: ("effects", id_, *_source(app, id_, known, today)) for id_ in ids if with_arms[id_]}
    by_metric = memo.parts(
        app.store,
        sources,
        lambda missing: {id_: looks.clearest(Published.of_each(app, app.versions_of(id_))) for id_ in missing},
    )
    differences = {(id_, name): one for id_, each in by_metric.items() for name, one in each.items()}
    if not differences:
        return None
    every = sum(with_arms.values())  # All are tested together (Bonferroni), whichever are on this page.
    effective = sorted(
        (name for name, one in differences.items() if one.p_value * every <= _ALPHA), key=lambda name: differences[name]
    )
    if not effective:
        return Effects(f"No effect found in {plural(len(differences), 'experiment')} so far", [], "")
    how = "shows" if len(effective) == 1 else "show"
    says = f"{len(effective)} of {plural(len(differences), 'experiment')} {how} an effect"
    sentences = [(id_, f"{differences[id_, name].says}.") for id_, name in effective[:_MOST_NAMED]]
    others = [f"{id_} on {name}" for id_, name in effective[_MOST_NAMED:]]
    return Effects(says, sentences, _more(others, "Others with an effect"))


def _more(names: Sequence[str], what: str) -> str:
    """Name the others, of many some; empty if there are none."""
    listed = [*names[:_MOST_OTHERS], *([f"{len(names) - _MOST_OTHERS} more"] if len(names) > _MOST_OTHERS else [])]
    return f"{what}: {figures.listed(listed)}." if names else ""


def _source(app: AppMetrics, id_: str, known: Mapping[Definition, Summary], today: date) -> tuple[object, ...]:
    """Return all that a row depends on."""
    under = sorted(
        (of, summary.n, summary.updated, summary.last, summary.closed) for of, summary in known.items() if of[0] == id_
    )
    versions = [each.definition for each in app.versions_of(id_)]
    awaited = app.awaited(app.highest[id_])
    return app.registry.digest, app.highest[id_].candidates, tuple(versions), tuple(under), awaited, today


def _new(app: AppMetrics, ids: Sequence[str], known: Mapping[Definition, Summary], today: date) -> dict[str, Row]:
    measured = latest(app, ids, known)
    versions = {each.id: app.versions[each.id, each.version] for each in measured if each.n}
    courses = dict(zip(versions, recent(app, list(versions.values()), known), strict=True))
    segments, compared = {id_: _cells(app, each) for id_, each in versions.items()}, dimensions(app)
    cells = [(versions[id_], own) for id_, own in segments.items() if own]
    parted = {each.declared.metric.id: each for each in recent_segments(app, cells, known)}
    return {
        each.id: row(
            app,
            each,
            courses.get(each.id),
            _shifted(app, each.id, courses.get(each.id)),
            clearest(parted[each.id], each, compared) if each.id in parted else None,
            known.get(app.versions[each.id, each.version].definition, Summary()).n,
            today,
        )
        for each in measured
    }


def _cells(app: AppMetrics, version: Declared) -> list[str]:
    """Name the segments of a version that are compared."""
    return [f"{name}={value}" for name in dimensions_of(app, version) for value in app.registry.segments[name]]


def _shifted(
    app: AppMetrics,
    id_: str,
    course: Series | None,  # the last periods
) -> str:
    """Say which shifts of a metric were seen in its last periods, by the rule of its page; empty if none was."""
    if course is None or course.least_shift is None or not course.periods:
        return ""
    return series_page.shifted_in_words(series(Published.of_each(app, app.versions_of(id_))), course.periods[0].period)


def together(
    rows: Sequence[Row],
    others: int,  # metrics of the app that are not among them, and are counted as if nothing were found of them
) -> list[Row]:
    """Test all changes and trends of many metrics together, so that with a chance of 95% none that is found is false."""
    # By Holm's test, in which each metric has the same share of the 5%: one with many answers takes nothing from the others.
    p_values = [test.result.p_value for each in rows for test in each.tests]
    weights = [1 / len(each.tests) for each in rows for _ in each.tests]
    ones = [1.0] * others
    adjusted = iter(holm_adjusted(np.array([*p_values, *ones]), np.array([*weights, *ones])).tolist())
    return [each.decided([next(adjusted) for _ in each.tests], _ALPHA) for each in rows]


def groups(rows: Sequence[Row]) -> list[Group]:
    """Sort rows by what happened, in the order of `TITLES`."""
    by_state = {state: [each for each in rows if each.state == state] for state in TITLES}
    return [Group(state, TITLES[state], listed) for state, listed in by_state.items() if listed]


class Headline(NamedTuple):
    """What is said of the metrics first."""

    says: str
    moved: list[tuple[str, str]]  # metrics that changed most surely, and each change in a sentence
    more: str  # which others changed
    waiting: str  # how many are not shown yet, and why


def headline(rows: Sequence[Row], refused: Mapping[str, str]) -> Headline:
    """Say how many metrics changed, and which changed most surely; and how many are not shown yet."""
    changed = sorted(
        (each for each in rows if each.state == "changed"), key=lambda row: row.moves[0].p_holm if row.moves else inf
    )
    waiting = [each.id for each in rows if each.state == "unpublished"]
    if len(waiting) == len(rows):
        return Headline("Nothing is shown yet", [], "", "")
    says = f"{len(changed)} of {plural(len(rows), 'metric')} changed" if changed else "No trend and no change beyond chance"
    moved = [(each.id, each.says) for each in changed[:_MOST_NAMED]]
    more = _more([each.id for each in changed[_MOST_NAMED:]], "Others that changed")
    waits = ""
    if waiting:
        why = ", and its reports are refused" if len(waiting) == 1 and waiting[0] in refused else ""
        waits = f"{plural(len(waiting), 'metric')} {'is' if len(waiting) == 1 else 'are'} not shown yet{why}"
    return Headline(says, moved, more, waits)
