"""Mechanisms in two steps: their closed forms, what they keep, and which metrics have them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp, inf, log

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, exact, weight
from deniable.mechanisms import auto
from deniable.mechanisms.base import mean_variance
from deniable.mechanisms.permanent import Permanent
from deniable.proof import distribution, prove
from deniable.registry import Metric
from deniable.source import OS
from deniable.wire.layout import MAX_ROWS

TWO_STEPS = ("l_grr", "l_osue", "loloha", "rappor")
NAMES = (*TWO_STEPS, "dbitflip")
GOOGLE = {"bits": 4, "hashes": 1, "cohorts": 2, "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}


def make(name: str, d: int = 4, epsilon="1", **options) -> Permanent:
    mechanism = mechanisms.make(name, domain_size=d, epsilon=epsilon, **options)
    assert isinstance(mechanism, Permanent)
    return mechanism


def together(mechanism: Permanent, row: int, value: int) -> dict[bytes, Fraction]:
    return distribution(lambda tape: mechanism.respond_instantly(row, mechanism.respond_permanently(row, value, tape), tape))


@pytest.mark.parametrize("name", NAMES)
def test_reports_of_many_devices_are_those_of_each(name):
    """Drawn together they have the distribution that they have alone, each with its own row and response."""
    mechanism = make(name, 2)
    responses = [(0, 0), (mechanism.layout.rows - 1, 1)]
    together_ = distribution(lambda tape: b"".join(mechanism.respond_to_all(responses, tape)))
    alone = distribution(lambda tape: b"".join(mechanism.respond_instantly(*each, tape) for each in responses))
    assert together_ == alone


# the first step


@pytest.mark.parametrize("name", TWO_STEPS)
@pytest.mark.parametrize("permanent", ["1", "1.5", "4", "16"])
def test_both_losses_are_those_declared(name, permanent):
    """The permanent response and a report each spend what was asked for, but for less than 2^-31 nats."""
    mechanism = make(name, 4, "1", permanent=permanent)
    proof = prove(mechanism)
    assert proof.holds, proof.faults
    assert proof.permanent == mechanism.permanent_ratio
    for spent, declared in ((mechanism.epsilon, 1.0), (mechanism.epsilon_permanent, float(permanent))):
        assert declared - 2**-31 < spent <= declared
    assert proof.epsilon_permanent == pytest.approx(mechanism.epsilon_permanent, abs=1e-12)


@pytest.mark.parametrize("name", TWO_STEPS)
def test_twice_epsilon_unless_said_otherwise(name):
    """The permanent epsilon is twice epsilon by default, and never above 16; a copy has it as it was written."""
    assert make(name).permanent == 2
    assert make(name, epsilon="9").permanent == 16
    third = make(name, epsilon=Fraction(1, 3), permanent=Fraction(1, 3))
    assert pickle.loads(pickle.dumps(third)) == third
    assert third.requested_permanent == Fraction(1, 3)


@pytest.mark.parametrize("name", TWO_STEPS)
def test_what_is_kept_is_reported_where_both_are_equal(name):
    """With a permanent epsilon equal to epsilon a report is the permanent response itself."""
    mechanism = make(name, permanent="1")
    assert mechanism.permanent_ratio == mechanism.ratio
    for row in range(min(mechanism.layout.rows, 3)):
        for _ in range(20):
            response = mechanism.respond_permanently(row, 1, OS)
            assert mechanism.respond_instantly(row, response, OS) == mechanism.layout.pack(row, response)


@pytest.mark.parametrize("name", NAMES)
def test_no_permanent_epsilon_below_epsilon(name):
    """A report is a copy of the permanent response, and cannot tell more."""
    with pytest.raises(ParameterError, match=r"permanent = 0\.5: write epsilon or more; a report is a noisy copy of it"):
        make(name, permanent=0.5)


@pytest.mark.parametrize(("name", "d"), [*product(NAMES, (2, 7, 40)), ("rappor", 5000), ("dbitflip", 4096)])
def test_the_system_draws_what_fits_the_layout(name, d):
    """What is kept survives packing, keys are in range, and a report from it has the layout's row and size."""
    mechanism = make(name, d)
    for row, value in product({0, mechanism.layout.rows - 1}, {0, d // 2, d - 1}):
        response = mechanism.respond_permanently(row, value, OS)
        assert mechanism.layout.unpack(mechanism.layout.pack(row, response)) == (row, response)
        assert mechanism.layout.unpack(mechanism.respond_instantly(row, response, OS))[0] == row
        assert 0 < len({mechanism.response_key(row, each) for each in range(d)}) <= mechanism.kept_responses


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["l_grr", "l_osue", "loloha", "dbitflip"])
def test_goodness_of_fit_of_both_steps(chi_square, name):
    """The system's draws of both steps follow the enumerated distribution."""
    from collections import Counter

    mechanism = make(name, 4, "1", **({"buckets": 2} if name == "dbitflip" else {}))
    row = mechanism.layout.rows - 1
    seen = Counter(mechanism.respond_instantly(row, mechanism.respond_permanently(row, 2, OS), OS) for _ in range(20_000))
    chi_square(seen, together(mechanism, row, 2))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("d", "permanent"), [(2, "2"), (4, "1.25")])
def test_what_two_reports_of_one_response_share(name, d, permanent):
    """Their covariance, over all draws of row and response, is the permanent part of the variance, exactly."""
    mechanism = make(name, d, "1", **({} if name == "dbitflip" else {"permanent": permanent}))
    true, other = mechanism.permanent_support
    for value in (0, d - 1):
        mean = square = Fraction(0)
        for row in range(mechanism.layout.rows):
            for response, chance in distribution(
                lambda tape, row=row: mechanism.layout.pack(row, mechanism.respond_permanently(row, 0, tape))
            ).items():
                content = mechanism.layout.unpack(response)[1]
                reports = distribution(lambda tape, row=row, content=content: mechanism.respond_instantly(row, content, tape))
                supporting = sum(mass for payload, mass in reports.items() if value in mechanism.supported(payload))
                mean += chance * supporting / mechanism.layout.rows
                square += chance * supporting**2 / mechanism.layout.rows
        assert mean == (mechanism.p if value == 0 else mechanism.q)
        step = (mechanism.p - mechanism.q) / (true - other)
        first = true if value == 0 else other
        assert square - mean**2 == first * (1 - first) * step**2
        shared = float((square - mean**2) / (mechanism.p - mechanism.q) ** 2)
        assert mechanism.permanent_variance(float(value == 0)) == pytest.approx(shared, rel=1e-12)


def test_a_set_of_buckets_is_part_of_what_is_kept():
    """Every report of dBitFlip is the permanent response: nothing of its variance is drawn afresh."""
    mechanism = make("dbitflip", 12, buckets=4)
    assert [mechanism.permanent_variance(share) for share in (0, 0.3, 1)] == [
        mechanism.variance(share, 1) for share in (0, 0.3, 1)
    ]


# the literature


@pytest.mark.parametrize("permanent", [2, 4])
@pytest.mark.parametrize("k", [2, 4, 50])
def test_l_grr_delivers_epsilon(k, permanent):
    """L-GRR's second step spends what was asked for, for every number of values (as published it spends less)."""
    mechanism = make("l_grr", k, 1, permanent=permanent)
    masses = [together(mechanism, 0, value) for value in (0, 1)]
    assert log(max(masses[0][y] / masses[1][y] for y in masses[0])) == pytest.approx(1, abs=1e-9)
    a, b = exp(permanent), exp(1)
    p1, ps = a / (a + k - 1), b / (b + k - 1)
    q1 = (1 - p1) / (k - 1)
    share, unit = mechanism._again
    assert share / (share + (k - 1) * unit) == pytest.approx((ps - q1) / (p1 - q1), rel=1e-8)


@pytest.mark.parametrize(("permanent", "epsilon"), [(4, 2), (2, 1), (3, 3), (16, 0.1)])
def test_l_osue_is_as_published(permanent, epsilon):
    """L-OSUE's second step is that of the paper, and both together are OUE."""
    mechanism = make("l_osue", 4, epsilon, permanent=permanent)
    a, b = exp(permanent), exp(epsilon)
    assert 1 - float(mechanism._flip) == pytest.approx((1 - a * b) / (b - a - a * b + 1), rel=1e-8)
    oue = mechanisms.make("oue", domain_size=4, epsilon=epsilon)
    assert (mechanism.p, mechanism.q, mechanism.ratio) == (oue.p, oue.q, oue.ratio)


def test_l_osue_has_the_right_variance():
    """For a permanent epsilon of 4 and 2 a report, a share of 0.3 in the population has n times variance 1.234."""
    mechanism = make("l_osue", 10, 2, permanent=4)
    assert mechanism.variance(0.3, 1) + 0.3 * 0.7 == pytest.approx(1.234, abs=5e-4)


def test_the_numbers_of_rappor():
    """With f = 1/2, p = 1/2, q = 3/4 and two hashes RAPPOR spends 1.0743 nats a report and 4.3944 for all."""
    mechanism = make("google_rappor", 1 << 64, "1.08", preset="PYTHON_DEFAULT")
    assert mechanism.epsilon == pytest.approx(1.0743, abs=5e-5)
    assert mechanism.epsilon_permanent == pytest.approx(4.3944, abs=5e-5)
    assert 1 - mechanism.params.effective_f / 2 == Fraction(3, 4)


@pytest.mark.parametrize("f", [0, 0.05, 0.3, 0.5])
def test_google_rappor_in_two_steps(f):
    """Both steps of the original's, with its effective f, are proved; without f what all reports tell has no bound."""
    mechanism = make("google_rappor", 3, 6, **GOOGLE | {"prob_f": f})
    proof = prove(mechanism)
    assert proof.holds, proof.faults
    assert proof.permanent == mechanism.permanent_ratio
    half = mechanism.params.effective_f / 2
    if f:
        assert mechanism.permanent_ratio == ((1 - half) / half) ** 2
        assert mechanism.epsilon_permanent == pytest.approx(mechanism.params.epsilon_permanent, rel=1e-12)
        responses = distribution(lambda tape: bytes([mechanism.respond_permanently(0, 1, tape)]))
        assert responses[bytes([mechanism.filter(0, 1)])] == (1 - half) ** 4
    else:
        assert mechanism.permanent_ratio is None
        assert mechanism.epsilon_permanent == inf


@pytest.mark.parametrize(("d", "epsilon"), list(product((2, 5, 10, 100, 1000, 4096), ("0.5", "1", "3"))))
def test_loloha_has_the_best_prime(d, epsilon):
    """No prime whose family has at most 4,096 functions has less variance; a device keeps a response for each cell."""
    mechanism = make("loloha", d, epsilon)
    kept_weight = weight(exact(epsilon))
    fitting = [g for g in range(2, 60) if all(g % k for k in range(2, g)) and least_power(g, d) <= MAX_ROWS]
    best = min(mean_variance(Fraction(kept_weight, kept_weight + (g - 1) * UNIT), Fraction(1, g), d) for g in fitting)
    assert mechanism.mean_variance == best
    g = mechanism.family.range_size
    assert mechanism.layout.rows == least_power(g, d) <= MAX_ROWS
    rows = range(0, mechanism.layout.rows, max(1, mechanism.layout.rows // 50))
    assert (
        max(len({mechanism.response_key(row, value) for value in range(d)}) for row in rows)
        == mechanism.kept_responses
        == min(g, d)
    )


def least_power(g: int, d: int) -> int:
    return next(g**t for t in range(1, 20) if g**t >= d)


def test_too_many_functions_tell_devices_apart():
    """LOLOHA has at most 4,096 functions, and dBitFlip as many sets: beyond, the row would name the device."""
    assert make("loloha", MAX_ROWS).layout.rows == MAX_ROWS
    with pytest.raises(ParameterError, match="domain_size = 4097: write 4096 or less; loloha has so many hash functions at most"):
        make("loloha", MAX_ROWS + 1)
    assert make("dbitflip", 8 * MAX_ROWS).layout.rows == MAX_ROWS
    with pytest.raises(
        ParameterError,
        match=r"dbitflip would have 4099 sets of buckets: use fewer values or buckets, so that there are 4096 at most",
    ):
        make("dbitflip", 4099)


# dBitFlip


@pytest.mark.parametrize(("k", "d"), [(2, 1), (5, 2), (6, 4), (12, 8), (24, 8), (7, 7), (30, 1)])
def test_each_value_is_in_as_many_sets(k, d):
    """Every value is in the same share d / k of the sets, of which there are as few as that allows."""
    mechanism = make("dbitflip", k, buckets=d)
    sets = [{value for value in range(k) if mechanism.response_key(row, value) < d} for row in range(mechanism.layout.rows)]
    assert all(len(each) == d for each in sets)
    assert {sum(value in each for each in sets) for value in range(k)} == {mechanism.layout.rows * d // k}
    assert len({frozenset(each) for each in sets}) == mechanism.layout.rows
    assert mechanism.layout.rows * d % k == 0
    assert mechanism.kept_responses == min(d + 1, k)
    assert mechanism.layout.width == d


@pytest.mark.parametrize("buckets", [1, 2, 3])
def test_dbitflip_spends_all_of_epsilon(buckets):
    """With one bucket the single bit has all of epsilon, with more each of two bits has half; all reports together no more."""
    mechanism = make("dbitflip", 5, "1.5", buckets=buckets)
    assert mechanism.epsilon == pytest.approx(1.5, abs=1e-8)
    assert mechanism.epsilon_permanent == mechanism.epsilon
    odds = mechanism.one / mechanism.other
    assert log(odds) == pytest.approx(1.5 if buckets == 1 else 0.75, abs=1e-8)
    assert prove(mechanism).holds


def test_dbitflip_reports_what_it_keeps():
    """All reports of an answer are the same."""
    mechanism = make("dbitflip", 20)
    response = mechanism.respond_permanently(1, 5, OS)
    assert {mechanism.respond_instantly(1, response, OS) for _ in range(5)} == {mechanism.layout.pack(1, response)}


@pytest.mark.parametrize("k", [3, 8, 9, 1000])
def test_eight_buckets_unless_said_otherwise(k):
    """By default a device tells about eight values, or all of a smaller domain."""
    assert make("dbitflip", k).buckets == min(k, 8)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"buckets": 5}, "buckets = 5: write a whole number from 1 to the 4 values"),
        ({"buckets": -1}, "buckets = -1: write a whole number from 1 to the 4 values"),
        ({"buckets": True}, "buckets = true: write a whole number from 1 to the 4 values"),
        ({"permanent": 2}, r"permanent = 2\.0: write epsilon; dbitflip reports what it keeps"),
    ],
)
def test_bad_options_of_dbitflip(options, rule):
    """What dBitFlip cannot do is refused with the rule and the value."""
    with pytest.raises(ParameterError, match=rule):
        make("dbitflip", **options)


# metrics

METRIC = Metric(id="m", type="categorical", values=("a", "b", "c"), epsilon="1", epsilon_permanent="2")
STRING = replace(METRIC, type="string", values=(), candidates="words.txt")


@pytest.mark.parametrize("name", TWO_STEPS)
def test_a_metric_with_permanent_responses(name):
    """A metric's epsilon_permanent is its mechanism's."""
    mechanism = mechanisms.of(replace(METRIC, mechanism=name, epsilon_permanent="3.5"))
    assert mechanism == make(name, 3, "1", permanent="3.5")


def test_a_metric_of_dbitflip():
    """The permanent epsilon of dBitFlip is written, too, and is epsilon."""
    mechanism = mechanisms.of(replace(METRIC, mechanism="dbitflip", epsilon_permanent="1", parameters=(("buckets", 2),)))
    assert mechanism == make("dbitflip", 3, "1", buckets=2)


def test_a_metric_of_google_rappor():
    """A deployment's permanent epsilon is at least what its f spends."""
    parameters = (("preset", "UMA_RAPPOR_TYPE"),)
    metric = replace(STRING, mechanism="google_rappor", epsilon="2.1", epsilon_permanent="4.4", parameters=parameters)
    mechanism = mechanisms.of(metric)
    assert mechanism == mechanisms.make("google_rappor", domain_size=metric.domain_size, epsilon="2.1", preset="UMA_RAPPOR_TYPE")
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    with pytest.raises(ParameterError, match=r"permanent = '4\.3': write 4\.39445 or more, which this prob_f spends"):
        mechanisms.of(replace(metric, epsilon_permanent="4.3"))
    with pytest.raises(ParameterError, match="permanent = '16': write inf or more, which this prob_f spends"):
        mechanisms.of(replace(metric, epsilon="8", epsilon_permanent="16", parameters=(*parameters, ("prob_f", 0))))


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        (
            replace(METRIC, mechanism="grr"),
            "mechanism = 'grr': write auto, or one of l_grr, l_osue, loloha, dbitflip, ",
        ),
        (
            replace(STRING, mechanism="cms"),
            "mechanism = 'cms': write auto, or one of rappor, google_rappor, with epsilon_permanent",
        ),
        (
            replace(STRING, candidates=None, discover=True),
            "epsilon_permanent = 2.0: remove it; answers to be discovered are not kept",
        ),
        (
            replace(STRING, mechanism="loloha"),
            "mechanism = 'loloha': write one of rappor, ",
        ),
        (
            replace(METRIC, mechanism="rappor", parameters=(("permanent", 3),)),
            "permanent = 3: write it as epsilon_permanent, beside epsilon",
        ),
        (
            replace(METRIC, mechanism="rappor", parameters=(("permanent", 3),), epsilon_permanent=None),
            "permanent = 3: write it as epsilon_permanent, beside epsilon",
        ),
        (replace(METRIC, mechanism="l_grr", epsilon_permanent="0.5"), ": write epsilon or more; a report is a noisy copy of it"),
        (
            replace(METRIC, mechanism="nosuch"),
            "mechanism = 'nosuch': write one of auto, coin, ",
        ),
    ],
)
def test_metrics_without_a_chain(metric, rule):
    """What has no permanent responses, or declares them twice, is refused with the mechanisms that have."""
    with pytest.raises(ParameterError, match=rule):
        mechanisms.of(metric)


def test_auto_for_texts_is_rappor():
    """Texts with candidates and permanent responses have RAPPOR, of as many cohorts as it has by default."""
    mechanism = mechanisms.of(STRING)
    assert (mechanism.name, mechanism.layout.rows, mechanism.permanent) == ("rappor", 128, 2)


@pytest.mark.parametrize("limit", [1, 4, 256])
@pytest.mark.parametrize(("d", "epsilon"), list(product((2, 3, 7, 30, 200, 1000, 3000), ("0.5", "1", "3"))))
def test_auto_is_the_chain_of_least_variance(d, epsilon, limit):
    """The choice is the mechanism of least exact mean variance among those that fit and have few rows; the metric's is the same.

    Where only one with more than twice the error fits, there is no choice, and advice.
    """
    chains = [make(name, d, epsilon, permanent=4) for name in TWO_STEPS if name != "rappor" or d <= 1024]
    shared = [m for m in chains if m.layout.rows <= 128]
    fitting = [m for m in shared if m.layout.payload_size <= limit]
    best = min(m.mean_variance for m in shared)
    metric = replace(
        METRIC, values=tuple(map(str, range(d))), epsilon=epsilon, epsilon_permanent="4", mechanism="auto", max_report_bytes=limit
    )
    if not fitting or min(m.mean_variance for m in fitting) > 4 * best:
        words = "times the error" if fitting else "max_report_bytes = 1: write more; no mechanism has so short a report"
        with pytest.raises(ParameterError, match=words):
            mechanisms.of(metric)
        return
    choice = mechanisms.choose(domain_size=d, epsilon=epsilon, permanent=4, max_bytes=limit)
    assert choice.mechanism.mean_variance == min(m.mean_variance for m in fitting)
    assert {m.name for m in choice.considered} == {m.name for m in shared}
    assert mechanisms.of(metric) == choice.mechanism


def test_permanent_candidates_of_auto_are_frozen():
    """What auto chooses from is part of registry format 1: this list must never change."""
    assert [c.name for c in auto.permanent_candidates()] == ["l_grr", "l_osue", "loloha", "rappor"]


def test_no_chain_with_less_than_epsilon():
    """A fault of the domain or of an epsilon is told as such, not as a payload that does not fit."""
    with pytest.raises(ParameterError, match=": write epsilon or more; a report is a noisy copy of it"):
        mechanisms.choose(domain_size=3, epsilon=2, permanent=1)
