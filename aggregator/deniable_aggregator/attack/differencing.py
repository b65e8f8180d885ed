"""The differencing attack: a group is counted with a person and without, and an observer subtracts.

The question has two answers, and each is as likely. The observer knows that one person has left, and what is published of the
group before and after. The bound is what the epsilon of the person's report, or of the noise, allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable import mechanisms
from deniable_aggregator import checks
from deniable_aggregator.decode.binomial import clopper_pearson

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_LEVEL = 0.95
_LEFT = 1  # people who left: so many reports the difference rests on


@dataclass(frozen=True, slots=True)
class Guesses:
    """How often the observer was right."""

    published: str  # what is published of the group, before and after: `counts`, `noisy counts`, `reports` or `releases`
    # right, runs: right guesses, and all
    right: int
    runs: int
    bound: float  # the most that any observer can be right, as a share
    # success, low, high: the share of right guesses, and the ends of its 95% interval (Clopper and Pearson)
    success: float = field(init=False)
    low: float = field(init=False)
    high: float = field(init=False)

    def __post_init__(self) -> None:
        low, high = clopper_pearson(np.array([self.right]), self.runs, (1 - _LEVEL) / 2)
        for name, value in (("success", self.right / self.runs), ("low", float(low[0])), ("high", float(high[0]))):
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Write it for programs."""
        interval = [self.low, self.high]
        return {"published": self.published, "success": self.success, "interval": interval, "bound": self.bound}


def differencing(
    *,
    epsilon: float | str | Fraction,  # of a randomised report, and of the noise in a count
    people: int,  # in the group before one of them leaves, at least 2
    min_reports: int,  # fewest reports that a release, or a difference of two, rests on
    runs: int,  # groups, at least 1
    rng: np.random.Generator,  # where chance comes from
) -> tuple[Guesses, ...]:
    """Let an observer guess the answer of the person who left, from four kinds of publication."""
    # From exact counts of the answers; from counts with discrete Laplace noise of the server, drawn anew for each; from sums of
    # randomised reports, both published; and from our releases. These are such sums, and the second is withheld if fewer than
    # `min_reports` reports make the difference.
    checks.count("people", people, 2)
    checks.count("min_reports", min_reports)
    checks.count("runs", runs)
    mechanism: Any = mechanisms.make("binary", domain_size=2, epsilon=epsilon)
    bound = exp(mechanism.epsilon) / (1 + exp(mechanism.epsilon))
    answers = rng.integers(0, 2, runs)
    others = rng.binomial(people - _LEFT, 0.5, runs)
    noise = [_laplace(mechanism.epsilon, runs, rng) for _ in range(2)]
    reported = rng.random(runs) < np.where(answers, float(mechanism.p), float(mechanism.q))
    # The reports of the others are the same before and after, so the difference is the report of the person who left.
    reports = rng.binomial(others, float(mechanism.p)) + rng.binomial(people - _LEFT - others, float(mechanism.q))
    differences = {
        "counts": (answers + others) - others,
        "noisy counts": (answers + others + noise[0]) - (others + noise[1]),
        "reports": (reported + reports) - reports,
    }
    guesses = {name: difference >= 1 for name, difference in differences.items()}
    guesses["releases"] = guesses["reports"] if min_reports <= _LEFT else _by_majority(reported + reports, people, rng)
    return tuple(
        Guesses(name, int((guess == answers).sum()), runs, 1.0 if name == "counts" else bound) for name, guess in guesses.items()
    )


def _by_majority(reports: Integers, people: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Guess what most reports of the group say, where nothing else is known."""
    return np.asarray(2 * reports + rng.integers(0, 2, len(reports)) > people)


def _laplace(epsilon: float, runs: int, rng: np.random.Generator) -> Integers:
    """Draw discrete Laplace noise: ``P(X = x)`` is proportional to ``exp(-epsilon |x|)``."""
    first, second = rng.geometric(-np.expm1(-epsilon), (2, runs))
    return np.asarray(first - second)
