"""Prefix trees: exact privacy, levels that do not depend on the value, and keys of prefixes."""

from __future__ import annotations

import pickle
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.mechanisms.texts.prefix import MAX_CELLS, Pem, TreeHist, extend
from deniable.proof import distribution, prove

SMALL = [
    (4, {"rows": 4, "step": 1, "start": 1}),
    (8, {"rows": 6, "step": 1, "start": 1}),
    (8, {"rows": 5, "step": 2, "start": 2, "confirm": 0.4}),
    (11, {"rows": 5, "step": 3, "start": 1}),
    (16, {"rows": 5, "step": 1, "start": 2}),
    (16, {"rows": 2}),
]


@pytest.mark.parametrize("cls", [Pem, TreeHist])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2.5"])
@pytest.mark.parametrize(("domain_size", "options"), SMALL)
def test_every_claim_is_proved(cls, domain_size, options, epsilon):
    """Walking every draw shows the declared ratio, all of epsilon for one report, and the exact support of every pair."""
    mechanism = cls(domain_size=domain_size, epsilon=epsilon, **options)
    proof = prove(mechanism)
    assert proof.holds, proof.faults
    assert proof.epsilon == pytest.approx(float(epsilon), abs=1e-8)
    assert proof.outputs == mechanism.rows * mechanism.width


@pytest.mark.parametrize("cls", [Pem, TreeHist])
def test_the_level_says_nothing(cls):
    """Whatever the value, each row, and so each level, is drawn with the same exact probability."""
    mechanism = cls(domain_size=16, epsilon=1, rows=9, step=1, start=1)
    for value in range(16):
        rows = defaultdict(Fraction)
        for payload, share in distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)).items():
            rows[mechanism.layout.unpack(payload)[0]] += share
        assert rows == dict.fromkeys(range(9), Fraction(1, 9))


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 20), st.integers(2, 99))
def test_levels_cut_the_bits_and_the_rows(bits, step, start, percent):
    """Prefixes grow by a step to the whole value, twice; every level has rows, and the confirmation its share of them."""
    mechanism = Pem(domain_size=1 << bits, epsilon=1, step=step, start=start, rows=1000, confirm=f"{percent}/100")
    *search, last = mechanism.lengths
    assert search[-1] == last == mechanism.bits == bits
    assert search[0] == min(start, bits)
    assert all(0 < longer - shorter <= step for shorter, longer in pairwise(search))
    assert mechanism.first_rows[0] == 0
    assert mechanism.first_rows[-1] == 1000
    assert all(first < second for first, second in pairwise(mechanism.first_rows))
    assert mechanism.confirming == min(Fraction(max(10 * percent, 1), 1000), Fraction(1000 - len(search), 1000))
    sizes = {second - first for first, second in pairwise(mechanism.first_rows[:-1])}
    assert max(sizes) - min(sizes) <= 1
    assert [mechanism.level(row) for row in mechanism.first_rows[:-1]] == list(range(len(mechanism.lengths)))


def test_keys_are_of_the_prefix_alone():
    """Values with a prefix in common have the same key at its level, and those that differ within it have not."""
    mechanism = Pem(domain_size=1 << 128, epsilon=1)
    value = 0x0123456789ABCDEF << 64
    for level, length in enumerate(mechanism.lengths):
        shift = 128 - length
        keys = {mechanism.key(level, (value >> shift << shift) + low_bits) for low_bits in (0, (1 << shift) - 1)}
        assert keys == {mechanism.key(level, value)}
        assert mechanism.key(level, value ^ 1 << shift) not in keys
    assert mechanism.key(14, value) == mechanism.key(15, value)


def test_extend_is_splitmix64():
    """The key of a prefix is the generator's output from its parent's: the first two of seed 0, and of seed 1234567."""
    assert (extend(0, 0), extend(0, 1)) == (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4)
    assert (extend(1234567, 0), extend(1234567, 1)) == (6457827717110365317, 3203168211198807973)


@pytest.mark.parametrize("cls", [Pem, TreeHist])
@pytest.mark.parametrize("bits", [1, 8, 64, 128, 512])
@pytest.mark.parametrize("epsilon", [0.1, 1, 4, 16])
def test_a_tally_is_small(cls, bits, epsilon):
    """Payloads have one size, of at most three bytes, and the tally at most 2^20 cells, whatever the domain and epsilon."""
    mechanism = cls(domain_size=1 << bits, epsilon=epsilon)
    sizes = {len(mechanism.randomize(value)) for value in (0, 1, (1 << bits) - 1) for _ in range(20)}
    assert sizes == {mechanism.layout.payload_size}
    assert mechanism.layout.payload_size <= 3
    assert mechanism.layout.rows * mechanism.layout.width <= MAX_CELLS
    assert mechanism.epsilon == pytest.approx(epsilon, abs=1e-8)


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4])
def test_cells_are_those_of_least_variance(epsilon):
    """No other number of cells has less variance, and it is near the 4 e^epsilon / (n (e^epsilon - 1)^2) of optimal hashing."""
    mechanism = Pem(domain_size=1 << 64, epsilon=epsilon)
    e = exp(epsilon)

    def variance(g: int) -> float:
        return (1 / g) * (1 - 1 / g) / (e / (e + g - 1) - 1 / g) ** 2

    assert min(range(2, 200), key=variance) == mechanism.width
    assert mechanism.variance(0, 1000) == pytest.approx(variance(mechanism.width) / 250, rel=1e-6)
    assert variance(mechanism.width) == pytest.approx(4 * e / (e - 1) ** 2, rel=0.03)


def test_a_frequency_has_the_variance_of_those_who_confirm():
    """Where nothing is randomised but who confirms, the variance is that of a sample without replacement, to first order."""
    mechanism = Pem(domain_size=1 << 10, epsilon=16, confirm="0.25")
    assert mechanism.variance(0.5, 1000) == pytest.approx(0.25 * (1 / 250 - 1 / 1000), rel=0.01)


@pytest.mark.parametrize("cls", [Pem, TreeHist])
@pytest.mark.parametrize("options", [{}, {"step": 3}, {"start": 5}, {"rows": 99}, {"confirm": 0.1}, {"confirm": "1/3"}])
def test_a_copy_is_the_same(cls, options):
    """A mechanism survives pickling, and its canonical text tells it from one of other levels."""
    mechanism = cls(domain_size=1 << 64, epsilon=1, **options)
    twin = pickle.loads(pickle.dumps(mechanism))
    assert (twin, twin.canonical, twin.chosen) == (mechanism, mechanism.canonical, mechanism.chosen)
    assert (mechanism.canonical == cls(domain_size=1 << 64, epsilon=1).canonical) == (not options)


@pytest.mark.parametrize(("cls", "share"), [(Pem, Fraction(1, 4)), (TreeHist, Fraction(1, 2))])
@pytest.mark.parametrize("confirm", [0, "1/8", "0.125", 0.125, Fraction(1, 8)])
def test_so_many_devices_confirm(cls, share, confirm):
    """A quarter of the rows confirm, or half of them; or the share asked for, however it is written."""
    mechanism = cls(domain_size=1 << 64, epsilon=1, rows=4096, confirm=confirm)
    assert mechanism.confirming == (Fraction(1, 8) if confirm else share)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"step": 21}, "step = 21: write a whole number of bits from 1 to 20"),
        ({"step": -1}, "step = -1: write a whole number of bits from 1 to 20"),
        ({"start": 2.0}, ": write a whole number of bits from 1 to 20"),
        ({"start": True}, ": write a whole number of bits from 1 to 20"),
        ({"rows": -4}, "rows = -4: write a whole number of at least 2"),
        ({"rows": 7}, "rows = 7: write 8 or more, one for each of 7 levels and for the confirmation"),
        ({"rows": 1 << 20}, "the tally of this search would have 1048576 x 4 cells: 1048576 are possible at most"),
        ({"confirm": 1}, "confirm = 1: write a share of the devices, between 0 and 1"),
        ({"confirm": -0.5}, ": write a share of the devices, between 0 and 1"),
        ({"confirm": "half"}, ": write a share of the devices, between 0 and 1"),
        ({"confirm": True}, ": write a share of the devices, between 0 and 1"),
    ],
)
def test_bad_options(options, rule):
    """An option out of range is refused with the rule and the value."""
    with pytest.raises(ParameterError, match=rule):
        Pem(domain_size=1 << 64, epsilon=1, **options)
