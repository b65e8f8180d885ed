"""Central noise: totals of queries with Gaussian and Laplace noise, against the papers' numbers and dp-accounting."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from math import exp, inf, log, sqrt
from xml.etree import ElementTree as ET

import mpmath
import numpy as np
import pytest

from deniable.commands import entry as cli
from deniable.errors import ParameterError
from deniable_aggregator.accounting import library, renyi, zcdp
from deniable_aggregator.accounting.central.curves import Curves
from deniable_aggregator.accounting.central.noise import Gaussian, Laplace

CASES = [
    Gaussian(10, 1, 100),
    Gaussian(1, 1, 1),
    Gaussian(0.5, 3, 7),
    Gaussian(200, 1, 10_000),
    Laplace(10, 1, 1),
    Laplace(10, 1, 100),
    Laplace(1, 1, 10),
    Laplace(3, 2, 40),
    Laplace(100, 1, 10_000),
]


@pytest.fixture
def run(capsys):
    """Run the command; its exit status, and what it printed."""

    def run(*arguments):
        status = cli.main(("account", *map(str, arguments)))
        return status, *capsys.readouterr()

    return run


def test_bun_and_steinke():
    """Propositions 1.6, 1.4 and 1.3: sigma 10 has rho 1/200; epsilon 0.1 has at most 0.005; rho 0.5 is epsilon 5.757 at 1e-6."""
    assert Gaussian(10).rho_each == pytest.approx(1 / 200, rel=1e-9)
    assert Laplace(10).rho_each <= 0.1**2 / 2
    assert Gaussian(10, 1, 100).rho == pytest.approx(0.5, rel=1e-9)
    assert zcdp.textbook(0.5, 1e-6) == pytest.approx(0.5 + 2 * sqrt(0.5 * log(1e6)), rel=1e-9)
    assert zcdp.textbook(0.5, 1e-6) == pytest.approx(5.757, abs=5e-4)


def test_mironov():
    """Table II: Gaussian alpha / (2 sigma^2); Laplace, at order 1, 1/b + e^(-1/b) - 1, and 1/b at infinity. Proposition 3."""
    assert renyi.divergence_at(Gaussian(10).divergence, 10) == pytest.approx(0.05, rel=1e-9)
    assert renyi.divergence_at(Laplace(2).divergence, 1.001) == pytest.approx(0.5 + exp(-0.5) - 1, rel=1e-3)
    assert renyi.divergence_at(Laplace(2).divergence, 1e6) == pytest.approx(0.5, abs=1e-5)
    alpha, b = 3.0, 2.0
    formula = alpha / (2 * alpha - 1) * exp((alpha - 1) / b) + (alpha - 1) / (2 * alpha - 1) * exp(-alpha / b)
    assert renyi.divergence_at(Laplace(b).divergence, alpha) == pytest.approx(log(formula) / (alpha - 1), rel=1e-9)
    total = renyi.epsilon_at(Gaussian(10).divergence, 10, 1e-5, textbook=True)
    assert total == pytest.approx(0.05 + log(1e5) / 9, rel=1e-9)


def test_dwork_and_roth():
    """Their example in 3.5: 10,000 databases of epsilon 1/801, delta e^-32, is about epsilon 1; and sigma of theorem A.1."""
    noise = Laplace(801, 1, 10_000)
    formula = sqrt(2 * 10_000 * 32) / 801 + 10_000 / 801 * (exp(1 / 801) - 1)
    totals = noise.totals(exp(-32))
    assert formula == pytest.approx(1.0144, abs=1e-3)
    assert formula <= totals["advanced"] == pytest.approx(formula, rel=1e-3)
    assert totals["exact"] < 1
    sigma = sqrt(2 * log(1.25e5)) / 0.5
    assert sigma == pytest.approx(9.6896, abs=1e-3)
    assert Gaussian(sigma).exact(1e-5) < 0.5


def test_balle_and_wang():
    """Epsilon 1 at delta 1e-5 needs sigma 3.7306, where the formula of theorem A.1 says 4.8448."""
    assert Gaussian(3.730632).exact(1e-5) == pytest.approx(1, abs=1e-5)
    assert sqrt(2 * log(1.25e5)) == pytest.approx(4.8448, abs=1e-4)
    assert Gaussian(4.8448).exact(1e-5) < 0.76


@pytest.mark.parametrize(("scale", "queries"), [(0.06, 3), (0.5, 1), (1, 100), (10, 1), (10, 100), (1000, 1), (1e5, 1_000_000)])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_a_gaussian_total_is_an_upper_bound(scale, queries, delta):
    """Its delta by forty digits is at most the delta asked for, and near it."""
    epsilon = Gaussian(scale, 1, queries).exact(delta)
    with mpmath.workdps(60):
        mean, e = mpmath.sqrt(queries) / mpmath.mpf(scale), mpmath.mpf(epsilon)
        true = mpmath.ncdf(mean / 2 - e / mean) - mpmath.exp(e) * mpmath.ncdf(-mean / 2 - e / mean)
    assert true <= delta
    if epsilon:
        assert true > delta * (1 - 1e-3)


@pytest.mark.parametrize("delta", [1e-6, 0.01])
@pytest.mark.parametrize("scale", [0.5, 1, 30, 1000])
def test_one_laplace_query(scale, delta):
    """The least epsilon of one query is 1/b + 2 ln(1 - delta), by integration of its density."""
    true = max(0.0, 1 / scale + 2 * log(1 - delta))
    assert true - 1e-12 <= Laplace(scale).exact(delta) <= true * 1.001 + 2e-6


@pytest.mark.parametrize("noise", [case for case in CASES if isinstance(case, Laplace)], ids=str)
def test_the_loss_of_a_laplace_query_has_both_masses(noise):
    """On the grid the probabilities of both answers add up to 1, and the losses reach the epsilon of the query."""
    losses = noise._losses()
    assert losses.mass.sum() == pytest.approx(1, abs=1e-12)
    assert (losses.mass * np.exp(-losses.values / 1e6)).sum() == pytest.approx(1, abs=1e-12)
    assert noise.ratio <= losses.values[-1] / 1e6 <= noise.ratio * 1.01 + 1e-6


@pytest.mark.parametrize("noise", CASES, ids=str)
def test_the_exact_total_as_by_dp_accounting(noise):
    """It lies between their lower and upper bounds, up to the step of the grid."""
    from dp_accounting.pld import privacy_loss_distribution as theirs  # here, because to import it takes two seconds

    make = theirs.from_gaussian_mechanism if isinstance(noise, Gaussian) else theirs.from_laplace_mechanism
    step = min(2e-2, noise.ratio / 50)
    options = {"sensitivity": noise.sensitivity, "value_discretization_interval": step}
    lower = make(noise.scale, pessimistic_estimate=False, **options).self_compose(noise.queries).get_epsilon_for_delta(1e-6)
    ours = noise.exact(1e-6)
    assert lower <= ours + 1e-9
    assert ours == pytest.approx(library.of_noise(noise, 1e-6), rel=1e-3)


@pytest.mark.parametrize("noise", CASES, ids=str)
@pytest.mark.parametrize("order", [1.5, 8, 64])
def test_renyi_as_by_dp_accounting(noise, order):
    """Divergence and epsilon of an order are those of `RdpAccountant`."""
    from dp_accounting import dp_event, rdp

    kind = dp_event.GaussianDpEvent if isinstance(noise, Gaussian) else dp_event.LaplaceDpEvent
    accountant = rdp.RdpAccountant([order])
    accountant.compose(kind(1 / noise.ratio), noise.queries)
    assert renyi.divergence_at(noise.divergence, order) == pytest.approx(accountant._rdp[0], rel=1e-6)
    assert noise.totals(1e-6, order)["renyi"] == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-6)


@pytest.mark.parametrize("noise", CASES, ids=str)
def test_no_total_is_below_the_exact_one(noise):
    """Each method is an upper bound, and the best order is no worse than others."""
    totals = noise.totals(1e-6)
    assert all(total >= totals["exact"] - 2e-6 for total in totals.values())
    assert all(noise.totals(1e-6, order)["renyi"] >= totals["renyi"] for order in (2, 5, 20))
    if isinstance(noise, Gaussian):
        assert totals["renyi"] == pytest.approx(totals["zcdp"], rel=1e-6)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Gaussian(0), "sigma = 0: write a number above 0"),
        (lambda: Laplace(inf), "scale = inf: write a number above 0"),
        (lambda: Gaussian(1, -1), "sensitivity = -1: write a number above 0"),
        (lambda: Gaussian(0.01), "such noise hides nothing; write at least 0.05"),
        (lambda: Laplace(1, 1, 0), "queries = 0: write a whole number of at least 1"),
        (lambda: Laplace(1, 1, 10**7), "queries = 10000000: write at most 1,000,000"),
        (lambda: Gaussian(1).totals(1e-6, 1.0), "alpha = 1.0: write an order above 1"),
        (lambda: Gaussian(1).advanced(1e-15), "write at least 2e-15"),
    ],
)
def test_bad_numbers(make, rule):
    """Each has a rule, with the value and what to write."""
    with pytest.raises(ParameterError) as error:
        make()
    assert rule in str(error.value)


def test_a_table(run):
    """Rho, the divergence and its order, each method, and what to quote."""
    status, out, err = run("--gaussian", 10, "--sensitivity", 1, "--queries", 100, "--delta", 1e-5, "--check")
    assert (status, err) == (0, "")
    assert "Gaussian noise, sigma 10, sensitivity 1, 100 queries, delta 1e-05\n" in out
    assert "rho of a query, and of all: 0.005, 0.5\n" in out
    assert "Renyi divergence of all at alpha 5.43185 (the best one): 2.716\n" in out
    numbers = [
        line.split("  ")[-1].strip() for line in out.splitlines() if line.startswith(("plain", "adv", "zero", "Renyi  ", "ex"))
    ]
    assert numbers == ["44.708", "49.826 (x)", "4.7284", "4.7284", "4.3772"]
    assert out.count("5.2986") == 2
    assert "dp-accounting: 4.37718; ours is 4.37718." in out
    assert "Quote: epsilon 4.3772 with delta 1e-05, exact" in out
    _, out, _ = run("--laplace", 10, "--alpha", 8)
    assert "1 query, delta 1e-06" in out
    assert "at alpha 8: " in out
    assert "Quote: epsilon 0.1, which needs no delta. Beside it: epsilon" in out


def test_json(run):
    """All numbers of the table."""
    status, out, _ = run("--laplace", 10, "--queries", 100, "--alpha", 8, "--json")
    written = json.loads(out)
    assert status == 0
    assert (written["noise"], written["scale"], written["queries"], written["delta"]) == ("laplace", 10, 100, 1e-6)
    assert written["epsilon"] == Laplace(10, 1, 100).totals(1e-6, 8)
    assert written["renyi"]["alpha"] == written["textbook"]["alpha"] == 8
    assert written["rho"]["all"] == Laplace(10, 1, 100).rho


@pytest.mark.parametrize("noise", [Gaussian(1, 3, 10), Laplace(1, 1, 4), Gaussian(1)], ids=lambda noise: f"{noise}")
@pytest.mark.parametrize("epsilon", [0.1, 1, 6])
def test_the_least_noise_for_a_total(noise, epsilon):
    """It is enough, and a hundred-thousandth less of it is not."""
    least = noise.within(epsilon, 1e-6)
    assert least.exact(1e-6) <= epsilon < replace(least, scale=least.scale * (1 - 1e-5)).exact(1e-6)
    assert float(f"{least.scale:.6g}") == least.scale


def test_the_command_looks_for_the_noise(run):
    """Which sigma? Balle and Wang need less than the classic sqrt(2 ln(1.25 / delta)) / epsilon."""
    status, out, _ = run("--gaussian", "search", "--within", 1, "--delta", 1e-5)
    assert status == 0
    sigma = float(re.search(r"^Gaussian noise, sigma ([\d.]+), sensitivity 1, 1 query", out)[1])
    assert 3.7 < sigma < sqrt(2 * log(1.25e5))
    assert "Quote: epsilon 1 with delta 1e-05, exact" in out
    with pytest.raises(SystemExit):
        run("--gaussian", "serach")


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--gaussian", 10, "--alpha", "serach"), "--alpha = 'serach': write an order above 1, such as 8; did you mean search?"),
        (("--gaussian", 10, "--alpha", 1), "--alpha = '1': write an order above 1, such as 8, or search"),
        (("--gaussian", 10, "--alpha", "nan"), "--alpha = 'nan': write an order above 1"),
        (("--gaussian", 10, "--laplace", 10), "either --gaussian or --laplace"),
        (("--gaussian", 10, "--reports", 3), "--reports is about reports, not about noise: --queries says how many"),
        (("--gaussian", 10, "--group", 2), "--group is about reports, not about noise: --sensitivity says"),
        (("--gaussian", 10, "--epsilon", 1), "--epsilon is about reports, not about noise: leave it out"),
        (("--gaussian", 10, "--delta", 1e-5, 1e-6), "take one --delta; there are 2"),
        (("--gaussian", -1), "sigma = -1.0: write a number above 0"),
        (("--gaussian", "search"), "--gaussian search and --within E go together"),
        (("--gaussian", 3, "--within", 1), "--gaussian search and --within E go together"),
        (("--laplace", "search", "--within", 0), "within = 0.0: write a number above 0"),
        (("--queries", 3), "--queries goes with --gaussian or --laplace"),
        (("--epsilon", 1, "--csv", "a.csv"), "--csv goes with --gaussian or --laplace"),
        (("--laplace", 10, "--csv", "/nowhere/a.csv"), "--csv cannot be written"),
    ],
)
def test_wrong_usage(run, arguments, rule):
    """Status 2, with what to write."""
    status, _, err = run(*arguments)
    assert status == 2
    assert rule in err


def test_curves(run, tmp_path):
    """The file has both curves as numbers, and the picture names all five methods."""
    status, _, err = run("--laplace", 10, "--queries", 50, "--csv", tmp_path / "c.csv", "--plot", tmp_path / "c.svg")
    assert status == 0
    assert f"Curves: {tmp_path / 'c.csv'}" in err
    with (tmp_path / "c.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    noise = Laplace(10, 1, 50)
    last = {row["method"]: float(row["nats"]) for row in rows if row["curve"] == "epsilon" and row["at"] == "50"}
    assert last == noise.totals(1e-6)
    orders = {float(row["at"]): float(row["nats"]) for row in rows if row["curve"] == "divergence"}
    assert orders[1.01] == pytest.approx(float(noise.divergence(np.array([1.01]))[0]))
    text = " ".join(ET.parse(tmp_path / "c.svg").getroot().itertext()) + (tmp_path / "c.svg").read_text("utf-8")
    for name in ("plain sum", "advanced composition", "zCDP", "Renyi", "exact, this noise", "order alpha", "queries"):
        assert name in text


def test_a_curve_rises_with_the_queries():
    """More queries never cost less, by any method."""
    totals = Curves.of(Gaussian(5), 1e-6, [1, 2, 10, 100]).totals
    for key in totals[0]:
        column = [each[key] for each in totals]
        assert column == sorted(column)
