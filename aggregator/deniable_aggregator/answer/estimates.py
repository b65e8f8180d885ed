"""What is answered of a metric, independently of its reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.answer.measurement import Description
from deniable_aggregator.answer.refusal import next_release

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.answer.measurement import Estimates
    from deniable_aggregator.answer.reading import Reading

LEVEL = 0.95
"""Default confidence level of intervals."""


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


def estimated(app: Collection, reading: Reading, level: float) -> Estimates:
    """Return the answer about a metric, from one reading of it."""
    return reading.estimates(described(app, reading.declared), level)
