"""The differencing attack: each success is that of the law, and the subcommand shows it beside its bound."""

from __future__ import annotations

import json
import re
from math import exp
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from deniable.commands import entry as cli
from deniable.errors import ParameterError
from deniable_aggregator.attack.differencing import differencing

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "attacks.md"
CHANCE = 1e-6
RUNS = 20_000


def guesses(epsilon=1, people=500, min_reports=100, runs=RUNS, seed=1):
    attack = differencing(epsilon=epsilon, people=people, min_reports=min_reports, runs=runs, rng=np.random.default_rng(seed))
    return {each.published: each for each in attack}


def likely(attack, success):
    """Tell whether so many right guesses are likely at this probability of each."""
    law = binom(attack.runs, success)
    return law.cdf(attack.right) > CHANCE and law.sf(attack.right - 1) > CHANCE


def blurred(epsilon):
    """Compute how often one bit and the difference of two discrete Laplace variables point to the bit."""
    chances = np.exp(-epsilon * np.abs(np.arange(-200, 201)))
    return (1 + float(np.square(chances / chances.sum()).sum())) / 2


@pytest.mark.parametrize("epsilon", [0.5, 1, 2])
def test_a_guess_is_right_as_often_as_the_law_says(epsilon):
    """Exact counts tell all, one report what epsilon allows, and two noisy counts less."""
    attack, bound = guesses(epsilon), exp(epsilon) / (1 + exp(epsilon))
    assert (attack["counts"].success, attack["counts"].bound) == (1, 1)
    assert likely(attack["reports"], bound)
    assert not likely(attack["reports"], bound + 0.03)
    assert likely(attack["noisy counts"], blurred(epsilon))
    assert 0.5 < blurred(epsilon) < bound
    assert all(each.bound == pytest.approx(bound) for name, each in attack.items() if name != "counts")


def test_a_release_that_is_withheld_leaves_a_coin():
    """What is left is the sum of all: of two people it tells something, of 500 hardly anything."""
    true = exp(1) / (1 + exp(1))
    assert likely(guesses(people=500)["releases"], 0.5 + 0.23 * binom(499, 0.5).pmf([249, 250]).mean())
    # Of two reports alike, the guess follows them; of two that differ, it is a coin.
    assert likely(guesses(people=2)["releases"], 0.5 * true + 0.25)


def test_a_trial_withholds_nothing():
    """Where one report may make a difference, the difference is one report."""
    attack = guesses(min_reports=1)
    assert attack["releases"].right == attack["reports"].right


@pytest.mark.parametrize("wrong", [{"people": 1}, {"runs": 0}, {"min_reports": 0}, {"epsilon": 0}])
def test_what_makes_no_sense(wrong):
    """A number out of range is refused."""
    with pytest.raises(ParameterError):
        guesses(**wrong)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        return cli.main(("attack", "differencing", *arguments)), *capsys.readouterr()

    return run


def test_the_command(run):
    """The table has all four, a sentence says what they mean, and programs get the same numbers."""
    status, out, _ = run("--seed", "3", "--runs", "2000")
    document = json.loads(run("--seed", "3", "--runs", "2000", "--json")[1])
    assert status == 0
    assert [result["published"] for result in document["results"]] == ["counts", "noisy counts", "reports", "releases"]
    for result in document["results"]:
        assert re.search(
            rf"{result['success']:.1%} +{result['interval'][0]:.1%} to {result['interval'][1]:.1%} +{result['bound']:.1%}", out
        )
    assert f"a guess is right in {document['results'][3]['success']:.1%}; a coin is right in 50%." in out
    assert "Seed: 3" in out
    assert run("--runs", "2000", "--json")[1] != run("--runs", "2000", "--json")[1]
    assert "leaves one randomised report" in run("--runs", "2000", "--min-reports", "1")[1]
    assert run("--seed", "-1")[0] == 2


def test_the_documented_table(run):
    """The table of the documentation is what the command prints there."""
    command, table = re.search(
        r"deniable attack differencing (.*)\n```\n\n```text\n([^`]*)```", DOCUMENT.read_text("utf-8")
    ).groups()
    assert run(*command.split())[1] == table
