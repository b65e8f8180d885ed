"""A metric prepared for recording: its mechanism, what it may spend, and the stratum of its reports."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.frozen import NamedTuple
from deniable.registry import period
from deniable.registry.answers.number import plain
from deniable.registry.metric import PER_SECOND
from deniable.registry.tables import duration
from deniable.source import OS
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from deniable.declared import Declared
    from deniable.limits.admission import Admission
    from deniable.limits.allowance import Allowance
    from deniable.registry import Registry
    from deniable.source import Source


class Occasion(NamedTuple):
    """The period in which a metric is answered. No finer time is ever stored."""

    stratum: Stratum  # the stratum of a report made in this period
    month: str  # the calendar month in which it counts


class Prepared:
    """A metric, ready to be recorded."""

    __slots__ = ("_ends", "_latest", "_sample", "allowance", "delayed", "longest", "mechanism", "metric", "permanent", "segment")

    def __init__(
        self,
        declared: Declared,  # the metric
        allowance: Allowance,  # what it may spend
        segment: str,  # the public breakdown that its reports carry
    ) -> None:
        metric = self.metric = declared.metric
        self.allowance = allowance
        self.segment = segment
        self.mechanism = declared.mechanism  # the mechanism that randomises an answer
        self.permanent = declared.permanent  # the same mechanism if permanent responses are kept, else None
        self._sample = Fraction(metric.sample)
        self.delayed = metric.delay_seconds  # for how many seconds a report waits at most
        # A report that travels after the grace would be refused.
        # The longest time of the range in seconds, at most the grace; 0 if the metric counts no time.
        self.longest = min(metric.longest_seconds or 0.0, duration("grace", metric.grace).total_seconds())
        # The positions of answers that may have been clipped; None if any may.
        self._ends = (0, metric.domain_size - 1) if metric.axis else None if metric.kind.clipped else ()
        self._latest: tuple[tuple[int, int, int, int], Occasion] | None = None

    def sampled(self, source: Source = OS) -> bool:
        """Draw whether an answer is recorded. This does not depend on the answer."""
        return self._sample == 1 or source.bernoulli(self._sample.numerator, self._sample.denominator)

    def position(self, value: object) -> tuple[int | None, BaseException | None]:
        """Return the position of an answer in the domain, and the error to raise once the report is queued. None is no answer."""
        try:
            return self.metric.kind.reported(self.metric, value)
        except Exception:  # noqa: BLE001 - an object of the host app whose own methods fail
            return None, ParameterError(f"an answer to {self.metric.id} must be a plain value", got="another object")
        except BaseException as error:  # noqa: BLE001 - the program must end; raised in any mode after the report is queued
            return None, error

    def clipped(self, position: int | None, value: object) -> bool:
        """Return whether an answer is reported as another one that is allowed; see `Metric.clips`."""
        if position is None or (self._ends is not None and position not in self._ends):
            return False
        try:
            return self.metric.clips(value)
        except Exception:  # noqa: BLE001 - an object of the host app that is a number or a set only once
            return False

    def delay(self, source: Source = OS) -> int:
        """Draw for how many seconds a report waits. This does not depend on the answer."""
        return source.below(self.delayed + 1) if self.delayed else 0

    def wait(
        self,
        source: Source = OS,  # the source of randomness
        elapsed: float = 0.0,  # seconds since the block began
    ) -> float:
        """Draw after how many seconds a time may travel."""
        # The report of a block travels as long after the block began as the longest time of the range is, and a delay more. So
        # the moment of sending does not tell the time.
        return self.longest - elapsed + self.delay(source)

    def in_unit(self, seconds: object) -> tuple[object, float]:
        """Return a time in the unit of this metric, and how many seconds ago it began: at most the longest time of the range."""
        try:
            number = plain(seconds)
        except Exception:  # noqa: BLE001 - an object of the host app whose own methods fail
            number = None
        if number is None:
            return seconds, 0.0  # what is no time stays as it is, and began now
        return float(number) * PER_SECOND[self.metric.unit], float(min(max(number, 0), self.longest))

    def occasion(self, now: datetime) -> Occasion:
        """Return the occasion of a report made now."""
        # Computed once an hour, since no period is shorter. It is kept in one attribute, so that threads agree.
        hour = (now.year, now.month, now.day, now.hour)
        latest = self._latest
        if latest is None or latest[0] != hour:
            metric = self.metric
            name = period.of(now, metric.period)
            stratum = Stratum(metric.id, metric.version, self.allowance.tag, name, self.segment)
            latest = self._latest = (hour, Occasion(stratum, period.month_of(name, metric.period)))
        return latest[1]


def prepare(
    registry: Registry,
    admission: Admission,  # which of its metrics are on
    segments: Mapping[str, str],  # the device's value of each segment
) -> tuple[dict[str, Prepared], dict[str, ParameterError]]:
    """Prepare every metric that is on. The second result has those for which the device has no declared value of a segment."""
    prepared, missing = {}, {}
    for id_, admitted in admission.metrics.items():
        try:
            segment = registry.segment(admitted.declared.metric, segments)
            prepared[id_] = Prepared(admitted.declared, admitted.allowance, segment)
        except ParameterError as error:
            missing[id_] = error
    return prepared, missing
