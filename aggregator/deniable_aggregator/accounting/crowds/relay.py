"""What a server learns of one report if a relay mixes it with others before: the claim of a metric's `shuffled`, and its proof.

A relay hands on *pools*. A pool has at least `min` reports of one metric, version, period and combination of segments, sealed to
one key. Each is in one pool only, in an order that says nothing. So whatever the server has, publishes or is asked of these
reports follows from the pools. This is also so with several segments, and in a trial. A report of a pool is then one of a crowd
of `min`.

It needs that the relay and the server do not work together, and that `min` reports of the pool are honest. Otherwise the local
epsilon holds. That somebody took part, in which period and with which segments, is not hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.errors import ParameterError
from deniable_aggregator.accounting.crowds import crowd as crowds
from deniable_aggregator.accounting.crowds.crowd import Crowd
from deniable_aggregator.accounting.crowds.readers import aligned, upward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deniable.registry import Metric, Registry

_LARGEST = 1 << 24  # reports up to which a crowd that is enough is looked for


def crowd(metric: Metric, count: int = 1) -> Crowd | None:
    """Return the crowd of a device's reports, one in each of `count` pools; None if the metric is not shuffled."""
    if metric.shuffled is None:
        return None
    return Crowd.of(Declared.of(metric).mechanism, metric.shuffled.min, count, Fraction(metric.sample))


@lru_cache(maxsize=1024)
def central(
    reports: Crowd,  # of a pool
    delta: float,
) -> float:
    """Return the epsilon of one report for a server that sees its pool, in nats."""
    return reports.epsilon(delta)


def unproved(metric: Metric) -> str:
    """Say why the claim of a metric is not proved, and what to write; empty if it is, or there is none."""
    try:
        reports = crowd(metric)
    except ParameterError:  # no mechanism fits it, which is a fault of its own
        return ""
    if reports is None or metric.shuffled is None:
        return ""
    delta, declared = float(metric.shuffled.delta), float(metric.shuffled.central)
    if _is_enough(reports, reports.reports, declared, delta):
        return ""
    least, proved = _least(reports, declared, delta), central(reports, delta)
    if float(upward(proved)) < reports.local:
        wrong = f"{metric.shuffled.min:,} reports give {upward(proved)} at delta {delta:g}, and {declared:g} is declared"
        mend = f"write central = {upward(proved)}" + (f", or min = {least}" if least else "")
    else:
        wrong = f"{metric.shuffled.min:,} reports are too few for anything less than {upward(proved)} at delta {delta:g}"
        mend = f"write min = {least}" if least else "remove shuffled, or write a smaller epsilon"
    return f"shuffled.central: {wrong}: {mend}"


def claimed(metric: Metric) -> str:
    """Write the central epsilon that may be said of a metric: the declared one, or more if only that is proved."""
    reports = crowd(metric)
    if reports is None or metric.shuffled is None:
        return ""
    proved = upward(central(reports, float(metric.shuffled.delta)))
    return max(metric.shuffled.central, proved, key=float)


def _is_enough(reports: Crowd, number: int, epsilon: float, delta: float) -> bool:
    return replace(reports, reports=number).delta(epsilon) <= delta


def _least(reports: Crowd, epsilon: float, delta: float) -> int | None:
    """Return how many reports are enough for a claim, in two digits, rounded up; None if so many are not looked at."""
    number = reports.reports
    while not _is_enough(reports, number, epsilon, delta):
        number *= 2
        if number > _LARGEST:
            return None
    low, high = number // 2, number
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if _is_enough(reports, middle, epsilon, delta) else (middle, high)
    unit = int(10 ** max(0, len(str(high)) - 2))
    return -(-high // unit) * unit


def to_dict(metric: Metric) -> dict[str, Any]:
    """Write both epsilons of one report of a shuffled metric as plain values, for JSON."""
    reports = crowd(metric)
    if reports is None or metric.shuffled is None:
        return {}
    delta = float(metric.shuffled.delta)
    return {
        "local": reports.local,
        "central": float(claimed(metric)),
        "if_half_are_honest": central(reports.half, delta),
        "delta": delta,
        "min": metric.shuffled.min,
    }


def sentence(
    registry: Registry,
    metric: Metric,
    count: int = 1,  # of all reports of so many periods together as well
) -> str:
    """Say both epsilons of a metric whose reports a relay mixes, the local one first; empty if it is not shuffled."""
    reports = crowd(metric)
    if reports is None or metric.shuffled is None or registry.relay is None:
        return ""
    delta, operator = float(metric.shuffled.delta), registry.relay.operator
    half, year = upward(central(reports.half, delta)), replace(reports, count=count)
    together = ""
    if count > 1:
        total = upward(crowds.epsilon([year], delta))
        together = (
            f" All {count:,} reports of a year together: {upward(count * reports.local)} as a plain sum, and {total} so mixed."
        )
    return (
        f"A report alone: at most ε = {upward(reports.local)}, whoever sees it, also if {operator} and the server work together. "
        f"If they do not, and {metric.shuffled.min:,} reports of its pool are honest, the server learns at most ε = "
        f"{claimed(metric)} of it, with delta {delta:g}; with half of them {half}.{together} "
        "Nobody can check that they do not work together."
    )


@dataclass(frozen=True, slots=True)
class Mixed:
    """What a server learns of all reports of a person that a relay mixes, if the two do not work together."""

    operator: str  # who mixes
    metrics: tuple[tuple[Metric, int], ...]  # shuffled ones, each with how often a device reports it
    delta: float  # of the total
    devices: int = 1  # of a person or a household

    def total(self, *, half: bool = False) -> float:
        """Return the epsilon of all these reports together, in nats; also if only half of each pool is honest."""
        return crowds.epsilon([crowd.half if half else crowd for crowd in self._crowds()], self.delta)

    @property
    def local(self) -> float:
        """The same if the two work together: the plain sum, in nats."""
        return sum(crowd.count * crowd.local for crowd in self._crowds())

    def _crowds(self) -> Sequence[Crowd]:
        crowds_of = (crowd(metric, count) for metric, count in self.metrics)
        return [reports.times(self.devices) for reports in crowds_of if reports]

    def lines(self, number: Callable[[float], str]) -> Iterator[str]:
        """Write it for people, line by line."""
        if not self.metrics:
            return
        yield ""
        yield f"What the server learns of reports that {self.operator} mixes:"
        rows = [("", "local", "honest reports", "delta", "one report", "if half are honest")]
        for metric, _ in self.metrics:
            of = to_dict(metric)
            figures = (f"{of['min']:,}", f"{of['delta']:g}", claimed(metric), upward(of["if_half_are_honest"]))
            rows.append((metric.id, number(of["local"]), *figures))
        yield from aligned(rows)
        whose = f"{self.devices} devices" if self.devices > 1 else "a device"
        total, half = number(self.total()), number(self.total(half=True))
        yield f"All these reports of {whose} together: local epsilon {number(self.local)}, which needs nothing."
        yield f"Central epsilon {total} with delta {self.delta:g}, or {half} if half are honest."
        yield (
            f"The central figures need that {self.operator} and the server do not work together, which nobody can check, and "
            "that so many reports of each pool are honest. The budget counts the local ones."
        )

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain values, for JSON."""
        return {
            "operator": self.operator,
            "reports": [{"of": metric.id, "occasions": count} | to_dict(metric) for metric, count in self.metrics],
            "local": self.local,
            "delta": self.delta,
            "central": self.total(),
            "central_if_half_are_honest": self.total(half=True),
        }
