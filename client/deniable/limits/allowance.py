"""What each metric may spend. This follows from the registry and the budget, and does not depend on any answer.

Every metric has its own reserved part of the budget. So if one metric stops, this says nothing about the answers to another.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf, log, nextafter
from typing import TYPE_CHECKING

from deniable.frozen import dataclass
from deniable.messages.plural import plural
from deniable.registry.period import MOST_IN_MONTH

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable.registry.tables import Budget

MICRO = 1_000_000
"""Budgets are counted in millionths of a nat."""


def micro(
    nats: float,  # a bound, as written
) -> int:
    """Return a bound in millionths of a nat, rounded down. What is written as 8.2 is 8,200,000, whatever floating point makes."""
    return int(Fraction(str(nats)) * MICRO)


def month_of(budget: Budget) -> float:
    """Return what a budget allows in a month, in millionths of a nat."""
    return inf if budget.per_month is None else micro(budget.per_month)


def cost(
    ratio: Fraction,  # a worst likelihood ratio, at least 1
) -> int:
    """Return ln(ratio) in millionths of a nat, rounded up."""
    loss = log(ratio.numerator) - log(ratio.denominator)
    return ceil(nextafter(loss, inf) * MICRO)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a device may spend on one metric."""

    metric: str  # the metric's id
    tag: str  # The metric's fingerprint. A metric with another meaning or version has a new account.
    cost: int  # cost of a report in millionths of a nat; with permanent responses, cost of a response
    per_period: int  # most reports in a period
    answers: int  # most permanent responses that are reported in a calendar month; 0 if none is kept
    month: int  # the part of any calendar month that is reserved, in millionths of a nat
    lifetime: int | None  # the part of the lifetime that is reserved, in millionths of a nat; None if the lifetime has no bound

    @classmethod
    def of(
        cls,
        declared: Declared,  # the metric
        budget: Budget,  # the device's budget
    ) -> Allowance:
        """Compute what a metric may spend."""
        metric, permanent = declared.metric, declared.permanent
        # In a month a metric may spend the cost of the reports of all periods that end in it.
        occasions = MOST_IN_MONTH[metric.period] * metric.per_period
        answers, price, most = 0, cost(declared.mechanism.ratio), inf
        if permanent and permanent.permanent_ratio is not None:
            most = inf if metric.open else permanent.kept_responses
            answers = occasions = int(min(metric.answers_per_month, most, occasions))
            price = cost(permanent.permanent_ratio)
        # With permanent responses it may spend the cost of `answers` responses.
        month, lifetime = occasions * price, None
        if budget.per_month is not None and budget.lifetime is not None:
            # Its part of the lifetime is its part of the month, times the budget's lifetime / per_month.
            share = int(month * Fraction(str(budget.lifetime)) / Fraction(str(budget.per_month)))
            # The smallest lifetime is one month. It pays for all answers of this month.
            lifetime = int(min(share - share % price, most * price))
        return cls(metric.id, declared.fingerprint, price, metric.per_period, answers, month, lifetime)

    @property
    def price(self) -> str:
        """Its cost in words."""
        return plural(self.cost / MICRO, "nat", ".6g")

    @property
    def answers_ever(self) -> float:
        """Most permanent responses that the device ever draws; infinite without a bound."""
        return inf if self.lifetime is None else self.lifetime // self.cost

    @property
    def due(self) -> int:
        """What the first report spends of the lifetime if responses are kept: the whole reserve."""
        # If each response were paid for separately, the rest would show how many different answers there were.
        return self.month if self.lifetime is None else self.lifetime


@dataclass(frozen=True, slots=True)
class Admitted:
    """A metric, and what it may spend."""

    declared: Declared
    allowance: Allowance
