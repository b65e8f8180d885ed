"""Sets: some options, a pair, or a subset of the padded set is reported; every draw is walked."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import comb

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.sets.padded_subset import _absent_variance, _weights
from deniable.proof import Tape, distribution, prove
from deniable.registry import Metric
from deniable.source import OS

CAPPED = [(2, 1, "1"), (3, 1, "0.3"), (3, 2, "1"), (4, 1, "0.3"), (4, 2, "0.1"), (4, 3, "4")]  # options, most, epsilon
USED = Metric(id="used", type="set", values=("x", "y", "z"), epsilon="1")


@pytest.mark.parametrize(
    ("name", "options"), [("sampled_options", m) for m in (1, 2, 3, 5)] + [("sampled_pair", m) for m in (2, 3, 4)]
)
@pytest.mark.parametrize("epsilon", ["0.3", "1", "4"])
def test_every_draw(name, options, epsilon):
    """Sets that differ in all options still have only one epsilon between them; every score is unbiased."""
    proof = prove(mechanisms.make(name, domain_size=1 << options, epsilon=epsilon))
    assert proof.faults == ()
    assert proof.ratio == Fraction(weight(Fraction(epsilon)), UNIT)


@pytest.mark.parametrize(("name", "domain_size"), [("sampled_options", 3), ("sampled_options", 6), ("sampled_pair", 2)])
def test_a_domain_of_sets(name, domain_size):
    """A domain that is not that of all sets of some options is refused."""
    with pytest.raises(ParameterError, match=r"write 2\^m for a set of m options|pairs = 1: write false, or list 2 options"):
        mechanisms.make(name, domain_size=domain_size, epsilon=1)


def test_one_byte_for_128_options():
    """As the size of a report grows with the options only."""
    assert mechanisms.make("sampled_options", domain_size=1 << 128, epsilon=1).layout.payload_size == 1


@pytest.mark.parametrize(
    ("answer", "position"),
    [(["x"], 1), (["z", "x"], 5), (("y", "y"), 2), ({"x", "y", "z"}, 7), (frozenset(), 0), ([], 0), (set(), 0)],
)
def test_positions(answer, position):
    """Bit i of an answer's position is option i; order and repeats do not matter."""
    assert USED.position(answer) == position


@pytest.mark.parametrize("answer", [None, "x", 3, {"x": 1}, ["x", "w"], [1], [["x"]], ["x"] * 2000])
def test_undeclared(answer):
    """Anything else is undeclared, and reported as a random set."""
    with pytest.raises(ParameterError, match=r"an (answer to|option of) used must be .*; this is an undeclared"):
        USED.position(answer)
    assert 0 <= USED.stand_in(OS) < 8


def test_other_options():
    """With `other`, an undeclared option is told, and reported as it; no other option changes."""
    metric = Metric(id="used", type="set", values=("x", "y", "other"), epsilon="1", other="other")
    for answer, position in ((["x", "w"], 0b101), (["w", 3], 0b100)):
        with pytest.raises(ParameterError, match="an option of used must be one of the 3 declared"):
            metric.position(answer)
        assert metric.kind.reported(metric, answer)[0] == position
    assert metric.position(["x", "other"]) == 0b101
    assert metric.stand_in(OS) == 0b100


def test_the_mechanism_of_a_set():
    """By `joint`; another mechanism, or permanent responses, are refused."""
    assert mechanisms.of(USED).name == "sampled_options"
    pairs = Metric(id="used", type="set", values=("x", "y", "z"), epsilon="1", joint=True)
    assert (mechanisms.of(pairs).name, mechanisms.of(pairs).layout.rows) == ("sampled_pair", 3)
    capped = Metric(id="used", type="set", values=("x", "y", "z"), epsilon="1", most=2)
    assert (mechanisms.of(capped).name, mechanisms.of(capped).most) == ("padded_subset", 2)
    for more in ({"mechanism": "grr"}, {"epsilon_permanent": "2"}):
        with pytest.raises(ParameterError, match=r"'grr': write auto or sampled_options|2\.0: remove it; a set"):
            mechanisms.of(Metric(id="used", type="set", values=("x", "y"), epsilon="1", **more))


@pytest.mark.parametrize("epsilon", ["3", "4"])
@pytest.mark.parametrize("options", [2, 3, 4])
def test_every_draw_of_several_options_at_once(options, epsilon):
    """Reports about several options have one epsilon between any two sets, too."""
    mechanism = mechanisms.make("sampled_options", domain_size=1 << options, epsilon=epsilon)
    assert len(mechanism.groups[0]) > 1
    proof = prove(mechanism)
    assert proof.faults == ()
    assert proof.ratio == Fraction(weight(Fraction(epsilon)), UNIT)


def test_how_many_options_at_once():
    """As many as have the least variance for a typical option; each stands in as many rows, and with one row in all."""
    sampled = [mechanisms.make("sampled_options", domain_size=1 << 20, epsilon=epsilon) for epsilon in ("1", "2", "4", "16")]
    assert [len(mechanism.groups[0]) for mechanism in sampled] == [1, 2, 3, 8]
    for mechanism in sampled:
        assert set(Counter(option for group in mechanism.groups for option in group).values()) == {len(mechanism.groups[0])}
        assert mechanism.about == Fraction(len(mechanism.groups[0]), 20)
    every = mechanisms.make("sampled_options", domain_size=4, epsilon=4)
    assert (every.groups, every.about) == (((0, 1),), 1)
    assert every.says.startswith("A report is about all 2 options. It says truly which of these you chose with probability 0.9")
    assert sampled[2].says.startswith(
        "A report is about 3 of 20 options, drawn at random. It says truly which of these you chose"
    )


@pytest.mark.parametrize(("options", "most", "epsilon"), CAPPED)
def test_every_draw_of_a_capped_set(options, most, epsilon):
    """All sets, also those that are cut, have one epsilon between them; each score is unbiased for the cut answer."""
    mechanism = mechanisms.make("padded_subset", domain_size=1 << options, epsilon=epsilon, most=most)
    proof = prove(mechanism)
    assert proof.faults == ()
    assert proof.ratio == Fraction(weight(Fraction(epsilon)), UNIT)


@pytest.mark.parametrize(("options", "most", "epsilon"), CAPPED)
def test_what_is_drawn_does_not_depend_on_the_set(options, most, epsilon):
    """Along every walk all sets have the same draws of the same odds, which are made before the set is looked at."""
    mechanism = mechanisms.make("padded_subset", domain_size=1 << options, epsilon=epsilon, most=most)
    walk, walks = [], 0
    while walk is not None:
        tapes = [Tape(walk) for _ in range(1 << options)]
        payloads = [mechanism.randomize(value, source=tape) for value, tape in enumerate(tapes)]
        assert len({(tuple(tape.taken), tape.chance) for tape in tapes}) == 1
        assert {len(payload) for payload in payloads} == {mechanism.layout.payload_size}
        walk, walks = tapes[0].next(), walks + 1
    assert walks > 1


@pytest.mark.parametrize(("options", "most", "epsilon"), CAPPED)
def test_the_likelihood_of_a_capped_set(options, most, epsilon):
    """It is in proportion to the probability of each payload, over all draws."""
    mechanism = mechanisms.make("padded_subset", domain_size=1 << options, epsilon=epsilon, most=most)
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(1 << options)]
    for payload in masses[0]:
        assert len({mass[payload] / mechanism.likelihood(payload, value) for value, mass in enumerate(masses)}) == 1


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_long_answer_keeps_any_of_its_options_alike(most):
    """Each subset of so many of its options is equally likely, and a short answer keeps all and has blanks."""
    mechanism = mechanisms.make("padded_subset", domain_size=1 << 5, epsilon=1, most=most)
    for value in range(1 << 5):
        held = Counter(tuple(mechanism._held(value, mechanism._cut(order))) for order in range(mechanism._orders))
        own = [option for option in range(5) if value >> option & 1]
        assert all(len(set(places)) == most and set(places) <= {*own, *range(5, 5 + most)} for places in held)
        assert len(set(held.values())) == 1
        assert len(held) == comb(len(own), min(most, len(own)))


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2", "4"])
@pytest.mark.parametrize(("options", "most"), [(3, 2), (10, 1), (10, 3), (20, 2), (50, 5)])
def test_the_size_of_a_subset_is_the_best(options, most, epsilon):
    """Of all sizes it has the least variance for an option that nobody chooses."""
    mechanism = mechanisms.make("padded_subset", domain_size=1 << options, epsilon=epsilon, most=most)
    places, true_weight = options + most, weight(Fraction(epsilon))
    variances = {size: Fraction(*_absent_variance(*_weights(places, most, size, true_weight))) for size in range(1, options + 1)}
    assert mechanism.size == min(variances, key=variances.get)
    assert mechanism.option_variance(Fraction(0)) == variances[mechanism.size]


@pytest.mark.parametrize("most", [0, 4, True, 1.0, "1"])
def test_a_cap_that_is_none(most):
    """It is a whole number from 1 to one less than the options; for fewer options it is cut down."""
    with pytest.raises(ParameterError, match=r"most = .*: write a whole number from 1 to 3, one less than the options"):
        mechanisms.make("padded_subset", domain_size=1 << 4, epsilon=1, most=most)
    assert mechanisms.make("padded_subset", domain_size=1 << 9, epsilon=1, most=5).resized(8).most == 2


def test_which_answers_are_cut():
    """Those with more declared options than the cap; repeats and undeclared options are not counted."""
    metric = Metric(id="used", type="set", values=("x", "y", "z"), epsilon="1", most=2)
    assert [metric.clips(answer) for answer in (["x", "y"], ["x", "y", "z"], ["x", "x", "y"], ["x", "y", "w"])] == [0, 1, 0, 0]
    assert not USED.clips(["x", "y", "z"])
