"""What an app allows: every bound refuses what is above it, and losses are worked out, not believed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from math import inf, log, nan

import pytest

from deniable import mechanisms
from deniable.declared import Declared
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.limits.caps import exceeding
from deniable.mechanisms.base import FrequencyOracle
from deniable.registry import Metric
from deniable.registry.tables import Budget, Caps


def declare(mechanism="auto", size=4, epsilon="1", **changes):
    """Declare a metric."""
    values = tuple(f"v{i}" for i in range(size))
    return Metric("m", "categorical", values, epsilon, mechanism=mechanism, **changes)


def check(caps, declared):
    """Raise what the SDK and lint would say of a metric that exceeds caps."""
    declared = declared if isinstance(declared, Declared) else Declared.of(declared)
    for _, broken in exceeding([declared], caps, "[caps]"):
        raise ParameterError(broken, None)


def test_defaults_refuse_the_outrageous():
    """Without a word from the app a report spends at most 4 nats, and so do all reports of a kept answer."""
    check(Caps(), declare(epsilon="4"))
    with pytest.raises(
        ParameterError,
        match=r"give away 4\.001 nats, and the app allows 4: write epsilon = 4 in \[metrics",
    ):
        check(Caps(), declare(epsilon="4.001"))
    check(Caps(), declare("l_grr", epsilon="1", epsilon_permanent="4"))
    with pytest.raises(ParameterError, match=r"write epsilon_permanent = 4 in \[metrics"):
        check(Caps(), declare("l_grr", epsilon="1", epsilon_permanent="4.001"))


def test_epsilon_exactly_at_a_cap_is_allowed():
    """A cap is compared with the integers exactly: neither rounding refuses what is at it, nor allows the next above."""
    for epsilon in ("0.1", "0.7", "1", "2.5", "7.999"):
        for name in ("grr", "oue", "subset", "local_hash", "hadamard"):
            check(Caps(epsilon=float(epsilon)), declare(name, epsilon=epsilon))
    check(Caps(epsilon=log(3)), declare("coin", size=2, epsilon="1.0986122886681098"))


def test_of_two_epsilons_the_stricter_holds():
    """The cap of one metric holds for it alone, and never loosens the general one."""
    check(Caps(metrics={"other": 0.5}), declare())
    with pytest.raises(ParameterError, match=r"allows 0\.5: "):
        check(Caps(metrics={"m": 0.5}), declare())
    with pytest.raises(ParameterError, match="allows 2: "):
        check(Caps(epsilon=2, metrics={"m": 7}), declare(epsilon="3"))


@pytest.mark.parametrize("allowed", [{"grr"}, frozenset({"grr"}), ["grr"]])
def test_only_listed_mechanisms_are_allowed(allowed):
    """What counts is the mechanism that ``auto`` resolves to."""
    caps = Caps(mechanisms=allowed)
    check(caps, declare("grr"))
    check(caps, declare("auto", size=3))
    with pytest.raises(
        ParameterError, match=r'its mechanism is "oue", and the app allows "grr": add "oue" to mechanisms in .caps.'
    ):
        check(caps, declare("oue"))
    with pytest.raises(ParameterError, match=r'its mechanism is "grr", and the app allows none: '):
        check(Caps(mechanisms=()), declare("grr"))


def test_a_domain_has_a_largest_size():
    """Listed answers are counted; texts are not."""
    check(Caps(domain_size=4), declare())
    with pytest.raises(
        ParameterError, match=r"it lists 5 answers, and the app allows 4: list 4 or fewer, or write domain_size = 5 in .caps."
    ):
        check(Caps(domain_size=4), declare(size=5))
    check(Caps(domain_size=4), Metric("m", "string", (), "1", candidates="c.txt"))


def test_a_kept_answer_has_a_cap_of_its_own():
    """The permanent loss is bounded apart from that of a report; one without a bound is refused whatever the cap."""
    text = Metric("m", "string", (), "1", mechanism="rappor", candidates="c.txt", epsilon_permanent="6")
    check(Caps(permanent=6), text)
    with pytest.raises(ParameterError, match="a kept answer may give away 6 nats, and the app allows 5: "):
        check(Caps(permanent=5), text)
    f_zero = (("bits", 16), ("cohorts", 2), ("hashes", 1), ("prob_f", 0), ("prob_p", 0.25), ("prob_q", 0.75))
    google = Metric("m", "string", (), "8", mechanism="google_rappor", candidates="c.txt", parameters=f_zero)
    check(Caps(), google)  # reports that are independent have a bound
    with pytest.raises(ParameterError, match=r"a kept answer may give away any number of nats, and .*: choose another mechanism"):
        check(Caps(permanent=1e6), Declared(replace(google, epsilon_permanent="8"), mechanisms.of(google), ""))


def test_rows_of_single_metrics_are_not_bounded():
    """Rows drawn anew for each report tell nothing; those that are kept are bounded over all metrics (see `admission`)."""
    check(Caps(rows=1), Metric("m", "string", (), "1", mechanism="rappor", candidates="c.txt", parameters=(("cohorts", 5000),)))


@FrequencyOracle.register
class Lying:
    """A mechanism that says of itself whatever it is told to."""

    name = "grr"

    def __init__(self, p, q, ratio, epsilon=0.1):
        self.p, self.q, self.ratio, self.epsilon = Fraction(p), Fraction(q), Fraction(ratio), epsilon
        self.odds = self.p, self.q


E = Fraction(weight(Fraction(1)), UNIT)


@pytest.mark.parametrize(
    "liar",
    [
        Lying(E / (E + 3), 1 / (E + 3), E * 2, epsilon=0.1),  # its integers spend more than it says
        Lying(Fraction(9, 10), Fraction(1, 30), E),  # so do its probabilities
        Lying(Fraction(99, 100), Fraction(1, 2), E),  # not to support a value gives it away as well
        Lying(1, Fraction(1, 2), E),  # no noise
        Lying(1, 0, E),
        Lying(1 / (E + 3), E / (E + 3), E),  # p and q swapped
        Lying(Fraction(1, 4), Fraction(1, 4), E),  # says nothing
    ],
)
def test_what_a_mechanism_says_of_itself_is_not_believed(liar):
    """The loss is worked out from ratio, p and q; epsilon is not looked at."""
    with pytest.raises(ParameterError, match=r"a report may give away .* nats, and the app allows 1\.05: "):
        check(Caps(epsilon=1.05), Declared(declare("grr"), liar, ""))


def test_an_honest_mechanism_is_believed():
    """The same check lets an honest one pass, whatever it calls its epsilon."""
    check(Caps(epsilon=1.05), Declared(declare("grr"), Lying(E / (E + 3), 1 / (E + 3), E, epsilon=99), ""))


@pytest.mark.parametrize("name", [*mechanisms.names(), "pem", "tree_hist", "window", "sampled_options", "sampled_pair"])
def test_no_mechanism_contradicts_itself(name):
    """What p and q give away is within each real mechanism's ratio, so that none is refused at its own epsilon."""
    sizes = 0
    for size in (2, 3, 8, 100, 1 << 16, 1 << 64):
        try:
            mechanism = mechanisms.make(name, domain_size=size, epsilon="1.5" if name != "coin" else "1.0986122886681098")
        except ParameterError:
            continue
        sizes += 1
        check(Caps(epsilon=1.5, rows=1 << 40), Declared(declare(), mechanism, ""))
        with pytest.raises(ParameterError, match="a report may give away "):
            check(Caps(epsilon=1), Declared(declare(), mechanism, ""))
    assert sizes


@pytest.mark.parametrize(
    "bound",
    [
        *({"epsilon": x} for x in (0, -1, nan, inf, True, "1", 1e7)),
        *({"permanent": x} for x in (0, nan, inf)),
        *({"metrics": {"m": x}} for x in (0, nan, inf, None)),
        *({"domain_size": x} for x in (0, 1, 2.5, True)),
        *({"rows": x} for x in (0, None, 1.5)),
        *({"segments": x} for x in (0, None, True)),
        {"mechanisms": "grr"},
        {"mechanisms": ["grr", 3]},
    ],
)
def test_a_cap_is_a_bound(bound):
    """What is no bound is refused when the app starts, not when it is needed."""
    with pytest.raises(ParameterError):
        Caps(**bound)


def test_caps_do_not_change():
    """Neither the object nor the mapping that it was made of can be changed behind its back."""
    own = {"m": 0.5}
    caps = Caps(metrics=own)
    own["m"] = 8
    with pytest.raises(ParameterError):
        check(caps, declare())
    with pytest.raises(FrozenInstanceError):
        caps.epsilon = 99
    assert caps == Caps(metrics={"m": 0.5})
    assert hash(caps) == hash(Caps(metrics={"m": 0.5}))


@pytest.mark.parametrize(
    ("other", "result"),
    [
        (Budget(), (32, 1920)),
        (Budget(per_month=100, lifetime=1000), (32, 1000)),
        (Budget(per_month=1, lifetime=10), (1, 10)),
        (Budget(per_month=None, lifetime=None), (32, 1920)),
    ],
)
def test_a_budget_only_tightens(other, result):
    """In each of its numbers the stricter holds, whichever side it is on."""
    for tightened in (Budget().tightened(other), other.tightened(Budget())):
        assert (tightened.per_month, tightened.lifetime) == result


def test_a_largest_cap_can_be_compared():
    """A cap beyond all use is still compared exactly, not as a float that overflows."""
    check(Caps(epsilon=1e6), declare(epsilon="16"))
