"""Measurements of everything that is counted, published or not: for administrators only.

They step with each full hour, so that two looks do not show a report. In a trial they do not.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from deniable_aggregator.alarms import checks, watcher
from deniable_aggregator.answer.model.fields import LEVEL, Count
from deniable_aggregator.answer.model.live import Alarm, Live, LiveMeasurement, LiveMetric, StratumCount
from deniable_aggregator.answer.readings import reading_of
from deniable_aggregator.answer.refusal import check_period
from deniable_aggregator.counting import faults
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.publish.strata import strata_by_period, unpublished
from deniable_aggregator.store.sums.tallies import total
from deniable_aggregator.store.uploads import refused_reports

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.declared import Declared
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.store import Store

_Refused = dict[str, Count]  # reports by the code for which they were refused


def overview(app: AppMetrics) -> Live:
    """Return what is counted of every metric of an app, and what was refused in the last days."""
    reasons = _refused(app)
    return Live(
        app=app.name,
        trial=app.trial,
        live=True,
        backlog=app.store.backlog(),
        refused=reasons.get(("", 0), {}),
        metrics=[_counted(app, declared, reasons) for declared in _shown(app)],
        alarms=_alarms(app, app.versions.values()),
        faults=faults.present(app.store),
    )


def measure(app: AppMetrics, declared: Declared, period: str | None = None, level: float = LEVEL) -> LiveMeasurement:
    """Estimate a metric from what is counted of a period; without a period, of all.

    Raises
    ------
    UnknownPeriod
        If the metric has no such period.
    """
    if period is not None:
        check_period(declared.metric, period)
    source = _source(app)
    strata = [stratum for some in strata_by_period(source, declared.definition).values() for stratum in some]
    sums = dict(zip(strata, source.each(declared.layout, strata), strict=True))
    chosen = {stratum: each for stratum, each in sums.items() if period in (None, stratum.period)}
    merged = total(declared.layout, chosen.values())
    periods = Counter[str]()
    for stratum, each in chosen.items():
        periods[stratum.period] += each.n
    told = _counted(app, declared, _refused(app))
    return LiveMeasurement(
        **asdict(reading_of(declared, merged, periods).estimates(app.describe(declared), level)),
        live=True,
        unpublished=told.unpublished,
        refused=told.refused,
        level=level,
        period=period,
        periods=sorted({stratum.period for stratum in strata}),
        counts=[StratumCount(at.period, at.segment or None, each.n) for at, each in sums.items()],
        alarms=_alarms(app, [declared]),
    )


def _counted(app: AppMetrics, declared: Declared, reasons: dict[tuple[str, int], dict[str, int]]) -> LiveMetric:
    source = _source(app)
    periods = strata_by_period(source, declared.definition)
    return LiveMetric(
        **asdict(app.describe(declared)),
        live=True,
        n=source.read(declared.layout, [stratum for some in periods.values() for stratum in some]).n,
        unpublished=unpublished(app.store, declared, None if app.trial else Hourly(app.store)),
        refused=reasons.get((declared.metric.id, declared.metric.version), {}),
    )


def _source(app: AppMetrics) -> Store | Hourly:
    """Return what live figures come from: the copies of the last full hour, but in a trial what is counted now."""
    return app.store if app.trial else Hourly(app.store)


def _refused(app: AppMetrics) -> dict[tuple[str, int], dict[str, int]]:
    return refused_reports.read(app.store, refused_reports.tables(app.store)) if app.trial else Hourly(app.store).refused()


def _shown(app: AppMetrics) -> list[Declared]:
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
    found = watcher.alarms(app.store, list(by_definition))
    return [_alarm(by_definition[definition], each) for definition, some in found.items() for each in some]


def _alarm(declared: Declared, found: watcher.Alarm) -> Alarm:
    metric = declared.metric
    return Alarm(
        metric=metric.id,
        version=metric.version,
        test=found.test,
        p_value=found.p_value,
        period=found.period,
        segment=found.segment or None,
        n=round(checks.about(found.n)),
        what=found.what,
        values=[] if metric.open else [metric.label(place) for place in found.values],
        influence=float(declared.mechanism.influence),
        since=datetime.fromtimestamp(found.since, UTC),
    )
