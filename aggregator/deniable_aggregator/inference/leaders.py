"""Leaders: which of many values is the most frequent one, or which ones may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.share_difference import difference_variance, resolution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

_MOST_COUNTED = 1024
"""Values of which all pairs are tested in steps; of more, whose steps hardly differ from the first, in one."""


@dataclass(frozen=True, eq=False)
class Leaders:
    """The values of an estimate that may be the most frequent one."""

    estimate: Estimate  # with reports
    level: float  # of all that is said together

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Places of the values of known share, by falling share."""
        known = np.flatnonzero(~np.isnan(self.estimate.frequency))
        return np.asarray(known[np.argsort(-self.estimate.frequency[known], kind="stable")], np.intp)

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Places of the leaders, by falling share; one, if it is found to be the most frequent; none without a known share."""
        if not len(self.order):
            return self.order
        if self.is_found:
            return self.order[:1]
        return np.asarray(self.order[np.concatenate([[True], self.ahead_by <= self._step])], np.intp)

    @cached_property
    def is_found(self) -> bool:
        """Whether the first in `order` is found to be the most frequent value; a single one is, none is not."""
        # The first is picked by looking. It must be above each other value, not only above the second: where errors differ, the
        # second may be far below but known well, and a third known badly. All these tests must reject, so each is at the level.
        return len(self.order) == 1 or (len(self.order) > 1 and bool((self.ahead_by > self.needed).all()))

    @cached_property
    def ahead_by(self) -> NDArray[np.float64]:
        """How many standard errors the first is above each other value in `order`, (values - 1,)."""
        return np.asarray(self._above(self.order[:1])[0, 1:], np.float64)

    @property
    def needed(self) -> float:
        """How many standard errors the first must be above each other value to be found to lead."""
        return -float(ndtri(tail(self.level)))

    @cached_property
    def ahead(self) -> bool:
        """Whether each leader is found to be above every other value."""
        others = len(self.places)
        if others == len(self.order):
            return False
        return others == 1 or bool((self._above(self.places)[:, ~np.isin(self.order, self.places)] > self._step).all())

    @cached_property
    def _step(self) -> float:
        """The score above which Holm's test of all pairs of values rejects."""
        # Holm's steps go on while there are p-values below `alpha / (tests not rejected yet)`. Counting all of them, again and
        # again, ends where going one by one ends.
        count = len(self.order)
        pairs = count * (count - 1) // 2
        scores = self._above(self.order) if count <= _MOST_COUNTED else np.zeros(0)
        rejected, before = 0, -1
        while before < rejected < pairs:
            before, step = rejected, -float(ndtri(tail(self.level, pairs - rejected)))
            rejected = int(np.count_nonzero(scores > step))
        return step

    def _above(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return how many standard errors some values are above each in `order`, (places, order), to the next half report."""
        shares, unit = self.estimate.frequency, resolution(self.estimate)
        difference = shares[places, None] - shares[self.order]
        nearer = np.maximum(np.abs(difference) - (unit[places, None] + unit[self.order]) / 2, 0.0)
        error = np.sqrt(difference_variance(self.estimate, places)[:, self.order])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(np.sign(difference) * nearer / error, nan=0.0)
