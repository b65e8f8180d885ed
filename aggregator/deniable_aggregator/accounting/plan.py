"""What a registry makes a device spend: its metrics over some time, against its budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING

from deniable.declared import declare_all
from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO, Allowance, micro
from deniable.limits.caps import budget_of
from deniable.registry import period
from deniable_aggregator import checks
from deniable_aggregator.accounting.crowds import readers
from deniable_aggregator.accounting.spend import Spend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget, Caps
    from deniable_aggregator.accounting.crowds.crowd import Crowd

_SUNDAY = 6  # days after a Monday


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A metric over some time."""

    # metric, mechanism: as declared
    metric: Metric
    mechanism: Mechanism
    allowance: Allowance  # what a device reserves for it
    occasions: int  # times that the device is asked, at most
    answers: int  # responses that are drawn and kept, at most; 0 if none is kept
    crowd: Crowd | None  # that of its reports in published sums; None if nothing is claimed of readers
    refusal: str  # why not, in words

    @property
    def sample(self) -> Fraction:
        """Share of the occasions on which there is a report."""
        return Fraction(self.metric.sample)

    @property
    def permanent(self) -> bool:
        """Whether permanent responses are paid for, instead of each report."""
        return bool(self.answers)

    @property
    def spend(self) -> Spend:
        """The spend: of each report, or of each kept response. A single report of a kept response is at most that of a report."""
        # For kept responses this holds between histories that change, and return to an earlier answer, at the same times.
        if self.permanent and self.occasions > 1:
            return Spend(self.allowance.cost, self.answers)
        return Spend.of(self.mechanism, self.occasions, self.sample)

    @property
    def reserved_month(self) -> float:
        """What is reserved for it in a calendar month, in nats."""
        return self.allowance.month / MICRO

    @property
    def reserved_lifetime(self) -> float:
        """What is reserved for it in a lifetime, in nats; infinite without a bound."""
        return inf if self.allowance.lifetime is None else self.allowance.lifetime / MICRO


@dataclass(frozen=True, slots=True)
class Plan:
    """What a device is asked over some time, and what it may spend."""

    uses: tuple[Use, ...]  # of each metric
    days: int | None  # length of the time; None for a calendar month, or if only the number of reports is given
    reports: int | None  # number of reports of each metric; None if the time is given
    budget: Budget  # of a device
    operator: str  # of the relay that mixes reports of shuffled metrics; empty if there is none

    @property
    def spends(self) -> tuple[Spend, ...]:
        """The spends, one for each metric."""
        return tuple(use.spend for use in self.uses)

    @property
    def reserved_month(self) -> float:
        """What is reserved for all metrics in a calendar month, in nats."""
        return sum(use.reserved_month for use in self.uses)

    @property
    def reserved_lifetime(self) -> float:
        """What is reserved for all metrics in a lifetime, in nats; infinite without a bound."""
        return sum(use.reserved_lifetime for use in self.uses)

    @property
    def allowed(self) -> float:
        """What a device may spend over the time at most, in nats; infinite without a bound."""
        if self.reports is not None:
            return self.reserved_lifetime
        bounded = self.budget.per_month is not None
        return sum(min(use.reserved_lifetime, use.reserved_month * self._months(use) if bounded else inf) for use in self.uses)

    def _months(self, use: Use) -> int:
        """Return in how many calendar months the reports of a metric count at most."""
        if self.days is None:
            return 1
        # A week counts in the month of its Sunday, which may be so many days after the last day.
        return period.most_in_days("month", self.days + (_SUNDAY if use.metric.period == "week" else 0))

    @property
    def fits(self) -> bool:
        """Whether the budget has room for all metrics. Those for which it has none are off, and lint refuses the registry."""
        total = sum(use.allowance.month for use in self.uses)
        return self.budget.per_month is None or total <= micro(self.budget.per_month)


def plan(
    registry: Registry,  # as loaded
    *,
    metrics: Sequence[str] = (),  # their ids; none for all
    days: int | None = None,  # days on which a device is asked once a period; by default the periods of a calendar month
    reports: int | None = None,  # times that it is asked for each metric, instead of `days`; all of them may be in one month
    answers: int | None = None,  # different answers to a metric with kept responses, at most; by default the most possible
    caps: Caps | None = None,  # those that the app's code gives; by default none
) -> Plan:
    """Plan what a device spends on the metrics of a registry."""
    unknown = [id_ for id_ in metrics if id_ not in registry.metrics]
    if unknown:
        raise ParameterError(f"metric: write one of those in {registry.file}, {', '.join(registry.metrics)}", unknown[0])
    if days is not None and reports is not None:
        raise ParameterError("days and reports are both given: leave one of them out")
    budget = budget_of(registry, caps)
    if days is not None:
        checks.count("days", days)
    if reports is not None:
        checks.count("reports", reports)
    most = inf if answers is None else checks.count("answers", answers)
    uses = []
    for declared in declare_all(
        registry, [registry.metrics[id_] for id_ in dict.fromkeys(metrics) or registry.metrics], decoded=False
    ):
        metric = declared.metric
        allowance = Allowance.of(declared, budget)
        times = period.MOST_IN_MONTH[metric.period] if days is None else period.most_in_days(metric.period, days)
        occasions = metric.per_period * times if reports is None else reports
        responses = declared.permanent.kept_responses if declared.permanent else 0
        in_time = allowance.answers if days is None and reports is None else inf  # the device makes no more in a month
        draws = int(min(occasions, most, responses, allowance.answers_ever, in_time))
        uses.append(
            Use(
                metric=metric,
                mechanism=declared.mechanism,
                allowance=allowance,
                occasions=occasions,
                answers=draws,
                crowd=readers.crowd(registry, metric, occasions),
                refusal=readers.refusal(registry, metric),
            )
        )
    return Plan(tuple(uses), days, reports, budget, registry.relay.operator if registry.relay else "")
