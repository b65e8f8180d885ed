"""How a quantile differs between two sides, whatever the rest of their distributions is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc

from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.decode.numbers.distribution import Near
    from deniable_aggregator.inference.difference import Ends

FARTHEST = 40.0
"""Places that fit worse than by this are not looked at: the chance that one of them is right is below 1e-9."""


@dataclass(frozen=True, eq=False)
class QuantileDifference:
    """How a quantile differs between two sides: second - first. It has what `Difference` has, for one estimate."""

    # A difference is possible if some pair of places so far apart fits the reports of both sides. How badly a pair fits is the
    # sum of two chi-square distances. Where answers are smooth, the best pair of the true difference fits worse by a chi-square
    # of one degree of freedom. Where many answers are equal, each side is off to one side only, if at all: by the square of a
    # normal number if that is positive, else by 0. Then both together have the law of `_chance`, which is the wider one.
    # S. G. Self, K.-Y. Liang: Asymptotic properties of maximum likelihood estimators and likelihood ratio tests under nonstandard
    # conditions. JASA 82(398), 1987, case 7.

    first: Near
    second: Near

    @property
    def hypotheses(self) -> int:
        """How many differences are tested."""
        return 1

    @property
    def sides(self) -> Ends:
        """The estimates of both sides; (1,) each."""
        return np.array([self.first.place]), np.array([self.second.place])

    @property
    def estimates(self) -> NDArray[np.float64]:
        """The difference of both sides' estimates; (1,)."""
        return np.array([self.second.place - self.first.place])

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> Ends:
        """Return the least and the greatest difference that is possible; (1,) each. `simultaneous` changes nothing for one."""
        chance = 2 * tail(level, self.hypotheses if simultaneous else 1)
        limit = (
            brentq(lambda worse: _chance(worse) - chance, 0.0, FARTHEST) if _chance(FARTHEST) < chance < _chance(0) else FARTHEST
        )
        possible, (low, high), (estimate,) = self._worse <= limit, self._differences, self.estimates
        return np.array([min(low[possible].min(), estimate)]), np.array([max(high[possible].max(), estimate)])

    @property
    def p_value(self) -> NDArray[np.float64]:
        """The chance of error at which the interval just includes 0; (1,)."""
        low, high = self._differences
        same = (low <= 0) & (high >= 0)
        worse = float(self._worse[same].min()) if same.any() else FARTHEST
        return np.array([_chance(worse) if worse else 1.0])

    @cached_property
    def _worse(self) -> NDArray[np.float64]:
        """By how much the reports fit worse to each pair of places; (places, places)."""
        return np.asarray(self.first.worse[:, None] + self.second.worse)

    @cached_property
    def _differences(self) -> Ends:
        """The least and the greatest difference between each pair of places; (places, places) each."""
        return self.second.low - self.first.high[:, None], self.second.high - self.first.low[:, None]


def _chance(worse: float) -> float:
    """Return the chance of more than this, of two sides of which each is off in one direction only."""
    return float(chdtrc(1, worse) / 2 + chdtrc(2, worse) / 4)
