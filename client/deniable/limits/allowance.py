"""What each metric may spend. This follows from the registry and the budget, and does not depend on any answer.

Every metric has its own reserved part of the budget. So if one metric stops, this says nothing about the answers to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, log, nextafter
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.errors import ConfigurationError
from deniable.registry import period

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.registry import Registry
    from deniable.registry.tables import Budget

_REMEMBERED = 400.0  # days

MICRO = 1_000_000
"""Budgets are counted in millionths of a nat."""


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
    answers: int  # most permanent responses that are reported in a window; 0 if none is kept
    window: int  # the part of any window of the budget that is reserved, in millionths of a nat
    lifetime: int | None  # the part of the lifetime that is reserved, in millionths of a nat; None if the lifetime has no bound
    # Number of periods whose spends are kept: all that a window touches, or 400 days. An update may lengthen the window.
    remembered: int = 10_000

    @classmethod
    def of(
        cls,
        declared: Declared,  # the metric
        budget: Budget,  # the device's budget
    ) -> Allowance:
        """Compute what a metric may spend."""
        metric, permanent = declared.metric, declared.permanent
        # In a window a metric may spend the cost of the reports of all periods that the window touches.
        occasions = period.touched(metric.period, budget.window) * metric.per_period
        answers, price, most = 0, cost(declared.mechanism.ratio), inf
        if permanent and permanent.permanent_ratio is not None:
            most = inf if metric.open else permanent.kept_responses
            answers = occasions = int(min(metric.answers_per_window, most, occasions))
            price = cost(permanent.permanent_ratio)
        # With permanent responses it may spend the cost of `answers` responses.
        window, lifetime = occasions * price, None
        if budget.per_window is not None and budget.lifetime is not None:
            # Its part of the lifetime is its part of the window, times the budget's lifetime / per_window.
            share = int(window * Fraction(budget.lifetime) / Fraction(budget.per_window))
            # The smallest lifetime is one window. It pays for all answers of this window.
            lifetime = int(min(share - share % price, most * price))
        remembered = period.touched(metric.period, max(budget.window, _REMEMBERED))
        return cls(metric.id, declared.fingerprint, price, metric.per_period, answers, window, lifetime, remembered)

    @property
    def answers_ever(self) -> float:
        """Most permanent responses that the device ever draws; infinite without a bound."""
        return inf if self.lifetime is None else self.lifetime // self.cost

    @property
    def due(self) -> int:
        """What the first report spends of the lifetime if responses are kept: the whole reserve."""
        # If each response were paid for separately, the rest would show how many different answers there were.
        return self.window if self.lifetime is None else self.lifetime


def reserved(
    registry: Registry,
    budget: Budget,  # the device's budget
) -> dict[str, Allowance]:
    """Compute what each metric of a registry may spend; raise `ParameterError` if a metric has no mechanism."""
    return {id_: Allowance.of(Declared.of(metric), budget) for id_, metric in registry.metrics.items()}


@dataclass(frozen=True, slots=True)
class Unfit:
    """A registry that asks for more than a budget has."""

    rule: str  # the broken rule and what would fit, in words
    value: str  # what the metrics ask for, the largest first, in words


_NAMED = 5  # most metrics that a message names


def unfit(
    allowances: Iterable[Allowance],  # allowances of all metrics whose collection has not ended
    budget: Budget,  # the device's budget
) -> Unfit | None:
    """Return how the reserved parts of all metrics together exceed the budget; None if they fit."""
    largest = sorted(allowances, key=lambda allowance: -allowance.window)
    # The lifetime needs no check: its parts are those of the window, times the same number.
    total = sum(allowance.window for allowance in largest)
    if budget.per_window is None or total <= int(budget.per_window * MICRO):
        return None
    words = [f"{allowance.metric} {allowance.window / MICRO:.4g}" for allowance in largest[:_NAMED]]
    if len(largest) > _NAMED:
        words.append(f"{len(largest) - _NAMED} others {sum(allowance.window for allowance in largest[_NAMED:]) / MICRO:.4g}")
    least = ceil(total / MICRO * 10) / 10
    rule = (
        f"all metrics together fit into the budget of {budget.per_window:g} nats in any {budget.window:g} days, and they ask for "
        f"{total / MICRO:.4g}: raise per_window to {least:g} (in [budget] and in the app's Caps), or ask for less: a smaller "
        f"epsilon, a longer period, epsilon_permanent where a metric is recorded again and again"
    )
    return Unfit(rule, ", ".join(words))


def check(allowances: Iterable[Allowance], budget: Budget) -> None:
    """Refuse a registry that asks for more than a budget has; raise `ConfigurationError` if they do not fit."""
    excess = unfit(allowances, budget)
    if excess is not None:
        raise ConfigurationError(f"{excess.rule}; got {excess.value}")
