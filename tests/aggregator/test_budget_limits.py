"""What the app's budget cannot pay is refused before anything is read, however much the key has left of its own part."""

from __future__ import annotations

import pytest

from deniable.registry.tables import Analysts
from deniable.wire.report import Stratum
from deniable_aggregator.questions.budgets import Budgets, BudgetSpent, PaidQuestion, Payer
from deniable_aggregator.store import Store


def question(cost, period):
    return PaidQuestion(Stratum("theme", 1, "f00d", period, ""), "2026-11", ((("linux",),),), cost)


def test_nothing_is_drawn_for_a_key_if_the_app_has_spent_its_budget(real_redis):
    budgets, draws = Budgets(Store(real_redis, "shop"), Analysts(epsilon=1.0, per_key=0.6)), []

    def draw():
        draws.append(1)
        return [1]

    budgets.ask(Payer("a" * 16), question(600_000, "2026-11-20"), draw)
    budgets.ask(Payer("b" * 16), question(300_000, "2026-11-21"), draw)
    with pytest.raises(BudgetSpent):
        budgets.ask(Payer("c" * 16), question(100_001, "2026-11-22"), draw)
    assert len(draws) == 2
    assert budgets.ask(Payer("c" * 16), question(100_000, "2026-11-22"), draw).left == 0
