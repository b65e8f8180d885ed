"""Any two values collide in exactly one function of g."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.exact.hashing import KEY_SPACE, LinearFamily, LineFamily, PoolFamily, data, is_prime, key

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


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_two_points_have_one_line(order):
    """Over a line family any two values collide in exactly one row, and every row uses its whole range."""
    family = LineFamily(4**order, order)
    table = [[family.hash(row, value) for value in range(4**order)] for row in range(family.rows)]
    for u, v in combinations(range(4**order), 2):
        assert sum(row[u] == row[v] for row in table) == 1
    for row in table:
        assert Counter(row) == dict.fromkeys(range(family.width), family.width)


@pytest.mark.parametrize("order", range(5, 12))
def test_larger_fields_are_fields(order):
    """In a larger family a sample of pairs collides once each: the polynomial is irreducible."""
    family = LineFamily(4**order, order)
    value = 4**order - 2
    for other in (0, 1, family.width + 3, value - family.width * 5):
        assert sum(family.hash(row, value) == family.hash(row, other) for row in range(family.rows)) == 1


@pytest.mark.parametrize(("domain_size", "order"), [(2, 0), (2, 12), (5, 1), (257, 4)])
def test_lines_that_there_are_not(domain_size, order):
    """A family without a field, or too small for its domain, is refused."""
    with pytest.raises(ParameterError, match=r"order = .*: write 1 to 11|: write \d+ at most, which lines"):
        LineFamily(domain_size, order)


@pytest.mark.parametrize("width", [2, 3, 4, 10, 128])
def test_a_pool_collides_as_often_as_chance(width):
    """Over the functions of a pool two keys collide in one of `width`, within six standard errors, close ones too."""
    family = PoolFamily("test", 2000, width)
    for u, v in ((0, 1), (1, 2), (5, 5 + (1 << 32)), (KEY_SPACE - 1, KEY_SPACE >> 1), (1 << 40, 1 << 41)):
        share = sum(family.hash(row, u) == family.hash(row, v) for row in range(2000)) / 2000
        assert abs(share - 1 / width) < 6 * (1 / width / 2000) ** 0.5
    used = Counter(family.hash(row, 7) for row in range(2000))
    assert set(used) <= set(range(width))


def test_pools_of_another_label_are_others():
    """The label is part of the functions."""
    one, other = PoolFamily("a", 4, 1 << 32), PoolFamily("b", 4, 1 << 32)
    assert all(one.hash(row, 3) != other.hash(row, 3) for row in range(4))


def test_keys():
    """A small value is its own key; a text's key does not depend on the longest text of its metric."""
    assert key(17, 20) == 17
    assert key(KEY_SPACE - 1, KEY_SPACE) == KEY_SPACE - 1
    short, long = (int.from_bytes(b"word".ljust(size, b"\0"), "big") for size in (9, 64))
    assert key(short, 1 << 72) == key(long, 1 << 512)
    assert key(short, 1 << 72) < KEY_SPACE
    assert key(short, 1 << 72) != key(short + 256, 1 << 72)


@pytest.mark.parametrize("domain_size", [2, 255, 256, 257, 300, 511, 512, 513, 65_536, 1 << 64, 1 << 512])
def test_every_value_has_bytes_of_its_own(domain_size):
    """No value of a domain is too large to be written, and no two are written alike."""
    values = {0, 1, domain_size // 2, domain_size - 1, *range(max(0, domain_size - 300), domain_size)}
    assert len({data(value, domain_size) for value in values}) == len(values)
