"""Estimates of a metric from its reports, as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.mechanisms.prefix import PrefixTree
from deniable_aggregator import decode
from deniable_aggregator.decode import panel
from deniable_aggregator.decode.consistent import consistent, lowered_by
from deniable_aggregator.decode.discovery import discover
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.joint import from_product
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.options import option_shares
from deniable_aggregator.measure.measurement import Association, Description, Estimates, FactorShare, Unallocated, ValueEstimate
from deniable_aggregator.measure.numbers import chosen_of, number_of, order_of
from deniable_aggregator.measure.refusal import next_release
from deniable_aggregator.measure.remembered import once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.joint import Joint
    from deniable_aggregator.measure.collection import Collection
    from deniable_aggregator.tally import Tally

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


def decoded(declared: Declared, counted: Tally, periods: Mapping[str, float]) -> tuple[Sequence[int], Estimate | None]:
    """Estimate shares from reports of these periods: of all values, the candidates, or what was discovered; of a set's options.

    Of a number there are none. Slow results are cached.
    """
    metric, mechanism = declared.metric, declared.mechanism
    repeats = panel.repeats_of(metric, periods)
    if metric.estimate:
        return (), None
    if metric.type == "set":
        shares = option_shares(mechanism, counted)
        return range(len(metric.values)), panel.Panel(counted.n, shares, repeats) if counted.n and repeats else shares
    if not metric.open:
        return range(metric.domain_size), decode.estimate(mechanism, counted, repeats=repeats, kept=metric.kept)

    def search() -> tuple[Sequence[int], Estimate]:
        if isinstance(mechanism, PrefixTree):
            discovery = discover(mechanism, counted, text=metric.type == "string")
            return discovery.values, panel.Panel(counted.n, discovery, repeats) if repeats else discovery
        estimate = decode.estimate(mechanism, counted, declared.candidates, repeats=repeats, kept=metric.kept)
        return declared.candidates, estimate

    return once((declared.fingerprint, declared.candidates, repeats), counted, search)


def estimated(
    app: Collection,  # whose metric it is
    declared: Declared,  # the metric
    counted: Tally,  # its reports
    periods: Mapping[str, float],  # how many of them each period has
    level: float,  # confidence of the intervals, and of what is detected
    found: tuple[Sequence[int], Estimate | None] | None = None,  # what `decoded` says of them, where that is known
) -> Estimates:
    """Estimate a metric from reports, whichever they are."""
    metric = declared.metric
    values, estimate = found or decoded(declared, counted, periods)
    rows = [] if estimate is None else _rows(declared, values, estimate, level)
    repeats = panel.repeats_of(metric, periods)
    return Estimates(
        **asdict(described(app, declared)),
        n=counted.n,
        target="population",
        detection_frequency=float("nan") if estimate is None else estimate.detection_frequency(1 - level),
        unallocated=_unallocated(estimate, level) if estimate is not None and metric.open else None,
        association=_association(declared, counted, periods, level),
        lowered_by=float("nan") if estimate is None else _lowered_by(declared, estimate),
        # What a search tried and could not confirm is not an answer that anybody is known to have given.
        estimates=[row for row in rows if row.detected or not metric.discover],
        number=number_of(declared, counted, repeats, level),
        order=None if estimate is None else order_of(declared, estimate, repeats, level),
        chosen=chosen_of(declared, counted, repeats, level),
    )


def _unallocated(estimate: Estimate, level: float) -> Unallocated:
    share, stderr = estimate.unallocated
    reach = -float(ndtri(tail(level))) * stderr
    return Unallocated(share, stderr, (share - reach, share + reach))


def _lowered_by(declared: Declared, estimate: Estimate) -> float:
    return float("nan") if declared.metric.type == "set" else lowered_by(estimate.frequency, complete=not declared.metric.open)


def _rows(declared: Declared, values: Sequence[int], estimate: Estimate, level: float) -> Iterator[ValueEstimate]:
    found = estimate.detected(1 - level)
    # Whoever reads the answer looks at what is detected, so these intervals allow for it even where all values are listed.
    selected, simultaneous = estimate.selected_interval(found, level), estimate.interval(level, simultaneous=True)
    # Shares of options need not sum to 1. Each is possible alone.
    whole = not declared.metric.open
    is_set = declared.metric.type == "set"
    possible = np.clip(estimate.frequency, 0.0, 1.0) if is_set else consistent(estimate.frequency, complete=whole)
    columns = (estimate.reports, estimate.frequency, estimate.stderr, *selected, *simultaneous, possible, estimate.count)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    for position, detected, row in zip(values, found, numbers, strict=True):
        n, frequency, stderr, low, high, lowest, highest, share, count = row
        yield ValueEstimate(
            value=declared.metric.value(position),
            label=declared.metric.label(position),
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


def _association(declared: Declared, counted: Tally, periods: Mapping[str, float], level: float) -> Association | None:
    """Estimate the margins of a product, and test whether its factors are independent; None if neither can be done."""
    metric, factors = declared.metric, declared.metric.factors
    mechanism = declared.mechanism
    if not factors or not counted.n or metric.domain_size > _MOST_COMBINATIONS:
        return None
    shape, repeats = [len(listed) for _, listed in factors], panel.repeats_of(metric, periods)
    try:
        table = from_product(mechanism, counted, shape, repeats=repeats, kept=metric.kept)
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
