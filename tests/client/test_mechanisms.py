"""What every mechanism claims, against enumeration and the closed forms of the literature."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import combinations, product
from math import ceil, exp, log
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, exact, weight
from deniable.mechanisms import auto
from deniable.mechanisms.base import mean_variance
from deniable.proof import distribution, prove
from deniable.source import OS

EPSILONS = ["0.1", "0.5", "1", "1.0986122886681098", "2.5"]
ANY_SIZE = (
    *("grr", "sue", "oue", "subset", "local_hash", "hadamard", "general_hadamard", "pgr"),
    *("rappor", "cms", "hcms", "fast_local_hash"),
    *("l_grr", "l_osue", "loloha", "dbitflip"),
)
OPTIONS = [
    ("rappor", 4, {"bits": 4, "hashes": 1, "cohorts": 2}),
    ("rappor", 5, {"bits": 5, "hashes": 2, "cohorts": 1}),
    ("rappor", 4, {"bits": 3, "hashes": 1, "cohorts": 3, "permanent": 5}),
    ("cms", 5, {"rows": 3, "width": 4}),
    ("cms", 4, {"rows": 2, "width": 3}),
    ("hcms", 5, {"rows": 3, "width": 4}),
    ("fast_local_hash", 5, {"rows": 4}),
    ("fast_local_hash", 6, {"rows": 3, "width": 2}),
    ("general_hadamard", 6, {"blocks": 2}),
    ("general_hadamard", 7, {"blocks": 4}),
    ("l_grr", 5, {"permanent": 3}),
    ("l_osue", 4, {"permanent": 4.25}),
    ("loloha", 6, {"permanent": 16}),
    ("dbitflip", 5, {"buckets": 2}),
    ("dbitflip", 6, {"buckets": 4}),
    ("dbitflip", 4, {"buckets": 1}),
]
"""Hash pools, and what else is chosen by an option."""
MADE = [
    *((name, d, epsilon) for name in ANY_SIZE for d in (2, 3, 4, 5) for epsilon in EPSILONS),
    *(("binary", 2, epsilon) for epsilon in EPSILONS),
    *(("coin", 2, epsilon) for epsilon in EPSILONS[3:]),
]
SMALL = [
    *((name, 3, "1") for name in ANY_SIZE),
    ("grr", 5, "2"),
    ("subset", 5, "0.5"),
    ("hadamard", 5, "1"),
    ("general_hadamard", 5, "2"),
    ("binary", 2, "1"),
    ("coin", 2, "3"),
]


def make(name: str, d: int, epsilon: str):
    return mechanisms.make(name, domain_size=d, epsilon=epsilon)


def support_probability(mechanism, true: int, value: int) -> Fraction:
    masses = distribution(lambda tape: mechanism.randomize(true, source=tape))
    return sum((share for payload, share in masses.items() if value in mechanism.supported(payload)), Fraction(0))


@pytest.mark.parametrize(("name", "d", "epsilon"), MADE)
def test_every_claim_is_proved(name, d, epsilon):
    """Walking every draw shows the declared ratio, probabilities and size, and no more epsilon than was asked for."""
    mechanism = make(name, d, epsilon)
    proof = prove(mechanism)
    assert proof.holds, proof.faults
    assert proof.ratio == mechanism.ratio
    assert mechanism.epsilon <= float(exact(epsilon))
    assert proof.epsilon == pytest.approx(mechanism.epsilon, abs=1e-12)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
@pytest.mark.parametrize(("name", "d", "options"), OPTIONS)
def test_every_claim_is_proved_with_options(name, d, options, epsilon):
    """With a pool of hash functions the exact support of every pair of values is as stated, and the ratio too."""
    mechanism = mechanisms.make(name, domain_size=d, epsilon=epsilon, **options)
    proof = prove(mechanism)
    assert proof.holds, proof.faults
    assert {key: mechanism.chosen[key] for key in options} == options
    twin = pickle.loads(pickle.dumps(mechanism))
    assert (twin, twin.canonical) == (mechanism, mechanism.canonical)


@pytest.mark.parametrize("options", [{}, {"bits": 3, "cohorts": 2}, {"bits": 4, "hashes": 2, "cohorts": 1, "permanent": 1.5}])
def test_rappor_in_two_steps(options):
    """The permanent response and a report drawn from it are together distributed as one report, exactly."""
    mechanism = mechanisms.make("rappor", domain_size=3, epsilon=1, **options)
    for cohort, value in product(range(mechanism.cohorts), range(3)):

        def two_steps(tape, cohort=cohort, value=value):
            return mechanism.respond_instantly(cohort, mechanism.respond_permanently(cohort, value, tape), tape)

        masses = distribution(lambda tape, v=value: mechanism.randomize(v, source=tape))
        own = {y: share * mechanism.cohorts for y, share in masses.items() if mechanism.layout.unpack(y)[0] == cohort}
        assert distribution(two_steps) == own


@pytest.mark.parametrize("hashes", [1, 2])
@pytest.mark.parametrize("permanent", [0, 1, 2.5])
def test_the_permanent_response_is_private(hashes, permanent):
    """Walking every draw of the permanent response shows the ratio that it declares, at most e^permanent."""
    mechanism = mechanisms.make("rappor", domain_size=5, epsilon=1, bits=5, hashes=hashes, cohorts=1, permanent=permanent)
    masses = [
        distribution(lambda tape, v=value: mechanism.respond_permanently(0, v, tape).to_bytes(1, "little")) for value in range(5)
    ]
    worst = max(max(m[y] for m in masses) / min(m[y] for m in masses) for y in masses[0])
    assert worst == mechanism.permanent_ratio
    assert log(worst) == pytest.approx(permanent or 2, abs=1e-8)
    assert mechanism.epsilon_permanent == pytest.approx(log(worst))
    assert log(worst) <= (permanent or 2)


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("rappor", {"permanent": 0.5}, r"permanent = 0\.5: write epsilon or more; a report is a noisy copy of it"),
        ("rappor", {"bits": -1}, "bits = -1: write a whole number above 0"),
        ("rappor", {"hashes": 2.0}, r"hashes = 2\.0: write a whole number above 0"),
        ("rappor", {"bits": 2, "hashes": 3}, "a Bloom filter of 2 bits cannot have 3 hashes: use fewer hashes, or more bits"),
        ("rappor", {"rows": 2}, "rappor has no option rows: its options are bits, hashes, cohorts, permanent"),
        ("cms", {"rows": True}, "rows = true: write a whole number of at least 1"),
        ("cms", {"width": 1}, "width = 1: write a whole number of at least 2"),
        ("cms", {"rows": 1 << 20, "width": 1 << 10}, "are too many: use 4194304 cells at most"),
        ("hcms", {"rows": 5, "width": 3}, "width = 3: write a power of two for a Hadamard transform"),
        ("general_hadamard", {"blocks": 3}, "blocks = 3: write a power of two"),
        ("grr", {"rows": 3}, "grr has no option rows: its options are none"),
        ("auto", {"rows": 3}, "auto has no options: name a mechanism, or remove rows"),
    ],
)
def test_bad_options(name, options, rule):
    """An option out of range, or of another mechanism, is refused with the rule and the value."""
    with pytest.raises(ParameterError, match=rule):
        mechanisms.make(name, domain_size=9, epsilon=1, **options)


@pytest.mark.parametrize("name", ["rappor", "cms", "hcms", "fast_local_hash"])
def test_domains_of_any_size(name):
    """A mechanism for texts takes a domain of 256^64 values, with payloads of one size and a tally that fits."""
    mechanism = mechanisms.make(name, domain_size=1 << 512, epsilon=1)
    sizes = {len(mechanism.randomize(value)) for value in (0, 1, (1 << 512) - 1, 1 << 300) for _ in range(20)}
    assert sizes == {mechanism.layout.payload_size}
    assert mechanism.epsilon == pytest.approx(1, abs=1e-8)


def test_next_to_no_epsilon_is_lost():
    """Rounding down costs less than 2^-31 of epsilon."""
    rows = [row for row in MADE if row[0] != "coin"]
    assert [row for row in rows if make(*row).epsilon <= float(exact(row[2])) - 2**-31] == []


def closed_form(name: str, d: int, e: float, mechanism) -> tuple[float, float, float]:
    """p, q and n times the variance at f -> 0, as the papers have them."""
    h = e**0.5
    g = mechanism.family.range_size if name in ("local_hash", "fast_local_hash", "loloha") else 0
    c = 1 / mechanism.family.rows if name in ("cms", "hcms") else 0
    w = mechanism.size if name == "subset" else 0
    z = w * e + d - w
    direct = (e / (e + d - 1), 1 / (e + d - 1), (d - 2 + e) / (e - 1) ** 2)
    sue = (h / (h + 1), 1 / (h + 1), h / (h - 1) ** 2)
    hashed = (e / (e + g - 1), 1 / g if g else 0, (e + g - 1) ** 2 / ((g - 1) * (e - 1) ** 2))

    def confused(p: float, other: float) -> tuple[float, float, float]:
        q = c * p + (1 - c) * other
        return p, q, q * (1 - q) / (p - q) ** 2

    def blocks() -> tuple[float, float, float]:
        s, b = mechanism.size / 2, mechanism.blocks
        z = s * (e - 1) + 2 * b * s
        p = s * (e - 1) / z
        return p, 0, (s * (e + 1) / z / b + (1 - 1 / b) * 2 * s / z) / p**2

    def plane() -> tuple[float, float, float]:
        g, t = mechanism.field.order, mechanism.dimension
        k, near, both = ((g**i - 1) / (g - 1) for i in (t, t - 1, t - 2))
        z = near * e + k - near
        p, q = near * e / z, (both * e + near - both) / z
        return p, q, q * (1 - q) / (p - q) ** 2

    forms = {
        "coin": lambda: (3 / 4, 1 / 4, 0.75),
        "binary": lambda: direct,
        "grr": lambda: direct,
        "sue": lambda: sue,
        "rappor": lambda: sue,
        "cms": lambda: confused(h / (h + 1), 1 / (h + 1)),
        "hcms": lambda: confused(e / (e + 1), 1 / 2),
        "fast_local_hash": lambda: hashed,
        "general_hadamard": blocks,
        "pgr": plane,
        "oue": lambda: (1 / 2, 1 / (e + 1), 4 * e / (e - 1) ** 2),
        "hadamard": lambda: (e / (e + 1), 1 / 2, ((e + 1) / (e - 1)) ** 2),
        "local_hash": lambda: hashed,
        "l_grr": lambda: direct,
        "l_osue": lambda: (1 / 2, 1 / (e + 1), 4 * e / (e - 1) ** 2),
        "loloha": lambda: hashed,
        "dbitflip": lambda: tuple(
            part * share for part, share in zip(sue, (min(8 / d, 1), min(8 / d, 1), max(d / 8, 1)), strict=True)
        ),
        "subset": lambda: (p := w * e / z, q := (w * e * (w - 1) + (d - w) * w) / ((d - 1) * z), q * (1 - q) / (p - q) ** 2),
    }
    return forms[name]()


def as_in_the_table(name, d, epsilon):
    mechanism = mechanisms.make(name, domain_size=d, epsilon=epsilon)
    p, q, variance = closed_form(name, d, exp(epsilon), mechanism)
    figures = [float(mechanism.p), float(mechanism.q), mechanism.variance(0, 1), mechanism.variance(0, 250)]
    exact_to_a_millionth = figures == pytest.approx([p, q, variance, variance / 250], rel=1e-6)
    return exact_to_a_millionth and mechanism.epsilon == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("name", mechanisms.names())
def test_closed_forms(name):
    """p, q, epsilon and the variance at f -> 0 are those of the table, to a millionth."""
    domains = [2] if name in ("coin", "binary") else [2, 3, 10, 100, 1000]
    epsilons = [1.0986122886681098] if name == "coin" else [0.1, 0.5, 1, 2, 4, 8]
    assert [case for case in product(domains, epsilons) if not as_in_the_table(name, *case)] == []


@pytest.mark.parametrize("name", [name for name in mechanisms.names() if name != "general_hadamard"])
def test_two_forms_of_the_variance(name):
    """The variance is also q(1-q)/(p-q)^2 + f(1-p-q)/(p-q), and averages to `mean_variance`."""
    m = mechanisms.make(name, domain_size=2, epsilon=1.5)
    p, q = float(m.p), float(m.q)
    f = [0, 0.1, 0.5, 1]
    other_form = [(q * (1 - q) / (p - q) ** 2 + share * (1 - p - q) / (p - q)) / 7 for share in f]
    assert [m.variance(share, 7) for share in f] == pytest.approx(other_form, rel=1e-9)
    averages = [(m.variance(share, 1) + m.variance(1 - share, 1)) / 2 for share in f]
    assert averages == pytest.approx([float(m.mean_variance)] * 4, rel=1e-12)
    assert m.mean_variance == mean_variance(m.p, m.q, 2)


@pytest.mark.parametrize(("name", "d", "epsilon"), SMALL)
def test_exact_mean_and_variance(name, d, epsilon):
    """Over all draws of all devices of a fixed population the estimate has mean f and the stated variance, as fractions."""
    mechanism = make(name, d, epsilon)
    p, q = mechanism.p, mechanism.q
    population = [0, 0, d - 1]
    n = len(population)
    masses = [distribution(lambda tape, v=true: mechanism.randomize(v, source=tape)) for true in range(d)]
    for value in range(d):
        signs = [Counter() for _ in range(d)]
        for mass, signed in zip(masses, signs, strict=True):
            for y, share in mass.items():
                signed[(value in mechanism.supported(y)) - (value in mechanism.opposed(y))] += share
        f = Fraction(population.count(value), n)
        mean = square = Fraction(0)
        for answers in product((-1, 0, 1), repeat=n):
            share = Fraction(1)
            for answer, true in zip(answers, population, strict=True):
                share *= signs[true][answer]
            estimate = (Fraction(sum(answers), n) - q) / (p - q)
            mean += share * estimate
            square += share * estimate**2
        assert mean == f
        if name == "general_hadamard":
            blocks = [mechanism.slots(other)[0] for other in population]
            mass = blocks.count(mechanism.slots(value)[0]) / n
            assert mechanism.variance(float(f), n, mass) == pytest.approx(float(square - mean**2), rel=1e-9)
            continue
        stated = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n * (p - q) ** 2)
        assert square - mean**2 == stated
        assert mechanism.variance(float(f), n) == pytest.approx(float(stated), rel=1e-12)


def test_the_two_coins():
    """Two fair coins spend ln 3 and the population's share is P_A = 2 P_B - 1/2, exactly."""
    coin = mechanisms.make("coin", domain_size=2)
    assert coin.ratio == 3
    assert coin.epsilon == pytest.approx(log(3), abs=1e-15)
    for yes in range(11):
        truth = Fraction(yes, 10)
        answers = truth * support_probability(coin, 1, 1) + (1 - truth) * support_probability(coin, 0, 1)
        assert 2 * answers - Fraction(1, 2) == truth
    assert support_probability(coin, 1, 1) == Fraction(3, 4)


@pytest.mark.parametrize("epsilon", [None, "1.0986122886681098", log(3), 2, 16])
def test_the_coin_spends_log_three(epsilon):
    """Whatever it is offered, the coin spends ln 3 and no more."""
    coin = mechanisms.make("coin", domain_size=2, epsilon=epsilon)
    assert coin.ratio == 3
    assert coin.epsilon <= log(3) + 1e-15
    assert coin == mechanisms.make("coin", domain_size=2)


@given(d=st.integers(2, 300), epsilon=st.floats(0.01, 6), name=st.sampled_from(ANY_SIZE), data=st.data())
def test_payloads_of_one_size(d, epsilon, name, data):
    """Every payload has the size of the layout, unpacks, and supports what the layout's content says."""
    mechanism = mechanisms.make(name, domain_size=d, epsilon=round(epsilon, 3))
    for value in {0, d - 1, data.draw(st.integers(0, d - 1))}:
        for source in (None, OS):
            payload = mechanism.randomize(value, source=source)
            assert len(payload) == mechanism.layout.payload_size
            mechanism.layout.unpack(payload)
            assert mechanism.supported(payload) <= set(range(d))


@pytest.mark.parametrize("name", ANY_SIZE)
def test_noise_knows_no_value(name):
    """One drawn noise answers for every value, and the same noise and value give the same payload."""
    mechanism = mechanisms.make(name, domain_size=6, epsilon=1)
    for noise in mechanism.noise(OS, 50):
        first = [mechanism.respond(value, noise) for value in range(6)]
        assert first == [mechanism.respond(value, noise) for value in range(6)]


@pytest.mark.parametrize(("name", "d", "epsilon"), SMALL)
def test_many_draws_are_as_one(name, d, epsilon):
    """Drawing the noise of two reports at once gives two independent reports, exactly."""
    mechanism = make(name, 2 if d == 2 else 3, epsilon)
    one = distribution(lambda tape: mechanism.respond(1, mechanism.noise(tape, 1)[0]))

    def two(tape):
        return b"".join(mechanism.respond(1, noise) for noise in mechanism.noise(tape, 2))

    if name in ("local_hash", "fast_local_hash"):
        mechanism = mechanisms.make(name, domain_size=3, epsilon="0.1")
        one = distribution(lambda tape: mechanism.respond(1, mechanism.noise(tape, 1)[0]))
    assert distribution(two) == {a + b: one[a] * one[b] for a in one for b in one}


@pytest.mark.campaign
@pytest.mark.first_cases(40)  # each mechanism
@pytest.mark.parametrize(
    ("name", "d", "epsilon"), [*SMALL, ("local_hash", 5, "1"), ("oue", 4, "1"), ("subset", 6, "1"), ("grr", 2, "0.1")]
)
def test_goodness_of_fit(chi_square, name, d, epsilon):
    """40,000 reports of devices, through the noise drawn ahead, follow the enumerated distribution."""
    mechanism = make(name, d, epsilon)
    for value in {0, d - 1}:
        masses = distribution(lambda tape, v=value: mechanism.randomize(v, source=tape))
        chi_square(Counter(mechanism.randomize(value) for _ in range(20_000)), masses)


@pytest.mark.campaign
@pytest.mark.first_cases(40)  # each mechanism
@pytest.mark.parametrize("reports", [3000, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", [name for name in ANY_SIZE if name not in ("sue", "general_hadamard")])
def test_goodness_of_fit_of_supports(chi_square, name, reports):
    """In a larger domain the value held and another are supported with probabilities p and q."""
    mechanism = mechanisms.make(name, domain_size=100, epsilon=1)
    payloads = [mechanism.supported(mechanism.randomize(37)) for _ in range(reports)]
    for value, share in ((37, mechanism.p), (36, mechanism.q), (0, mechanism.q), (99, mechanism.q)):
        chi_square(Counter(value in s for s in payloads), {True: share, False: 1 - share})


# what a mechanism is


def test_names():
    """Every mechanism is registered under its own name and describes itself."""
    assert set(mechanisms.names()) == {"coin", "binary", *ANY_SIZE}
    for name in mechanisms.names():
        mechanism = mechanisms.make(name, domain_size=2, epsilon=2)
        assert mechanism.name == name
        assert mechanism.summary
        assert mechanism.canonical.startswith(f"{name} 2 ")


@pytest.mark.parametrize("name", mechanisms.names())
def test_frozen(name):
    """Nothing of a mechanism can be changed, the integers of its sampler included, and nothing added."""
    mechanism = mechanisms.make(name, domain_size=2, epsilon=2)
    for attribute in (*vars(mechanism), "anything"):
        with pytest.raises(FrozenInstanceError):
            setattr(mechanism, attribute, 1)
        with pytest.raises(FrozenInstanceError):
            delattr(mechanism, attribute)


@pytest.mark.parametrize("name", mechanisms.names())
def test_copies(name):
    """A copy is equal and interchangeable, and takes no noise along."""
    mechanism = mechanisms.make(name, domain_size=2, epsilon="1.7")
    while not mechanism._hand[2]:
        mechanism.randomize(1)
    for copied in (copy.copy, copy.deepcopy, lambda original: pickle.loads(pickle.dumps(original))):
        twin = copied(mechanism)
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
        assert twin.canonical == mechanism.canonical
        assert twin.requested == mechanism.requested
        assert not twin._hand[2]


def test_equality():
    """Mechanisms are equal when their reports are interchangeable, and only then."""
    grr = mechanisms.make("grr", domain_size=3, epsilon=1)
    assert grr == mechanisms.make("grr", domain_size=3, epsilon="1.0")
    others = [("grr", 4, 1), ("grr", 3, 1.1), ("subset", 3, 1)]
    assert all(grr != mechanisms.make(name, domain_size=d, epsilon=epsilon) for name, d, epsilon in others)
    assert mechanisms.make("binary", domain_size=2, epsilon=1) != mechanisms.make("grr", domain_size=2, epsilon=1)


@pytest.mark.parametrize("name", [*ANY_SIZE, "auto"])
def test_bad_domain_sizes(name):
    """A domain that is not a whole number of at least 2 is refused with the rule and the value."""
    for d in (-1, 0, 1, True, 2.0, "3", None):
        with pytest.raises(ParameterError, match=": write a whole number of at least 2") as caught:
            mechanisms.make(name, domain_size=d, epsilon=1)
        assert isinstance(caught.value, ValueError)
        assert caught.value.value is d


@pytest.mark.parametrize("name", [*mechanisms.names(), "auto"])
def test_bad_epsilons(name):
    """An epsilon out of range is refused with the rule and the value, also by auto."""
    for epsilon in (0, -1, 17, True, "many", float("nan"), float("inf")):
        with pytest.raises(ParameterError, match=": write a number of nats above 0 and at most 16") as caught:
            mechanisms.make(name, domain_size=2, epsilon=epsilon)
        assert caught.value.value is epsilon


@pytest.mark.parametrize("name", [*ANY_SIZE, "binary", "auto"])
def test_extreme_epsilons(name):
    """At both ends of the range there is a mechanism, soon, or a refusal with a rule; p stays above q."""
    with pytest.raises(ParameterError, match=r"epsilon = '1e-12': write at least 2\^-31 nats; integer weights cannot carry less"):
        mechanisms.make(name, domain_size=2, epsilon="1e-12")
    for epsilon in ("5e-10", "1e-9", "16"):
        began = process_time()
        mechanism = mechanisms.make(name, domain_size=2, epsilon=epsilon)
        assert mechanism.p > mechanism.q
        assert mechanism.mean_variance > 0
        assert process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "d", "epsilon", "rule"),
    [
        ("coin", 3, 2, "domain_size = 3: write 2; the coin mechanism answers yes or no"),
        ("coin", 2, 1, r"epsilon = 1: write 1\.0986122886681098, or remove it; the coin mechanism spends ln 3"),
        ("binary", 3, 1, "domain_size = 3: write 2; binary randomized response answers yes or no"),
        (
            "nosuch",
            3,
            1,
            "mechanism = 'nosuch': write one of auto, coin, binary, grr, sue, oue, ",
        ),
        ("grr", 3, None, "epsilon is missing: write a number of nats; only the coin mechanism does without"),
        ("auto", 3, None, "epsilon is missing: write a number of nats; only the coin mechanism does without"),
        ("oue", 2**22 + 1, 1, "are too many: use 4194304 cells at most"),
    ],
)
def test_refusals(name, d, epsilon, rule):
    """What a mechanism cannot do is said in words with the value."""
    with pytest.raises(ParameterError, match=rule):
        mechanisms.make(name, domain_size=d, epsilon=epsilon)


class Index:
    """An integer of another library."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


CANARY = 98765432123


NO_VALUES = [CANARY, -CANARY, 2, -1, float(CANARY), 1.0, str(CANARY), True, False, None, b"\x01", Index(CANARY), Index(-1)]


def refused(mechanism, value):
    """Tell whether a value is refused by the rule, without being repeated anywhere."""
    try:
        mechanism.randomize(value)
    except ParameterError as caught:
        error: BaseException | None = caught
    else:
        return False
    ruled = f"a value must be a whole number in [0, 2); this is of type {type(value).__name__}" in str(error)
    while error is not None:
        ruled = ruled and str(CANARY) not in f"{error} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__
    return ruled


@pytest.mark.parametrize("name", mechanisms.names())
def test_values_outside_the_domain(name):
    """A value that is none is refused before anything is drawn, and the message does not repeat it."""
    mechanism = mechanisms.make(name, domain_size=2, epsilon=2)
    assert [value for value in NO_VALUES if not refused(mechanism, value) or mechanism._hand[2]] == []


@pytest.mark.parametrize("name", mechanisms.names())
def test_integers_of_other_libraries(name):
    """Whatever says that it is an integer is one."""
    mechanism = mechanisms.make(name, domain_size=2, epsilon=2)
    assert distribution(lambda tape: mechanism.randomize(Index(1), source=tape)) == distribution(
        lambda tape: mechanism.randomize(1, source=tape)
    )


# parameters that are chosen


@given(d=st.integers(2, 200), epsilon=st.floats(0.05, 5).map(lambda x: round(x, 3)))
def test_subset_size_is_the_best(d, epsilon):
    """No other subset size has less variance."""
    from deniable.mechanisms.listed.subset import _support

    m = mechanisms.make("subset", domain_size=d, epsilon=epsilon)
    kept_weight = weight(exact(epsilon))
    near = {w for w in (1, d - 1, m.size - 2, m.size - 1, m.size, m.size + 1, m.size + 2, d // 2) if 1 <= w < d}
    assert m.mean_variance == min(mean_variance(*_support(d, w, kept_weight), d) for w in near)


@given(d=st.integers(2, 5000), epsilon=st.floats(0.05, 5).map(lambda x: round(x, 3)))
def test_hash_range_is_the_best_prime(d, epsilon):
    """No prime range up to twice e^epsilon whose tally is small enough has less variance."""
    m = mechanisms.make("local_hash", domain_size=d, epsilon=epsilon)
    kept_weight = weight(exact(epsilon))
    primes = [g for g in range(2, 2 * ceil(exp(epsilon)) + 4) if all(g % k for k in range(2, g))]
    primes = [g for g in primes if g ** (1 + min(t for t in range(1, 20) if g**t >= d)) <= 2**22]
    best = min(mean_variance(Fraction(kept_weight, kept_weight + (g - 1) * UNIT), Fraction(1, g), d) for g in primes)
    assert m.mean_variance == best


def test_subset_is_never_beaten():
    """At no domain and epsilon of a grid is any mechanism more accurate than subset selection."""
    for d, epsilon in product((2, 3, 5, 17, 100), ("0.25", "1", "2", "4")):
        subset = make("subset", d, epsilon)
        assert all(make(name, d, epsilon).mean_variance >= subset.mean_variance for name in ANY_SIZE)


# auto


def test_candidates_are_frozen():
    """What auto chooses from, and in which order, is part of registry format 1: this list must never change."""
    assert [c.name for c in auto.CANDIDATES] == ["binary", "grr", "subset", "oue", "sue", "hadamard", "local_hash", "pgr"]
    assert Fraction(51, 50) == auto.NEAR
    assert mechanisms.MAX_REPORT_BYTES == 256


@given(
    d=st.integers(2, 3000),
    epsilon=st.floats(0.05, 5).map(lambda x: round(x, 2)),
    limit=st.sampled_from([1, 2, 3, 8, 32, 256, 1 << 20]),
)
def test_auto_is_the_smallest_of_nearly_the_least_variance(d, epsilon, limit):
    """The choice has the smallest report among those that fit and are within 2% of the least variance; twice the same."""
    candidates = [c(domain_size=d, epsilon=epsilon) for c in auto.CANDIDATES if c.name != "binary" or d == 2]
    fitting = [m for m in candidates if m.layout.payload_size <= limit]
    if not fitting:
        with pytest.raises(ParameterError, match="max_report_bytes = 1: write more; no mechanism has so short a report"):
            mechanisms.choose(domain_size=d, epsilon=epsilon, max_bytes=limit)
        return
    choice = mechanisms.choose(domain_size=d, epsilon=epsilon, max_bytes=limit)
    near = [m for m in fitting if 50 * m.mean_variance <= 51 * min(each.mean_variance for each in fitting)]
    smallest = min(m.layout.payload_size for m in near)
    assert choice.mechanism.layout.payload_size == smallest
    assert choice.mechanism.mean_variance == min(m.mean_variance for m in near if m.layout.payload_size == smallest)
    assert sorted(m.name for m in choice.considered) == sorted(m.name for m in candidates)
    variances = [m.mean_variance for m in choice.considered]
    assert variances == sorted(variances)
    assert mechanisms.make("auto", domain_size=d, epsilon=epsilon, max_bytes=limit) == choice.mechanism
    assert mechanisms.choose(domain_size=d, epsilon=str(epsilon), max_bytes=limit).mechanism == choice.mechanism


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3"])
def test_direct_answers_for_small_domains(epsilon):
    """GRR beats OUE at f -> 0 exactly while d < 3 e^epsilon + 2."""
    crossover = 3 * exp(float(epsilon)) + 2
    for d in range(2, 80):
        direct, unary = make("grr", d, epsilon), make("oue", d, epsilon)
        assert (direct.variance(0, 1) < unary.variance(0, 1)) == (d < crossover)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3"])
def test_auto_answers_directly_where_sets_have_one_member(epsilon):
    """Auto is binary for two values, and GRR where the best subset is a single value."""
    direct = [d for d in range(2, 40) if make("subset", d, epsilon).size == 1]
    assert direct
    for d in direct:
        assert mechanisms.choose(domain_size=d, epsilon=epsilon).mechanism.name == ("binary" if d == 2 else "grr")


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "1", "2.5", "4", "8", "16"])
def test_auto_without_its_candidates(epsilon):
    """Where the choice is known without looking at all candidates, it is the same."""
    for d in (*range(2, 12), 100, 255, 256, 257):
        assert (
            mechanisms.make("auto", domain_size=d, epsilon=epsilon) == mechanisms.choose(domain_size=d, epsilon=epsilon).mechanism
        )


@pytest.mark.parametrize(("d", "epsilon"), [(256, 1), (1000, 4), (2000, 2)])
def test_auto_takes_small_reports_for_many_values(d, epsilon):
    """Beyond some hundred values a geometry has two bytes for dozens or hundreds, and at most 1% more error."""
    choice = mechanisms.choose(domain_size=d, epsilon=epsilon)
    assert choice.considered[0].name == "subset"
    assert (choice.mechanism.name, choice.mechanism.layout.payload_size) == ("pgr", 2)
    assert choice.mechanism.mean_variance <= auto.NEAR * choice.considered[0].mean_variance
    assert "the smallest report within 1% of the least error" in choice.reason


@pytest.mark.parametrize("epsilon", [1, 2, 4, 6])
@pytest.mark.parametrize("d", [65_536, 200_000])
def test_auto_serves_very_many_values(d, epsilon):
    """Where nothing that names values fits, the error is still within 3% of the least there is."""
    choice = mechanisms.choose(domain_size=d, epsilon=epsilon)
    assert (choice.mechanism.name, choice.mechanism.layout.payload_size) == ("pgr", 3)
    assert choice.mechanism.mean_variance < 1.03 * choice.considered[0].mean_variance


def test_auto_at_the_payload_limit():
    """Where the best does not fit, auto chooses among those that do, and says so."""
    fits = mechanisms.choose(domain_size=100, epsilon=2, max_bytes=13)
    over = mechanisms.choose(domain_size=100, epsilon=2, max_bytes=12)
    assert (fits.mechanism.name, fits.mechanism.layout.payload_size) == ("subset", 13)
    assert over.mechanism.layout.payload_size <= 12
    assert over.mechanism.mean_variance > fits.mechanism.mean_variance
    assert "subset -1.9% in 13 bytes, too large" in over.others


def test_reasons_have_figures():
    """A choice tells its error and size, what it was chosen for, and what each other would have cost."""
    choice = mechanisms.choose(domain_size=40, epsilon=1, max_bytes=4)
    size = choice.mechanism.layout.payload_size
    assert choice.figures.startswith(f"standard error {float(choice.mechanism.mean_variance) ** 0.5:.3g} / sqrt(n), {size} byte")
    assert "40 values at epsilon 1 within 4 bytes" in choice.reason
    for other in choice.considered:
        if other is not choice.mechanism:
            change = (float(other.mean_variance) / float(choice.mechanism.mean_variance)) ** 0.5 - 1
            assert f"{other.name} {change:+.1%}" in choice.others
    assert "subset -" in choice.others
    assert "in 5 bytes, too large" in choice.others


def test_a_metric_makes_its_mechanism(registry):
    """A declared metric resolves to its mechanism, once."""
    coin = mechanisms.of(registry.metrics["ui.dark"])
    assert coin.name == "coin"
    assert mechanisms.of(registry.metrics["ui.dark"]) is coin
    assert mechanisms.of(registry.metrics["ui.theme"]) == mechanisms.make("auto", domain_size=3, epsilon="1.0")


# RAPPOR as google's clients have it

PARAMETERS = {"bits": 4, "hashes": 2, "cohorts": 3, "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.3}


@pytest.mark.parametrize("changes", [{}, {"hashes": 1}, {"prob_f": 0}, {"prob_p": "0.39", "prob_q": "0.61", "prob_f": "0.45"}])
def test_google_rappor_is_proved(changes):
    """Walking every draw shows the ratio of its parameters as the client really applies them, f in 128ths."""
    mechanism = mechanisms.make("google_rappor", domain_size=6, epsilon=8, **PARAMETERS | changes)
    proof = prove(mechanism)
    assert proof.holds, proof.faults
    assert mechanism.epsilon == pytest.approx(mechanism.params.epsilon_one_time, rel=1e-12)
    assert mechanism.epsilon_permanent == pytest.approx(mechanism.params.epsilon_permanent, rel=1e-12)
    twin = pickle.loads(pickle.dumps(mechanism))
    assert (twin, twin.canonical) == (mechanism, mechanism.canonical)


def test_google_rappor_in_two_steps():
    """A report is distributed as the noise of an instantaneous response over one of a random permanent one."""
    from deniable.mechanisms.texts import google_rappor

    mechanism = mechanisms.make("google_rappor", domain_size=6, epsilon=8, **PARAMETERS | {"cohorts": 1})
    params, f = mechanism.params, mechanism.params.effective_f
    bloom = google_rappor.bloom(b"\x05", 0, params)

    def two_steps(tape):
        bits = 0
        for place in range(4):
            replaced, coin = tape.bernoulli(f.numerator, f.denominator), tape.bernoulli(1, 2)
            bits |= (coin if replaced else bloom >> place & 1) << place
        return google_rappor.instantaneous(bits, params, tape).to_bytes(1, "little")

    assert mechanism.filter(0, 5) == bloom
    assert distribution(two_steps) == distribution(lambda tape: mechanism.randomize(5, source=tape))


def test_presets():
    """A preset is a set of parameters, of which those given replace some; its epsilon is that of the literature."""
    mechanism = mechanisms.make("google_rappor", domain_size=1 << 128, epsilon=4.4, preset="UMA_RAPPOR_TYPE")
    assert (mechanism.layout.rows, mechanism.layout.width, mechanism.hashes) == (128, 32, 2)
    assert mechanism.epsilon == pytest.approx(2.0433, abs=1e-4)
    assert mechanism.epsilon_permanent == pytest.approx(4.3944, abs=1e-4)
    assert mechanisms.make("google_rappor", domain_size=8, epsilon=4.4, preset="UMA_RAPPOR_TYPE", cohorts=8).layout.rows == 8


@pytest.mark.parametrize(
    ("epsilon", "options", "rule"),
    [
        (
            4,
            {},
            "google_rappor lacks bits, hashes, cohorts, prob_p, prob_q, prob_f: write a preset, or all of ",
        ),
        (
            4,
            {"preset": "UMA"},
            "preset = 'UMA': write one of UMA_RAPPOR_TYPE, ",
        ),
        (2, {"preset": "UMA_RAPPOR_TYPE"}, r"epsilon = 2\.0: write 2\.0433 or more, which these parameters spend in a report"),
        (
            4,
            PARAMETERS | {"prob_q": 0.25},
            r"prob_q = 0\.25: write more than prob_p = 0\.25, or a report says nothing about a bit",
        ),
        (4, PARAMETERS | {"bits": 257}, r"bits \(k\) = 257: write a whole number from 1 to 256"),
        (4, PARAMETERS | {"prob_p": 0, "prob_f": 0}, r"p\* = 0\.0, q\* = 0\.\d+: write probabilities that leave no bit certain"),
    ],
)
def test_bad_google_parameters(epsilon, options, rule):
    """Parameters that cannot be, or spend more than declared, are refused with the rule and the value."""
    with pytest.raises(ParameterError, match=rule):
        mechanisms.make("google_rappor", domain_size=1 << 64, epsilon=epsilon, **options)


@pytest.mark.parametrize("name", ["coin", "binary", "grr", "oue", "subset", "local_hash", "hadamard", "pgr", "l_grr", "loloha"])
def test_a_report_says_of_two_answers_as_often_as_declared(name):
    """Walking every draw: the probability of a report that is more likely for one of two answers is `telling`, for any two."""
    size = 2 if name in ("coin", "binary") else 4
    mechanism = mechanisms.make(name, domain_size=size, epsilon="1.2")
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(size)]
    for one, other in combinations(masses, 2):
        assert sum(share for payload, share in one.items() if share != other[payload]) == mechanism.telling


def test_codes_that_no_value_has():
    """A Hadamard matrix has a row for each value, a constant one, and others; a geometry has more points than values."""
    assert mechanisms.make("hadamard", domain_size=5, epsilon=1).unused == 2
    assert mechanisms.make("hadamard", domain_size=7, epsilon=1).unused == 0
    points = mechanisms.make("pgr", domain_size=50, epsilon=1)
    assert points.unused == points.layout.width - 50 > 0
    assert mechanisms.make("grr", domain_size=5, epsilon=1).unused == 0


def test_what_half_of_the_people_have_varies_most():
    """With who is asked, an option's estimate varies by that of a coin, over the gain, times as many rows."""
    options = mechanisms.make("sampled_options", domain_size=16, epsilon=1)
    assert options.worst_variance == 4 / (4 * (options.keep - options.other) ** 2)


@pytest.mark.parametrize(
    ("name", "size", "epsilon", "options"),
    [
        ("binary", 2, 1, {}),
        ("grr", 3, 3, {}),
        ("grr", 100, 1, {}),
        ("grr", 100, 4, {}),
        ("oue", 16, 1, {}),
        ("subset", 16, 1, {}),
        ("hadamard", 16, 1, {}),
        ("general_hadamard", 64, 3, {}),
        ("pgr", 50, 2, {}),
        ("dbitflip", 16, 1, {"buckets": 4}),
        ("pem", 1 << 64, 4, {}),
    ],
)
def test_no_share_varies_more_than_the_worst(name, size, epsilon, options):
    """Of the noise and of who answers together, and some share varies as much. Of many values, it is not one half."""
    oracle = mechanisms.make(name, domain_size=size, epsilon=epsilon, **options)
    variances = [oracle.variance(share, 1) + share * (1 - share) for share in (k / 1000 for k in range(1001))]
    assert max(variances) == pytest.approx(float(oracle.worst_variance), rel=1e-5)
