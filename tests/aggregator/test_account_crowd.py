"""What readers of a sum learn of one report: never below the enumeration of all multisets, and composed as by others."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, combinations_with_replacement, permutations
from math import comb, exp, lcm, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.proof import distribution
from deniable_aggregator.accounting.crowds.crowd import Crowd, epsilon, together
from deniable_aggregator.accounting.losses import together as alone
from deniable_aggregator.accounting.spend import Spend


def payloads_of(name, size, options, epsilon):
    """Return how many payloads a mechanism has; very many if it needs a larger epsilon."""
    try:
        layout = mechanisms.make(name, domain_size=size, epsilon=epsilon, **options).layout
    except ParameterError:
        return MOST + 1
    return layout.rows * (layout.width if layout.kind == "index" else 2**layout.width)


SMALL = [
    ("coin", 2, {}, 6),
    ("binary", 2, {}, 7),
    ("grr", 2, {}, 7),
    ("grr", 3, {}, 6),
    ("grr", 4, {}, 5),
    ("sue", 2, {}, 6),
    ("sue", 3, {}, 4),
    ("oue", 2, {}, 6),
    ("oue", 3, {}, 4),
    ("subset", 3, {}, 6),
    ("subset", 4, {}, 5),
    ("hadamard", 3, {}, 5),
    ("general_hadamard", 3, {}, 5),
    ("general_hadamard", 3, {"blocks": 2}, 4),
    ("local_hash", 3, {}, 4),
    ("pgr", 3, {}, 4),
    ("window", 3, {"blocks": 1, "length": 2}, 5),
    ("window", 3, {"blocks": 2, "length": 1}, 5),
    ("sampled_options", 4, {}, 5),
    ("padded_subset", 8, {"most": 1}, 4),
    ("sampled_pair", 4, {}, 5),
    ("cms", 3, {"rows": 1, "width": 2}, 5),
    ("hcms", 3, {"rows": 1, "width": 2}, 5),
    ("fast_local_hash", 3, {"rows": 2, "width": 2}, 5),
]
"""Mechanism, number of values, options, and how many reports are enumerated."""
EPSILONS = ("0.5", "1.2", "3")
MOST = 8  # payloads
CASES = [(*case, epsilon) for case in SMALL for epsilon in EPSILONS if payloads_of(*case[:3], epsilon) <= MOST]
ODDS = [Fraction(number, 100) for number in (101, 110, 130, 170, 250, 500, 1500)]
DELTA = 1e-6


def channel(name, size, options, epsilon):
    """Return the mechanism, and the weights of its reports as whole numbers: a row for each answer."""
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon, **options)
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(size)]
    payloads = sorted(set().union(*masses))
    scale = lcm(*(share.denominator for mass in masses for share in mass.values()))
    return mechanism, [[int(mass.get(payload, 0) * scale) for payload in payloads] for mass in masses], scale


def with_another(sums, row):
    """Return the weight of each multiset of reports with one more report, by the weights of its payloads."""
    more = {}
    for counts, weight in sums.items():
        for place, chance in enumerate(row):
            if chance:
                key = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
                more[key] = more.get(key, 0) + weight * chance
    return more


def worst(rows, scale, reports, odds):
    """Return the exact delta for each of some odds: the largest over two answers, and over the answers of all others."""
    answers = range(len(rows))
    known = {(): {(0,) * len(rows[0]): 1}}  # the multisets of the answers of some people
    for people in range(1, reports + 1):
        for chosen in combinations_with_replacement(answers, people):
            known[chosen] = with_another(known[chosen[:-1]], rows[chosen[-1]])
    most = [0] * len(odds)
    for others in combinations_with_replacement(answers, reports - 1):
        sums = [known[tuple(sorted((*others, answer)))] for answer in answers]
        for one, other in permutations(answers, 2):
            pairs = [(weight, sums[other].get(counts, 0)) for counts, weight in sums[one].items()]
            for place, factor in enumerate(odds):
                up, down = factor.numerator, factor.denominator
                most[place] = max(most[place], sum(max(0, down * first - up * second) for first, second in pairs))
    return [Fraction(sum_, factor.denominator * scale**reports) for sum_, factor in zip(most, odds, strict=True)]


@pytest.mark.parametrize(("name", "size", "options", "reports", "epsilon"), CASES)
def test_never_below_the_enumeration(name, size, options, reports, epsilon):
    """All multisets of 4 to 7 reports, all pairs of answers, all answers of others, in whole numbers."""
    mechanism, rows, scale = channel(name, size, options, epsilon)
    odds = [factor for factor in ODDS if factor < mechanism.ratio]
    crowd = Crowd.of(mechanism, reports)
    composed = together([crowd])
    for factor, exact in zip(odds, worst(rows, scale, reports, odds), strict=True):
        at = log(factor)
        assert crowd.delta(at) >= float(exact) * (1 - 1e-12)
        assert composed.delta(at) >= float(exact) * (1 - 1e-12)


@pytest.mark.parametrize(("name", "size", "options"), [case[:3] for case in SMALL])
def test_total_variation_of_every_channel(name, size, options):
    """Walking every draw: the total variation of two answers is never above what the mechanism states, and attained."""
    mechanism, rows, scale = channel(name, size, options, "1.2")
    stated = mechanism.telling * (mechanism.ratio - 1) / (mechanism.ratio + 1)
    variations = [
        Fraction(sum(abs(a - b) for a, b in zip(one, two, strict=True)), 2 * scale) for one, two in combinations(rows, 2)
    ]
    assert max(variations) <= stated
    if name != "fast_local_hash":  # its two functions may let two values collide
        assert max(variations) == stated


def two_kinds(telling, odds_of, reports, factor):
    """Return the delta that leaves out the third kind: own and other reports are of two kinds, or say nothing at all."""
    p, a = odds_of, telling / (odds_of + 1)
    first, second = {}, {}
    for clones in range(reports):
        often = comb(reports - 1, clones) * (2 * a) ** clones * (1 - 2 * a) ** (reports - 1 - clones)
        for named in range(clones + 1):
            both = often * comb(clones, named) / 2**clones
            for own, one, two in (((1, 0), p * a, a), ((0, 1), a, p * a), ((0, 0), 1 - telling, 1 - telling)):
                key = named + own[0], clones - named + own[1]
                first[key] = first.get(key, 0) + both * one
                second[key] = second.get(key, 0) + both * two
    return sum(max(0, chance - factor * second[key]) for key, chance in first.items())


def test_two_kinds_are_not_enough():
    """Six reports of three values: the exact delta lies between the bound by two kinds and ours."""
    mechanism, rows, scale = channel("grr", 3, {}, "0.5")
    factor = Fraction(130, 100)
    (exact,) = worst(rows, scale, 6, [factor])
    fewer = two_kinds(mechanism.telling, mechanism.ratio, 6, factor)
    assert float(fewer) < 0.98 * float(exact)
    assert float(exact) <= Crowd.of(mechanism, 6).delta(log(factor))


@settings(max_examples=30, deadline=None)
@given(
    epsilon=st.integers(100_000, 4_000_000),
    telling=st.sampled_from([1.0, 0.7, 0.2, 0.03]),
    reports=st.integers(1, 3000),
    at=st.floats(0.01, 0.99),
)
def test_the_formula_and_the_distribution(epsilon, telling, reports, at):
    """The delta of one report by its formula, and by the distribution of its loss on a grid, which is never below."""
    crowd = Crowd(epsilon, telling, reports)
    formula = crowd.delta(at * crowd.local)
    losses = crowd.losses(max(1, epsilon // 20_000))
    assert losses.mass.sum() == pytest.approx(1, abs=1e-9)
    grid = losses.delta(at * crowd.local)
    assert formula <= grid * (1 + 1e-6) + 1e-15
    assert grid <= formula * 1.01 + 1e-13


@pytest.mark.parametrize(("epsilon", "reports", "central"), [(1, 1000, 0.1487), (2, 1000, 0.3971), (4, 10_000, 0.4108)])
def test_figures(epsilon, reports, central):
    """Two values and delta 1e-6, as in the documents. Half of the crowd, fewer values or a smaller delta give more."""
    binary = mechanisms.make("binary", domain_size=2, epsilon=epsilon)
    crowd = Crowd.of(binary, reports)
    assert crowd.epsilon(DELTA) == pytest.approx(central, abs=5e-5)
    assert crowd.delta(crowd.epsilon(DELTA)) <= DELTA
    assert crowd.epsilon(DELTA) < crowd.half.epsilon(DELTA) < crowd.local
    assert crowd.epsilon(DELTA) < crowd.epsilon(1e-8)
    assert Crowd.of(mechanisms.make("grr", domain_size=8, epsilon=epsilon), reports).epsilon(DELTA) < central


def test_composition_as_by_dp_accounting():
    """Thirty reports among five: the same pair of distributions, composed by Google's library."""
    from dp_accounting.pld import privacy_loss_distribution  # here, because to import it takes every process two seconds

    one, other = {}, {}
    p, a = exp(0.8), 0.6 / (exp(0.8) + 1)
    shared = (1 - 0.6) / p
    for i in range(6):
        for j in range(6 - i):
            for k in range(6 - i - j):
                remainder = 5 - i - j - k
                often = comb(5, i) * comb(5 - i, j) * comb(5 - i - j, k)
                often *= a ** (i + j) * shared**k * (1 - 2 * a - shared) ** remainder / 5
                one[i, j, k] = often * (p * i + j + p * k)
                other[i, j, k] = often * (i + p * j + p * k)
    assert sum(one.values()) == pytest.approx(1)
    logs = [{key: log(chance) for key, chance in masses.items() if chance} for masses in (one, other)]
    library = privacy_loss_distribution.from_two_probability_mass_functions(*logs, value_discretization_interval=1e-4)
    theirs = library.self_compose(30).get_epsilon_for_delta(DELTA)
    assert theirs * (1 - 1e-3) <= together([Crowd(800_000, 0.6, 5, 30)]).epsilon(DELTA) <= theirs * 1.003


def test_several_devices_divide_the_crowd():
    """Ten devices of a household in a sum of 1,000 are ten reports, each among 100 that are seen apart."""
    crowd = Crowd(1_000_000, 1.0, 1000, 3)
    assert crowd.times(10) == Crowd(1_000_000, 1.0, 100, 30)
    assert crowd.times(2000).reports == 1


def test_sampling_counts_as_fewer_reports():
    """Everybody can see whether there was a report: a tenth of the occasions is more than a tenth of the reports."""
    often = Crowd(1_000_000, 1.0, 1000, 300, 0.1)
    total = epsilon([often], DELTA)
    assert epsilon([Crowd(1_000_000, 1.0, 1000, 30)], DELTA) < total < epsilon([Crowd(1_000_000, 1.0, 1000, 60)], DELTA)


def test_nothing_and_one():
    """No report reveals nothing; one has the formula; a total is never above the plain sum."""
    assert epsilon([], DELTA) == 0
    one = Crowd(1_000_000, 1.0, 1000)
    assert epsilon([one, Crowd(1_000_000, 1.0, 1000, 0)], DELTA) == one.epsilon(DELTA)
    assert epsilon([Crowd(1_000_000, 1.0, 1, 30)], DELTA) <= 30


@pytest.mark.parametrize(
    "make",
    [
        lambda: Crowd(0, 1.0, 10),
        lambda: Crowd(1, 0.0, 10),
        lambda: Crowd(1, 1.0, 0),
        lambda: Crowd(1, 1.0, 1, -1),
        lambda: Crowd(1, 1.0, 1, 1, 2.0),
        lambda: Crowd(1, 1.0, 1).epsilon(0.0),
        lambda: Crowd(1, 1.0, 1).delta(-1.0),
    ],
)
def test_bad_numbers(make):
    """A crowd refuses numbers that mean nothing, with the rule and the value."""
    with pytest.raises(ParameterError):
        make()


@pytest.mark.parametrize("count", [30, 365])
def test_alone_as_by_the_exact_composition(count):
    """A crowd of one is a report alone: 29.99 and 244.63."""
    exact = alone([Spend.of_epsilon(1, count)]).epsilon(DELTA)
    assert exact == pytest.approx({30: 29.99, 365: 244.63}[count], rel=1e-3)
    ours = together([Crowd.of(mechanisms.make("binary", domain_size=2, epsilon=1), 1, count)]).epsilon(DELTA)
    assert exact <= ours + 1e-4 <= exact * 1.001
