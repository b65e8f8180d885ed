"""Sizes of arms over periods: those in which every arm is published count, and a device that reports often is one draw."""

from __future__ import annotations

from registries import metric_toml, registry_toml

from deniable import registry
from deniable.declared import Declared
from deniable.wire.report import Stratum
from deniable_aggregator.answer.difference import arm_sizes_of
from deniable_aggregator.publish.release import Release

REGISTRY = registry_toml(
    metric_toml("theme", segments=["arm"]), segments={"arm": ["a", "b", "c"]}, experiments={"arm": {"base": "a", "planned": 0.05}}
)


def sizes(*periods):
    """Compare the sizes of the arms in some periods with their split."""
    declared = registry.parse(REGISTRY)
    metric = Declared.of(declared.metrics["theme"])
    released = {
        Stratum("theme", 1, metric.fingerprint, f"2026-11-{20 + day}", f"arm={arm}"): Release(number=1, closed=True, n=n)
        for day, numbers in enumerate(periods)
        for arm, n in numbers.items()
    }
    return arm_sizes_of(declared, metric, released, "arm")


def test_a_period_in_which_an_arm_is_withheld_tells_nothing_of_sizes():
    periods = {"a": 1000, "b": 1000, "c": 1000}
    assert [each.n for each in sizes(periods, {"a": 5000, "b": 200}).arms] == [1000, 1000, 1000]
    assert sizes({"a": 5000, "b": 200}) is None


def test_reports_of_many_periods_may_be_of_the_same_devices():
    """What would be unlikely of so many draws is chance of the few devices that report again and again."""
    period = {"a": 1060, "b": 970, "c": 970}
    assert not sizes(*[period] * 9).differ
    assert sizes({arm: 9 * n for arm, n in period.items()}).differ
