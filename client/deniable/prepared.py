"""A metric, prepared for recording: its mechanism, what it may spend, and what its reports are counted with."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.limits.allowance import check, reserved
from deniable.limits.exposure import Exposure
from deniable.mechanisms.permanent import Permanent
from deniable.registry import period
from deniable.source import OS
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from deniable.limits.allowance import Allowance
    from deniable.limits.caps import Caps
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget
    from deniable.source import Source

__all__ = ["Occasion", "Prepared", "prepare"]


class Occasion(NamedTuple):
    """When a metric is answered.

    Parameters
    ----------
    stratum
        What a report made now is counted with.
    until
        When the period ends, in seconds since 1970. No finer time is ever stored.
    """

    stratum: Stratum
    until: int


class Prepared:
    """A metric, ready to be recorded.

    Parameters
    ----------
    metric
        As declared.
    allowance
        What it may spend.
    segment
        The public breakdown that its reports carry.

    Attributes
    ----------
    mechanism : Mechanism
        What randomises an answer.
    permanent : Permanent or None
        The same, where a permanent response to each answer is kept.
    """

    __slots__ = ("_made", "_sample", "allowance", "mechanism", "metric", "permanent", "segment")

    def __init__(self, metric: Metric, allowance: Allowance, segment: str) -> None:
        self.metric = metric
        self.allowance = allowance
        self.segment = segment
        self.mechanism = mechanisms.of(metric)
        self.permanent = self.mechanism if metric.kept and isinstance(self.mechanism, Permanent) else None
        self._sample = Fraction(metric.sample)
        self._made: tuple[tuple[int, int, int, int], Occasion] | None = None

    def sampled(self, source: Source = OS) -> bool:
        """Draw whether an answer is recorded; nobody has looked at it yet."""
        return self._sample == 1 or source.bernoulli(self._sample.numerator, self._sample.denominator)

    def position(self, value: object) -> tuple[int | None, BaseException | None]:
        """Return the place of an answer in the domain; or None, and what to raise once a report is queued all the same."""
        try:
            return self.metric.position(value), None
        except ParameterError as error:
            return None, error
        except Exception:  # noqa: BLE001 - an object of the host's, which cannot even be read
            return None, ParameterError(f"an answer to {self.metric.id} is a plain value", "another object")
        except BaseException as error:  # noqa: BLE001 - the program is to end; it is raised, in any mode, when the report is queued
            return None, error

    def occasion(self, now: datetime) -> Occasion:
        """Return what a report made now is counted with."""
        # No period is shorter than an hour, so it is worked out once an hour. One attribute, so that threads agree.
        hour = (now.year, now.month, now.day, now.hour)
        made = self._made
        if made is None or made[0] != hour:
            metric = self.metric
            name = period.of(now, metric.period)
            until = int(period.bounds(name, metric.period)[1].timestamp())
            stratum = Stratum(metric.id, metric.version, self.allowance.tag, name, self.segment)
            made = self._made = (hour, Occasion(stratum, until))
        return made[1]


def prepare(registry: Registry, segments: Mapping[str, str], caps: Caps, budget: Budget, today: date) -> dict[str, Prepared]:
    """Prepare every metric of a registry.

    Parameters
    ----------
    registry
        What may be recorded.
    segments
        Value of each public breakdown.
    caps
        What this app allows.
    budget
        What the device may spend in all.
    today
        Metrics whose collection has ended need no part of the budget.

    Raises
    ------
    ParameterError
        If a segment is missing, or a metric has no mechanism.
    ConfigurationError
        If a metric exceeds the caps, or all of them the caps or the budget.
    """
    found = {}
    for id_, allowance in reserved(registry, budget).items():
        metric = registry.metrics[id_]
        each = found[id_] = Prepared(metric, allowance, registry.segment(metric, segments))
        caps.check(metric, each.mechanism)
    caps.check_exposure(Exposure.of(registry))
    check((each.allowance for each in found.values() if not each.metric.expired(today)), budget)
    return found
