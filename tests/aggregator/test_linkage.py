"""The linkage attack: raw records are found, groups that look alike give answers away, and a report says what epsilon allows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from deniable.commands import entry as cli
from deniable.errors import ParameterError
from deniable_aggregator.attack import reviews, voters
from deniable_aggregator.attack.linkage import judged, of_releases, of_reports

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "attacks.md"
CHANCE = 1e-6


def likely(right, of, chance):
    law = binom(of, chance)
    return law.cdf(right) > CHANCE and law.sf(right - 1) > CHANCE


@pytest.fixture(scope="module")
def clinic():
    linked = voters.attacks(people=2000, k=5, epsilon=1, rng=np.random.default_rng(1))
    return {each.published: each for each in linked}


@pytest.fixture(scope="module")
def films():
    linked = reviews.attacks(people=300, k=5, reviews=5, epsilon=1, rng=np.random.default_rng(1))
    return {each.published: each for each in linked}


def test_records_without_names_are_found(clinic, films):
    for linked in (clinic["records without names"], films["ratings under pseudonyms"]):
        assert linked.named > 0.9 * linked.people
        assert linked.right_claims > 0.9 * linked.people
        assert linked.right_claims >= 0.97 * linked.claims


def test_records_that_look_alike_give_answers_away_without_being_found(clinic, films):
    """Where all of a group answered alike; and more so where the observer can rule answers out."""
    alike, informed, groups = (
        clinic["5-anonymous records"],
        clinic["5-anonymous, 2 answers ruled out"],
        films["groups of 5 alike"],
    )
    assert alike.named == informed.named == groups.named == 0
    assert 0 < alike.right_claims < informed.right_claims
    assert alike.right_claims == alike.claims
    assert groups.right_claims > 0
    assert all(each.guesses > each.without for each in (alike, informed, groups))


def test_every_class_has_k_records():
    roll = voters.voters(1000, np.random.default_rng(2))
    for k in (2, 5, 20):
        sizes = np.bincount(voters._classes(roll, k))
        assert sizes.min() >= k
        assert sizes.sum() == 1000
    table = reviews.ratings(302, np.random.default_rng(2))
    assert sorted(set(np.bincount(reviews._groups(table, 5)))) == [5, 7]


@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 2), (1, 6), (3, 2)])
def test_a_report_that_is_known_says_what_epsilon_allows(epsilon, size):
    """Everybody is alone in the open, so each report is found; a guess is right as often as the law of the mechanism says."""
    rng = np.random.default_rng(1)
    answers = rng.integers(0, size, 4000)
    linked = of_reports("all", answers, np.arange(4000), epsilon, size, rng)
    assert linked.named == linked.people
    assert likely(linked.guesses, 4000, linked.bound)
    assert linked.bound == pytest.approx(np.exp(epsilon) / (np.exp(epsilon) + size - 1), rel=0.05)
    assert likely(linked.without, 4000, np.bincount(answers).max() / 4000)
    assert (linked.claims > 0) == (np.exp(epsilon) / (np.exp(epsilon) + size - 1) > 0.9)


def test_reports_in_a_crowd_say_nothing_of_one_person(clinic, films):
    """None is found, no answer is claimed, and guesses are right as often as if the person had stayed away."""
    for linked in (
        clinic["reports with region, age and sex"],
        films["reports with the month"],
        clinic["releases by region, age and sex"],
    ):
        assert linked.named == linked.claims == 0
        assert abs(linked.guesses - linked.without) < 0.03 * linked.people


def test_what_stands_in_the_open_is_linked_as_records_are(clinic, films):
    """Local privacy hides no segment and no period."""
    opened = clinic["reports with birthday, place and sex"]
    assert opened.named == clinic["records without names"].named
    assert opened.claims == 0
    counts = [
        films[f"reports with {each}"].named for each in ("the month", "platform, version and language", "these and the week")
    ]
    assert counts == sorted(counts)
    assert 0 < counts[1] < counts[2]


def test_small_cells_are_not_released():
    rng = np.random.default_rng(1)
    answers, cells = np.array([1] * 99 + [0] * 500), np.array([0] * 99 + [1] * 500)
    linked = of_releases("all", answers, cells, 4, 2, rng)
    assert linked.guesses == 500  # the others are guessed to be as the totals are
    enough = of_releases("all", np.append(answers, 1), np.append(cells, 0), 4, 2, rng)
    assert enough.guesses == 600


def test_shares_have_intervals():
    posterior = np.array([[0.95, 0.05], [0.6, 0.4], [0.1, 0.9]])
    linked = judged("all", posterior, posterior, np.array([0, 1, 0]), np.array([True, False, False]), np.random.default_rng(1))
    assert (linked.named, linked.claims, linked.right_claims, linked.guesses) == (1, 2, 1, 1)
    low, high = linked.intervals["right_claims"]
    assert low < 0.5 < high
    assert "bound" not in linked.to_dict()


@pytest.mark.parametrize("wrong", [{"people": 99}, {"k": 1}, {"epsilon": 0}])
@pytest.mark.parametrize("story", [voters.attacks, reviews.attacks])
def test_what_makes_no_sense(story, wrong):
    settings = {"people": 100, "k": 5, "epsilon": 1, "rng": np.random.default_rng(1)} | wrong
    if story is reviews.attacks:
        settings["reviews"] = 3
    with pytest.raises(ParameterError):
        story(**settings)


def test_the_command(capsys, tmp_path):
    picture = tmp_path / "linkage.svg"
    assert cli.main(["attack", "linkage", "--story", "voters", "--people", "300", "--seed", "1", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^records without names +\d+\.\d% \(\d", out, re.MULTILINE)
    assert "have sent one of them" in out
    assert f"Plot: {picture}" in out
    assert picture.read_text("utf-8").startswith("<?xml")
    assert cli.main(["attack", "linkage", "--people", "100", "--json", "--seed", "1"]) == 0
    tables = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["story"], each["seed"], len(each["results"])) for each in tables] == [("voters", 1, 7), ("reviews", 1, 7)]
    for row in (row for each in tables for row in each["results"]):
        low, high = row["named_interval"]
        assert low <= row["named"] / row["people"] <= high


def test_people_are_the_same_with_the_same_seed():
    one, other = (voters.voters(50, np.random.default_rng(3)) for _ in range(2))
    assert all(np.array_equal(*columns) for columns in zip(one, other, strict=True))


def test_the_document_shows_what_the_command_prints():
    """The first three rows of each story have no noise of devices, so they are always the same."""
    text = DOCUMENT.read_text("utf-8")
    linked = voters.attacks(people=3000, k=5, epsilon=1, rng=np.random.default_rng(1))
    for row in linked[1:4]:
        assert re.search(rf"^{re.escape(row.published)} +{row.named / 3000:.1%} .* {row.guesses / 3000:.1%} ", text, re.MULTILINE)
