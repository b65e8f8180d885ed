"""What a registry would have a device spend: its metrics over some time, against its budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from math import ceil, inf
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO, Allowance, unfit
from deniable.limits.caps import Caps
from deniable.mechanisms.permanent import Permanent
from deniable.registry import period
from deniable_aggregator.accounting import checks
from deniable_aggregator.accounting.spend import Spend, telling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget

__all__ = ["Plan", "Use", "periods", "plan"]

_HOURS = 24
_YEARS = 5  # of beginnings to try: one leap year among them
_BEGIN = date(2023, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A metric, over some time.

    Parameters
    ----------
    metric, mechanism
        As declared.
    allowance
        What is reserved for it on a device.
    occasions
        Reports that the device is asked for, at most.
    answers
        Kept responses it comes to draw, at most; 0 where none is kept.
    """

    metric: Metric
    mechanism: Mechanism
    allowance: Allowance
    occasions: int
    answers: int

    @property
    def sample(self) -> Fraction:
        """Share of the occasions on which there is a report."""
        return Fraction(self.metric.sample)

    @property
    def kept(self) -> bool:
        """Whether what is spent is for kept responses, and not for each report."""
        return bool(self.answers)

    @property
    def spend(self) -> Spend:
        """What is told: by each report, or by each kept response; a single report of a kept one tells what any report does.

        Of kept responses that holds between histories that change, and return to an earlier answer, at the same times.
        """
        if self.kept and self.occasions > 1:
            return Spend(self.allowance.cost, self.answers)
        return Spend.of(self.mechanism, self.occasions, self.sample)

    @property
    def reserved_window(self) -> float:
        """What is reserved for it of any window of the budget, in nats."""
        return self.allowance.window / MICRO

    @property
    def reserved_lifetime(self) -> float:
        """What is reserved for it ever, in nats; infinite without a bound."""
        return inf if self.allowance.lifetime is None else self.allowance.lifetime / MICRO

    @property
    def telling(self) -> float:
        """Probability that a report says anything about a given two answers."""
        return float(telling(self.mechanism))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a device is asked over some time, and what it may spend.

    Parameters
    ----------
    uses
        Of each metric.
    days
        How long; None where only the number of reports is given.
    budget
        The stricter of the registry's and the app's.
    """

    uses: tuple[Use, ...]
    days: int | None
    budget: Budget

    @property
    def spends(self) -> tuple[Spend, ...]:
        """What is told, one for each metric."""
        return tuple(use.spend for use in self.uses)

    @property
    def reserved_window(self) -> float:
        """What is reserved for all metrics in any window, in nats."""
        return sum(use.reserved_window for use in self.uses)

    @property
    def reserved_lifetime(self) -> float:
        """What is reserved for all metrics ever, in nats; infinite without a bound."""
        return sum(use.reserved_lifetime for use in self.uses)

    @property
    def allowed(self) -> float:
        """What a device may spend over the time, whatever it is asked, in nats; infinite without a bound."""
        if self.days is None:
            return self.reserved_lifetime
        windows = ceil(self.days / self.budget.window)
        bounded = self.budget.per_window is not None
        return sum(min(use.reserved_lifetime, use.reserved_window * windows if bounded else inf) for use in self.uses)

    @property
    def fits(self) -> bool:
        """Whether there is room for all in the budget. Without, the registry is refused by lint and by apps."""
        return unfit((use.allowance for use in self.uses), self.budget) is None


def periods(length: str, days: int) -> int:
    """Return how many periods so many days in a row touch at most.

    Parameters
    ----------
    length
        One of `deniable.registry.period.LENGTHS`.
    days
        At least 1.
    """
    checks.count("days", days)
    if length == "hour":
        return _HOURS * days
    if length == "day":
        return days
    if length == "week":
        return (days + 12) // 7  # as when the first day is a Sunday
    if length != "month":
        raise ParameterError(f"a period is one of {', '.join(period.LENGTHS)}", length)
    # As when the first day is the last of its month.
    eves = (date(_BEGIN.year + n // 12, n % 12 + 1, 1) - timedelta(1) for n in range(12 * _YEARS))
    ends = ((eve, eve + timedelta(days - 1)) for eve in eves)
    return max(12 * (end.year - eve.year) + end.month - eve.month + 1 for eve, end in ends)


def plan(
    registry: Registry,
    *,
    metrics: Sequence[str] = (),
    days: int | None = None,
    reports: int | None = None,
    answers: int | None = None,
    caps: Caps | None = None,
) -> Plan:
    """Plan what a device spends on the metrics of a registry.

    Parameters
    ----------
    registry
        As loaded.
    metrics
        Their ids; none for all.
    days
        Over which a device is asked once a period; by default as many as the budget's window has.
    reports
        Times that it is asked for each metric, instead of `days`; maybe all of them in one window.
    answers
        Different answers it has to a metric with kept responses, at most; by default as many as there can be.
    caps
        The app's; by default those of an app that states none.

    Raises
    ------
    ParameterError
        If a metric is not declared or a number is out of range.
    """
    unknown = [id_ for id_ in metrics if id_ not in registry.metrics]
    if unknown:
        raise ParameterError(f"a metric of {registry.file} is one of {', '.join(registry.metrics)}", unknown[0])
    if days is not None and reports is not None:
        raise ParameterError("either days or reports is given", "both")
    budget = (Caps() if caps is None else caps).tightened(registry.budget)
    if reports is None:
        days = ceil(budget.window) if days is None else checks.count("days", days)
    else:
        checks.count("reports", reports)
    most = inf if answers is None else checks.count("answers", answers)
    uses = []
    for metric in (registry.metrics[id_] for id_ in dict.fromkeys(metrics) or registry.metrics):
        mechanism = mechanisms.of(metric)
        allowance = Allowance.of(metric, mechanism, budget)
        occasions = metric.per_period * periods(metric.period, days) if days is not None else reports or 0
        kept = mechanism.kept_responses if isinstance(mechanism, Permanent) and metric.kept else 0
        drawn = int(min(occasions, most, kept, allowance.answers_ever))
        uses.append(Use(metric=metric, mechanism=mechanism, allowance=allowance, occasions=occasions, answers=drawn))
    return Plan(tuple(uses), days, budget)
