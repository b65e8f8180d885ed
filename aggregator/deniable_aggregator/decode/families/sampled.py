"""Tallies of sets: a report is about one option or one pair, and says what the answer has there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.mechanisms.sampled_option import Sampled
from deniable_aggregator.decode.families.family import Family, topped

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rows(Family[Sampled]):
    """Each row is an option or a pair."""

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Compute the probability of what each report says, given its row, under each set."""
        payloads, places = self.distinct(table)
        cells = [self.mechanism.layout.unpack(payload) for payload in payloads]
        true = np.array([[self.mechanism.index(value, row) == named for value in values.tolist()] for row, named in cells])
        return topped(np.where(true, float(self.mechanism.keep), float(self.mechanism.other)))[places]
