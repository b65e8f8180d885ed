"""How often the best guess from a device's reports is right, and how sure anybody can become of an answer.

All figures are upper bounds. Let t be the total variation distance between two answers' reports. Then the probability of a right
guess is at most

* (1 + t) / 2, for two answers that are equally likely, which `deniable.limits.guess` computes;
* 1/d + (1 - 1/d) t, for d answers that are equally likely;
* a + (1 - a) delta, if one answer has probability a before. Here delta belongs to an epsilon of ln(a / (1 - a)), by
  `deniable_aggregator.accounting.losses`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import TYPE_CHECKING

from deniable.limits.allowance import cost
from deniable.limits.guess import reports_in_year, right
from deniable_aggregator.accounting.losses import together
from deniable_aggregator.accounting.spend import Spend
from deniable_aggregator.attack.observer import Observer

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable.mechanisms import Mechanism
    from deniable.mechanisms.permanent import Permanent

SURE = 0.9
"""Probability of one answer before any report, in the last of these cases."""

_REPORTS = (1, 10, 100)
_ROWS = 64  # rows of a mechanism up to which kept responses are summed over; for more, epsilon gives the bound
_VALUES = 64


@dataclass(frozen=True, slots=True)
class Guess:
    """Upper bounds on the probability that the best guess is right."""

    reports: int | None  # number of reports of one device; 0 for none, None for any number of copies of one kept response
    epsilon: float  # epsilon of all of them, by the plain sum, in nats; infinite without a bound
    even: float  # for two answers that are equally likely before
    alike: float | None  # for all possible answers, equally likely before; None if they cannot be listed
    sure: float  # for one answer with probability `SURE` before, and any others


def posterior(
    prior: float,  # its probability before, in (0, 1)
    epsilon: float,  # of all reports together, in nats; infinite without a bound
) -> float:
    """Return the largest probability that an answer can reach after reports of this epsilon."""
    return 1 / (1 + (1 - prior) / prior * exp(-epsilon))


def guesses(declared: Declared) -> tuple[Guess, ...]:
    """Bound the guesses from no report, from one, and from all reports of one answer of a device in a year."""
    metric, mechanism = declared.metric, declared.mechanism
    size = None if metric.open or metric.axis else metric.domain_size
    prior = [Guess(0, epsilon=0.0, even=0.5, alike=None if size is None else 1 / size, sure=SURE)]
    if metric.permanent:
        return (*prior, _fresh(mechanism, 1, size), _permanent(declared.permanent, size))
    year = reports_in_year(metric)
    counts = sorted({*(reports for reports in _REPORTS if reports <= year), year})
    return (*prior, *(_fresh(mechanism, reports, size) for reports in counts))


def _fresh(mechanism: Mechanism, reports: int, size: int | None) -> Guess:
    return _bounded(Spend.of(mechanism, reports), reports, reports * mechanism.epsilon, size)


def _permanent(mechanism: Permanent | None, size: int | None) -> Guess:
    if mechanism is None or mechanism.permanent_ratio is None:
        return Guess(None, epsilon=inf, even=1.0, alike=1.0, sure=1.0)  # a kept response may be the answer itself
    bound = _bounded(Spend(cost(mechanism.permanent_ratio)), None, mechanism.epsilon_permanent, size)
    if bound.alike is None or mechanism.domain_size > _VALUES or mechanism.layout.rows > _ROWS:
        return bound
    return replace(bound, alike=min(bound.alike, Observer(mechanism).bound().success))


def _bounded(spend: Spend, reports: int | None, epsilon: float, size: int | None) -> Guess:
    even, total = right(spend.cost, spend.count, spend.share), spend.count * spend.epsilon
    return Guess(
        reports,
        epsilon=epsilon,
        even=even,
        alike=None if size is None else min(1 / size + (1 - 1 / size) * (2 * even - 1), posterior(1 / size, total)),
        sure=min(SURE + (1 - SURE) * together([spend]).delta(log(SURE / (1 - SURE))), posterior(SURE, total)),
    )
