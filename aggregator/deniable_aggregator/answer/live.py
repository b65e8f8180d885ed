"""Measurements of everything that is counted, published or not: for administrators only.

They step with each full hour, so that two looks do not show a report. In a trial they do not.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from deniable_aggregator.alarms import checks, watcher
from deniable_aggregator.answer.model.fields import LEVEL, Count
from deniable_aggregator.answer.model.live import Alarm, Live, LiveMeasurement, LiveMetric, RefusedDefinition, StratumCount
from deniable_aggregator.answer.readings import reading_of
from deniable_aggregator.answer.refusal import check_period
from deniable_aggregator.counting import faults
from deniable_aggregator.publish import release
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.publish.strata import strata_by_period, unpublished
from deniable_aggregator.publish.timetable import Pass
from deniable_aggregator.store.sums.tallies import total
from deniable_aggregator.store.uploads import refused_reports

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deniable.declared import Declared
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.refused_reports import Refused

_Refused = dict[str, Count]  # reports by the code for which they were refused


def overview(app: AppMetrics) -> Live:
    """Return what is counted of every metric of an app, and what was refused in the last days."""
    reasons, (as_of, next_copy) = _refused(app), _copied(app)
    numbers = refused_reports.numbers(app.store, refused_reports.visible(app.store, trial=app.trial))
    return Live(
        app=app.name,
        trial=app.trial,
        live=True,
        as_of=as_of,
        next_copy=next_copy,
        backlog=app.store.backlog(),
        refused=reasons.get(("", 0), {}),
        made_for=made_for(app, numbers),
        metrics=[_counted(app, declared, reasons) for declared in _listed(app)],
        alarms=_alarms(app, app.versions.values()),
        faults=faults.present(app.store),
    )


def measure(app: AppMetrics, declared: Declared, period: str | None = None, level: float = LEVEL) -> LiveMeasurement:
    """Estimate a metric from what is counted of a period; without a period, of all."""
    if period is not None:
        check_period(declared.metric, period)
    # The copies change with each full hour only, so that nobody sees a single report come in.
    source = _source(app)
    strata = list(chain.from_iterable(strata_by_period(source, declared.definition).values()))
    sums = dict(zip(strata, source.sums(declared.layout, strata), strict=True))
    selection = {stratum: counted for stratum, counted in sums.items() if period in (None, stratum.period)}
    everything = total(declared.layout, selection.values())
    periods = Counter[str]()
    for stratum, counted in selection.items():
        periods[stratum.period] += counted.n
    metric, (as_of, next_copy) = _counted(app, declared, _refused(app)), _copied(app)
    return LiveMeasurement(
        **asdict(reading_of(declared, everything, periods).estimates(app.describe(declared), level)),
        live=True,
        as_of=as_of,
        next_copy=next_copy,
        unpublished=metric.unpublished,
        refused=metric.refused,
        level=level,
        period=period,
        periods=sorted({stratum.period for stratum in strata}),
        counts=[StratumCount(stratum.period, stratum.segment or None, counted.n) for stratum, counted in sums.items()],
        alarms=_alarms(app, [declared]),
    )


def _counted(app: AppMetrics, declared: Declared, reasons: dict[tuple[str, int], dict[str, int]]) -> LiveMetric:
    source = _source(app)
    periods = strata_by_period(source, declared.definition)
    copied = source.read(declared.layout, list(chain.from_iterable(periods.values()))).n
    # A release may have more than the copies: reports that came since, or whose sums were deleted.
    n = max(copied, release.summary(app.store, declared.definition).n)
    return LiveMetric(
        **asdict(app.describe(declared)),
        live=True,
        n=n if n or app.trial or Pass.last(app.store) else None,
        unpublished=unpublished(app.store, declared, None if app.trial else Hourly(app.store)),
        refused=reasons.get((declared.metric.id, declared.metric.version), {}),
    )


def _copied(app: AppMetrics) -> tuple[datetime, datetime] | tuple[None, None]:
    """Return when the copies were made that are shown, and when the next ones are due."""
    last = None if app.trial else Pass.last(app.store)
    return (datetime.fromtimestamp(last.at, UTC), datetime.fromtimestamp(last.next, UTC)) if last else (None, None)


def _source(app: AppMetrics) -> Store | Hourly:
    """Return what live figures come from: the copies of the last full hour, but in a trial what is counted now."""
    return app.store if app.trial else Hourly(app.store)


def _refused(app: AppMetrics) -> dict[tuple[str, int], dict[str, int]]:
    return refused_reports.read(app.store, refused_reports.visible(app.store, trial=app.trial))


def made_for(app: AppMetrics, refused: Mapping[Refused, int]) -> list[RefusedDefinition]:
    """Describe reports that were made for a definition which the registry does not have, the most frequent first."""
    known = release.summaries(app.store)
    listed: list[RefusedDefinition] = []
    for of, n in sorted(refused.items(), key=lambda pair: (-pair[1], pair[0])):
        version, _, definition = of.made_for.partition(" ")
        if definition:
            published = known.get((of.metric, int(version), definition))
            until = published.last if published and published.n else None
            listed.append(RefusedDefinition(of.metric, int(version), definition, of.code, n, until))
        elif of.made_for:
            listed.append(RefusedDefinition(of.metric, None, None, of.code, n, None))
    return listed


def _listed(app: AppMetrics) -> list[Declared]:
    """Return the highest version of each metric, each followed by its other versions with reports that are counted."""
    return [
        each
        for highest in app.highest.values()
        for each in app.versions_of(highest.metric.id)
        if each is highest or strata_by_period(_source(app), each.definition)
    ]


def _alarms(app: AppMetrics, versions: Iterable[Declared]) -> list[Alarm]:
    """Describe the alarms that stand, the latest of each metric first."""
    by_definition = {declared.definition: declared for declared in versions}
    raised = watcher.alarms(app.store, list(by_definition))
    return [_alarm(by_definition[definition], each) for definition, alarms in raised.items() for each in alarms]


def _alarm(declared: Declared, alarm: watcher.Alarm) -> Alarm:
    metric = declared.metric
    return Alarm(
        metric=metric.id,
        version=metric.version,
        test=alarm.test,
        p_value=alarm.p_value,
        period=alarm.period,
        segment=alarm.segment or None,
        n=round(checks.about(alarm.n)),
        what=alarm.what,
        values=[] if metric.open else [metric.label(place) for place in alarm.values],
        influence=float(declared.mechanism.influence),
        since=datetime.fromtimestamp(alarm.since, UTC),
    )
