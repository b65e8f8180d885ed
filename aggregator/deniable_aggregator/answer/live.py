"""Measurements of everything that is counted, published or not: for administrators only.

They step with each full hour, so that two looks do not show a report. In a trial they do not.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from deniable_aggregator.alarms import checks, watcher
from deniable_aggregator.answer.estimates import LEVEL, described, estimated
from deniable_aggregator.answer.measurement import Count, Description, Estimates, Moment
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
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.store import Store

_Refused = dict[str, Count]  # reports by the code for which they were refused


class Alarm(Struct, frozen=True, forbid_unknown_fields=True):
    """An alarm: reports of a metric that look made up."""

    metric: Annotated[str, Meta(description="Id of the metric")]
    version: Annotated[Count, Meta(description="Version of the metric")]
    test: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["weight", "row", "cell", "set", "value", "volume", "share"]},
            description="The test that the reports fail",
        ),
    ]
    p_value: Annotated[
        float | None,
        Meta(description="Greatest probability of such an alarm among honest reports; null if no distribution gives it"),
    ]
    period: Annotated[str, Meta(description="Period of the reports that it is about")]
    segment: Annotated[str | None, Meta(description="Segment of the reports that it is about; null: all together")]
    n: Annotated[Count, Meta(description="Reports that were tested")]
    what: Annotated[str, Meta(description="What was found, in words")]
    values: Annotated[list[str], Meta(description="Some of the values that it is about")]
    influence: Annotated[float, Meta(description="By how many respondents one report can raise the count of a value")]
    since: Annotated[Moment, Meta(description="The hour in which it was first raised")]


class StratumCount(Struct, frozen=True, forbid_unknown_fields=True):
    """How many reports are counted."""

    period: Annotated[str, Meta(description="Period of the reports")]
    segment: Annotated[str | None, Meta(description="Segment of the reports; null: the metric has none")]
    n: Annotated[Count, Meta(description="Reports that are counted")]


class LiveMetric(Description, frozen=True, forbid_unknown_fields=True):
    """A metric's `Description`, and what is counted of it, published or not."""

    live: Annotated[Literal[True], Meta(description="Always true: this is no release")]
    n: Annotated[Count, Meta(description="Reports that are counted")]
    unpublished: Annotated[Count, Meta(description="Reports that are counted and in no release yet")]
    refused: Annotated[_Refused, Meta(description="Reports refused in the last days, by reason")]


class LiveMeasurement(Estimates, frozen=True, forbid_unknown_fields=True):
    """`Estimates` from what is counted, published or not."""

    live: Annotated[Literal[True], Meta(description="Always true: this is no release")]
    unpublished: Annotated[Count, Meta(description="Reports that are counted and in no release yet")]
    refused: Annotated[_Refused, Meta(description="Reports refused in the last days, by reason")]
    level: Annotated[float, Meta(description="Confidence of the intervals, and of detection")]
    period: Annotated[str | None, Meta(description="The period asked for; null: all")]
    periods: Annotated[list[str], Meta(description="Periods with reports that are counted")]
    counts: Annotated[list[StratumCount], Meta(description="Reports by period and segment")]
    alarms: Annotated[list[Alarm], Meta(description="Alarms: reports that look made up")]


class Live(Struct, frozen=True, forbid_unknown_fields=True):
    """What is counted of an app, published or not."""

    app: Annotated[str, Meta(description="Name of the app")]
    trial: Annotated[bool, Meta(description="Whether everything is published at once, however few reports there are")]
    live: Annotated[Literal[True], Meta(description="Always true: this is no release")]
    backlog: Annotated[Count, Meta(description="Batches that are not counted yet")]
    refused: Annotated[
        _Refused,
        Meta(description="Refused reports of metrics that are not declared, in the last days, by reason"),
    ]
    metrics: Annotated[
        list[LiveMetric],
        Meta(description="The highest version of each metric, and others with reports that are counted"),
    ]
    alarms: Annotated[list[Alarm], Meta(description="Alarms: reports that look made up")]
    faults: Annotated[dict[str, str], Meta(description="Tasks that fail in workers, with the kind of error")]


def overview(app: Collection) -> Live:
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


def measure(app: Collection, declared: Declared, period: str | None = None, level: float = LEVEL) -> LiveMeasurement:
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
        **asdict(estimated(app, reading_of(declared, merged, periods), level)),
        live=True,
        unpublished=told.unpublished,
        refused=told.refused,
        level=level,
        period=period,
        periods=sorted({stratum.period for stratum in strata}),
        counts=[StratumCount(at.period, at.segment or None, each.n) for at, each in sums.items()],
        alarms=_alarms(app, [declared]),
    )


def _counted(app: Collection, declared: Declared, reasons: dict[tuple[str, int], dict[str, int]]) -> LiveMetric:
    source = _source(app)
    periods = strata_by_period(source, declared.definition)
    return LiveMetric(
        **asdict(described(app, declared)),
        live=True,
        n=source.read(declared.layout, [stratum for some in periods.values() for stratum in some]).n,
        unpublished=unpublished(app.store, declared, None if app.trial else Hourly(app.store)),
        refused=reasons.get((declared.metric.id, declared.metric.version), {}),
    )


def _source(app: Collection) -> Store | Hourly:
    """Return what live figures come from: the copies of the last full hour, but in a trial what is counted now."""
    return app.store if app.trial else Hourly(app.store)


def _refused(app: Collection) -> dict[tuple[str, int], dict[str, int]]:
    return refused_reports.read(app.store, refused_reports.tables(app.store)) if app.trial else Hourly(app.store).refused()


def _shown(app: Collection) -> list[Declared]:
    """Return the highest version of each metric, each followed by its other versions with reports that are counted."""
    return [
        each
        for highest in app.highest.values()
        for each in app.versions_of(highest.metric.id)
        if each is highest or strata_by_period(_source(app), each.definition)
    ]


def _alarms(app: Collection, versions: Iterable[Declared]) -> list[Alarm]:
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
