"""How likely payloads are under each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable_aggregator import tally
from deniable_aggregator.decode.families import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism


def likelihood(
    mechanism: Mechanism,
    payloads: bytes,  # whole payloads, one after another
    # The values wanted, by default the whole domain. People with other values are counted under the value that looks most alike.
    # So leave out no frequent value, or add a column for the others (`bit_likelihood`).
    values: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Compute how likely each report is under each value, (reports, values), 1 for the likeliest."""
    # For most mechanisms, one likelihood ratio separates the values that a report supports from the others: the declared `ratio`,
    # which is the largest. A report of dBitFlip supports some values, opposes some, and says nothing of the others. Bloom filters
    # have a likelihood for each bit. A number between two points of a window may have been rounded to either.
    layout = mechanism.layout
    if reason := tally.sift(layout, payloads)[2]:
        raise reason
    candidates = np.arange(mechanism.domain_size) if values is None else np.asarray(values, object)
    if not len(candidates) or any(not 0 <= value < mechanism.domain_size for value in candidates):
        raise ParameterError(
            f"a candidate is outside the domain, or there is none: give numbers from 0 to {mechanism.domain_size - 1}"
        )
    table = np.frombuffer(payloads, np.uint8).reshape(-1, layout.payload_size)
    return family_of(mechanism).likelihood(table, candidates)
