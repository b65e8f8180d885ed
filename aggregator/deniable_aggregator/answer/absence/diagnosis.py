"""Why nothing is published of a metric: six conditions in order, each with its state. The first that fails is the cause.

Whoever may read an app sees them. They are states, and no numbers of reports that are not published. What was refused within
this hour is not among them, but in a trial.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.messages import reasons
from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.diagnosis import Condition, Diagnosis
from deniable_aggregator.publish import release
from deniable_aggregator.publish.release import Summary
from deniable_aggregator.store.errors import CommandForbidden
from deniable_aggregator.store.uploads import health, refused_reports

if TYPE_CHECKING:
    from datetime import date

    from deniable.declared import Declared
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.store.uploads.refused_reports import Hours

_RECENT = 86_400  # seconds

_CAUSES = {
    "collected": "Nothing was published, and collection has ended",
    "uploads": "Nothing is shown yet, because no upload of this app comes",
    "accepted": "Nothing is shown yet, because its reports are refused",
    "counted": "Nothing is shown yet, because no worker counts",
    "enough": "Nothing is shown yet, because no report of it has come",
}


def diagnose(
    app: AppMetrics,
    declared: Declared,  # a metric of which nothing is published
) -> Diagnosis:
    """Say why nothing is published of a metric; if something is, say so, and whether more will be."""
    n = release.summaries(app.store).get(declared.definition, Summary()).n
    now, refused = app.store.now(), refused_reports.hours(app.store, trial=app.trial)
    uploads = _uploads(app, refused, now)
    if n and app.simulated and uploads.state == "fails":  # nothing is missing: these people have no devices
        uploads = Condition("uploads", "waits", f"{uploads.says} The reports for {app.simulated} are of simulated people.", "")
    conditions = [_collected(app, declared), uploads, _accepted(declared, refused, now), _counted(app)]
    missing = any(each.state == "fails" for each in conditions)
    conditions += [_enough(app, declared, n, missing=missing), _due(app, declared)]
    cause = next((each.name for each in conditions if each.state == "fails"), "due")
    if n:
        simulated = f". Those for {app.simulated} are of simulated people, which no device uploaded" if app.simulated else ""
        return Diagnosis(f"{plural(n, 'report')} {'is' if n == 1 else 'are'} published{simulated}", "", conditions)
    due = app.next_release(declared)
    waits = f"Nothing is shown yet: the next release is due {_moment(due)}" if due else "Nothing is shown yet"
    return Diagnosis(_CAUSES.get(cause, waits), cause, conditions)


def _collected(app: AppMetrics, declared: Declared) -> Condition:
    metric = declared.metric
    if (metric.id, metric.version) not in app.present:
        return Condition("collected", "fails", "A higher version replaced this one in the registry.", "")
    if metric.expires and metric.expired(datetime.now(UTC).date()):
        remedy = "Write a later `expires` in metrics.toml, for the app and for the server."
        return Condition("collected", "fails", f"Collection ended on {_day(metric.expires)}.", remedy)
    until = f"until {_day(metric.expires)}" if metric.expires else "without an end"
    return Condition("collected", "holds", f"It is collected {until}.", "")


def _uploads(app: AppMetrics, refused: list[Hours], now: float) -> Condition:
    """Whether uploads of the app come, accepted or refused; or pools of its relay."""
    relay = app.declared.relay
    remedy = (
        "Record an answer in the app, with consent, and print what `deniable.flush(timeout=5)` returns: it says what is missing."
    )
    try:
        accepted = [hour for partition in app.store.partitions if (hour := partition.last_upload()) is not None]
    except CommandForbidden:
        return Condition("uploads", "unknown", "This server's user may not look.", "")
    last = max([*accepted, *(each.last for each in refused)], default=None)
    if relay:  # it forwards nothing before a period is over, so that nothing has come is no fault by itself
        came = f"The last one came on {_day(_date(last))}. It may have been of other metrics" if last else "None has come yet"
        ask = f"Ask {relay.operator}: `deniable relay doctor` says there what waits, what was dropped, and what is refused."
        return Condition("uploads", "holds" if last else "waits", f"{came}. {relay.operator} sends pools after a period.", ask)
    if last is None:
        return Condition("uploads", "fails", "No upload has come.", remedy)
    if now - last > _RECENT:
        return Condition("uploads", "fails", f"The last one came on {_day(_date(last))}.", remedy)
    return Condition("uploads", "holds", "One came within the last day. It may have been of other metrics.", "")


def _accepted(declared: Declared, refused: list[Hours], now: float) -> Condition:
    """Whether the server takes the reports of the metric."""
    recent = [hours for hours in refused if now - hours.last <= _RECENT]
    own = [hours for hours in recent if (hours.metric, hours.version) == declared.definition[:2]]
    if own:
        last = max(own, key=lambda hours: hours.last)
        reason = reasons.of_refusal(last.code)
        says = f"Some are refused since {_day(_date(last.first))} ({last.code}): {reason.happened}."
        return Condition("accepted", "fails", says, f"{figures.beginning(reason.remedy)}.")
    if not all(hours.metric for hours in recent):
        says = "Nothing of it was refused within the last day. But reports of a metric that is not declared here were."
        return Condition("accepted", "waits", says, "See whether app and server write its name alike.")
    return Condition("accepted", "holds", "Nothing of it was refused within the last day.", "")


def _counted(app: AppMetrics) -> Condition:
    try:
        state = health.read(app.store)
    except CommandForbidden:
        return Condition("counted", "unknown", "This server's user may not look.", "")
    doctor = "Run `deniable doctor` at the server: it says what to do."
    if state.held_up:
        return Condition("counted", "fails", f"Counting is held up by {figures.listed(sorted(state.held_up))}.", doctor)
    if not state.workers:
        return Condition("counted", "fails", "No worker runs, so uploads wait.", "Start it at the server: `deniable worker`.")
    return Condition("counted", "holds", "A worker runs.", "")


def _enough(
    app: AppMetrics,
    declared: Declared,
    n: int,  # reports that are published
    *,
    missing: bool,  # whether a condition before this one fails, and so is why there are none
) -> Condition:
    """Whether there are enough reports."""
    if app.trial:
        if n or missing:
            says = "One is enough in a trial." if n else "One is enough in a trial. None can come before the rest holds."
            return Condition("enough", "holds" if n else "waits", says, "")
        remedy = f'Record an answer: `deniable.record("{declared.metric.id}", {declared.metric.kind.example(declared.metric)})`.'
        return Condition("enough", "fails", "One is enough in a trial, and none has been counted.", remedy)
    if relay := app.declared.relay:
        rule = f"{relay.operator} mixes, and drops a pool of fewer than {declared.metric.crowd:,} reports"
        hidden = "This server cannot know whether such pools wait there, or were dropped: `deniable relay doctor` says it there"
        return Condition("enough", "unknown", f"{rule}. {hidden}.", "")
    least = f"{declared.needed} {'are' if declared.metric.min_reports > 1 else 'is'} needed"
    hidden = "How many have come is not shown: the number itself would tell of people."
    return Condition("enough", "unknown", f"{least}. {hidden}", "")


def _due(app: AppMetrics, declared: Declared) -> Condition:
    says = f"{figures.beginning(app.awaited(declared))}."
    return Condition("due", "waits" if app.next_release(declared) else "holds", says, "")


def _date(seconds: float) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def _day(day: date) -> str:
    return figures.moment(day.isoformat(), "day")


def _moment(moment: datetime) -> str:
    return f"{_day(moment.date())}, {moment:%H:%M} UTC"
