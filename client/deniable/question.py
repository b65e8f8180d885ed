"""A metric as a device asks it: with its mechanism, what an answer costs, and the stratum its reports carry at the moment."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from deniable import mechanisms, period
from deniable.ledger import cost
from deniable.mechanisms.chain import Chain
from deniable.report import Stratum, fingerprint
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from deniable.caps import Caps
    from deniable.registry import Metric, Registry

__all__ = ["Question", "questions"]


class Question:
    """A metric, ready to be answered.

    Parameters
    ----------
    metric
        As declared.
    segment
        The public breakdown that its reports carry.

    Attributes
    ----------
    mechanism : Mechanism
        What randomises an answer.
    chain : Chain or None
        The same, where a permanent response to each answer is kept.
    cost : int
        What a report costs where none is kept, in millionths of a nat.
    tag : str
        Fingerprint of the metric's meaning.
    """

    __slots__ = ("_made", "_sample", "chain", "cost", "mechanism", "metric", "segment", "tag")

    def __init__(self, metric: Metric, segment: str) -> None:
        self.metric = metric
        self.segment = segment
        self.mechanism = mechanisms.of(metric)
        kept = metric.kept
        self.chain = self.mechanism if kept and isinstance(self.mechanism, Chain) else None
        self.cost = cost(self.mechanism.ratio)
        self.tag = fingerprint(metric, self.mechanism.canonical)
        self._sample = Fraction(metric.sample)
        self._made: tuple[tuple[int, int, int, int], Stratum] | None = None

    def sampled(self) -> bool:
        """Draw whether an answer is recorded; nobody has looked at it yet."""
        return self._sample == 1 or OS.bernoulli(self._sample.numerator, self._sample.denominator)

    def stratum(self, now: datetime) -> Stratum:
        """Return what a report made now is counted with."""
        # No period is shorter than an hour, so its name is worked out once an hour. One attribute, so that threads agree.
        hour = (now.year, now.month, now.day, now.hour)
        made = self._made
        if made is None or made[0] != hour:
            metric = self.metric
            name = period.of(now, metric.period)
            made = self._made = (hour, Stratum(metric.id, metric.version, self.tag, name, self.segment))
        return made[1]


def questions(registry: Registry, segments: Mapping[str, str], caps: Caps) -> dict[str, Question]:
    """Prepare every metric of a registry.

    Parameters
    ----------
    registry
        What may be asked.
    segments
        Value of each public breakdown.
    caps
        What this app allows.

    Raises
    ------
    ParameterError
        If a segment is missing, or a metric has no mechanism.
    ConfigurationError
        If a metric exceeds the caps.
    """
    prepared = {}
    for id_, metric in registry.metrics.items():
        question = prepared[id_] = Question(metric, registry.segment(metric, segments))
        caps.check(metric, question.mechanism)
    return prepared
