"""Sets: one option, or one pair of options, is reported; every draw is walked."""

from __future__ import annotations

from fractions import Fraction

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.proof import prove
from deniable.registry import Metric
from deniable.source import OS

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
    for more in ({"mechanism": "grr"}, {"epsilon_permanent": "2"}):
        with pytest.raises(ParameterError, match=r"'grr': write auto or sampled_options|'2': remove it; a set"):
            mechanisms.of(Metric(id="used", type="set", values=("x", "y"), epsilon="1", **more))
