"""Rehearsals: what is measured is what is planned, for every mechanism; and the subcommand that makes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.commands import entry as cli
from deniable.registry import Metric
from deniable_aggregator import decode
from deniable_aggregator.planning.population import read_shares
from deniable_aggregator.planning.precision import precision
from deniable_aggregator.planning.rehearsal import OfShares, rehearsals
from deniable_aggregator.planning.simulation import Simulation

EXAMPLE = Path(__file__).parents[2] / "deploy" / "metrics.toml"
WITHIN = 0.05
SIGMAS = 5.2
"""Standard errors that `WITHIN` is. The normal probability of more is 2e-7; seeds are fixed, so a failure stays one."""
TWO = ("coin", "binary")
SHARES = """metric,value,share
a,x,70
a,y,30
b,yes,0.5
b,no,0.5
c,"u,v",1
s,u,0.5
s,w,0.9
n,1,1
n,10,2
n,1e9,1
"""
REGISTRY = registry_toml(
    metric_toml("a", values=["x", "y", "z"]),
    metric_toml("b", sample=0.5),
    metric_toml("c", type="product", factors={"f": ["t", "u"], "g": ["v", "w"]}),
    metric_toml("d", type="key", discover=True),
    metric_toml("s", type="set", values=["u", "v", "w"]),
    metric_toml("n", range=[0, 10], unit="ms", estimate="mean"),
)


def rehearsal(name, size, epsilon):
    metric = Metric(id=name, type="categorical", values=tuple(map(str, range(size))), epsilon=str(epsilon), mechanism=name)
    mechanism = mechanisms.make(name, domain_size=size, **({} if name == "coin" else {"epsilon": epsilon}))
    weights = 1 / np.arange(1, size + 1)
    return OfShares(metric=metric, mechanism=mechanism, shares=weights / weights.sum())


def agrees(name, size, epsilon, users, runs, within=WITHIN):
    result = rehearsal(name, size, epsilon).run(users, runs, np.random.default_rng(17))
    assert result.ratio_stderr < within / SIGMAS, "too few runs to tell"
    assert abs(result.ratio - 1) < within
    assert abs(result.coverage - 0.95) < 0.02


@pytest.mark.parametrize("name", mechanisms.names())
def test_what_is_measured_is_what_is_planned(name):
    """The error over many runs is the planned one within 5%, for every mechanism; of two values, within a tenth."""
    agrees(name, *((2, 1.0, 3000, 1600, 0.1) if name in TWO else (32, 1.0, 1500, 240)))


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in mechanisms.names() if name not in TWO])
@pytest.mark.parametrize(("size", "epsilon", "users"), [(3, 0.5, 1000), (64, 1.0, 100_000), (24, 2.0, 1_000_000_000)])
def test_what_is_measured_is_what_is_planned_at_length(name, size, epsilon, users):
    """The same with few and many values and people."""
    agrees(name, size, epsilon, users, 5000 if size < 10 else 1000)


NUMBERS_AND_SETS = {
    "mean": 'type = "number"\nrange = [0, 500]\nunit = "ms"\nestimate = "mean"',
    "distribution": 'type = "number"\nrange = [1, 1000]\nscale = "log"\nunit = "ms"\nestimate = "distribution"',
    "kept mean": 'type = "number"\nrange = [0, 5]\nunit = "ms"\nestimate = "mean"\nepsilon_permanent = 2.0',
    "kept distribution": 'type = "number"\nrange = [0, 5]\nunit = "ms"\nestimate = "distribution"\nepsilon_permanent = 2.0',
    "ordinal": 'type = "ordinal"\nvalues = ["a", "b", "c"]\nestimate = "mean"',
    "set": 'type = "set"\nvalues = ["a", "b", "c", "d", "e"]',
    "joint": 'type = "set"\nvalues = ["a", "b", "c", "d", "e"]\njoint = true',
}


OF = dict(zip(NUMBERS_AND_SETS, ["mean"] * 3 + ["shares", "mean", "options", "options"], strict=True))


@pytest.mark.parametrize(
    ("kind", "runs", "within", "off"),
    [
        *((kind, 700, 0.15, 0.04) if of == "mean" else (kind, 2500, WITHIN, 0.02) for kind, of in OF.items()),
        *(
            pytest.param(kind, 6000, WITHIN, 0.02, marks=[pytest.mark.campaign, pytest.mark.nightly])
            for kind, of in OF.items()
            if of == "mean"
        ),
    ],
)
def test_errors_of_numbers_and_sets_are_those_predicted(kind, runs, within, off):
    """The error of a mean, or of the shares of options, is the predicted one but for some percent; its intervals hold it."""
    text = f'format = 1\napp = "shop"\n[metrics.m]\n{NUMBERS_AND_SETS[kind]}\nepsilon = 1.0\ndescription = "d"\nowner = "o"\n'
    (trial,), _ = rehearsals(registry.parse(text), {})
    result = trial.run(3000, runs, np.random.default_rng(17))
    assert result.of == OF[kind]
    assert result.ratio_stderr < within / SIGMAS, "too few runs to tell"
    assert abs(result.ratio - 1) < within
    assert abs(result.coverage - 0.95) < off


@pytest.mark.parametrize("name", ["grr", "oue", "subset", "local_hash"])
def test_the_planned_share_is_detected_half_of_the_time(name):
    """A value of the smallest share is detected in half of the runs. 400 runs err by more than 0.14 with probability 2e-8."""
    size, users, runs, rng = 32, 20_000, 400, np.random.default_rng(5)
    trial = rehearsal(name, size, 1.0)
    share = precision(trial.metric, trial.mechanism, size).detects(users)
    shares = np.zeros(size)
    shares[3], shares[:3] = share, (1 - share) / 3
    simulation, hits = Simulation(trial.mechanism), 0
    for _ in range(runs):
        tally = simulation.draw(rng.multinomial(users, shares), rng)
        hits += decode.estimate(trial.mechanism, tally).detected()[3]
    assert abs(hits / runs - 0.5) < 0.14


@pytest.fixture
def run(capsys):
    def run(*arguments):
        return cli.main(("simulate", *map(str, arguments))), *capsys.readouterr()

    return run


@pytest.fixture
def declared(tmp_path):
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY)
    return path


@pytest.fixture
def shares(tmp_path):
    def write(text):
        path = tmp_path / "shares.csv"
        path.write_text(text)
        return path

    return write


def test_shares_are_those_of_the_file(declared, shares):
    """Shares and numbers of people are read by value; what a file does not state has share 0 or follows Zipf's law."""
    loaded = registry.load(declared)
    trial, left = rehearsals(loaded, read_shares(shares(SHARES), loaded))
    assert [each.shares.tolist() for each in trial] == [
        *([0.7, 0.3, 0.0], [0.5, 0.5], [0.0, 0.0, 1.0, 0.0]),
        [0.5, 0.0, 0.9],
        [0.25, 0.75],
    ]
    assert trial[4].truth.tolist() == [pytest.approx((0.25 * 1 + 0.75 * 10) / 10, abs=1e-4)]
    assert left == ["d"]
    trial, _ = rehearsals(registry.load(declared), {})
    assert trial[0].shares[0] > trial[0].shares[1] > trial[0].shares[2] > 0
    assert trial[3].shares[0] == 0.5 > trial[3].shares[1] > trial[3].shares[2] > 0
    assert 0 < trial[4].truth[0] < 0.5


def test_the_command_prints_measured_beside_predicted(run, declared, shares):
    """For people a table, for programs an object; the same seed gives the same numbers, another one others."""
    options = (declared, "--users", "1e9", "--runs", "20", "--shares", shares(SHARES))
    status, out, _ = run(*options, "--seed", "4", "--json")
    document = json.loads(out)
    assert (status, document["seed"], document["not_simulated"]) == (0, 4, ["d"])
    assert [(each["metric"], each["reports"], each["of"]) for each in document["results"]] == [
        ("a", 10**9, "shares"),
        ("b", 10**9 // 2, "shares"),
        ("c", 10**9, "shares"),
        ("s", 10**9, "options"),
        ("n", 10**9, "mean"),
    ]
    assert all(0.3 < each["ratio"] < 3 for each in document["results"])
    assert json.loads(run(*options, "--seed", "4", "--json")[1]) == document
    assert json.loads(run(*options, "--json")[1])["results"] != document["results"]
    table = run(*options, "--seed", "4")[1]
    assert f"{document['results'][0]['measured']:.3g}" in table
    assert "Not simulated" in table
    (number,) = (line for line in table.splitlines() if line.startswith("n "))
    metric = registry.load(declared).metrics["n"]
    assert number.count(metric.unit) == 2, "measured and predicted are in the unit of the metric, as in the plan"
    assert "Seed: 4" in table


def test_errors_are_plotted(run, declared, tmp_path):
    """The plot has a line for each metric; without matplotlib the option is refused before the work."""
    path = tmp_path / "errors.svg"
    assert run(declared, "--users", "1000", "--runs", "2", "--plot", path)[0] == 0
    assert path.read_text("utf-8").count("<svg") == 1
    status, _, error = run(declared, "--users", "1000", "--runs", "2", "--plot", tmp_path / "errors.nothing")
    assert status == 2
    assert "--plot cannot be written" in error


def test_a_plot_needs_matplotlib(run, declared, monkeypatch):
    """A missing library is named with what brings it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "deniable_aggregator.planning.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, error = run(declared, "--users", "1000", "--plot", "x.svg")
    assert status == 2
    assert "deniable[plots]" in error


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("metric,share\na,1\n", "the columns metric,value,share"),
        ("metric,value,share\na,x,-1\n", "line 2"),
        ("metric,value,share\na,x,nan\n", "line 2"),
        ("metric,value,share\na,x,1\na,x,1\n", "line 3"),
        ("metric,value,share\na,x,0\n", "all 0"),
        (
            "metric,value,share\na,w,1\n",
            "shares.csv, line 2: shares are stated of a value that a does not have: w; write one of x, y, z",
        ),
        ("metric,value,share\ne,x,1\n", "line 2: "),
        ("metric,value,share\ne,x,1\n", "does not declare metric 'e'"),
        ("metric,value,share\na,x,half\n", "line 2: write a metric, one value of it, and a share or a number of people, such as"),
        ("metric,value,share\nd,5,1\n", "not simulated"),
        ("metric,value,share\nn,low,1\n", "a value that n does not have: low"),
        ("metric,value,share\ns,x,1\n", "a value that s does not have: x"),
        ("metric,value,share\ns,u,2\n", "at most 1"),
        (
            "metric,value,share\na,x,0.7\na,y,0.5\n",
            "shares.csv: the shares of a sum to 1.2: write shares that sum to 1, or how many",
        ),
        ("metric,value,share\na,x,0.2\n", "the shares of a sum to 0.2: "),
        ("metric,value,share\ne,x,1\na,w,1\n", "a value that a does not have: w; write one of x, y, z"),
    ],
)
def test_bad_shares_are_refused_in_words(run, declared, shares, text, about):
    """A file that states no shares of this registry ends with status 2 and a sentence."""
    status, out, error = run(declared, "--users", "1000", "--shares", shares(text))
    assert (status, out) == (2, "")
    assert about in error


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["--users", "0"], "users"),
        (["--users", "1", "--runs", "2"], "reports"),
        (["--users", "10", "--runs", "1"], "runs"),
        (["--users", "10", "--level", "1"], "confidence"),
        (["--users", "10", "--seed", "-1"], "--seed"),
        (["--users", "1e20"], "--users 100,000,000,000,000,000,000: write 1,000,000,000,000,000 or fewer"),
        (["--users", "10", "--shares", "no.csv"], "no.csv cannot be read: No such file or directory\n"),
    ],
)
def test_bad_options_are_refused_in_words(run, declared, arguments, about):
    """Numbers out of range end with status 2 and a sentence."""
    status, out, error = run(declared, *arguments)
    assert (status, out) == (2, "")
    assert about in error


def test_every_metric_of_the_example_is_simulated(run):
    """Of the example, all but the search are measured."""
    document = json.loads(run(EXAMPLE, "--users", "1e5", "--runs", "2", "--seed", "1", "--json")[1])
    assert document["not_simulated"] == ["crash.site"]
    assert len(document["results"]) == 7


@pytest.mark.parametrize("metric", ["a", "s", "n"])
def test_groups_that_answer_alike(metric):
    """The plan, the rehearsal and the decoder agree where five devices each answer alike: in errors, and intervals hold."""
    alike = registry.parse(REGISTRY.replace("\nowner", "\ntogether = 5\nowner"))
    (pooled,) = [one for one in rehearsals(alike, {})[0] if one.metric.id == metric]
    errors = pooled.run(5000, 300, np.random.default_rng(6))
    assert errors.ratio == pytest.approx(1, abs=0.15)
    assert errors.coverage > 0.93
    (alone,) = [one for one in rehearsals(registry.parse(REGISTRY), {})[0] if one.metric.id == metric]
    assert errors.predicted > 1.05 * alone.run(5000, 2, np.random.default_rng(6)).predicted
