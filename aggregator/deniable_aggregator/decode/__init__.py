"""Decoding: from a tally to the reports that support each value, and from there to estimates.

Decoders run when a metric is read and cost no privacy. Most mechanisms need none: the columns of their tally are the values.
`families` has the inverse of those that hash or transform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.messages.plural import plural
from deniable.wire.layout import MAX_CELLS
from deniable_aggregator.decode.families import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

__all__ = ["estimate", "squared_mass", "supports"]


def estimate(
    mechanism: Mechanism, tally: Tally, values: Sequence[int] | None = None, *, repeats: float = 0.0, permanent: bool = False
) -> Estimate:
    """Estimate frequencies from a tally.

    Parameters
    ----------
    mechanism
        What the devices ran.
    tally
        The sum of their reports.
    values
        The values wanted, each in [0, domain_size) and listed once; by default the whole domain. If the domain is too large for
        that, such as all texts, these are candidates: values that people might hold.
    repeats
        How many other reports the device of a report has made, on average, at most.
        ``deniable_aggregator.decode.panel`` bounds it.
    permanent
        Whether the devices keep their permanent responses.

    Returns
    -------
    Estimate
        In the order of the values.

    Raises
    ------
    ParameterError
        If the tally does not have the mechanism's layout, or values are missing, outside the domain or listed twice. Or if the
        mechanism estimates no shares.
    """
    if mechanism.odds is None:
        raise ParameterError("mechanism: choose a frequency oracle, whose reports show shares of values", mechanism.name)
    tally.check_decoder(mechanism)
    if values is None:
        if mechanism.domain_size > MAX_CELLS:
            raise ParameterError(f"the domain has more than {MAX_CELLS} values: give the candidates to decode as values")
    else:
        if any(not 0 <= value < mechanism.domain_size for value in values):
            raise ParameterError(f"a candidate is outside the domain: give numbers from 0 to {mechanism.domain_size - 1}")
        if len(set(values)) != len(values):
            raise ParameterError(f"{plural(len(values) - len(set(values)), 'candidate')} too many: list each once")
    return family_of(mechanism).estimate(tally, values, repeats, permanent=permanent)


def squared_mass(
    cells: NDArray[np.int64],  # (rows, width): reports that support each place
    reports: NDArray[np.int64],  # (rows,)
    # p, other: probability that a report supports the true value's place, and any other place
    p: float,
    other: float,
) -> float:
    """Estimate the sum of f^2 over all values from the pairs of reports within each row, brought into [0, 1]."""
    # Two reports of one row both support place j with probability s_j^2. Here s_j = other + (p - other) m_j, and m_j is the mass
    # that hashes to the place. So pairs give an unbiased estimate of sum(s^2), and sum(m) = 1. Over random functions, E sum(m^2)
    # = F + (1 - F) / width.
    width = cells.shape[1]
    pairs = float((reports * (reports - 1)).sum())
    if not pairs:
        return 1.0
    both = float((cells * (cells - 1)).sum()) / pairs
    gain = p - other
    buckets = (both - width * other**2 - 2 * other * gain) / gain**2
    return float(np.clip((buckets - 1 / width) / (1 - 1 / width), 0.0, 1.0))


def supports(mechanism: Mechanism, tally: Tally) -> NDArray[np.int64]:
    """Count, for each value of a whole domain, the reports that support it; raise `ParameterError` if they are not counted so."""
    return family_of(mechanism).supports(tally)
