"""Any two values collide in exactly one function of g."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.hashing import LinearFamily, is_prime

FAMILIES = [
    (2, 2),
    (3, 2),
    (8, 2),
    (9, 2),
    (16, 2),
    (3, 3),
    (9, 3),
    (10, 3),
    (27, 3),
    (5, 5),
    (25, 5),
    (26, 5),
    (7, 7),
    (40, 7),
    (13, 11),
]


@pytest.mark.parametrize(("domain_size", "range_size"), FAMILIES)
def test_collisions_are_exact(domain_size, range_size):
    """Two different values hash alike in exactly rows / g rows of the family."""
    family = LinearFamily(domain_size, range_size)
    hashes = [[family.hash(row, value) for row in range(family.rows)] for value in range(domain_size)]
    for u, v in combinations(range(domain_size), 2):
        assert sum(a == b for a, b in zip(hashes[u], hashes[v], strict=True)) * range_size == family.rows


@pytest.mark.parametrize(("domain_size", "range_size"), FAMILIES)
def test_values_but_zero_hash_evenly(domain_size, range_size):
    """Over all rows a value takes each hash equally often; only the value 0 always hashes to 0."""
    family = LinearFamily(domain_size, range_size)
    for value in range(domain_size):
        counts = Counter(family.hash(row, value) for row in range(family.rows))
        assert counts == ({0: family.rows} if value == 0 else dict.fromkeys(range(range_size), family.rows // range_size))


@given(domain_size=st.integers(2, 10**6), range_size=st.sampled_from([2, 3, 5, 7, 11, 101]))
def test_the_family_is_the_smallest(domain_size, range_size):
    """No fewer digits would hold the domain."""
    family = LinearFamily(domain_size, range_size)
    assert family.rows == range_size**family.digits >= domain_size
    assert family.digits == 1 or range_size ** (family.digits - 1) < domain_size


@given(
    g=st.sampled_from([2, 3, 5, 7, 13]),
    u=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    a=st.lists(st.integers(0, 12), min_size=3, max_size=3),
)
def test_a_hash_is_an_inner_product(g, u, a):
    """The hash is the inner product of the digits, mod g."""
    u, a = [x % g for x in u], [x % g for x in a]
    family = LinearFamily(g**3, g)
    number = {"value": sum(x * g**i for i, x in enumerate(u)), "row": sum(x * g**i for i, x in enumerate(a))}
    assert family.hash(**number) == sum(x * y for x, y in zip(u, a, strict=True)) % g


def test_primes():
    """The primes below 60 are the primes below 60."""
    known = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]
    assert [n for n in range(-3, 60) if is_prime(n)] == known


@pytest.mark.parametrize("range_size", [-1, 0, 1, 4, 6, 9, 25])
def test_the_range_is_prime(range_size):
    """A range that is not prime would break the count of collisions and is refused."""
    with pytest.raises(ParameterError, match="a prime number") as caught:
        LinearFamily(10, range_size)
    assert caught.value.value == range_size
