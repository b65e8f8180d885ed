"""dp-accounting as a second opinion: right by the way that we take, wrong by another that looks as good."""

from __future__ import annotations

import sys
from importlib.metadata import version
from math import exp, log

import pytest

from deniable.errors import ConfigurationError
from deniable_aggregator.accounting import library
from deniable_aggregator.accounting.losses import together
from deniable_aggregator.accounting.spend import Spend

DELTA = 1e-6


@pytest.mark.parametrize("count", [1, 30, 365])
def test_the_way_we_take_is_right(count):
    """Loss distributions composed by dp-accounting come to the exact total."""
    spend = Spend.of_epsilon(1, count)
    ours = together([spend]).epsilon(DELTA)
    assert library.epsilon([spend], DELTA) == pytest.approx(ours, abs=1e-2)


@pytest.mark.skipif(version("dp-accounting") != "0.6.0", reason="the fault was found in 0.6.0")
@pytest.mark.parametrize("as_event", [False, True])
def test_its_accountant_counts_randomized_response_once(as_event):
    """`PLDAccountant` ignores how often a `RandomizedResponseDpEvent` is composed: for 365 reports it says what one spends."""
    from dp_accounting import dp_event  # here, because to import it takes every process two seconds
    from dp_accounting.pld import pld_privacy_accountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    report = dp_event.RandomizedResponseDpEvent(2 / (exp(1) + 1), 2)
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    if as_event:
        accountant.compose(dp_event.SelfComposedDpEvent(report, 365))
    else:
        accountant.compose(report, 365)
    assert accountant.get_epsilon(DELTA) == pytest.approx(1.0, abs=1e-3)  # which is wrong
    listed = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    listed.compose(dp_event.ComposedDpEvent([report] * 30))
    assert listed.get_epsilon(DELTA) == pytest.approx(together([Spend.of_epsilon(1, 30)]).epsilon(DELTA), abs=1e-2)
    assert library.epsilon([Spend.of_epsilon(1, 365)], DELTA) == pytest.approx(244.634, abs=1e-2)


def test_several_epsilons_together():
    """Reports of different kinds, too."""
    spends = [Spend.of_epsilon("0.5", 40), Spend.of_epsilon(1, 20), Spend.of_epsilon(2, 5), Spend.of_epsilon(1, 0)]
    assert library.epsilon(spends, DELTA) == pytest.approx(together(spends).epsilon(DELTA), abs=1e-2)
    assert library.epsilon([], DELTA) == 0


@pytest.mark.parametrize(("share", "count"), [(0.5, 365), (0.03, 365), (0.2, 40)])
def test_reports_that_may_say_nothing(share, count):
    """The exact total of such reports is that of their loss distribution composed by dp-accounting."""
    from dp_accounting.pld import privacy_loss_distribution

    spend = Spend(1_000_000, count, share)
    true, other = log(spend.favoured), log(spend.favoured) - 1
    masses = {0: true, 1: log(1 - share), 2: other}, {0: other, 1: log(1 - share), 2: true}
    loss = privacy_loss_distribution.from_two_probability_mass_functions(masses[1], masses[0])
    theirs = loss.self_compose(count).get_epsilon_for_delta(DELTA)
    assert together([spend]).epsilon(DELTA) == pytest.approx(theirs, abs=1e-2)


def test_without_it(monkeypatch):
    """Who has not installed it is told how."""
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'deniable\[accounting\]'"):
        library.epsilon([Spend.of_epsilon(1)], DELTA)
