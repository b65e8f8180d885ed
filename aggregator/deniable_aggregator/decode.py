"""Decoding: from a tally to how many reports support each value, and from there to estimates.

A decoder runs at read time and costs no privacy. Most mechanisms need none: their tally's columns are the values. Those that
hash or transform have their inverse here.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable_aggregator.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.tally import Tally

__all__ = ["estimate", "supports"]


def estimate(mechanism: Mechanism, tally: Tally) -> Estimate:
    """Estimate every value's frequency from a tally.

    Parameters
    ----------
    mechanism
        What the devices ran.
    tally
        The sum of their reports.

    Returns
    -------
    Estimate
        Unbiased frequencies with their errors.

    Raises
    ------
    ParameterError
        If the tally is not of the mechanism's layout.
    """
    if tally.layout != mechanism.layout:
        raise ParameterError(f"a tally decoded by {mechanism.name} has its layout {mechanism.layout}", tally.layout)
    return Estimate(mechanism, tally.n, supports(mechanism, tally))


@singledispatch
def supports(mechanism: Mechanism, tally: Tally) -> NDArray[np.int64]:
    """Count, for each value, the reports that support it.

    Parameters
    ----------
    mechanism
        What the devices ran.
    tally
        The sum of their reports.

    Returns
    -------
    ndarray of int64
        (domain_size,), each in [0, n].
    """
    return tally.counts[0, : mechanism.domain_size]


@supports.register(Hadamard)
def _(mechanism: Hadamard, tally: Tally) -> NDArray[np.int64]:
    """Value v is supported by the columns where row v + 1 of the Hadamard matrix is +1: half of (n + transform)."""
    transform = walsh_hadamard(tally.counts[0])
    return (tally.n + transform[1 : mechanism.domain_size + 1]) // 2


@supports.register(LocalHash)
def _(mechanism: LocalHash, tally: Tally) -> NDArray[np.int64]:
    """Sum, over all hash functions, the cell that each value hashes to.

    Summing rows x domain look-ups would cost g^t d. The hash is linear, so one digit can be folded at a time, from the whole
    tally T[a, s] towards S[v] = sum over a of T[a, <a, v>]: t rounds of g^(t+2) additions, whatever the domain.
    """
    family = mechanism.family
    g, d = family.range_size, mechanism.domain_size
    folded = tally.counts.reshape(-1, g * g)  # (values so far x hash functions left, digit of a x cell)
    digit, cell = np.arange(g)[:, None], np.arange(g)[None, :]
    values = 1
    for place in range(family.digits):
        last = place == family.digits - 1
        cells = cell[:, :1] if last else cell  # at the end only the cell that the whole hash names is wanted
        digits = -(-d // values) if last else g
        shifted = np.empty((digits, len(folded), cells.shape[1]), np.int64)
        for v in range(digits):
            shifted[v] = folded[:, digit * g + (cells + digit * v) % g].sum(axis=1)
        values *= digits
        folded = shifted.reshape(-1, 1 if last else g * g)
    return folded[:d, 0]


def walsh_hadamard(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Transform by the Hadamard matrix H[i, j] = (-1)^(number of common bits of i and j), in K log K additions.

    Parameters
    ----------
    values
        (K,), K a power of two.
    """
    transformed = values.copy()
    half = 1
    while half < len(transformed):
        pairs = transformed.reshape(-1, 2, half)
        transformed = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return transformed
