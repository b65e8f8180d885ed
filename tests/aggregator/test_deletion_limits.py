"""Deletion at its limits: the last deleted period, the longest grace, and releases of a period whose sums are left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import registry
from deniable.declared import Declared
from deniable.registry import Metric
from deniable.wire.report import Stratum
from deniable_aggregator.deletion.retention import Retention, longest_graces
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store
from deniable_aggregator.store.sums import tallies

REGISTRY = registry_toml(metric_toml("theme"), publication={"min_reports": 100}, retention={"tallies": 10, "releases": 20})
DAY = 86_400
ENDED = datetime(2026, 11, 22, tzinfo=UTC).timestamp()


class Shop:
    """An app whose reports are counted by hand."""

    def __init__(self, client):
        self.registry = registry.parse(REGISTRY)
        self.store = Store(client, "shop")
        self.declared = Declared.of(self.registry.metrics["theme"])

    def stratum(self, day=21):
        return Stratum("theme", 1, self.declared.fingerprint, f"2026-11-{day}", "")

    def count(self, n, day=21):
        assert self.store.partitions[0].commit("test", [], {self.stratum(day): np.array([n, 0])}, int(ENDED)) == []


@pytest.fixture
def shop(real_redis):
    return Shop(real_redis)


def test_late_reports_up_to_the_last_deleted_period_are_not_counted(shop):
    shop.store.partitions[0].expired.put({tallies.name(shop.declared.definition): "2026-11-21"})
    for day in (20, 21, 22):
        shop.count(5, day)
    assert list(shop.store.strata("theme")) == [shop.stratum(22)]


def test_a_release_stays_as_long_as_the_sums_of_its_period(shop):
    """Its last step was not published yet: without the earlier ones the period would begin anew."""
    for _ in range(3):
        shop.count(200)
        Publisher(shop.store, shop.registry).publish(ENDED - 60)
    assert [note.closed for note in release.listed(shop.store, "theme").values()] == [False]
    retention = Retention(shop.store, shop.registry, Publisher(shop.store, shop.registry))
    assert retention.delete(ENDED + 40 * DAY) == 0
    assert list(release.listed(shop.store, "theme")) == [shop.stratum()]


def test_of_several_versions_the_longest_grace_holds():
    versions = [
        Metric("m", "boolean", (False, True), "1", version=at, grace=grace) for at, grace in enumerate(("2d", "12h", "3d"))
    ]
    for order in permutations(versions):
        assert longest_graces(SimpleNamespace(definitions=order))["m"] == timedelta(days=3)
