"""One estimate from several versions of a metric: for the values that mean the same in all."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator.answer.model.metric import Merged, MergedVersion
from deniable_aggregator.answer.model.shares import ValueShare
from deniable_aggregator.answer.readings.shares import ShareReading
from deniable_aggregator.decode.combination import combine
from deniable_aggregator.decode.panel import overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.registry import Metric
    from deniable.registry.metric import Value
    from deniable_aggregator.answer.reading import LineOptions, Lines, Reading
    from deniable_aggregator.answer.select import Selection
    from deniable_aggregator.decode.combination import Combined
    from deniable_aggregator.inference.difference import Ends


def common(readings: Sequence[Reading]) -> tuple[list[int], Combined] | None:
    """Combine the values that mean the same in all versions, each version weighted by its precision."""
    # Values are named by their positions in the first version. None if there are none in common, or fewer than two versions.
    of_shares = [each for each in readings if isinstance(each, ShareReading)]
    if len(of_shares) < max(2, len(readings)) or any(each.declared.metric.discover for each in readings):
        return None
    places = [
        {meaning_of(each.declared.metric, position): place for place, position in enumerate(each.values)} for each in of_shares
    ]

    def known(meaning: Meaning) -> bool:  # candidates that share all their hashes are unknown
        pairs = zip(places, of_shares, strict=True)
        return all(meaning in own and isfinite(reading.shares.frequency[own[meaning]]) for own, reading in pairs)

    meanings = list(filter(known, places[0]))
    if not meanings:
        return None
    # One device may have answered several versions, in different periods: then their errors are not independent.
    alike = max(each.declared.metric.together for each in of_shares)
    overlaps = np.array([[overlap(one.periods, other.periods, alike) for other in of_shares] for one in of_shares])
    combined = combine([each.shares for each in of_shares], [[own[meaning] for meaning in meanings] for own in places], overlaps)
    return [of_shares[0].values[places[0][meaning]] for meaning in meanings], combined


def merged(answered: Sequence[tuple[Selection, Reading]], level: float) -> Merged | None:
    """Write the answer about the values that mean the same in all versions; None if there is none."""
    match = common([reading for _, reading in answered])
    if match is None:
        return None
    positions, combined = match
    columns = (
        combined.reports,
        combined.frequency,
        combined.stderr,
        *combined.interval(level),
        *combined.interval(level, simultaneous=True),
    )
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    first = answered[0][1].declared.metric
    return Merged(
        versions=[
            MergedVersion(reading.declared.metric.version, reading.n, float(weight), selection.spans)
            for (selection, reading), weight in zip(answered, combined.weights, strict=True)
        ],
        n=sum(reading.n for _, reading in answered),
        p_value=combined.p_value,
        estimates=[
            ValueShare(first.value(position), first.label(position), n, share, stderr, (low, high), (lowest, highest))
            for position, (n, share, stderr, low, high, lowest, highest) in zip(positions, numbers, strict=True)
        ],
    )


def pooled(tables: Sequence[Lines], options: LineOptions) -> Lines | None:
    """Combine what is estimated from several versions; None if they have no values in common, or are numbers."""
    match = common([each.reading for each in tables])
    if match is None:
        return None
    positions, combined = match
    metric = tables[0].reading.declared.metric
    labels = [metric.label(position) for position in positions]
    places = [at for at, label in enumerate(labels) if options.keeps(label)]

    def interval(level: float) -> Ends:
        low, high = combined.interval(level)
        return low[places], high[places]

    return replace(
        tables[0],
        n=sum(each.n for each in tables),
        labels=[labels[at] for at in places],
        reports=combined.reports[places],
        estimates=combined.frequency[places],
        stderr=combined.stderr[places],
        detected=[None] * len(places),
        interval=interval,
        shares=None,
    )


class Meaning(NamedTuple):
    """A value with everything that is reported as it. Versions in which any of this differs are not merged."""

    value: Value  # as declared
    kind: type  # its type, because True and 1 are equal
    absent: bool  # whether the absence of an answer is reported as it
    others: frozenset[Value] | None  # the declared answers, if undeclared ones are reported as it; else None


def meaning_of(metric: Metric, position: int) -> Meaning:
    """Return what a value means, to find it in another version."""
    value = metric.value(position)
    others = frozenset(metric.values) if metric.other is not None and value == metric.other else None
    return Meaning(value, type(value), metric.none is not None and value == metric.none, others)
