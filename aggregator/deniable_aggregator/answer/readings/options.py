"""What is read of a set: the share of each option, how many people choose, and which together."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations, islice
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable_aggregator.answer.model.shares import Chosen, PairEstimate
from deniable_aggregator.answer.readings.shares import ShareReading
from deniable_aggregator.decode import panel
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.sets import options
from deniable_aggregator.decode.sets.pairs import pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

_MOST_PAIRS = 500


class OptionReading(ShareReading):
    """The share of each option. Shares of options need not sum to 1: each is possible alone."""

    @cached_property
    def _decoded(self) -> tuple[Sequence[int], Estimate]:
        shares = options.option_shares(self.declared.mechanism, self.counted)
        again = self.n and self.repeats
        return range(len(self.declared.metric.values)), panel.Panel(self.n, shares, self.repeats) if again else shares

    @property
    def possible(self) -> NDArray[np.float64]:
        """Shares that are possible."""
        return np.clip(self.shares.frequency, 0.0, 1.0)

    @property
    def lowered_by(self) -> float:
        """Unknown: there is no whole."""
        return float("nan")

    def _chosen(self, level: float) -> Chosen:
        mechanism = self.declared.mechanism
        average, stderr = options.chosen(mechanism, self.counted, repeats=self.repeats)
        reach = -float(ndtri(tail(level))) * stderr
        together = self._pairs(level) if self.declared.metric.joint else []
        return Chosen(average, stderr, (average - reach, average + reach), together)

    def _pairs(self, level: float) -> list[PairEstimate]:
        estimates = pairs(self.declared.mechanism, self.counted, repeats=self.repeats)
        columns = (estimates.n, estimates.both, estimates.stderr, *estimates.interval(level), estimates.p_value)
        rows = zip(combinations(self.declared.metric.values, 2), *(column.tolist() for column in columns), strict=True)
        return [
            PairEstimate((str(first), str(second)), n, both, stderr, (low, high), finite(p_value))
            for (first, second), n, both, stderr, low, high, p_value in islice(rows, _MOST_PAIRS)
        ]
