"""Publication to the second and to the report: when a period closes, and what is enough."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import registry
from deniable.declared import Declared
from deniable.wire.report import Stratum
from deniable_aggregator.publish import release
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.publish.release import Release
from deniable_aggregator.store import Store

REGISTRY = registry_toml(
    metric_toml("theme", segments=["platform"], description="Whether it is dark"),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 100, "grace": "2d"},
)
CLOSES = datetime(2026, 11, 24, tzinfo=UTC).timestamp()


class Shop:
    """An app whose reports are counted by hand."""

    def __init__(self, client):
        self.registry = registry.parse(REGISTRY)
        self.store = Store(client, "shop")
        self.declared = Declared.of(self.registry.metrics["theme"])
        self.publisher = Publisher(self.store, self.registry)

    def stratum(self, segment, period="2026-11-21"):
        return Stratum("theme", 1, self.declared.fingerprint, period, segment)

    def count(self, n, segment="platform=linux", now=CLOSES, **where):
        assert self.store.partitions[0].commit("test", [], {self.stratum(segment, **where): np.array([n, 0])}, int(now)) == []

    def published(self, now):
        """Publish what is due at a time; return the number of reports of each cell of any period."""
        self.publisher.publish(now)
        return {(each.period, each.segment): note.n for each, note in release.listed(self.store, "theme").items()}


@pytest.fixture
def shop(real_redis):
    return Shop(real_redis)


def test_a_period_stays_open_for_uploads_that_are_on_their_way(shop):
    """What was accepted in its last second is appended within ten seconds."""
    shop.count(100)
    assert shop.published(CLOSES + 10) == {}
    assert shop.published(CLOSES + 10.5) == {("2026-11-21", ""): 100, ("2026-11-21", "platform=linux"): 100}


def test_nothing_of_a_metric_with_segments_is_published_before_the_close(shop):
    """However many reports come and however often it is looked at: a part of a period and its breakdown would differ by few."""
    for _ in range(4):
        shop.count(200)
        shop.publisher = Publisher(shop.store, shop.registry)  # one that has looked at nothing yet
        assert shop.published(CLOSES - 86_400) == {}


def test_a_release_covers_its_first_and_its_last_period():
    note = Release(first="2026-11-21")
    periods = ["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24"]
    assert [note.covers("2026-11-23", each) for each in periods] == [False, True, True, True, False]
    assert note.covers("2026-11-21", "2026-11-21")


def test_what_waits_after_periods_that_were_joined(shop):
    """Reports of the joined periods are published, and those that came since wait: none of either is taken for the other."""
    shop.count(60)
    shop.count(60, period="2026-11-22")
    assert shop.published(CLOSES + 2 * 86_400)["2026-11-22", ""] == 120
    shop.count(50, period="2026-11-23")
    assert [n for _, n in shop.publisher.unpublished()] == [50]


def test_a_worker_whose_clock_is_slow_has_its_reports_copied(shop):
    """It commits at an hour that was copied already; the next copy has what it added."""
    hourly, hour = Hourly(shop.store), shop.stratum("platform=linux")
    shop.count(10)
    assert hourly._copy("theme", int(CLOSES))
    shop.count(5, now=CLOSES - 60)
    assert hourly._copy("theme", int(CLOSES) + 3600)
    assert hourly.read(shop.declared.layout, [hour]).n == 15
