"""What readers of published sums learn of one person, if the operator is trusted: what may be claimed, of which metrics.

Readers see releases: pages, results, answers to read keys. They do not see reports, what is counted so far, archives or the
store, nor a trial. Whoever does is the operator here, and only the local epsilon holds.

Releases consist of *blocks* that share no report, each of at least `min_reports`: a first release, or what a later step adds to
it; with one segment, what a published cell has and no published cell within it. All sums of a metric follow from the sums of its
blocks (`deniable_aggregator.publish.suppression`), and a report is in one block. With two segments or more, cells overlap. A
report is then in sums that do not follow from such blocks, and nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.messages.plural import few, plural
from deniable_aggregator.accounting.crowds import crowd as sums
from deniable_aggregator.accounting.crowds.crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deniable.registry import Metric, Registry

DELTA = 1e-6
"""The delta of what is shown of one report."""

_TWO = Context(prec=2, rounding=ROUND_CEILING)

CONDITION = (
    "This holds for readers of published sums only. It needs that the operator is trusted, and that each release is of one "
    "period and has so many honest reports in each segment. That somebody took part is not hidden."
)
"""What a central epsilon needs."""


def refusal(registry: Registry, metric: Metric) -> str:
    """Return why nothing is claimed of a metric, in words; empty if something is."""
    if registry.publication.trial:
        return "a trial publishes everything at once"
    if metric.permanent:
        return "its reports are copies of a permanent response"
    if len(metric.segments) > 1:
        return "its segments overlap, so a report is in several sums"
    if metric.min_reports <= metric.per_period:
        return "a sum may have the reports of a single device"
    return ""


def crowd(registry: Registry, metric: Metric, count: int = 1) -> Crowd | None:
    """Return the crowd of a device's reports of a metric, one on each of `count` occasions; None if nothing is claimed."""
    if refusal(registry, metric):
        return None
    # Several reports of a device in one period are in one sum. The others are divided among them.
    reports = metric.min_reports // metric.per_period
    return Crowd.of(Declared.of(metric).mechanism, reports, count, Fraction(metric.sample))


@lru_cache(maxsize=1024)
def one_report(reports: Crowd, delta: float = DELTA) -> float:
    """Return the epsilon of one report, in nats."""
    return reports.epsilon(delta)


@lru_cache(maxsize=64)
def all_reports(crowds: tuple[Crowd, ...], delta: float) -> float:
    """Return the epsilon of all reports of a device together, in nats."""
    return sums.epsilon(crowds, delta)


def sentence(registry: Registry, metric: Metric) -> str:
    """Say what readers learn of one report, with its condition; empty if nothing is claimed."""
    reports = crowd(registry, metric)
    if reports is None:
        return ""
    return (
        f"Readers of published sums learn at most ε = {upward(one_report(reports))} of it, with delta {DELTA:g}, if the operator "
        f"is trusted and {reports.reports:,} reports of each period and segment are honest; with half of them "
        f"{upward(one_report(reports.half))}."
    )


def upward(epsilon: float) -> str:
    """Write an epsilon with two digits, rounded up."""
    return f"{_TWO.plus(Decimal(epsilon)).normalize():f}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Write a table of which the first column is of names."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"  {row[0]:{widths[0]}}  {cells}"


@dataclass(frozen=True, slots=True)
class Readers:
    """What readers of published sums learn of a person, if the operator is trusted."""

    crowds: tuple[tuple[str, Crowd], ...]  # by name, such as the id of a metric
    refused: tuple[tuple[str, str], ...]  # names, and why nothing is claimed of them
    delta: float  # of each figure alone
    devices: int = 1  # of a person or a household

    @property
    def total(self) -> float:
        """Epsilon of all reports of all devices, in nats."""
        return self._total(lambda crowd: crowd)

    @property
    def half(self) -> float:
        """The same, if half of the reports are honest."""
        return self._total(lambda crowd: crowd.half)

    def _total(self, honest: Callable[[Crowd], Crowd]) -> float:
        return all_reports(tuple(honest(crowd).times(self.devices) for _, crowd in self.crowds), self.delta)

    def lines(self, number: Callable[[float], str]) -> Iterator[str]:
        """Write it for people, line by line."""
        if self.crowds:
            yield ""
            yield f"What readers of the published sums learn, if you trust the operator, with delta {self.delta:g}:"
            rows = [("", "local", "honest reports", "one report", "if half are honest")]
            for name, crowd in self.crowds:
                epsilons = number(one_report(crowd, self.delta)), number(one_report(crowd.half, self.delta))
                rows.append((name, number(crowd.local), f"{crowd.reports:,}", *epsilons))
            yield from aligned(rows)
            whose = f"{plural(self.devices, 'device')} together" if self.devices > 1 else "a device together"
            total, half = number(self.total), number(self.half)
            yield f"All these reports of {whose}: central epsilon {total}, or {half} if half are honest."

    def conditions(self) -> Iterator[str]:
        """Say in a line what the figures need, and of which metrics there are none, since readers may learn the local epsilon."""
        parts = ["The central figures need an operator who is trusted, and so many honest reports in each sum."] * bool(
            self.crowds
        )
        for reason in dict.fromkeys(why for _, why in self.refused):
            names = few([name for name, why in self.refused if why == reason])
            parts.append(f"No central figure of {names}: {reason}.")
        if parts:
            yield " ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain values, for JSON."""
        return {
            "delta": self.delta,
            "condition": CONDITION,
            "reports": [
                {
                    "of": name,
                    "local": crowd.local,
                    "honest": crowd.reports,
                    "occasions": crowd.count,
                    "epsilon": one_report(crowd, self.delta),
                    "if_half_are_honest": one_report(crowd.half, self.delta),
                }
                for name, crowd in self.crowds
            ],
            "total": self.total,
            "total_if_half_are_honest": self.half,
            "refused": [{"of": name, "why": why} for name, why in self.refused],
        }
