"""The fast sums over hyperplanes against sums over the points of each."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from deniable.errors import ParameterError
from deniable.exact.finite_field import Field
from deniable.mechanisms.listed.projective import Projective, points
from deniable_aggregator import tally
from deniable_aggregator.decode.families.transforms import hyperplane_sums, walsh_hadamard

ORDERS = [2, 3, 4, 5, 7, 8, 11, 16]
SMALL = [(order, dimension) for order in ORDERS for dimension in (2, 3, 4) if points(order, dimension) < 600]
LARGE = [(2, 16), (3, 11), (4, 9), (7, 6), (8, 6), (16, 4), (53, 4), (64, 3), (601, 3), (65_537, 2)]


def incidence(order, dimension):
    """Whether each point (column) supports each value (row), by definition."""
    field = Field(order)
    vectors = product(range(order), repeat=dimension)
    listed = [vector for vector in vectors if next((digit for digit in vector if digit), 0) == 1]
    return np.array([[field.dot(point, value[::-1]) == 0 for point in listed] for value in listed])


def coordinates(order, dimension):
    """(dimension, K): all points, without a list of them."""
    numbers = np.concatenate([np.arange(order**digits, 2 * order**digits) for digits in range(dimension)])
    return numbers // order ** np.arange(dimension)[::-1, None] % order


def naive(order, dimension, counts, value):
    """One value's sum, point by point."""
    field, vectors = Field(order), coordinates(order, dimension)
    total = np.zeros(len(counts), np.int64)
    for column, digit in zip(vectors, vectors[::-1, value], strict=True):
        multiples = np.array([field.mul(int(digit), other) for other in range(order)])[column]
        total = total ^ multiples if field.powers else (total + multiples) % order
    return counts[total == 0].sum()


@pytest.mark.parametrize(("order", "dimension"), SMALL)
def test_sums_by_definition(order, dimension):
    """Whatever the counts and however many values are asked for, the sums are those of the matrix, exactly."""
    rng, matrix = np.random.default_rng(order), incidence(order, dimension)
    every = len(matrix)
    peak = np.zeros(every, np.int64)
    peak[rng.integers(every)] = 10**9
    for counts in (rng.multinomial(10**9, np.full(every, 1 / every)), rng.integers(0, 3, every), peak, 0 * peak):
        for size in {1, 2, every // 2 + 1, every - 1, every}:
            sums = hyperplane_sums(order, dimension, counts, size)
            assert sums.dtype == np.int64
            assert np.array_equal(sums, matrix[:size] @ counts)


@pytest.mark.parametrize(("order", "dimension"), LARGE)
def test_sums_of_large_geometries(order, dimension):
    """Some values' sums are right, and all sums together count each report once for each value that its point supports."""
    rng, every = np.random.default_rng(dimension), points(order, dimension)
    counts = rng.multinomial(10**9, rng.dirichlet(np.full(every, 0.1)))
    sums = hyperplane_sums(order, dimension, counts, every)
    for value in {0, 1, every // 3, every - 1, *rng.integers(0, every, 4).tolist()}:
        assert sums[value] == naive(order, dimension, counts, value)
    assert sums.sum() == 10**9 * points(order, dimension - 1)


@pytest.mark.parametrize(("order", "dimension"), [(3, 10), (5, 7), (149, 3), (64, 3)])
def test_as_exact_as_stated(order, dimension):
    """2^40 reports, all on one point or on all of them, are summed to the last one."""
    every = points(order, dimension)
    point = every // 2
    for counts in (np.where(np.arange(every) == point, 1 << 40, 0), np.full(every, (1 << 40) // every)):
        sums = hyperplane_sums(order, dimension, counts + 1, every)
        for value in (0, point, every - 1):
            assert sums[value] == naive(order, dimension, counts + 1, value)


@pytest.mark.parametrize(("domain_size", "epsilon"), [(3, 1), (26, 0.1), (40, 0.7), (100, 1), (31, 1.5), (300, 2)])
def test_sums_of_reports(domain_size, epsilon):
    """The sums of devices' reports are how many support each value, as the mechanism defines it."""
    mechanism = Projective(domain_size=domain_size, epsilon=epsilon)
    payloads = [mechanism.randomize(value % domain_size) for value in range(200)]
    plain = np.zeros(domain_size, np.int64)
    for payload in payloads:
        plain[list(mechanism.supported(payload))] += 1
    counts = tally.count(mechanism.layout, b"".join(payloads)).counts[0]
    assert np.array_equal(hyperplane_sums(mechanism.field.order, mechanism.dimension, counts, domain_size), plain)


@pytest.mark.parametrize(
    ("counts", "domain_size", "rule"),
    [
        (12, 12, "there are 12 counts: give one for each of the 13 points"),
        (14, 12, "there are 14 counts: give one for each of the 13 points"),
        (13, 14, "domain_size = 14: write 1 to 13, the points of the geometry"),
        (13, 0, "domain_size = 0: write 1 to 13, the points of the geometry"),
    ],
)
def test_refusals(counts, domain_size, rule):
    """Counts of another geometry and values without a point are refused."""
    with pytest.raises(ParameterError, match=rule):
        hyperplane_sums(3, 3, np.zeros(counts, np.int64), domain_size)


@pytest.mark.parametrize("most", [1000, 1 << 62])
@pytest.mark.parametrize("size", [1, 2, 8, 64, 1024])
def test_walsh_hadamard_is_the_matrix_product(size, most):
    """The fast transform of rows equals the product with the matrix of parities, also of numbers that floats cannot hold."""
    values = np.random.default_rng(5).integers(0, most, (3, size)) // size
    matrix = np.array([[1 - 2 * ((i & j).bit_count() & 1) for j in range(size)] for i in range(size)])
    assert np.array_equal(walsh_hadamard(values), values @ matrix)
    assert np.array_equal(walsh_hadamard(values[0]), values[0] @ matrix)
