"""Decoding: from a tally to the reports that support each value, and from there to estimates.

Decoders run when a metric is read and cost no privacy. Most mechanisms need none: the columns of their tally are the values.
Mechanisms that hash or transform have their inverse here.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.exact.hashing import LinearFamily, LineFamily
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.dbitflip import DBitFlip
from deniable.mechanisms.general_hadamard import GeneralHadamard
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.prefix import PrefixTree
from deniable.mechanisms.projective import Projective
from deniable.mechanisms.rappor import Bloom
from deniable.mechanisms.sketch import Cms, FastLocalHash, Hcms, Sketch
from deniable.mechanisms.unary import members
from deniable.wire.layout import MAX_CELLS
from deniable_aggregator.decode import bucket_estimate, hash_lookup, pool
from deniable_aggregator.decode.bloom_estimate import Fitted
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.decode.transforms import hyperplane_sums, walsh_hadamard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

__all__ = ["bloom_design", "estimate", "squared_mass", "supports"]


def estimate(
    mechanism: Mechanism, tally: Tally, values: Sequence[int] | None = None, *, repeats: float = 0.0, kept: bool = False
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
        How many other reports the device of a report has made, on average, at most: see `deniable_aggregator.decode.panel`.
    kept
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
    if not isinstance(mechanism, FrequencyOracle):
        raise ParameterError("shares of values are estimated from reports of a frequency oracle", mechanism.name)
    tally.check_decoder(mechanism)
    if values is None:
        if mechanism.domain_size > MAX_CELLS:
            raise ParameterError(f"a domain of more than {MAX_CELLS} values is decoded for candidates", "no values")
    else:
        if any(not 0 <= value < mechanism.domain_size for value in values):
            raise ParameterError("a candidate is a value of the domain", "another number")
        if len(set(values)) != len(values):
            raise ParameterError("candidates are listed once", f"{len(values) - len(set(values))} twice")
    permanent = mechanism.in_two_steps if kept else None
    if isinstance(permanent, Bloom) and not permanent.basic:
        return _fitted(permanent, tally, values, repeats, kept=True)
    apart = _estimate(mechanism, tally, values)
    return Panel(tally.n, apart, repeats, permanent) if tally.n and (repeats or permanent) else apart


@singledispatch
def _estimate(mechanism: FrequencyOracle, tally: Tally, values: Sequence[int] | None) -> Estimate:
    return _of(mechanism, tally, values, supports(mechanism, tally))


def _of(
    mechanism: FrequencyOracle,
    tally: Tally,
    values: Sequence[int] | None,
    support: NDArray[np.int64],
    touched: NDArray[np.int64] | None = None,
) -> Supported:
    """Make the estimate of some values from the support of all."""
    whole = Supported(mechanism, tally.n, support, touched)
    if values is None:
        return whole
    chosen = list(values)
    some = None if touched is None else touched[chosen]
    return Supported(mechanism, tally.n, support[chosen], some, shares=whole.plausible[chosen])


@_estimate.register(GeneralHadamard)
def _(mechanism: GeneralHadamard, tally: Tally, values: Sequence[int] | None) -> Estimate:
    """Count the reports that support each value, less those that oppose it: they missed the set of its block."""
    blocks, rows = mechanism.slots(np.arange(mechanism.domain_size))
    table = tally.counts.reshape(mechanism.blocks, -1)
    transform = walsh_hadamard(table.T).T
    return _of(mechanism, tally, values, transform[blocks, rows], table.sum(axis=1)[blocks])


@_estimate.register(DBitFlip)
def _(mechanism: DBitFlip, tally: Tally, values: Sequence[int] | None) -> Estimate:
    """Count the reports that support each value, and those that cover it."""
    if mechanism.layout.rows == 1:  # every report covers all values
        return _of(mechanism, tally, values, tally.counts[0])
    return bucket_estimate.of(mechanism, tally, values)


@_estimate.register(PrefixTree)
def _(mechanism: PrefixTree, tally: Tally, values: Sequence[int] | None) -> Estimate:  # noqa: ARG001
    """Refuse: the reports are about prefixes."""
    raise ParameterError("what searches for values is decoded by deniable_aggregator.decode.discovery", mechanism.name)


@_estimate.register(Sketch)
def _(mechanism: Sketch, tally: Tally, values: Sequence[int] | None) -> Estimate:
    """Add up the cells that each value hashes to. Of what a pool confuses, some is known, and the rest is part of the error."""
    if isinstance(mechanism.family, (LinearFamily, LineFamily)):
        return _of(mechanism, tally, values, supports(mechanism, tally))
    chosen = range(mechanism.domain_size) if values is None else values
    if not tally.n:
        return Supported(mechanism, 0, np.zeros(len(chosen), np.int64))
    return pool.estimate(pool.Cells(mechanism, _cells(mechanism, tally), tally.reports), chosen)


@_estimate.register(Bloom)
def _(mechanism: Bloom, tally: Tally, values: Sequence[int] | None) -> Estimate:
    """Count directly if each value has a bit of its own; otherwise estimate by regression on the bits of the Bloom filters."""
    return _of(mechanism, tally, values, tally.counts[0]) if mechanism.basic else _fitted(mechanism, tally, values)


def _fitted(
    mechanism: Bloom, tally: Tally, values: Sequence[int] | None, repeats: float = 0.0, *, kept: bool = False
) -> Estimate:
    """Estimate by regression; `repeats` are reports of one permanent response."""
    chosen = range(mechanism.domain_size) if values is None else values
    if not tally.n:
        return Supported(mechanism, 0, np.zeros(len(chosen), np.int64))
    from deniable_aggregator.decode import bloom_regression  # noqa: PLC0415 - only this decoder needs these slow imports

    density = 1 - (1 - 1 / mechanism.bits) ** mechanism.hashes
    design = bloom_design(mechanism, chosen)
    p, q, flip = float(mechanism.other), float(mechanism.one), float(mechanism.flip_permanent)
    fit = bloom_regression.fit(design, tally.counts, tally.reports, p, q, density=density, repeats=repeats, flip=flip)
    return Fitted(tally.n, fit, repeats, kept)


@singledispatch
def supports(
    mechanism: FrequencyOracle,  # what the devices ran; pure
    tally: Tally,  # the sum of their reports
) -> NDArray[np.int64]:
    """Count, for each value of a whole domain, the reports that support it.

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


@supports.register(Projective)
def _(mechanism: Projective, tally: Tally) -> NDArray[np.int64]:
    """Sum, for each value, the points of its hyperplane."""
    return hyperplane_sums(mechanism.field.order, mechanism.dimension, tally.counts[0], mechanism.domain_size)


@supports.register(LocalHash)
@supports.register(FastLocalHash)
def _(mechanism: LocalHash | FastLocalHash, tally: Tally) -> NDArray[np.int64]:
    """Sum, over all functions of a linear family, the cell that each value hashes to.

    Summing rows x domain look-ups would cost g^t d. The hash is linear, so one digit is folded at a time, from the tally T[a, s]
    towards S[v] = sum over a of T[a, <a, v>]. This takes t rounds of g^(t+2) additions, for any domain.
    """
    family = mechanism.family
    assert isinstance(family, LinearFamily)  # noqa: S101 - `_estimate` has checked it
    g, d = family.range_size, mechanism.domain_size
    folded = tally.counts.reshape(-1, g * g)  # (values so far x hash functions left, digit of a x cell)
    digit, cell = np.arange(g)[:, None], np.arange(g)[None, :]
    values = 1
    for place in range(family.digits):
        last = place == family.digits - 1
        cells = cell[:, :1] if last else cell  # the last round needs only the cell that the whole hash names
        digits = -(-d // values) if last else g
        shifted = np.empty((digits, len(folded), cells.shape[1]), np.int64)
        for v in range(digits):
            shifted[v] = folded[:, digit * g + (cells + digit * v) % g].sum(axis=1)
        values *= digits
        folded = shifted.reshape(-1, 1 if last else g * g)
    return folded[:d, 0]


@supports.register(Cms)
@supports.register(Hcms)
def _(mechanism: Cms | Hcms, tally: Tally) -> NDArray[np.int64]:
    """Sum, over all lines through each point, the cell of that line.

    Row a holds value (x, y) in cell x + a y. The multiples of a are laid out once, so this is one gather for each row.
    """
    family, cells = mechanism.family, _cells(mechanism, tally)
    assert isinstance(family, LineFamily)  # noqa: S101 - `_estimate` has checked it
    width, d = family.width, mechanism.domain_size
    ys = np.arange(-(-d // width))
    xs = np.arange(width)
    total = np.repeat(cells[width, ys], width)
    for row in range(width):
        products = np.fromiter((family.hash(row, int(y) * width) for y in ys), np.int64, len(ys))
        total += cells[row][xs[None, :] ^ products[:, None]].ravel()
    return total[:d]


def _cells(mechanism: Sketch, tally: Tally) -> NDArray[np.int64]:
    """Return the reports that support each place of each row."""
    if not isinstance(mechanism, Hcms):
        return tally.counts
    # Place j is supported if its sign of the drawn coefficient was sent: half of (reports + transform of the difference).
    signs = tally.counts.reshape(mechanism.rows, mechanism.width, 2)
    transform = walsh_hadamard((signs[:, :, 0] - signs[:, :, 1]).T).T
    return (tally.reports[:, None] + transform) // 2


def squared_mass(
    cells: NDArray[np.int64],  # (rows, width): reports that support each place
    reports: NDArray[np.int64],  # (rows,)
    # p, other: probability that a report supports the true value's place, and any other place
    p: float,
    other: float,
) -> float:
    """Estimate the sum of f^2 over all values from the pairs of reports within each row, brought into [0, 1].

    Notes
    -----
    Two reports of one row both support place j with probability s_j^2. Here s_j = other + (p - other) m_j, and m_j is the mass
    that hashes to the place. So pairs give an unbiased estimate of sum(s^2), and sum(m) = 1. Over random functions, E sum(m^2) =
    F + (1 - F) / width.
    """
    width = cells.shape[1]
    pairs = float((reports * (reports - 1)).sum())
    if not pairs:
        return 1.0
    both = float((cells * (cells - 1)).sum()) / pairs
    gain = p - other
    buckets = (both - width * other**2 - 2 * other * gain) / gain**2
    return float(np.clip((buckets - 1 / width) / (1 - 1 / width), 0.0, 1.0))


def bloom_design(mechanism: Bloom, values: Sequence[int]) -> csr_array:
    """Return the bits of every value's filter in every cohort.

    Returns
    -------
    csr_array
        (cohorts * bits, values), 1 where the filter has a 1, row ``cohort * bits + bit``.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 - only this decoder pays for it

    rows, columns = (places.astype(np.int32) for places in _filters(mechanism, values))  # half the memory of wider ones
    ones = np.ones(len(rows))
    made = coo_array((ones, (rows, columns)), shape=(mechanism.cohorts * mechanism.bits, len(values))).tocsr()
    made.data[:] = 1  # two hashes of one value may name the same bit
    return made


def _filters(mechanism: Bloom, values: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    family = mechanism.family
    if family is None:
        cells = [
            (cohort * mechanism.bits + bit, column)
            for column, value in enumerate(values)
            for cohort in range(mechanism.cohorts)
            for bit in members(mechanism.filter(cohort, value))
        ]
        table = np.array(cells, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]
    keys = hash_lookup.keys(values, mechanism.domain_size)
    numbers = np.arange(family.rows)[:, None]
    rows = numbers // mechanism.hashes * mechanism.bits + hash_lookup.hashes(family, numbers, keys)
    return rows.ravel().astype(np.int64), np.tile(np.arange(len(values)), family.rows)
