"""The exact total: against enumeration of all outcomes, against real mechanisms, and from above wherever it rounds."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations, permutations, product
from math import ceil, comb, exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable.proof import distribution
from deniable_aggregator.accounting import losses
from deniable_aggregator.accounting.losses import together
from deniable_aggregator.accounting.spend import Spend, merged

DELTA = 1e-6
EPSILONS = st.sampled_from(["0.05", "0.3", "0.7", "1", "1.1", "1.0986122886681098", "2", "4"])


def delta_by_enumeration(spends, epsilon):
    """Sum over every outcome of every report, in fifty digits."""
    with localcontext(prec=50):
        reports = []
        for spend in spends:
            power = (Decimal(spend.cost) / MICRO).exp()
            share = Decimal(spend.share)
            true = share * power / (1 + power)
            reports += spend.count * [[(true, true / power), (1 - share, 1 - share), (true / power, true)]]
        total, odds = Decimal(0), Decimal(epsilon).exp()
        for outcome in product(*reports):
            first = second = Decimal(1)
            for one, other in outcome:
                first, second = first * one, second * other
            total += max(Decimal(0), first - odds * second)
        return total


@settings(max_examples=60, deadline=None)
@given(
    spends=st.lists(
        st.builds(
            lambda epsilon, count, share: Spend(Spend.of_epsilon(epsilon).cost, count, share),
            EPSILONS,
            st.integers(1, 3),
            st.sampled_from([1.0, 0.5, 0.037]),
        ),
        min_size=1,
        max_size=2,
    ),
    epsilon=st.sampled_from([0.0, 0.001, 0.5, 1.0, 1.7, 3.0, 6.5]),
)
def test_delta_is_that_of_all_outcomes(spends, epsilon):
    """Never below, and above by the rounding of floats only."""
    exact = delta_by_enumeration(spends, epsilon)
    ours = Decimal(together(spends).delta(epsilon))
    assert exact <= ours <= exact * (1 + Decimal(10) ** -10) + Decimal(10) ** -13


@settings(max_examples=30, deadline=None)
@given(
    epsilons=st.lists(EPSILONS, min_size=1, max_size=5),
    delta=st.sampled_from([1e-9, 1e-6, 1e-3, 0.2]),
    share=st.sampled_from([1, 0.3]),
)
def test_epsilon_is_the_least_of_all_outcomes(epsilons, delta, share):
    """It keeps the delta, and two millionths of a nat less would not."""
    spends = [Spend(Spend.of_epsilon(epsilon).cost, 1, share) for epsilon in epsilons]
    losses = together(spends)
    epsilon = losses.epsilon(delta)
    assert delta_by_enumeration(spends, epsilon) <= delta
    assert epsilon <= 2e-6 or delta_by_enumeration(spends, epsilon - 2e-6) > delta


def test_a_lattice_too_coarse_rounds_up(monkeypatch):
    """Where losses do not fit the lattice the total grows by at most a step for each kind of report, and never falls."""
    spends = [Spend.of_epsilon("0.731", 200), Spend.of_epsilon("1.0986122886681098", 100), Spend.of_epsilon("0.05", 300)]
    fine = together(spends)
    monkeypatch.setattr(losses, "POINTS", 500)
    coarse = together(spends)
    step = np.gcd.reduce(np.diff(coarse.values))
    assert step > 50 * np.gcd.reduce(np.diff(fine.values))
    for epsilon in (0.0, 10.0, 80.0, 100.0, 120.0):
        assert coarse.delta(epsilon) >= fine.delta(epsilon) * (1 - 1e-9)
    assert fine.epsilon(DELTA) <= coarse.epsilon(DELTA) <= fine.epsilon(DELTA) + 3 * step / MICRO


def test_what_is_cut_off_is_added(monkeypatch):
    """Tails that are cut off above count as infinite losses, those below are moved up: the total never falls."""
    spends = [
        Spend.of_epsilon(
            "0.5",
            400,
        ),
        Spend(700_000, 100, 0.2),
    ]
    exact = together(spends)
    monkeypatch.setattr(losses, "_TAIL", 1e-5)
    cut = together(spends)
    assert len(cut.mass) < len(exact.mass)
    assert cut.beyond >= 1e-5
    for epsilon in (0.0, 20.0, 80.0, 130.0, 200.0):
        assert cut.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)
    assert cut.delta(1000.0) == cut.beyond


@pytest.mark.parametrize(("epsilon", "count"), [("0.1", 100), ("0.5", 100), ("1", 30), ("1", 365), ("2", 1000)])
def test_the_theorem_for_equal_epsilons(epsilon, count):
    """Delta is the sum of the theorem of Kairouz, Oh and Viswanath, over how many reports favour the wrong answer."""
    spend = Spend.of_epsilon(epsilon, count)
    losses = together([spend])
    for share in (0.1, 0.5, 0.8):
        total = float(spend.epsilon * count * share)
        with localcontext(prec=80):
            power = Decimal(epsilon).exp()
            terms = (
                comb(count, i) * (power ** (count - i) - Decimal(total).exp() * power**i) / (1 + power) ** count
                for i in range(count + 1)
            )
            exact = sum(max(Decimal(0), term) for term in terms)
        assert exact <= Decimal(losses.delta(total)) <= exact * (1 + Decimal(10) ** -9) + Decimal(10) ** -22


def test_many_reports_take_no_longer_lattice():
    """A million reports have a lattice of some standard deviations, and a bound on the error that stays small."""
    losses = together([Spend.of_epsilon("0.01", 1_000_000)])
    assert len(losses.mass) < 100_000
    assert losses.slack < 1e-6
    mean = 1_000_000 * 0.01 * np.tanh(0.005)
    assert mean < losses.epsilon(DELTA) < mean + 0.01 * 1000 * 5.2


def test_nothing_told():
    """No report needs no epsilon."""
    assert together([]).epsilon(DELTA) == 0
    assert together([Spend.of_epsilon(1, 0)]).delta(0.0) == 0


def test_order_and_grouping_do_not_matter():
    """Reports of one kind are counted together, wherever they stand."""
    spends = [Spend.of_epsilon(1, 3), Spend.of_epsilon("0.5", 2), Spend.of_epsilon(1, 4), Spend.of_epsilon(2, 0)]
    assert merged(spends) == (Spend(500_000, 2), Spend(1_000_000, 7))
    assert together(spends).epsilon(DELTA) == together(reversed(spends)).epsilon(DELTA)


@pytest.mark.parametrize(("field", "value"), [("cost", 0), ("cost", 1.5), ("count", -1), ("share", 0), ("share", 1.01)])
def test_a_spend_is_checked(field, value):
    """A spend has a cost, a count and a share."""
    with pytest.raises(ParameterError, match=field):
        Spend(**({"cost": 1} | {field: value}))


@pytest.mark.parametrize("delta", [0, 1e-16, 1, 1.5, -1, float("nan"), True])
def test_a_delta_is_checked(delta):
    """A delta is a probability above next to nothing."""
    with pytest.raises(ParameterError, match=r"delta = .*: write a probability from 1e-15 to below 1"):
        together([Spend.of_epsilon(1)]).epsilon(delta)


# Real mechanisms. A report's likelihood ratio against e^t, for all t: whatever reports of another kind dominate there, they
# dominate in every composition (Blackwell).

ODDS = [Fraction(n, 20) for n in (1, 5, 10, 15, 19, 20, 21, 25, 30, 40, 53, 54, 55, 80, 140, 150)]
SIZES = {"coin": [2], "binary": [2]}
KINDS = [
    (name, size, epsilon)
    for name in (*mechanisms.names(), "pem")
    for size in SIZES.get(name, [2, 3, 5])
    for epsilon in ("1", "2")
    if name != "coin" or epsilon == "2"
]
SMALL = {"fast_local_hash": {"rows": 4}, "cms": {"rows": 2, "width": 2}, "hcms": {"rows": 2, "width": 2}, "pem": {"rows": 8}}


def hockey_stick(first, second, odds):
    return sum(max(Fraction(0), share - odds * second.get(payload, 0)) for payload, share in first.items())


def make(name, size, epsilon):
    epsilon = log(3) if name == "coin" else epsilon
    return mechanisms.make(name, domain_size=size, epsilon=epsilon, **SMALL.get(name, {}))


def masses(mechanism):
    return [distribution(lambda tape, v=v: mechanism.randomize(v, source=tape)) for v in range(mechanism.domain_size)]


def claimed(spend, odds):
    """Return the hockey-stick divergence of the spend's coin, as `Losses` would have it."""
    true = spend.favoured
    untrue = true * exp(-spend.epsilon)
    remainder = 1 - spend.share
    return max(0, true - odds * untrue) + max(0, remainder - odds * remainder) + max(0, untrue - odds * true)


@pytest.mark.first_cases(40)
@pytest.mark.parametrize(("name", "size", "epsilon"), KINDS)
def test_reports_tell_no_more_than_is_counted(name, size, epsilon):
    """For any two answers and any odds, and as much for some where a share is stated for the mechanism."""
    mechanism = make(name, size, epsilon)
    spend = Spend.of(mechanism)
    laws = masses(mechanism)
    for odds in ODDS:
        worst = max(hockey_stick(one, other, odds) for one, other in permutations(laws, 2))
        bound = claimed(spend, float(odds))
        assert float(worst) <= bound + 1e-12
        if spend.share < 1 and name not in ("fast_local_hash", "pem"):
            assert float(worst) == pytest.approx(bound, abs=1e-5)  # the cost is rounded up to a millionth
    if name in ("grr", "oue", "sue", "subset", "local_hash", "hadamard", "fast_local_hash") and size > 3:
        assert spend.share < 1


@pytest.mark.parametrize(("name", "size"), [("grr", 3), ("oue", 3), ("subset", 4), ("local_hash", 3), ("rappor", 2), ("pgr", 3)])
def test_three_reports_of_a_mechanism(name, size):
    """Composed by enumeration of what three reports can be, a mechanism gives the delta that we compute."""
    mechanism = mechanisms.make(name, domain_size=size, epsilon=1)
    losses = together([Spend.of(mechanism, 3)])
    laws = masses(mechanism)
    one, other = next(combinations(laws, 2))
    ratios: dict[tuple[Fraction, Fraction], int] = {}
    for payload, share in one.items():
        pair = (share, other[payload])
        ratios[pair] = ratios.get(pair, 0) + 1
    for epsilon in (0.0, 0.5, 1.0, 1.5, 2.5):
        odds, total = Fraction(exp(epsilon)), Fraction(0)
        for chosen in product(ratios, repeat=3):
            first = second = ways = Fraction(1)
            for pair in chosen:
                first, second, ways = first * pair[0], second * pair[1], ways * ratios[pair]
            total += ways * max(Fraction(0), first - odds * second)
        assert float(total) <= losses.delta(epsilon)
        assert float(total) == pytest.approx(losses.delta(epsilon), abs=1e-5)


def test_the_share_of_unary_encodings_is_a_half():
    """Half of the reports of OUE say nothing about two given values; of GRR nearly all, in a large domain."""
    oue = mechanisms.make("oue", domain_size=100, epsilon=1)
    assert oue.telling == Fraction(1, 2)
    grr = mechanisms.make("grr", domain_size=1000, epsilon=1)
    assert grr.telling == grr.p + grr.q
    assert mechanisms.make("binary", domain_size=2, epsilon=1).telling == 1


def test_a_sampled_report_is_one_that_may_say_nothing():
    """Whether there was a report is seen, so a sampled one is a coin that is public: its epsilon stays, its share falls."""
    mechanism = mechanisms.make("binary", domain_size=2, epsilon=1)
    sampled = Spend.of(mechanism, 10, Fraction(1, 10))
    assert sampled.cost == Spend.of(mechanism).cost == MICRO
    assert sampled.share == pytest.approx(0.1)
    by_number = 0.0  # given how many were sampled, the rest is composition of so many
    for number in range(1, 11):
        chance = comb(10, number) * 0.1**number * 0.9 ** (10 - number)
        by_number += chance * together([Spend.of_epsilon(1, number)]).delta(1.5)
    assert together([sampled]).delta(1.5) == pytest.approx(by_number, rel=1e-9)


def test_a_cost_is_the_ledgers():
    """Epsilons are millionths of a nat, rounded up."""
    assert Spend.of_epsilon("1.0986122886681098").cost == 1_098_613
    assert Spend.of(make("coin", 2, "1")).cost == ceil(log(3) * MICRO)
    assert Spend.of_epsilon("0.1", 3).times(2) == Spend(100_000, 6)
    assert Spend.of_epsilon("0.1", 3).total == 300_000


@settings(max_examples=30, deadline=None)
@given(
    gaps=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    size=st.integers(1, 60),
    which=st.sampled_from([(0, 1), (1, 0)]),
)
def test_few_points_of_a_grid_are_added_one_by_one(gaps, size, which):
    """The sum has the same probabilities whether all points are gone through or those alone that have one, on either side."""
    places = np.cumsum([0, *gaps])
    few = np.zeros(places[-1] + 1)
    few[places] = 1 / (1 + np.arange(len(places)))
    many = 1 / (2 + np.arange(size)) ** 2
    one, two = ((few, many)[side] for side in which)
    assert losses._convolved(one, two) == pytest.approx(np.convolve(one, two), rel=1e-12)
