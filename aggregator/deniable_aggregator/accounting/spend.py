"""What reports spend: an epsilon, how many there are of it, and how many of them say anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, exp, inf, nextafter
from typing import TYPE_CHECKING, Self

from deniable.errors import ParameterError
from deniable.exact.epsilon import exact
from deniable.limits.allowance import MICRO, cost
from deniable_aggregator.accounting import checks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.mechanisms import Mechanism

__all__ = ["Spend", "merged", "telling"]

_TWO_SIDED = frozenset(
    ["coin", "binary", "grr", "sue", "oue", "subset", "local_hash", "hadamard", "pgr", "l_grr", "l_osue", "loloha"]
)
"""Mechanisms of which a report favours one of two answers by all of epsilon, or the other, or says nothing about the two; and
which is as likely for any two answers."""
_HASHED = frozenset(["fast_local_hash", "pem", "tree_hist"])
"""Those of which a report names the hash of the answer, or another cell: it tells nothing about two answers that collide."""


@dataclass(frozen=True, slots=True)
class Spend:
    """Independent reports of one kind.

    For any two answers, a report is the flip of a coin that favours the one by epsilon, or, in all but a `share` of the reports,
    says nothing about the two. Whatever is epsilon-private tells at most what it tells with a share of 1.

    Parameters
    ----------
    cost
        Epsilon of a report in millionths of a nat, rounded up, as the ledger counts it.
    count
        Reports, at least 0.
    share
        In (0, 1].
    """

    cost: int
    count: int = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        checks.count("cost", self.cost)
        checks.count("count", self.count, 0)
        if not 0 < self.share <= 1:
            raise ParameterError("share is a probability above 0", self.share)

    @classmethod
    def given(cls, epsilon: float | str | Fraction, count: int = 1) -> Self:
        """Take an epsilon as it was written, for reports of which nothing else is known."""
        return cls(ceil(exact(epsilon) * MICRO), count)

    @classmethod
    def of(cls, mechanism: Mechanism, count: int = 1, sample: Fraction = Fraction(1)) -> Self:
        """Read the spend of a mechanism's reports off its integers.

        Parameters
        ----------
        mechanism
            Of independent reports.
        count
            Occasions to report.
        sample
            Share of the occasions on which there is a report, drawn by the device without looking at the answer. Whether there
            was one is seen by all.
        """
        return cls(cost(mechanism.ratio), count, _up(telling(mechanism) * sample))

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
        """Return so many times as many reports."""
        return replace(self, count=self.count * factor)


def telling(mechanism: Mechanism) -> Fraction:
    """Return the probability that a report says anything about two answers, whichever they are; 1 where that is not known.

    A report then favours the true one with probability x and the other with x / ratio. It supports the true one, but not the
    other, if and only if it favours it, so p - q = x - x / ratio.
    """
    p, q, ratio = mechanism.p, mechanism.q, mechanism.ratio
    if mechanism.name in _TWO_SIDED or (mechanism.name == "rappor" and getattr(mechanism, "basic", False)):
        return (p - q) * (ratio + 1) / (ratio - 1)
    if mechanism.name in _HASHED:
        return min(Fraction(1), (ratio + 1) / (ratio + mechanism.layout.width - 1))
    return Fraction(1)


def merged(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Put together spends of one kind, and leave out those of no report."""
    counts: dict[tuple[int, float], int] = {}
    for spend in spends:
        kind = spend.cost, spend.share
        counts[kind] = counts.get(kind, 0) + spend.count
    return tuple(Spend(cost, count, share) for (cost, share), count in sorted(counts.items()) if count)


def _up(share: Fraction) -> float:
    return min(1.0, nextafter(float(share), inf)) if share < 1 else 1.0
