"""Measurements of what was published. Nothing here reads reports that are counted but not published."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil, inf
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from deniable.wire.report import Stratum
from deniable_aggregator.answer.estimates import LEVEL, decoded, described, estimated
from deniable_aggregator.answer.measurement import Latest, Listed, Measurement, Span, Version
from deniable_aggregator.answer.merge import Decoded, Measured, merged
from deniable_aggregator.answer.numbers import with_strict_bands
from deniable_aggregator.answer.refusal import Refusal, check_period, read_cell, withheld
from deniable_aggregator.publish import release
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.release import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Declared, Definition
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.answer.measurement import ValueEstimate
    from deniable_aggregator.publish.release import Release

_HOMOGENEOUS = 0.9  # least share of one answer that raises a warning


def listed(app: Collection, id_: str, known: Mapping[Definition, Summary]) -> Listed:
    """Describe a metric, and how much of each version was published."""
    first, *_ = versions = _versions(app, id_, known)
    return Listed(**asdict(described(app, app.highest[id_])), n=first.n, updated=first.updated, versions=versions)


def latest(app: Collection, ids: Sequence[str], known: Mapping[Definition, Summary]) -> list[Latest]:
    """Estimate metrics, each from the last release of its highest version that has one."""
    shown = [next((each for each in app.versions_of(id_) if each.definition in known), app.highest[id_]) for id_ in ids]
    wholes = [Stratum(*each.definition, known.get(each.definition, Summary()).last, "") for each in shown]
    notes = release.noted(app.store, wholes)
    tallies = app.store.releases.some([each.layout for each in shown], wholes)
    return [
        Latest(
            **asdict(estimated(app, declared, counted, by_period(app, declared, chosen), LEVEL)),
            updated=_updated(chosen),
            included=spans_of(chosen),
            versions=_versions(app, declared.metric.id, known),
        )
        for declared, whole, counted in zip(shown, wholes, tallies, strict=True)
        for chosen in ({whole: notes[whole]} if whole in notes else {},)
    ]


def measure(
    app: Collection,  # whose metric it is
    asked: Sequence[Declared],  # The versions to try, the highest first. The answer is of the first one with a release.
    # period, segment: what to estimate
    period: str | None = None,
    segment: str | None = None,
    level: float = LEVEL,  # of the intervals
    *,
    strict: bool = False,  # whether bands of quantiles hold without any approximation
) -> Measurement:
    """Estimate a metric over a period; without a period, over all.

    Raises
    ------
    Refusal
        For the first version, if no other has an answer.
    """
    known = release.summaries(app.store)
    found: list[Measured] = []
    refusal = None
    for declared in asked:
        try:
            found.append(_measured(app, declared, period, segment, level, known, strict=strict))
        except Refusal as each:
            refusal = refusal or each
    answered = [each for each in found if each.answer.n]
    if refusal and not answered:
        raise refusal
    first = (answered or found)[0].answer
    return replace(first, merged=merged(answered, level))


def _measured(
    app: Collection,
    declared: Declared,
    period: str | None,
    segment: str | None,
    level: float,
    known: Mapping[Definition, Summary],
    *,
    strict: bool,
) -> Measured:
    """Estimate one version of a metric.

    Raises
    ------
    Refusal
        If the metric has no such period or cell, or the cell is withheld.
    """
    published = releases_of(app, declared)
    breakdown = Breakdown.of(app.registry, declared.metric)
    cell = read_cell(breakdown, segment or "")
    if period is not None:
        check_period(declared.metric, period)
    within = {stratum: each for stratum, each in published.items() if period is None or each.covers(stratum.period, period)}
    chosen = {stratum: each for stratum, each in within.items() if stratum.segment == cell}
    if within and not chosen:
        raise withheld(declared, breakdown, cell, {stratum.segment for stratum in within})
    counted = app.store.releases.read(declared.layout, list(chosen))
    periods = by_period(app, declared, chosen)
    values, estimate = decoded(declared, counted, periods)
    numbers = estimated(app, declared, counted, periods, level, (values, estimate))
    if strict and numbers.number:
        repeats = ceil(len(periods) * declared.metric.per_period * declared.metric.together) - 1
        numbers = replace(numbers, number=with_strict_bands(declared, counted, numbers.number, repeats, level))
    answer = Measurement(
        **asdict(numbers),
        updated=_updated(chosen),
        included=spans_of(chosen),
        versions=_versions(app, declared.metric.id, known),
        level=level,
        closed=bool(chosen) and all(each.closed for each in chosen.values()),
        periods=spans_of({stratum: each for stratum, each in published.items() if stratum.segment == cell}),
        segments=sorted({stratum.segment for stratum in within} - {""}),
        period=period,
        segment=cell or None,
        warnings=_warnings(declared, numbers.estimates) if cell else [],
        merged=None,
    )
    return Measured(Decoded(declared, periods, values, estimate), answer)


def releases_of(app: Collection, declared: Declared) -> dict[Stratum, Release]:
    """Return what was published under the definition that the registry has now."""
    found = release.listed(app.store, declared.metric.id).items()
    return {stratum: each for stratum, each in found if stratum[:3] == declared.definition}


def by_period(app: Collection, declared: Declared, releases: Mapping[Stratum, Release]) -> dict[str, float]:
    """Return how many reports each period has in some releases of one cell, as far as it is published."""
    least = 1 if app.trial else inf if declared.mechanism.part else declared.metric.min_reports
    return release.by_period(releases, declared.metric.period, least)


def _versions(app: Collection, id_: str, known: Mapping[Definition, Summary]) -> list[Version]:
    """Return how much of each version of a metric was published, the highest first."""
    found = [(each.metric, known.get(each.definition, Summary())) for each in app.versions_of(id_)]
    return [
        Version(metric.version, metric.expires, summary.n, _moment(summary.updated) if summary.n else None)
        for metric, summary in found
    ]


def _updated(releases: Mapping[Stratum, Release]) -> datetime | None:
    return max((_moment(each.published) for each in releases.values()), default=None)


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def spans_of(releases: Mapping[Stratum, Release]) -> list[Span]:
    """Return the periods that releases cover, each from its first one (None: from the beginning) to its last one."""
    return [Span(releases[each].first or None, each.period) for each in sorted(releases)]


def _warnings(declared: Declared, rows: Sequence[ValueEstimate]) -> list[str]:
    """Warn if nearly all of a group gave one answer: this reveals the answer of everybody who is known to be in it."""
    if not any(row.simultaneous[0] >= _HOMOGENEOUS for row in rows):
        return []
    return [f"at least {_HOMOGENEOUS:.0%} of this segment gave the same answer to {declared.metric.id}: this reveals each answer"]
