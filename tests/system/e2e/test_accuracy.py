"""The map of accuracy rests on tallies that are drawn as devices would make them."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deniable import mechanisms

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CASES = [
    (name, d, epsilon)
    for name in mechanisms.names()
    for d, epsilon in ((2, 1.0), (7, 0.5), (8, 3.0), (40, 1.0))
    if name not in ("coin", "binary") or d == 2
]


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("simulated")


@pytest.mark.parametrize(("name", "d", "epsilon"), CASES)
def test_cells_and_bits_support_what_the_mechanism_says(simulated, name, d, epsilon):
    """A simulated report supports the values that the mechanism's own definition names, and its probabilities sum to 1."""
    simulation = simulated.make(name, d, epsilon).simulation.law
    mechanism, layout = simulation.mechanism, simulation.layout
    if name == "subset":
        return  # has no table; its law is tested below
    index, every = layout.kind == "index", np.arange(simulation.own_cells if layout.kind == "index" else 0)
    own = [set(simulation.cells(v, every).tolist()) if index else set(zip(*simulation.bits(v), strict=True)) for v in range(d)]
    for row, cell in itertools.islice(itertools.product(range(layout.rows), range(layout.width)), 2000):
        content = cell if index else 1 << cell
        supporting = {value for value in range(d) if (row * layout.width + cell if index else (row, cell)) in own[value]}
        assert supporting == mechanism.supported(layout.pack(row, content))
    if index:
        support = simulation.own_cells / layout.rows
        assert simulation.low * (layout.width - support) + simulation.high * support == pytest.approx(1)


@pytest.mark.parametrize("name", [*mechanisms.names(), "fast_local_hash-pool", "cms-pool", "hcms-pool", "rappor-pool"])
def test_supports_have_their_means(simulated, name):
    """The mean of many simulated tallies is what p and q say; every person sends one report."""
    from deniable_aggregator import decode

    d = 2 if name in ("coin", "binary") else 5
    simulation, rng = simulated.make(name, d, 1.0), np.random.default_rng(3)
    held = np.array([300, 100, 0, 0, 0][:d])
    errors = []
    for _ in range(60):
        counted, values = simulation.draw(held, rng)
        assert counted.n == 400
        estimate = decode.estimate(simulation.mechanism, counted, values)
        errors.append((estimate.frequency - held / 400) / estimate.stderr)
    assert np.abs(np.mean(errors, axis=0)).max() < 5 / 60**0.5


def test_a_set_has_the_probability_that_the_mechanism_gives_it(simulated):
    """One simulated report of `subset` is each set as often as a device names it; of many, all have the same size."""
    simulation, rng = simulated.make("subset", 5, 0.5), np.random.default_rng(4)
    mechanism, draws = simulation.mechanism, 2500
    seen = dict.fromkeys(itertools.combinations(range(5), mechanism.size), 0)
    for _ in range(draws):
        counted, _ = simulation.draw(np.array([0, 0, 1, 0, 0]), rng)
        seen[tuple(np.flatnonzero(counted.counts[0]).tolist())] += 1
    true = [chosen for chosen in seen if 2 in chosen]
    for chosen, times in seen.items():
        probability = float(mechanism.p) / len(true) if chosen in true else float(1 - mechanism.p) / (len(seen) - len(true))
        assert abs(times - draws * probability) < 5 * (draws * probability) ** 0.5
    counted, _ = simulation.draw(np.array([70, 5, 0, 20, 5]), rng)
    assert counted.counts.sum() == 100 * mechanism.size


def test_reports_of_a_set_are_independent(simulated):
    """The counts of simulated sets vary and covary as those of independent reports do."""
    simulation, rng = simulated.make("subset", 4, 0.5), np.random.default_rng(5)
    mechanism, held, runs = simulation.mechanism, np.array([40, 10, 0, 10]), 2000
    counts = np.array([simulation.draw(held, rng)[0].counts[0] for _ in range(runs)])
    p, size = float(mechanism.p), mechanism.size
    exact = np.zeros((4, 4))
    for value, people in enumerate(held):
        sets = list(itertools.combinations(range(4), size))
        weights = np.array([p if value in chosen else 1 - p for chosen in sets])
        weights /= [sum((value in other) == (value in chosen) for other in sets) for chosen in sets]
        bits = np.array([[float(v in chosen) for v in range(4)] for chosen in sets])
        exact += people * np.cov(bits.T, aweights=weights, bias=True)
    assert np.abs(np.cov(counts.T) - exact).max() < 5 * exact.max() * (2 / runs) ** 0.5


def test_the_benchmark_writes_its_figures(tmp_path, monkeypatch):
    """A quick run measures and writes; a second one that resumes measures nothing anew."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    accuracy = importlib.import_module("accuracy")
    file = tmp_path / "figures.json"
    command = [
        sys.executable,
        str(BENCHMARKS / "accuracy.py"),
        "--quick",
        "--no-rivals",
        "--only",
        "oue",
        "coin",
        "--json",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "of 6 cells of ours are off" in done.stdout
    cells = json.loads(file.read_text())["cells"]
    assert {(cell["mechanism"], cell["d"]) for cell in cells} == {("coin", 2), ("oue", 2), ("oue", 8)}
    for cell in cells:
        assert abs(cell["ratio"][0] - 1) < 6 * cell["ratio"][1]
        assert cell["coverage"]["population"][0] > 0.8
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=120, check=True)
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert not again.stderr
    bad = cells[0] | {"coverage": {"population": [0.92, 0.01], "respondents": [0.95, 0.01]}}
    good = cells[0] | {kind: {"population": [0.95, 0.01]} for kind in ("coverage", "simultaneous")} | {"ratio": [1.0, 0.01]}
    assert accuracy.off(bad)
    assert not accuracy.off(good)
    assert accuracy.off(good | {"ratio": [1.06, 0.01]})
