"""How often the best guesser is right who sees a device's reports, and how sure anybody can become of an answer.

All figures are upper bounds from the distribution of the privacy loss (`deniable_aggregator.accounting.losses`). Let t be what
two answers' reports differ by (total variation). Who has to tell two equally likely answers apart is right with probability
(1 + t) / 2 at most; one of d equally likely answers is found with probability 1/d + (1 - 1/d) t at most; and who is right already
with probability a, since one answer is that likely, with a + (1 - a) delta, where delta is that of an epsilon of ln(a / (1 - a)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import TYPE_CHECKING

from deniable.limits.allowance import cost
from deniable.mechanisms.permanent import Permanent
from deniable_aggregator.accounting.losses import together
from deniable_aggregator.accounting.plan import periods
from deniable_aggregator.accounting.spend import Spend
from deniable_aggregator.attack.observer import Observer

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric

__all__ = ["SURE", "Guess", "guesses", "posterior"]

SURE = 0.9
"""What one answer is likely by before any report, in the last of the cases."""

_REPORTS = (1, 10, 100)
_YEAR = 365  # days
_ROWS = 64  # of a mechanism whose kept responses are summed over here; else the bound of its epsilon does
_VALUES = 64


@dataclass(frozen=True, slots=True)
class Guess:
    """Probabilities that the best guess is right, at most.

    Parameters
    ----------
    reports
        Of one device; 0 for none, None for any number of copies of one kept response.
    epsilon
        Of all of them, by the plain sum, in nats; infinite for no bound.
    even
        With two answers, equally likely before.
    alike
        With all possible answers, equally likely before; None where they are too many to be listed.
    sure
        With one answer that is `SURE` before, and any others.
    """

    reports: int | None
    epsilon: float
    even: float
    alike: float | None
    sure: float


def posterior(prior: float, epsilon: float) -> float:
    """Return how likely an answer can become at most, whatever reports of that epsilon say.

    Parameters
    ----------
    prior
        How likely it was before, in (0, 1).
    epsilon
        Of the reports together, in nats; infinite for no bound.
    """
    return 1 / (1 + (1 - prior) / prior * exp(-epsilon))


def guesses(metric: Metric, mechanism: Mechanism) -> tuple[Guess, ...]:
    """Bound the guesses from no report, from one, and last from all that a device makes of one answer in a year."""
    size = None if metric.open else metric.domain_size
    found = [Guess(0, epsilon=0.0, even=0.5, alike=None if size is None else 1 / size, sure=SURE)]
    if metric.kept:
        return (*found, _fresh(mechanism, 1, size), _kept(mechanism, size))
    year = metric.per_period * periods(metric.period, _YEAR)
    counts = sorted({*(reports for reports in _REPORTS if reports <= year), year})
    return (*found, *(_fresh(mechanism, reports, size) for reports in counts))


def _fresh(mechanism: Mechanism, reports: int, size: int | None) -> Guess:
    return _bounded([Spend.of(mechanism, reports)], reports, reports * mechanism.epsilon, size)


def _kept(mechanism: Mechanism, size: int | None) -> Guess:
    if not isinstance(mechanism, Permanent) or mechanism.permanent_ratio is None:
        return Guess(None, epsilon=inf, even=1.0, alike=1.0, sure=1.0)  # a kept response may be the answer itself
    bound = _bounded([Spend(cost(mechanism.permanent_ratio))], None, mechanism.epsilon_permanent, size)
    if bound.alike is None or mechanism.domain_size > _VALUES or mechanism.layout.rows > _ROWS:
        return bound
    return replace(bound, alike=min(bound.alike, Observer(mechanism).bound().success))


def _bounded(spends: list[Spend], reports: int | None, epsilon: float, size: int | None) -> Guess:
    losses = together(spends)
    apart, total = losses.delta(0.0), sum(spend.count * spend.epsilon for spend in spends)
    return Guess(
        reports,
        epsilon=epsilon,
        even=min((1 + apart) / 2, posterior(0.5, total)),
        alike=None if size is None else min(1 / size + (1 - 1 / size) * apart, posterior(1 / size, total)),
        sure=min(SURE + (1 - SURE) * losses.delta(log(SURE / (1 - SURE))), posterior(SURE, total)),
    )
