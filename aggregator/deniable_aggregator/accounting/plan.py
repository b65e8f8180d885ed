"""What a registry would have a device spend: its metrics over some time, against its budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from math import ceil, inf
from typing import TYPE_CHECKING

from scipy.stats import binom

from deniable import mechanisms, period
from deniable.caps import Caps
from deniable.errors import ParameterError
from deniable.ledger import MICRO, cost
from deniable.mechanisms.chain import Chain
from deniable_aggregator.accounting import checks
from deniable_aggregator.accounting.spend import Spend, telling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.budget import Budget
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

__all__ = ["Plan", "Use", "periods", "plan"]

_RARE = 1e-6  # a device that more of its answers are sampled of than is planned for
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
    occasions
        Times that the device is asked, at most.
    answers
        Kept responses it comes to draw, at most; 0 where none is kept.
    window_occasions, window_answers
        The same of any one window of the budget.
    """

    metric: Metric
    mechanism: Mechanism
    occasions: int
    answers: int
    window_occasions: int
    window_answers: int

    @property
    def sample(self) -> Fraction:
        """Share of the occasions on which there is a report."""
        return Fraction(self.metric.sample)

    @property
    def kept(self) -> bool:
        """Whether what is spent is for kept responses, and not for each report."""
        return bool(self.answers)

    @property
    def permanent(self) -> int:
        """What a kept response costs, in millionths of a nat; 0 where none is kept."""
        ratio = self.mechanism.permanent_ratio if isinstance(self.mechanism, Chain) else None
        return cost(ratio) if self.kept and ratio is not None else 0

    @property
    def spend(self) -> Spend:
        """What is told: by each report, or by each kept response; a single report of a kept one tells what any report does.

        Of kept responses that holds between histories that change, and return to an earlier answer, at the same times.
        """
        if self.kept and self.occasions > 1:
            return Spend(self.permanent, self.answers)
        return Spend.of(self.mechanism, self.occasions, self.sample)

    def charged(self, *, window: bool = False) -> float:
        """Return what the ledger would be charged over the time, or in a window, in nats.

        Where answers are sampled, it is exceeded by one device in a million.
        """
        if self.kept:
            return self.permanent * (self.window_answers if window else self.answers) / MICRO
        occasions = self.window_occasions if window else self.occasions
        made = occasions if self.sample == 1 else int(binom.isf(_RARE, occasions, float(self.sample)))
        return cost(self.mechanism.ratio) * made / MICRO

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
    def window(self) -> float:
        """What the ledger would be charged in a window, in nats, if there were no budget."""
        return sum(use.charged(window=True) for use in self.uses)

    @property
    def lifetime(self) -> float:
        """What it would be charged over the whole time."""
        return sum(use.charged() for use in self.uses)

    @property
    def allowed(self) -> float:
        """What the budget lets a device spend over the time, whatever it is asked, in nats; infinite without a bound."""
        lifetime, per_window = (inf if bound is None else bound for bound in (self.budget.lifetime, self.budget.per_window))
        return lifetime if self.days is None else min(lifetime, per_window * ceil(self.days / self.budget.window))

    @property
    def fits(self) -> bool:
        """Whether the ledger would refuse nothing."""
        lifetime, per_window = (inf if bound is None else bound for bound in (self.budget.lifetime, self.budget.per_window))
        return self.window <= per_window and self.lifetime <= lifetime


def periods(length: str, days: int) -> int:
    """Return how many periods so many days in a row touch at most.

    Parameters
    ----------
    length
        One of `deniable.period.LENGTHS`.
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
    own = (Caps() if caps is None else caps).budget
    budget = own.tightened(registry.budget) if registry.budget else own
    window = ceil(budget.window)
    if reports is None:
        days = window if days is None else checks.count("days", days)
    else:
        checks.count("reports", reports)
    most = inf if answers is None else checks.count("answers", answers)
    uses = []
    for metric in (registry.metrics[id_] for id_ in dict.fromkeys(metrics) or registry.metrics):
        mechanism = mechanisms.of(metric)
        in_window = periods(metric.period, window)
        occasions = reports if reports is not None else periods(metric.period, days or window)
        in_window = min(occasions, in_window) if days is not None or metric.kept else occasions
        drawn = min(most, mechanism.kept_responses) if isinstance(mechanism, Chain) and metric.kept else 0
        uses.append(
            Use(
                metric=metric,
                mechanism=mechanism,
                occasions=occasions,
                answers=int(min(occasions, drawn)),
                window_occasions=in_window,
                window_answers=int(min(in_window, drawn)),
            )
        )
    return Plan(tuple(uses), days, budget)
