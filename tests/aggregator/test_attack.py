"""The averaging attack: the observer's inference against brute force, and what a kept response does to its success."""

from __future__ import annotations

import gzip
import json
import sys
from base64 import b64decode
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from math import comb, e, exp, log

import numpy as np
import pytest
from scipy.stats import binom

from deniable import mechanisms
from deniable.client import Client
from deniable.commands import entry as cli
from deniable.errors import ParameterError, PayloadError
from deniable.mechanisms.permanent import Permanent
from deniable.proof import distribution
from deniable.registry import parse
from deniable.registry.tables import Budget, Caps
from deniable.source import OS
from deniable.transport import SenderSettings
from deniable_aggregator.attack import observer
from deniable_aggregator.attack.averaging import FRESH, KEPT, Curve, Way, averaging, checkpoints, losing, simulate
from deniable_aggregator.attack.devices import Losing, Remembering
from deniable_aggregator.attack.observer import Observer
from deniable_aggregator.process.plotting import separated

CHANCE = 1e-8
"""Probability of a tail below which a number is taken for wrong."""


def make(name, size=2, epsilon=1, permanent=2, **options):
    if name == "dbitflip":  # it has one step
        epsilon = permanent
    if name == "google_rappor":
        return mechanisms.make(name, domain_size=size, epsilon=4, preset="PYTHON_DEFAULT", **options)
    return mechanisms.make(name, domain_size=size, epsilon=epsilon, permanent=permanent, **options)


def permanent():
    plain = [mechanisms.make(name, domain_size=2, epsilon=log(3)) for name in mechanisms.names()]
    return [each.name for each in plain if isinstance(each, Permanent)]


TINY = [
    *((name, size, {}) for name in permanent() for size in (2, 3)),
    ("rappor", 3, {"bits": 4, "hashes": 2, "cohorts": 3}),
    ("google_rappor", 3, {"bits": 2, "hashes": 2, "cohorts": 2}),
    ("dbitflip", 4, {"buckets": 2}),
    ("dbitflip", 3, {"buckets": 1}),
]


def test_permanent_mechanisms_are_found():
    """The search for permanent mechanisms finds them: an empty list would make the tests below pass for nothing."""
    assert {"rappor", "l_grr", "l_osue", "loloha", "dbitflip"} <= set(permanent())


def two_reports(mechanism, row, value):
    """Compute the exact distribution of two reports from one kept response."""

    def draw(source):
        response = mechanism.respond_permanently(row, value, source)
        return mechanism.respond_instantly(row, response, source) + mechanism.respond_instantly(row, response, source)

    return distribution(draw)


def agree(logs, masses):
    """Compare logarithms, up to a common term, with exact probabilities of each value."""
    total = sum(masses)
    chances = np.exp(logs - np.max(logs))
    assert chances / chances.sum() == pytest.approx([float(mass / total) for mass in masses], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("name", "size", "options"), TINY)
def test_the_likelihood_of_copies_is_that_of_brute_force(name, size, options):
    """Two reports of a kept response tell an observer exactly what the sum over all draws of the mechanism says."""
    mechanism = make(name, size, **options)
    seeing = Observer(mechanism)
    for row in {0, mechanism.layout.rows - 1}:
        masses = [two_reports(mechanism, row, value) for value in range(size)]
        for pair in masses[0]:
            agree(seeing.permanent(pair, [2])[0], [mass[pair] for mass in masses])


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        *TINY,
        *(("binary", 2, {}), ("grr", 3, {}), ("oue", 3, {}), ("subset", 4, {})),
        *(
            ("window", 2, {}),
            ("window", 6, {}),
            pytest.param("window", 20, {}, marks=[pytest.mark.campaign, pytest.mark.nightly]),
            ("sampled_options", 8, {}),
            ("sampled_pair", 8, {}),
        ),
    ],
)
def test_the_likelihood_of_fresh_reports_is_that_of_brute_force(name, size, options):
    """A report that was randomised anew tells exactly what its distribution under each value says, and two tell the product."""
    is_permanent = name in permanent() or name == "google_rappor"
    mechanism = make(name, size, **options) if is_permanent else mechanisms.make(name, domain_size=size, epsilon=1)
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(size)]
    seeing, (first, *others) = Observer(mechanism), masses[0]
    for payload in others[-40:]:
        logs = seeing.fresh(first + payload, [0, 1, 2])
        agree(logs[0], [Fraction(1)] * size)
        agree(logs[1], [mass[first] for mass in masses])
        agree(logs[2], [mass[first] * mass[payload] for mass in masses])


@pytest.mark.parametrize("prior", [(), (5, 2, 1)])
@pytest.mark.parametrize(("name", "size", "options"), TINY)
def test_the_bound_is_that_of_brute_force(name, size, options, prior):
    """No guess from the kept response is right more often than the sum of its largest joint probabilities says."""
    mechanism, prior = make(name, size, **options), (*prior, 1, 1)[:size] if prior else ()
    shares = [Fraction(weight, sum(prior)) for weight in prior] or [Fraction(1, size)] * size
    success = Fraction(0)
    for row in range(mechanism.layout.rows):
        masses = [
            distribution(lambda tape, v=value: mechanism.layout.pack(row, mechanism.respond_permanently(row, v, tape)))  # noqa: B023
            for value in range(size)
        ]
        outputs = set().union(*masses)
        success += sum(max(share * mass.get(y, 0) for share, mass in zip(shares, masses, strict=True)) for y in outputs)
    bound = Observer(mechanism, prior).bound()
    assert bound.exact
    assert bound.success == pytest.approx(float(success / mechanism.layout.rows), rel=1e-12)


@pytest.mark.parametrize("size", [2, 5, 80])
def test_the_bound_in_closed_form(size):
    """L-GRR keeps the truth with odds a to 1 for each other value; two values are told apart with e^permanent to 1 at most."""
    assert Observer(make("l_grr", size)).bound().success == pytest.approx(e**2 / (e**2 + size - 1), rel=1e-8)
    for name in permanent():
        assert Observer(make(name)).bound().success <= e**2 / (e**2 + 1) + 1e-9


@pytest.mark.parametrize("name", ["rappor", "l_osue"])
def test_the_bound_of_many_bits(name, monkeypatch):
    """Where a bit stands for each value, the closed form is the sum over all kept responses."""
    summed = Observer(make(name, 7)).bound()
    monkeypatch.setattr(observer, "_OUTPUTS", 100)
    closed = Observer(make(name, 7)).bound()
    assert closed.exact
    assert closed.success == pytest.approx(summed.success, rel=1e-12)


def test_a_bound_that_is_too_long_a_sum(monkeypatch):
    """Without a sum and a closed form the bound is what epsilon allows, and says that it is not exact."""
    mechanism = make("rappor", 3, bits=4, hashes=2, cohorts=3)
    exact = Observer(mechanism).bound()
    monkeypatch.setattr(observer, "_OUTPUTS", 10)
    bound = Observer(mechanism).bound()
    assert (exact.exact, bound.exact) == (True, False)
    assert bound.success == pytest.approx(e**2 / (e**2 + 2), rel=1e-8)
    assert bound.success > exact.success
    skewed = Observer(mechanism, (6, 1, 1)).bound()
    assert skewed.success == pytest.approx(6 * e**2 / (6 * e**2 + 2), rel=1e-8)


def majority(reports, epsilon):
    """Compute how often most of an odd number of answers are true."""
    truth = exp(epsilon) / (exp(epsilon) + 1)
    return sum(comb(reports, k) * truth**k * (1 - truth) ** (reports - k) for k in range(reports // 2 + 1, reports + 1))


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("epsilon", "mostly", "surely"), [(0.5, 45, 87), (1, 11, 23), (2, 3, 7)])
def test_fresh_noise_is_averaged_away(epsilon, mostly, surely):
    """Without a kept response 45, 11 and 3 reports give 95% of yes-or-no answers away, and twice as many 99%."""
    assert majority(mostly - 2, epsilon) < 0.95 <= majority(mostly, epsilon)
    assert majority(surely - 2, epsilon) < 0.99 <= majority(surely, epsilon)
    seeing = Observer(mechanisms.make("binary", domain_size=2, epsilon=epsilon))
    curve = simulate(seeing, FRESH, devices=1500, after=(1, mostly, surely))
    for reports, successes in zip(curve.reports, curve.successes, strict=True):
        expected = binom(curve.devices, majority(reports, epsilon))
        assert expected.cdf(successes) > CHANCE
        assert expected.sf(successes - 1) > CHANCE


@pytest.mark.parametrize(("name", "size", "share"), [("window", 5, 0.8), ("sampled_options", 8, 0.9), ("sampled_pair", 8, 0.9)])
def test_numbers_and_sets_are_averaged_away(name, size, share):
    """From a few hundred reports the likeliest number, or the likeliest set, is the true one."""
    curve = simulate(Observer(mechanisms.make(name, domain_size=size, epsilon=1)), FRESH, devices=60, after=(1, 400))
    assert curve.success[0] < 0.6
    assert curve.success[1] > share


class Redrawing:
    """The planted fault: a device that keeps its row and draws its permanent response again for each report."""

    def __init__(self, mechanism, value):
        self.mechanism, self.value, self.row = mechanism, value, OS.below(mechanism.layout.rows)

    def report(self):
        response = self.mechanism.respond_permanently(self.row, self.value, OS)
        return self.mechanism.respond_instantly(self.row, response, OS)


def beyond(curve, bound):
    """Compute how likely the best observer would be right so often, or more often, after all reports."""
    return binom(curve.devices, bound.success).sf(curve.successes[-1] - 1)


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*permanent(), "google_rappor"])
def test_a_kept_response_is_not_averaged_away(name):
    """After 1,000 reports from one kept response an observer is right as often as from that response, and not more often.

    Nor is an observer who takes the reports for independent.
    """
    seeing = Observer(make(name, epsilon=0.5, permanent=1))
    bound = seeing.bound()
    curve = simulate(seeing, KEPT, devices=120, after=(1000,))
    assert bound.exact
    assert beyond(curve, bound) > CHANCE
    assert binom(curve.devices, bound.success).cdf(curve.successes[-1]) > CHANCE
    averaged = simulate(seeing, Way("kept", Remembering, Observer.fresh), devices=120, after=(1000,))
    assert beyond(averaged, bound) > CHANCE


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("name", permanent())
def test_a_response_that_is_drawn_again_is_found_out(name):
    """Were the response drawn again for each report, the success would leave its bound, and the test above fail."""
    # A hash function that cannot tell two values apart hides them for good, so LOLOHA leaves its bound less far behind.
    epsilon, devices = (0.25, 1000) if name == "loloha" else (0.5, 400)
    seeing = Observer(make(name, epsilon=epsilon, permanent=2 * epsilon))
    curve = simulate(seeing, Way("kept", Redrawing, Observer.fresh), devices=devices, after=(300,))
    assert beyond(curve, seeing.bound()) < CHANCE


@pytest.mark.parametrize("devices", [40, pytest.param(150, marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_many_values(devices):
    """Among a hundred values, too, a kept response stays at its bound while fresh noise gives the answer away."""
    fresh, copies = averaging(Observer(make("l_grr", 100, epsilon=2, permanent=3)), devices=devices, reports=600).curves
    bound = e**3 / (e**3 + 99)
    assert fresh.success[-1] > 0.9
    assert binom(devices, bound).sf(copies.successes[-1] - 1) > CHANCE


@pytest.mark.parametrize("devices", [100, pytest.param(200, marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_lost_state_is_a_new_spend(devices):
    """Each loss of the kept response tells an observer more, to the end that noise drawn anew comes to."""
    seeing = Observer(make("l_grr", epsilon=0.5, permanent=1))
    curve = simulate(seeing, losing(30), devices=devices, after=(30, 900))
    bound = seeing.bound()
    assert binom(devices, bound.success).sf(curve.successes[0] - 1) > CHANCE
    assert beyond(curve, bound) < CHANCE


def test_the_likelihood_of_lost_state():
    """Reports before and after a loss are independent, and where nothing was lost the likelihood is that of a kept response."""
    mechanism = make("l_osue", 3)
    device = Losing(mechanism, 1, 4)
    payloads = b"".join(device.report() for _ in range(10))
    size, seeing = mechanism.layout.payload_size, Observer(mechanism)
    parts = [seeing.permanent(payloads[i * size : j * size], [j - i])[0] for i, j in ((0, 4), (4, 8), (8, 9))]
    assert losing(4).logs(seeing, payloads, (3, 9))[1] == pytest.approx(sum(parts))
    assert losing(10).logs(seeing, payloads, (3, 9)) == pytest.approx(seeing.permanent(payloads, (3, 9)))


def test_a_device_keeps_its_row_and_loses_it():
    """A device that remembers names one row in all reports; one that loses its state draws the row again."""
    mechanism = mechanisms.make("rappor", domain_size=2, epsilon=1, bits=4, hashes=1, cohorts=4096)
    for every, rows in ((None, {1}), (5, {3, 4})):  # of four drawn rows fewer than three differ once in 2 million runs
        device = Remembering(mechanism, 0) if every is None else Losing(mechanism, 0, every)
        seen = [mechanism.layout.unpack(device.report())[0] for _ in range(20)]
        assert len(set(seen)) in rows
        assert every is None or all(len(set(seen[i : i + every])) == 1 for i in range(0, 20, every))


def test_a_prior_is_used():
    """An observer who expects an answer guesses it until the reports say otherwise, and devices follow the prior."""
    seeing = Observer(make("l_grr", 3, epsilon=0.1, permanent=0.2), (98, 1, 1))
    assert seeing.chances == pytest.approx([0.98, 0.01, 0.01])
    curve = simulate(seeing, KEPT, devices=400, after=(1,))
    assert binom(400, 0.98).cdf(curve.successes[0]) > CHANCE
    assert binom(400, 0.98).sf(curve.successes[0] - 1) > CHANCE


@pytest.mark.parametrize("name", ["l_grr", "dbitflip"])
def test_reports_that_contradict_one_another(name):
    """Copies without noise that differ are impossible from one kept response: all values are alike to the observer."""
    mechanism = make(name, 2, epsilon=2, permanent=2)
    pack, seeing = mechanism.layout.pack, Observer(mechanism)
    logs = seeing.permanent(pack(0, 0) + pack(0, 1), [2])[0]
    assert {seeing.guess(logs, OS) for _ in range(60)} == {0, 1}


def test_ties_are_broken_at_random():
    """Of values that are equally likely each is guessed."""
    seeing = Observer(make("l_grr", 3))
    assert {seeing.guess(np.array([0.0, -1.0, 1e-13]), OS) for _ in range(60)} == {0, 2}


def test_checkpoints():
    """The observer guesses more rarely as reports become many, and after the last of them."""
    assert checkpoints(1) == (1,)
    assert checkpoints(20) == (1, 2, 3, 5, 7, 10, 15, 20)
    assert checkpoints(1100)[-4:] == (500, 700, 1000, 1100)


def test_a_curve():
    """Intervals are Clopper and Pearson's, and `needed` tells where success has come to stay."""
    curve = Curve("fresh", (1, 2, 3, 5), (0, 19, 18, 20), 20)
    tail = 0.025 ** (1 / 20)
    assert curve.success == (0, 0.95, 0.9, 1)
    assert (curve.low[0], curve.high[-1]) == (0, 1)
    assert (curve.high[0], curve.low[-1]) == pytest.approx((1 - tail, tail))
    assert binom(20, curve.low[1]).sf(18) == pytest.approx(0.025)
    assert (curve.needed(0.95), curve.needed(0.5), curve.needed(0)) == (5, 2, 1)
    assert Curve("fresh", (1,), (5,), 10).needed(0.9) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda: Observer(mechanisms.make("oue", domain_size=257, epsilon=1)),
            "domain_size = 257: an observer guesses among 256 values at most; use fewer",
        ),
        (lambda: Observer(make("l_grr", 3), (1, 2)), r"prior = \(1, 2\): write a whole number above 0 for each of the 3 values"),
        (lambda: Observer(make("l_grr", 2), (1, 0)), r"prior = \(1, 0\): write a whole number above 0"),
        (
            lambda: Observer(mechanisms.make("grr", domain_size=2, epsilon=1)).bound(),
            "mechanism = 'grr': choose a permanent one, whose response is kept",
        ),
        (
            lambda: Remembering(mechanisms.make("grr", domain_size=2, epsilon=1), 0),
            "mechanism = 'grr': choose a permanent one, whose response a device keeps",
        ),
        (lambda: averaging(Observer(make("l_grr")), devices=0, reports=5), "devices = 0: write 1 or more"),
        (lambda: averaging(Observer(make("l_grr")), devices=1, reports=0), "reports = 0: write 1 or more"),
        (lambda: losing(0), "every = 0: write the reports before a device loses its state, 1 or more"),
        (
            lambda: Observer(make("loloha", 4)).permanent(b"\x00\x08", [2]),
            "the payloads are in 2 rows, .*: give payloads of one device",
        ),
    ],
)
def test_what_makes_no_sense(wrong, words):
    """A wrong parameter is named with its rule."""
    with pytest.raises(ParameterError, match=words):
        wrong()


def test_reports_that_no_device_sent():
    """An observer refuses bytes that the mechanism cannot have sent."""
    with pytest.raises(PayloadError):
        Observer(make("l_grr")).permanent(b"\x07", [1])
    with pytest.raises(PayloadError):
        Observer(make("l_grr")).fresh(b"\x07", [1])


METRICS = 60
REGISTRY = 'format = 1\napp = "shop"\n' + "".join(
    f"""
[metrics.m{number}]
type = "boolean"
mechanism = "l_grr"
epsilon = 0.7
epsilon_permanent = 0.8
description = "A question that is asked every day"
owner = "core@shop.example"
"""
    for number in range(METRICS)
)


class Wire:
    """A `Post` that takes everything and keeps the payloads of each metric."""

    def __init__(self):
        self.payloads = Counter()

    def __call__(self, body, headers, _timeout):
        text = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        for group in json.loads(text)["groups"]:
            self.payloads[group["metric"]] = (self.payloads[group["metric"]] or b"") + b64decode(group["payloads"])
        return 202, {}, None


@pytest.mark.campaign
@pytest.mark.parametrize(("copies", "days"), [(True, 30), (False, 160)])
def test_the_sdk_itself(tmp_path, copies, days):
    """What the real client sends day after day, over several starts, stays at the bound; without its state it does not."""
    registry, wire, now = parse(REGISTRY), Wire(), 1_800_000_000.0
    truth = [bool(OS.below(2)) for _ in range(METRICS)]
    options = {"dsn": "https://key@t.example/shop", "registry": registry, "consent": True, "post": wire, "strict": True}
    options |= {"caps": Caps(budget=Budget(per_month=None, lifetime=None)), "settings": SenderSettings(flush_interval=60)}

    def clock():
        return now

    at_once = 10 if copies else 1
    for _ in range(0, days, at_once):
        with Client(**options, state=tmp_path if copies else None, clock=clock) as client:
            for _ in range(at_once):
                assert all(client.record(f"m{number}", answer) for number, answer in enumerate(truth))
                assert not client.record("m0", truth[0])  # a second answer in a period is no second report
                assert client.flush(20)
                now += 86_400
    seeing = Observer(mechanisms.of(registry.metrics["m0"]))
    size = seeing.mechanism.layout.payload_size
    assert {len(payloads) for payloads in wire.payloads.values()} == {days * size}
    logs = seeing.permanent if copies else seeing.fresh
    guesses = [seeing.guess(logs(wire.payloads[f"m{number}"], [days])[0], OS) for number in range(METRICS)]
    right = sum(registry.metrics["m0"].position(answer) == guess for answer, guess in zip(truth, guesses, strict=True))
    # Within 160 days 59 of 60 answers are found out where nothing is kept, but for one run in 10^7; at the bound, once in 10^8.
    assert seeing.bound().success == pytest.approx(exp(0.8) / (exp(0.8) + 1))
    assert (binom(METRICS, seeing.bound().success).sf(right - 1) > CHANCE) == copies


@pytest.fixture
def run(capsys):
    """Run the command and return its status, output and errors."""

    def main(*arguments):
        status = cli.main(("attack", "averaging", *arguments))
        return status, *capsys.readouterr()

    return main


def test_the_command(run):
    """The table has both ways, the words the bound and what to do next."""
    status, out, _ = run("--mechanism", "l_grr", "rappor", "--devices", "30", "--reports", "60")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "l_grr, 2 values, epsilon 1 a report, 2 for all reports of a kept response; 30 devices of each kind"
    assert lines[1].split() == ["reports", "noise", "drawn", "anew", "response", "kept"]
    assert [line.split()[0] for line in lines[2:9]] == ["1", "2", "5", "10", "20", "50", "60"]
    assert "in the long run no observer is right more often than 88.1%" in out
    assert "in the long run no observer is right more often than 73.1%" in out
    assert out.count("Next: declare epsilon_permanent") == 2


@pytest.mark.parametrize(
    ("name", "size", "values"),
    [("window", "5", "5 numbers evenly over the range"), ("sampled_options", "8", "8 sets of 3 options")],
)
def test_the_command_for_numbers_and_sets(run, name, size, values):
    """Of a number a few are told apart, of a set all."""
    status, out, _ = run("--mechanism", name, "--domain-size", size, "--devices", "10", "--reports", "20")
    assert status == 0
    assert out.startswith(f"{name}, {values}, epsilon 1 a report; 10 devices of each kind\n")
    assert ("declare epsilon_permanent" in out) == (name == "window")  # sets have no permanent responses
    assert run("--mechanism", "sampled_options", "--domain-size", "6")[0] == 2


def test_the_command_without_a_chain(run):
    """A mechanism that keeps nothing has one way, and the advice is another."""
    status, out, _ = run("--mechanism", "grr", "--devices", "20", "--reports", "5", "--prior", "3", "1")
    assert status == 0
    assert "response kept" not in out
    assert "Without any report 75.0% would be right" in out
    assert "% after 5 reports, and more with every report" in out or "reports are enough" in out
    assert "keeps no response: ask each person once" in out


def test_the_command_in_json(run):
    """With --json each mechanism is an object with all points."""
    arguments = ("--mechanism", "l_grr", "--devices", "20", "--reports", "6", "--lose-every", "2", "--domain-size", "4", "--json")
    status, out, _ = run(*arguments)
    assert status == 0
    result = json.loads(out)
    assert (result["mechanism"], result["domain_size"], result["devices"], result["guess"]) == ("l_grr", 4, 20, 0.25)
    assert (result["epsilon"], result["epsilon_permanent"]) == pytest.approx((1, 2))
    assert result["bound"]["exact"]
    assert result["bound"]["success"] == pytest.approx(e**2 / (e**2 + 3))
    for way in ("fresh", "kept", "lost"):
        assert [point["reports"] for point in result[way]] == [1, 2, 3, 5, 6]
        assert all(point["success"] == point["successes"] / 20 for point in result[way])
        assert all(low <= point["success"] <= high for point in result[way] for low, high in [point["interval"]])


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_plot(run, tmp_path, ending, start):
    """--plot writes the format that the file's ending says, for several mechanisms of different kinds."""
    file = tmp_path / f"averaging.{ending}"
    mechanisms_ = ("--mechanism", "l_grr", "grr", "rappor", "--devices", "10", "--reports", "20", "--lose-every", "5")
    status, out, _ = run(*mechanisms_, "--plot", str(file))
    assert status == 0
    assert out.endswith(f"Plot: {file}\n")
    assert file.read_bytes().startswith(start)


def test_a_plot_without_matplotlib(run, monkeypatch):
    """Without matplotlib the command says, before any work, which install brings it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "deniable_aggregator.attack.plot", raising=False)
    status, out, err = run("--plot", "averaging.svg")
    assert (status, out) == (2, "")
    assert err == "deniable attack: --plot needs matplotlib, which is not installed: pip install 'deniable[plots]'\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mechanism", "nosuch"), "mechanism = 'nosuch': write one of auto, coin, "),
        (("--epsilon-permanent", "0.5"), "permanent"),
        (("--epsilon-permanent", "much"), "much"),
        (("--domain-size", "300"), "domain_size = 300: an observer guesses among 256 values at most; use fewer"),
        (("--devices", "0"), "devices = 0: write 1 or more"),
        (("--mechanism", "google_rappor", "--preset", "nosuch"), "preset = 'nosuch': write one of UMA_RAPPOR_TYPE, "),
        (
            ("--mechanism", "grr", "--devices", "1", "--reports", "1", "--plot", "/nosuch/folder/a.svg"),
            "--plot cannot be written",
        ),
        (("--mechanism", "grr", "--devices", "1", "--reports", "1", "--plot", "a.nosuch"), "--plot cannot be written"),
    ],
)
def test_wrong_usage(run, arguments, words):
    """What cannot be done ends with status 2 and the reason."""
    status, _, err = run(*arguments)
    assert status == 2
    assert words in err


def test_drawing_apart():
    """Labels that would cover each other are moved apart, and stay in the picture."""
    placed = separated([0.5, 1.0, 1.0, 0.99], 0.065)
    assert placed[0] == 0.5
    assert max(placed) <= 1
    ordered = sorted(placed)
    assert min(b - a for a, b in pairwise(ordered)) > 0.06
    assert separated([0.01, 0.02], 0.065)[0] < separated([0.01, 0.02], 0.065)[1]
