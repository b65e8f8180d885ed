"""Totals by every method: the published figures, closed forms, oracles, and what they have to do with each other."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import e, erfc, exp, inf, log, sqrt, tanh

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable_aggregator.accounting import renyi, sums, zcdp
from deniable_aggregator.accounting.account import METHODS, account
from deniable_aggregator.accounting.losses import together
from deniable_aggregator.accounting.spend import Spend

DELTA = 1e-6
TABLE = {
    ("0.1", 100): (10, 6.31, 5.76, 5.76, 5.58, 5.07, 4.775),
    ("0.5", 100): (50, 58.7, 38.5, 38.8, 35.9, 34.7, 33.32),
    ("1", 30): (30, 80.3, 30, 43.8, 30.0, 29.99, 29.99),
    ("1", 365): (365, 728, 269, 283, 253, 250.6, 244.63),
}
"""Plain sum, advanced, closed form, zCDP of the literature, Renyi with the older conversion, Renyi, exact."""

SPENDS = st.lists(
    st.builds(Spend, st.integers(1000, 4_000_000), st.integers(1, 200), st.sampled_from([1.0, 0.5, 0.02])), min_size=1, max_size=3
)
DELTAS = st.sampled_from([1e-12, 1e-9, 1e-6, 1e-3, 0.1])


def of_pure_simple(epsilon):
    """Return epsilon^2 / 2, the rho that the literature gives what is epsilon-private (Bun and Steinke 2016, proposition 1.4)."""
    return epsilon**2 / 2


def bun_steinke(rho, delta):
    """Return the epsilon of the conversion that most papers use (Bun and Steinke 2016, proposition 1.3)."""
    return rho + 2 * sqrt(-rho * log(delta))


def mironov(loss, delta):
    """Return the epsilon of the older conversion (Mironov 2017, proposition 3), over many orders."""
    orders = 1 + np.geomspace(1e-6, 1e6, 200_000)
    return float(np.min(loss(orders) - log(delta) / (orders - 1)))


def renyi_delta(loss, epsilon):
    """Return the delta with which a curve is epsilon-private (Canonne and others 2020, proposition 12), over many orders."""
    orders = 1 + np.geomspace(1e-6, 1e6, 200_000)
    least = np.min((orders - 1) * (loss(orders) - epsilon + np.log1p(-1 / orders)) - np.log(orders))
    return min(1.0, exp(min(float(least), 0.0)))


@pytest.mark.parametrize(("epsilon", "count"), TABLE)
def test_the_table(epsilon, count):
    """Figures computed elsewhere, to the digits they were written with."""
    spends = [Spend.of_epsilon(epsilon, count)]
    loss = renyi.curve(spends)
    rho = zcdp.compose([count * of_pure_simple(float(epsilon))])
    cells = (
        sums.basic(spends),
        sums.advanced(spends, DELTA),
        sums.closed(spends, DELTA),
        bun_steinke(rho, DELTA),
        mironov(loss, DELTA),
        renyi.epsilon(loss, DELTA),
        together(spends).epsilon(DELTA),
    )
    for ours, written in zip(cells, TABLE[epsilon, count], strict=True):
        digits = len(str(written).partition(".")[2])
        assert ours == pytest.approx(written, abs=0.5001 * 10**-digits)


@settings(max_examples=40, deadline=None)
@given(spends=SPENDS, delta=DELTAS)
def test_no_total_is_below_the_exact_one(spends, delta):
    """Every other method gives more than the exact total for any mechanisms, and that more than the one for these."""
    total = account(spends, delta)
    assert list(total.totals) == [key for key in METHODS if key in total.totals]
    exact = total.totals["optimal"]
    span = sum(spend.total for spend in spends) / 1e6
    for key in ("basic", "advanced", "closed", "zcdp", "renyi"):
        assert exact <= total.totals[key] * (1 + 1e-9) + 2e-6 + span * 2**-14  # where losses are rounded up to a lattice
    assert total.totals.get("exact", exact) <= exact
    assert ("exact" in total.totals) == any(spend.share < 1 for spend in spends)
    assert total.epsilon <= total.basic
    assert total.quoted in total.totals


def test_what_to_quote():
    """The plain sum where nothing is less; else the sharpest; and a word on whether it is worth a delta."""
    few = account([Spend.of_epsilon(1, 2)], DELTA)
    assert (few.quoted, few.epsilon, few.worth_a_delta) == ("basic", 2, False)
    many = account([Spend.of_epsilon("0.1", 1000)], DELTA)
    assert (many.quoted, many.worth_a_delta) == ("optimal", True)
    kinds = account([Spend(1_000_000, 100, 0.1)], DELTA)
    assert (kinds.quoted, kinds.epsilon) == ("exact", kinds.totals["exact"])
    assert kinds.rho == pytest.approx(100 * zcdp.of_pure(1.0))


def test_different_epsilons_by_the_formulas():
    """The sums over different epsilons are those of the theorems."""
    spends = [Spend.of_epsilon("0.5", 3), Spend.of_epsilon(1, 2)]
    squares, spread = 3 * 0.25 + 2, log(1 / DELTA)
    assert sums.basic(spends) == 3.5
    drift = 1.5 * (exp(0.5) - 1) + 2 * (exp(1) - 1)
    assert sums.advanced(spends, DELTA) == pytest.approx(sqrt(2 * spread * squares) + drift)
    small = [Spend.of_epsilon("0.05", 300), Spend.of_epsilon("0.1", 100)]
    squares, drift = 300 * 0.0025 + 1, 15 * tanh(0.025) + 10 * tanh(0.05)
    assert sums.closed(small, DELTA) == pytest.approx(drift + sqrt(2 * spread * squares))
    few = [Spend.of_epsilon("0.01", 100)]  # where the other of the two logarithms is the less
    assert sums.closed(few, DELTA) == pytest.approx(tanh(0.005) + sqrt(0.02 * log(e + 0.1 / DELTA)))


# Renyi


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_curve_is_the_coins(epsilon, share):
    """The divergence of the outcomes' probabilities, at every order."""
    true = share / (1 + exp(-epsilon))
    first = np.array([true, true * exp(-epsilon)] if share == 1 else [true, 1 - share, true * exp(-epsilon)])
    for order in (1.01, 1.5, 2.0, 7.0, 30.0):
        divergence = log(float(np.sum(first**order * first[::-1] ** (1 - order)))) / (order - 1)
        assert renyi.randomized_response(np.array([order]), epsilon, share)[0] == pytest.approx(divergence, rel=1e-9)
    assert renyi.randomized_response(np.array([1e9]), epsilon, share)[0] == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.5, 100), (1.0, 365)])
def test_renyi_against_dp_accounting(epsilon, count):
    """The accountant of dp-accounting, whose orders are fewer, gives a little more."""
    from dp_accounting import dp_event, privacy_accountant, rdp  # here, because to import it takes every process two seconds

    accountant = rdp.RdpAccountant(neighboring_relation=privacy_accountant.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_event.RandomizedResponseDpEvent(2 / (exp(epsilon) + 1), 2), count)
    theirs = accountant.get_epsilon(DELTA)
    ours = renyi.epsilon(renyi.curve([Spend.of_epsilon(str(epsilon), count)]), DELTA)
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=0.01)


def test_delta_and_epsilon_are_inverse():
    """The delta of the epsilon of a delta is that delta."""
    loss = renyi.curve([Spend.of_epsilon("0.2", 50)])
    for delta in (1e-9, 1e-4):
        assert renyi_delta(loss, renyi.epsilon(loss, delta)) == pytest.approx(delta, rel=1e-4)
    assert renyi_delta(loss, 0.0) == pytest.approx(1, abs=0.9)
    assert renyi.epsilon(renyi.curve([]), DELTA) == 0


# Zero-concentrated


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0])
def test_rho_of_a_pure_epsilon_is_the_least(epsilon):
    """No order has a larger divergence over the order, and the orders near one come as near as can be."""
    rho = zcdp.of_pure(epsilon)
    with localcontext(prec=60):
        for order in (1 + Decimal(10) ** Decimal(power) for power in (-12, -6, -3, -2, -1, -0.3, 0, 0.3, 1, 2, 3)):
            far = (order - Decimal("0.5")) * Decimal(epsilon)
            near = Decimal(epsilon) / 2
            slope = ((far.exp() + (-far).exp()) / (near.exp() + (-near).exp())).ln() / (order - 1) / order
            assert slope <= rho
            if order < 1 + Decimal(10) ** -9:
                assert float(slope) == pytest.approx(rho, rel=1e-9)
    assert rho <= of_pure_simple(epsilon)


@pytest.mark.parametrize("rho", [0.005, 0.125, 0.5, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_gaussian_noise_needs_no_more_delta(rho, delta):
    """At the epsilon of its rho, the exact delta of Gaussian noise is below the one asked for, and within a factor of it."""
    scale = 1 / sqrt(2 * rho)
    epsilon = zcdp.epsilon(zcdp.of_gaussian(1, scale), delta)
    tail = [erfc((epsilon * scale - sign / (2 * scale)) / sqrt(2)) / 2 for sign in (1, -1)]
    exact = tail[0] - exp(epsilon) * tail[1]  # Balle and Wang, ICML 2018, theorem 8
    assert exact <= delta < 10 * exact


def test_conversions_of_rho():
    """The sharper conversion is the smaller; a published figure; and what may be spent is all that may be."""
    assert bun_steinke(0.5, DELTA) == pytest.approx(5.757, abs=5e-4)
    assert zcdp.epsilon(0.5, DELTA) == pytest.approx(5.222, abs=5e-4)
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)):
        rho = zcdp.within(epsilon, delta)
        assert zcdp.epsilon(rho, delta) <= epsilon
        assert zcdp.epsilon(rho * (1 + 1e-8), delta) > epsilon
    assert zcdp.epsilon(0.0, DELTA) == 0
    assert renyi_delta(lambda orders: orders / 2, zcdp.epsilon(0.5, DELTA)) == pytest.approx(DELTA, rel=1e-4)


def test_rho_of_noise():
    """Of Gaussian and Laplace noise, and their sum."""
    assert zcdp.of_gaussian(2, 4) == pytest.approx(0.125)
    assert zcdp.of_laplace(1, 2) == zcdp.of_pure(0.5)
    assert zcdp.compose([0.1, 0.2, 0.3]) == pytest.approx(0.6)
    assert zcdp.compose([]) == 0
    assert zcdp.of_pure(0) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: zcdp.of_gaussian(1, 0),
        lambda: zcdp.of_gaussian(-1, 1),
        lambda: zcdp.of_pure(-0.1),
        lambda: zcdp.of_pure(inf),
        lambda: zcdp.compose([0.1, -0.1]),
        lambda: zcdp.epsilon(-1, DELTA),
        lambda: zcdp.within(0, DELTA),
        lambda: zcdp.within(0.5, 0.9),
        lambda: sums.group(1, DELTA, 0),
        lambda: sums.group(1, 2.0, 3),
        lambda: account([], 0),
    ],
)
def test_numbers_out_of_range(call):
    """Each says which rule it breaks."""
    with pytest.raises(ParameterError, match=r"^[a-z_]+ = .*: write "):
        call()


# Groups


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_group_is_a_walk_of_its_members(size):
    """One neighbour after the other: each step costs an epsilon, and a delta that the steps before have raised."""
    epsilon, delta = sums.group(0.5, 1e-6, size)
    assert epsilon == 0.5 * size
    assert delta == pytest.approx(sum(1e-6 * exp(0.5 * i) for i in range(size)))
    assert sums.group(0.5, 0.0, size) == (0.5 * size, 0.0)
    assert sums.group(0.0, 1e-6, size) == (0.0, pytest.approx(size * 1e-6))


def test_a_large_group_has_no_delta_left():
    """It is a probability."""
    assert sums.group(2.0, 1e-6, 10) == (20, 1)
    assert sums.group(2.0, 1e-6, 1000) == (2000, 1)


def test_devices_of_a_household_add_reports():
    """For devices that randomise on their own, composing all reports is better than the bound for any group."""
    spend = Spend.of_epsilon("0.1", 100)
    alone, three = account([spend], 1e-9), account([spend.times(3)], 1e-9)
    assert three.basic == 3 * alone.basic
    epsilon, delta = sums.group(alone.epsilon, 1e-9, 3)
    assert three.epsilon < epsilon
    assert delta > 1e-9
