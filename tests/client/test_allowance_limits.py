"""Allowances at their limits: what fits exactly fits, and nothing is reserved that can never be used."""

from __future__ import annotations

import re

from deniable.declared import Declared
from deniable.limits.allowance import MICRO, Allowance, unfit
from deniable.limits.caps import Caps
from deniable.limits.exposure import Exposure
from deniable.registry import Metric, Registry
from deniable.registry.tables import Budget


def fixed(window):
    """Allow so many millionths of a nat in a window."""
    return Allowance("m", "m", MICRO, 1, 0, window, None)


def permanent(budget=None, **changes):
    """Allow what is reserved for a metric with many permanent responses."""
    values = tuple("abcdefghijklmnopqrstuvwxyz")
    known = {"epsilon": "1", "epsilon_permanent": "2", "mechanism": "l_osue"} | changes
    return Allowance.of(Declared.of(Metric("m", "categorical", values, **known)), budget or Budget())


def test_what_asks_for_exactly_the_budget_fits():
    parts = [fixed(MICRO), fixed(MICRO + 1)]
    assert unfit(parts, Budget(per_window=2.000001, lifetime=None)) is None
    assert unfit(parts, Budget(per_window=2, lifetime=None)) is not None


def test_a_budget_that_is_proposed_is_enough():
    for total in (2_000_001, 2_040_000, 2_060_000):
        excess = unfit([fixed(total)], Budget(per_window=2, lifetime=None))
        proposed = float(re.search(r"raise per_window to ([\d.]+)", excess.rule)[1])
        assert unfit([fixed(total)], Budget(per_window=proposed, lifetime=None)) is None


def test_of_a_lifetime_whole_answers_are_reserved():
    """What is left of a part beyond them could pay for nothing."""
    allowance = permanent(Budget(per_window=32, lifetime=50))
    assert allowance.lifetime == 3 * allowance.cost
    assert allowance.answers_ever == 3


def test_no_more_answers_are_reserved_than_a_window_has_periods():
    allowance = permanent(period="month", answers_per_window=9)
    assert (allowance.answers, allowance.window) == (3, 3 * allowance.cost)


def test_all_devices_are_one_group_where_no_rows_are_kept():
    exposure = Exposure.of(Registry("shop", {"m": Metric("m", "boolean", (False, True), "1")}))
    assert (exposure.rows, exposure.row_bits) == (1, 0)
    Caps(rows=1, segments=1).check_exposure(exposure)


def test_the_stricter_of_two_budgets_holds():
    """A registry may ask for less than the app allows, and never gets more."""
    caps = Caps(budget=Budget(per_window=10, lifetime=20))
    allowance = caps.tightened(Budget(per_window=12, lifetime=15))
    assert (allowance.per_window, allowance.lifetime) == (10, 15)
    assert caps.tightened(None) == caps.budget
