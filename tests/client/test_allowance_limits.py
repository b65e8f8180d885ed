"""Allowances at their limits: what fits exactly fits, and nothing is reserved that can never be used."""

from __future__ import annotations

from deniable.declared import Declared
from deniable.limits.allowance import Allowance
from deniable.limits.caps import budget_of, caps_of
from deniable.limits.exposure import Exposure
from deniable.registry import Metric, Registry
from deniable.registry.tables import Budget, Caps


def permanent(budget=None, **changes):
    """Allow what is reserved for a metric with many permanent responses."""
    values = tuple("abcdefghijklmnopqrstuvwxyz")
    known = {"epsilon": "1", "epsilon_permanent": "2", "mechanism": "l_osue"} | changes
    return Allowance.of(Declared.of(Metric("m", "categorical", values, **known)), budget or Budget())


def test_of_a_lifetime_whole_answers_are_reserved():
    """What is left of a part beyond them could pay for nothing."""
    allowance = permanent(Budget(per_month=32, lifetime=50))
    assert allowance.lifetime == 3 * allowance.cost
    assert allowance.answers_ever == 3


def test_no_more_answers_are_reserved_than_a_month_has_periods():
    allowance = permanent(period="week", answers_per_month=9)
    assert (allowance.answers, allowance.month) == (5, 5 * allowance.cost)


def test_all_devices_are_one_group_where_no_rows_are_kept():
    exposure = Exposure.of(Registry("shop", {"m": Metric("m", "boolean", (False, True), "1")}))
    assert (exposure.rows, exposure.row_bits) == (1, 0)


def test_the_stricter_of_two_budgets_holds():
    """A registry may ask for less than the app's code allows, and never gets more. Without either, the default holds."""
    metric = {"m": Metric("m", "boolean", (False, True), "1")}
    plain, own = Registry("shop", metric), Registry("shop", metric, budget=Budget(per_month=12, lifetime=15))
    caps = Caps(budget=Budget(per_month=10, lifetime=20))
    assert budget_of(own, caps) == Budget(per_month=10, lifetime=15)
    assert budget_of(plain, caps) == caps.budget
    assert budget_of(own, Caps()) == budget_of(own) == own.budget
    assert budget_of(plain) == budget_of(plain, Caps()) == Budget()


def test_caps_in_code_hold_instead_of_the_table():
    registry = Registry("shop", {}, caps=Caps(epsilon=1))
    assert caps_of(registry) == Caps(epsilon=1)
    assert caps_of(registry, Caps(epsilon=2)) == Caps(epsilon=2)
    assert caps_of(Registry("shop", {})) == Caps()
