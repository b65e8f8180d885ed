"""Estimates of a metric from its reports, as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.mechanisms.base import FrequencyOracle
from deniable_aggregator.answer.measurement import Association, Description, Estimates, FactorShare, Unallocated, ValueEstimate
from deniable_aggregator.answer.numbers import chosen_of, number_of, order_of
from deniable_aggregator.answer.refusal import next_release
from deniable_aggregator.decode.consistent import consistent, lowered_by
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.joint import from_product
from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.joint import Joint

LEVEL = 0.95
"""Default confidence level of intervals."""
_MOST_COMBINATIONS = 1024  # with more, their covariance takes too long for a page


def described(app: Collection, declared: Declared) -> Description:
    """Describe a metric, independently of its reports."""
    metric, mechanism = declared.metric, declared.mechanism
    return Description(
        trial=app.trial,
        id=metric.id,
        type=metric.type,
        version=metric.version,
        description=metric.description,
        owner=metric.owner,
        expires=metric.expires,
        period_length=metric.period,
        domain_size=len(metric.values) or None,
        candidates=len(declared.candidates) if metric.candidates else None,
        discover=metric.discover,
        mechanism=mechanism.name,
        epsilon=float(metric.epsilon),
        epsilon_permanent=None if metric.epsilon_permanent is None else float(metric.epsilon_permanent),
        sample=float(metric.sample),
        min_reports=metric.min_reports,
        next_release=next_release(app, declared),
        report_bytes=mechanism.layout.payload_size,
    )


def estimated(
    app: Collection,  # whose metric it is
    reading: Reading,
    level: float,  # confidence of the intervals, and of what is detected
) -> Estimates:
    """Say what was read, whichever reports it rests on."""
    metric, shares = reading.declared.metric, reading.shares
    rows = [] if shares is None else _rows(reading, shares, level)
    return Estimates(
        **asdict(described(app, reading.declared)),
        n=reading.n,
        target="population",
        detection_frequency=float("nan") if shares is None else shares.detection_frequency(1 - level),
        unallocated=_unallocated(shares, level) if shares is not None and metric.open else None,
        association=_association(reading, level),
        lowered_by=float("nan") if shares is None else _lowered_by(reading.declared, shares),
        # What a search tried and could not confirm is not an answer that anybody is known to have given.
        estimates=[row for row in rows if row.detected or not metric.discover],
        number=number_of(reading, level),
        order=order_of(reading, level),
        chosen=chosen_of(reading, level),
    )


def _unallocated(estimate: Estimate, level: float) -> Unallocated:
    share, stderr = estimate.unallocated
    reach = -float(ndtri(tail(level))) * stderr
    return Unallocated(share, stderr, (share - reach, share + reach))


def _lowered_by(declared: Declared, estimate: Estimate) -> float:
    return float("nan") if declared.metric.type == "set" else lowered_by(estimate.frequency, complete=not declared.metric.open)


def _rows(reading: Reading, estimate: Estimate, level: float) -> Iterator[ValueEstimate]:
    metric = reading.declared.metric
    found = estimate.detected(1 - level)
    # Whoever reads the answer looks at what is detected, so these intervals allow for it even where all values are listed.
    selected, simultaneous = estimate.selected_interval(found, level), estimate.interval(level, simultaneous=True)
    # Shares of options need not sum to 1. Each is possible alone.
    is_set = metric.type == "set"
    possible = np.clip(estimate.frequency, 0.0, 1.0) if is_set else consistent(estimate.frequency, complete=not metric.open)
    columns = (estimate.reports, estimate.frequency, estimate.stderr, *selected, *simultaneous, possible, estimate.count)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    for position, detected, row in zip(reading.values, found, numbers, strict=True):
        n, frequency, stderr, low, high, lowest, highest, share, count = row
        yield ValueEstimate(
            value=metric.value(position),
            label=metric.label(position),
            n=n,
            frequency=frequency,
            stderr=stderr,
            interval=(low, high),
            interval_kind="selected" if detected else "pointwise",
            simultaneous=(lowest, highest),
            consistent=share,
            count=count,
            detected=bool(detected),
        )


def _association(reading: Reading, level: float) -> Association | None:
    """Estimate the margins of a product, and test whether its factors are independent; None if neither can be done."""
    metric, factors = reading.declared.metric, reading.declared.metric.factors
    mechanism = reading.declared.mechanism
    if not factors or not reading.n or metric.domain_size > _MOST_COMBINATIONS or not isinstance(mechanism, FrequencyOracle):
        return None
    shape = [len(listed) for _, listed in factors]
    try:
        table = from_product(mechanism, reading.counted, shape, repeats=reading.repeats, kept=metric.kept)
        test = table.independence()
    except ParameterError:  # the mechanism declared has no such table, or it is too large
        return None
    listed = {name: list(values) for name, values in factors}
    margins = {name: _margin(table, axis, values, level) for axis, (name, values) in enumerate(listed.items())}
    return Association(listed, margins, finite(test.statistic), test.degrees, finite(test.p_value))


def _margin(table: Joint, axis: int, values: Sequence[str], level: float) -> list[FactorShare]:
    shares, stderrs = (each.tolist() for each in table.margin(axis))
    reach = -float(ndtri(tail(level)))
    rows = zip(values, shares, stderrs, strict=True)
    return [FactorShare(value, share, error, (share - reach * error, share + reach * error)) for value, share, error in rows]
