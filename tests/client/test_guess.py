"""How often the best guess is right: as by trying all outcomes, and where an app's developer reads it."""

from __future__ import annotations

from itertools import product
from math import exp, prod

import pytest
from registries import metric_toml, registry_toml

from deniable.declared import Declared
from deniable.limits.allowance import MICRO
from deniable.limits.guess import in_year, right
from deniable.lint import lint
from deniable.registry import parse


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("reports", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_all_outcomes(epsilon, reports, share):
    """Reports favour the true answer, or the other one, or say nothing; whoever sees all of them takes the likelier answer."""
    p = 1 / (1 + exp(-epsilon))
    one = {1: share * p, -1: share * (1 - p), 0: 1 - share}
    outcomes = list(product(one, repeat=reports))
    true = sum(max(prod(one[each] for each in seen), prod(one[-each] for each in seen)) for seen in outcomes) / 2
    assert right(round(epsilon * MICRO), reports, share) == pytest.approx(true, abs=1e-9)


def declared(**keys):
    return Declared.of(next(iter(parse(registry_toml(metric_toml("m", **keys))).metrics.values())))


def test_more_reports_reveal_more():
    """Of noise that is drawn anew; a kept response bounds them all, whatever the period."""
    years = [in_year(declared(epsilon=1, period=period)) for period in ("month", "week", "day", "hour")]
    assert years == sorted(years)
    assert years[0] < 0.97 < years[1] <= years[-1] <= 1
    stay = [in_year(declared(epsilon=1, epsilon_permanent=2, period=period)) for period in ("month", "day")]
    assert stay == pytest.approx([exp(2) / (1 + exp(2))] * 2, abs=1e-6)


def test_lint_names_what_a_year_averages_out(tmp_path):
    """Below the table stands what the figure means, and which metrics have new noise each time."""
    path = tmp_path / "metrics.toml"
    stays = metric_toml("stays", epsilon=1, epsilon_permanent=2, period="week")
    path.write_text(registry_toml(metric_toml("fresh", epsilon=1, period="week"), stays), "utf-8")
    meaning, advice = lint(path).legend
    assert meaning.endswith("at most so many guesses are right; 50% is luck")
    assert advice.startswith("each report of fresh has new noise: ")
    path.write_text(registry_toml(stays), "utf-8")
    assert lint(path).legend == (meaning,)
    path.write_text(registry_toml(metric_toml("tools", type="set", values=["saw", "file"], period="week"), stays), "utf-8")
    assert lint(path).legend[1:] == ("ask tools rarely: each report adds up, and epsilon_permanent cannot be declared there",)
