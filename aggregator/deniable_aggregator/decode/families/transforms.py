"""Incidence: the number of reports on each hyperplane of a finite geometry, from the number that named each point.

Points and values are those of `deniable.mechanisms.listed.projective`, with its numbers. Summing the points of every hyperplane
would cost K^2 / q look-ups; this takes K log K steps.

References
----------
V. Feldman and others: Private frequency estimation via projective geometry. ICML 2022, with a decoder of K q log K steps.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from deniable.errors import ParameterError
from deniable.exact.finite_field import Field
from deniable.mechanisms.listed.projective import points

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS = 5  # of the index that a round transforms
_EXACT = 1 << 53  # whole numbers below it are exact as floats


def hyperplane_sums(
    order: int,  # elements of the field; a prime or a power of two
    dimension: int,  # coordinates of a vector; at least 2
    counts: NDArray[np.int64],  # (K,), the reports that named each of the K points
    domain_size: int,  # values, at most K
) -> NDArray[np.int64]:
    """Sum, for each value, the counts of the points that support it: always exact for an even order, else up to 2^40 reports."""
    # A point x is (0, y) with y a point of the geometry of one dimension less, or (1, y) with y any vector. A value is v = (w, s)
    # with w such a point and s any element, or the first one, (0, 1). The product, which reads v backwards, is x_1 s + <y, w>. So
    # the points (0, y) contribute what the smaller geometry gives for w, for every s. The points (1, y) contribute the sum over
    # <y, w> = -s. Value 1 + q w + s is (w, s), so a row-major matrix holds the result.
    if len(counts) != points(order, dimension):
        raise ParameterError(
            f"there are {len(counts)} counts: give one for each of the {points(order, dimension)} points of the geometry"
        )
    if not 1 <= domain_size <= len(counts):
        raise ParameterError(f"domain_size: write 1 to {len(counts)}, the points of the geometry", domain_size)
    return _sums(Field(order), dimension, counts, domain_size)


def _sums(field: Field, dimension: int, counts: NDArray[np.int64], values: int) -> NDArray[np.int64]:
    """Sum for the first values of a domain. In one dimension the only point does not support the only value."""
    q = field.order
    prefixes = -(-(values - 1) // q)
    sums = np.zeros(values, np.int64)
    if dimension > 1:
        zeros, ones = np.split(counts, [points(q, dimension - 1)])
        sums[0] = zeros.sum()
    if prefixes:
        negatives = [field.neg(s) for s in range(q)]
        rows = _radon(field, dimension - 1, ones, prefixes)[negatives].T + _sums(field, dimension - 1, zeros, prefixes)[:, None]
        sums[1:] = rows.ravel()[: values - 1]
    return sums


def _radon(
    field: Field,
    dimension: int,
    counts: NDArray[np.int64],  # (q^dimension,), of all vectors
    directions: int,  # number of points w
) -> NDArray[np.int64]:
    """Sum the counts of all vectors y with <y, w> = s, for the first points w: (q, directions), a row for each s."""
    # Let c be a character of the field's addition. The Fourier transform of the sums for one w, at l, equals that of the counts
    # at the vector l w: both sum c(l <y, w>) over y. So one transform of all counts contains those of all sums.
    q = field.order
    if dimension == 1:
        return counts[:, None]
    elements, even = np.arange(q), not q & 1
    if field.powers:
        powers, logarithms = np.array(field.powers), np.array(field.logarithms)
        products = powers[logarithms[:, None] + logarithms]
    else:
        products = elements[:, None] * elements % q
    if even:
        # The character is -1 to the lowest bit; `dual` expresses it as the parity of common bits, as in Hadamard's matrix.
        bits = 1 << np.arange(q.bit_length() - 1)
        dual = (products[:, bits] & 1) @ bits
        multiples = dual[products]
    else:
        multiples = products[: q // 2 + 1]  # the counts are real, so the transform's other half is conjugate
    vectors = np.concatenate([np.arange(q**digits, 2 * q**digits) for digits in range(dimension)])[:directions]
    places = np.zeros((len(multiples), directions), np.int64)
    for _ in range(dimension):
        vectors, last = np.divmod(vectors, q)  # the product reads w backwards: its last coordinate comes first
        places *= q
        places += multiples[:, last]
    sums: NDArray[np.int64]
    if even:
        sums = walsh_hadamard(walsh_hadamard(counts)[places].T).T[dual] // q
    else:
        spectrum = fft.fftn(counts.reshape((q,) * dimension)).ravel()[places]
        sums = np.rint(fft.irfft(spectrum, q, axis=0)).astype(np.int64)
    return sums


def walsh_hadamard(
    values: NDArray[np.int64],  # (..., K), K a power of two; each row is transformed
) -> NDArray[np.int64]:
    """Transform by the Hadamard matrix H[i, j] = (-1)^(number of common bits of i and j), exactly."""
    # H is a product of small matrices, one for each few bits of the index. Each round transforms the lowest bits and makes them
    # the highest, so after all rounds each bit is in its place. Products of floats are several times as fast as additions of
    # integers, and sums below 2^53 are exact in them.
    size = values.shape[-1]
    exact = np.abs(values).max(initial=0) * size < _EXACT
    transformed = values.astype(np.float64 if exact else np.int64)
    left = size.bit_length() - 1
    while left:
        bits = min(_BITS, left)
        product = transformed.reshape(-1, size >> bits, 1 << bits) @ _matrix(bits).astype(transformed.dtype)
        transformed = np.ascontiguousarray(product.swapaxes(1, 2))
        left -= bits
    return transformed.reshape(values.shape).astype(np.int64)


@cache
def _matrix(bits: int) -> NDArray[np.float64]:
    """Return H for indices of so many bits."""
    smaller = _matrix(bits - 1) if bits > 1 else np.ones((1, 1))
    return np.block([[smaller, smaller], [smaller, -smaller]])
