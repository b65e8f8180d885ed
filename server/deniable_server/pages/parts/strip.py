"""Whether the pipeline runs, for everybody who may read: states, and no number of reports that are not published."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer import figures
from deniable_aggregator.store.errors import CommandForbidden
from deniable_aggregator.store.uploads import health, refused_reports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.declared import Definition
    from deniable_aggregator.publish.release import Summary
    from deniable_server.service import App

_DAY = 86_400  # seconds
_MOST_NAMED = 2


class Light(NamedTuple):
    """One state."""

    name: str  # what it is of
    words: str  # the state
    mark: str = ""  # "ok", "no" or "wait"; empty if it is neither good nor bad


def lights(app: App, known: Mapping[Definition, Summary], refused: Mapping[str, str]) -> list[Light]:
    """Say when something was published last, what is due next, whether uploads are counted, and what was refused."""
    last = max((summary.updated for summary in known.values()), default=0)
    listed = [Light("Published", figures.hour(datetime.fromtimestamp(last, UTC)) if last else "nothing yet")]
    if app.trial:
        listed.append(Light("Next release", "each report, at once"))
    else:
        due = min(filter(None, map(app.next_release, app.highest.values())), default=None)
        listed.append(Light("Next release", figures.hour(due) if due else "none: collection has ended"))
    try:
        state = health.read(app.store)
    except CommandForbidden:  # this server's user may not look
        return listed
    if state.workers:
        worker = Light("Worker", "counting is held up", "no") if state.held_up else Light("Worker", "counting", "ok")
    else:
        worker = Light("Worker", "none runs, and uploads wait", "no") if state.backlog else Light("Worker", "none runs", "wait")
    return [*listed, worker, _refused(app, refused)]


def refused_lately(app: App) -> dict[str, str]:
    """Return the metrics of which reports were refused within the last day, as of the last full hour, each with a code."""
    try:
        hours, now = refused_reports.hours(app.store, trial=app.trial), app.store.now()
    except CommandForbidden:  # this server's user may not look
        return {}
    return {each.metric: each.code for each in hours if now - each.last <= _DAY}


def _refused(app: App, codes: Mapping[str, str]) -> Light:
    recent = sorted(codes)
    if not recent:
        if app.trial:
            return Light("Refused", "none within a day", "ok")
        full = datetime.fromtimestamp(app.store.now(), UTC).replace(minute=0, second=0, microsecond=0)
        until, then = full, full + timedelta(hours=1)
        return Light("Refused", f"none in the day to {until:%H:%M} UTC; this hour shows at {then:%H:%M}", "ok")
    if len(recent) > _MOST_NAMED:
        return Light("Refused", f"reports of {len(recent)} metrics", "no")
    return Light("Refused", f"reports of {figures.listed([each or 'a metric that is not declared' for each in recent])}", "no")
