"""Measurements: what the releases of a metric say. Nothing here reads reports that are counted but not published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from deniable.wire.report import Stratum
from deniable_aggregator.answer.absence import why_absent
from deniable_aggregator.answer.headline import headline
from deniable_aggregator.answer.model.fields import LEVEL, so_far
from deniable_aggregator.answer.model.metric import Earlier, Latest, Listed, Measurement, Version
from deniable_aggregator.answer.pool import merged
from deniable_aggregator.answer.question import number_range
from deniable_aggregator.answer.readings import NumberReading, read
from deniable_aggregator.answer.readings.number_range import estimate as range_estimate
from deniable_aggregator.answer.select import Selection, earlier_says, moment
from deniable_aggregator.answer.versions import answers
from deniable_aggregator.publish import release
from deniable_aggregator.publish.release import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Declared, Definition
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.shares import ValueEstimate
    from deniable_aggregator.answer.question.date_range import DateRange
    from deniable_aggregator.answer.select import Published

_HOMOGENEOUS = 0.9  # least share of one answer that raises a warning


def listed(app: AppMetrics, id_: str, known: Mapping[Definition, Summary]) -> Listed:
    """Describe a metric, and how much of each version was published."""
    first, *_ = versions = versions_of(app, id_, known)
    return Listed(**asdict(app.describe(app.highest[id_])), n=first.n, updated=first.updated, versions=versions)


def latest(app: AppMetrics, ids: Sequence[str], known: Mapping[Definition, Summary]) -> list[Latest]:
    """Estimate metrics, each from the last release of its highest version that has one."""
    described = [next((each for each in app.versions_of(id_) if each.definition in known), app.highest[id_]) for id_ in ids]
    strata = [Stratum(*each.definition, known.get(each.definition, Summary()).last, "") for each in described]
    notes = release.noted(app.store, strata)
    selections = [
        Selection(app, declared, {stratum: notes[stratum]} if stratum in notes else {})
        for declared, stratum in zip(described, strata, strict=True)
    ]
    return [
        Latest(
            **asdict(reading.estimates(app.describe(reading.declared), LEVEL)),
            updated=selection.updated,
            included=selection.spans,
            days=selection.days,
            closed=selection.closed,
            versions=versions_of(app, reading.declared.metric.id, known),
        )
        for selection, reading in zip(selections, read(selections), strict=True)
    ]


def measure(
    published: Sequence[Published],  # The versions to try, the highest first. The answer is of the first one with reports.
    known: Mapping[Definition, Summary],  # how much of each definition was published
    # period, segment: what to estimate
    period: str | None = None,
    segment: str | None = None,
    level: float = LEVEL,  # of the intervals
    *,
    dates: DateRange | None = None,  # which periods to estimate together, if no `period` is named
    within: str | None = None,  # a range of a number whose share is asked for, such as `200..500`
    strict: bool = False,  # whether bands of quantiles hold without any approximation
) -> Measurement:
    """Estimate a metric over a period, or over all; raise the first `Refusal` if a version refuses and none has reports."""

    def ask(version: Published) -> tuple[Published, str, Selection]:
        cell = version.cell(segment)
        if within is not None:
            number_range.read(within, version.declared.metric)
        if dates is None:
            return version, cell, version.covering(cell, period)
        return version, cell, version.within(cell, *dates.names(version.length))

    answered = answers(published, ask, lambda answer: answer[2].n)
    selections = [selection for _, _, selection in answered]
    (version, cell, selection), app = answered[0], published[0].app
    readings = read(selections)
    first = readings[0]
    numbers, metric = first.estimates(app.describe(version.declared), level), version.declared.metric
    periods = version.between(cell, "", "~").spans
    if strict and numbers.number and isinstance(first, NumberReading):
        numbers = replace(numbers, number=first.with_strict_bands(numbers.number, level))
    if within is not None and numbers.number and isinstance(first, NumberReading):
        share = range_estimate(first, within, level)
        numbers = replace(numbers, number=replace(numbers.number, range_share=share))
    return Measurement(
        **asdict(numbers),
        updated=selection.updated,
        included=selection.spans,
        days=selection.days,
        versions=versions_of(app, metric.id, known),
        simulated=app.simulated,
        level=level,
        closed=selection.closed,
        periods=periods,
        segments=sorted(version.covered(period) - {""}),
        period=period,
        segment=cell or None,
        warnings=_warnings(version.declared, numbers.estimates) if cell else [],
        merged=merged(list(zip(selections, readings, strict=True)), level),
        earlier=[] if segment or dates else earlier(published, period, level),
        arms=[],  # of them `over_time.arms` knows more
        says=headline(numbers, so_far(selection.days, selection.updated), level),
        reason=None
        if first.n
        else f"nothing of {metric.id} is published in this range"
        if dates and periods
        else why_absent(
            metric.id, period, periods, metric.period, "" if cell and version.cells else app.why_nothing_yet(version.declared)
        ),
    )


def earlier(published: Sequence[Published], period: str | None, level: float) -> list[Earlier]:
    """Estimate what was published of all reports under earlier definitions of some versions, the latest first."""
    selections = [selection for version in published for before in version.earlier if (selection := before.overall(period)).n]
    return [
        Earlier(
            **asdict(reading.estimates(selection.app.describe(reading.declared), level)),
            definition=reading.declared.fingerprint,
            until=selection.until,
            says=earlier_says(selection),
            updated=selection.updated,
            included=selection.spans,
            days=selection.days,
        )
        for selection, reading in zip(selections, read(selections), strict=True)
    ]


def versions_of(app: AppMetrics, id_: str, known: Mapping[Definition, Summary]) -> list[Version]:
    """Return how much of each version of a metric was published, the highest first."""
    rows = [(each, known.get(each.definition, Summary())) for each in app.versions_of(id_)]
    under = {definition: summary.n for definition, summary in known.items() if definition[0] == id_}
    return [
        Version(
            each.metric.version,
            each.metric.expires,
            summary.n,
            moment(summary.updated) if summary.n else None,
            (each.metric.id, each.metric.version) not in app.present,
            sum(n for of, n in under.items() if of[1] == each.metric.version and of != each.definition),
        )
        for each, summary in rows
    ]


def _warnings(declared: Declared, rows: Sequence[ValueEstimate]) -> list[str]:
    """Warn if nearly all of a group gave one answer: this reveals the answer of everybody who is known to be in it."""
    if not any(row.simultaneous[0] >= _HOMOGENEOUS for row in rows):
        return []
    return [f"at least {_HOMOGENEOUS:.0%} of this segment gave the same answer to {declared.metric.id}: this reveals each answer"]
