"""Some values of an estimate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.decode.estimate import Estimate
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Target


def some_values(estimate: Estimate, places: list[int]) -> Estimate:
    """Return an estimate of some values only, in this order; nothing else of it changes."""
    if places == list(range(len(estimate.frequency))):
        return estimate
    chosen = np.array(places, np.int64)
    if isinstance(estimate, Panel):
        return replace(estimate, apart=some_values(estimate.apart, places))
    if isinstance(estimate, Supported):
        touched = None if estimate.touched is None else estimate.touched[chosen]
        return replace(estimate, support=estimate.support[chosen], touched=touched, shares=estimate.plausible[chosen])
    return _Some(estimate.n, estimate, chosen)


@dataclass(frozen=True, eq=False)
class _Some(Estimate):
    """Some values of any estimate."""

    n: int
    whole: Estimate
    places: NDArray[np.int64]

    @property
    def reports(self) -> NDArray[np.int64]:
        return self.whole.reports[self.places]

    @property
    def frequency(self) -> NDArray[np.float64]:
        return self.whole.frequency[self.places]

    @property
    def stderr(self) -> NDArray[np.float64]:
        return self.whole.stderr[self.places]

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        return self.whole.respondents_stderr[self.places]

    @property
    def shared(self) -> NDArray[np.float64]:
        return self.whole.shared[self.places]

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        return self.whole.absent_stderr[self.places]

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = self.whole._interval(chance, target)  # noqa: SLF001 - an estimate, too
        return low[self.places], high[self.places]
