"""The cost of reports: epsilon, number, and the share of them that say anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, exp, inf, nextafter
from typing import TYPE_CHECKING, Self

from deniable.errors import ParameterError
from deniable.exact.epsilon import exact
from deniable.limits.allowance import MICRO, cost
from deniable_aggregator import checks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.mechanisms import Mechanism


@dataclass(frozen=True, slots=True)
class Spend:
    """Independent reports of one kind.

    For any two answers, a report with probability `share` is a coin that favours the true one by epsilon. Otherwise it says
    nothing about the two. A share of 1 is the worst case of an epsilon-private mechanism.
    """

    cost: int  # epsilon of a report in millionths of a nat, rounded up, as the ledger counts it
    count: int = 1  # reports, at least 0
    share: float = 1.0  # in (0, 1]

    def __post_init__(self) -> None:
        checks.count("cost", self.cost)
        checks.count("count", self.count, 0)
        if not 0 < self.share <= 1:
            raise ParameterError("share: write a probability above 0", self.share)

    @classmethod
    def of_epsilon(cls, epsilon: float | str | Fraction, count: int = 1) -> Self:
        """Make the spend of reports of which only epsilon is known, as it was written."""
        return cls(ceil(exact(epsilon) * MICRO), count)

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,  # of independent reports
        count: int = 1,  # occasions to report
        # Share of the occasions with a report, drawn by the device independently of the answer. Everybody can see whether there
        # was one.
        sample: Fraction = Fraction(1),
    ) -> Self:
        """Make the spend of a mechanism's reports from its exact parameters."""
        return cls(cost(mechanism.ratio), count, up(mechanism.telling * sample))

    @property
    def epsilon(self) -> float:
        """Of a report, in nats."""
        return self.cost / MICRO

    @property
    def total(self) -> int:
        """Of all reports, as a plain sum, in millionths of a nat."""
        return self.cost * self.count

    @property
    def favoured(self) -> float:
        """Probability that a report favours the true one of two answers."""
        return self.share / (1 + exp(-self.epsilon))

    def times(self, factor: int) -> Self:
        """Return the spend of `factor` times as many reports."""
        return replace(self, count=self.count * factor)


def merged(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Merge spends of one kind, and leave out those of no report."""
    counts: dict[tuple[int, float], int] = {}
    for spend in spends:
        kind = spend.cost, spend.share
        counts[kind] = counts.get(kind, 0) + spend.count
    return tuple(Spend(cost, count, share) for (cost, share), count in sorted(counts.items()) if count)


def up(share: Fraction) -> float:
    """Write a share as a float, rounded up."""
    return min(1.0, nextafter(float(share), inf)) if share < 1 else 1.0
