"""The census: exact numbers of what was published of a closed period, written in the same moment, and no others."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from deniable import mechanisms, registry
from deniable.report import Stratum, fingerprint
from deniable_aggregator import census, release
from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.census import Count
from deniable_aggregator.publisher import Publisher
from deniable_aggregator.store import Store

DAY = 86_400
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
CLOSED = NOON + 4 * DAY
TODAY = "2026-11-21"

REGISTRY = """
format = 1
app = "shop"

[segments]
platform = ["linux", "macos", "windows"]

[publication]
min_reports = 100
grace = "3d"

[metrics.theme]
type = "boolean"
epsilon = 1.0
description = "Which theme"
owner = "design@shop.example"

[metrics.export]
type = "boolean"
epsilon = 1.0
segments = ["platform"]
description = "Whether it was exported"
owner = "core@shop.example"
"""


class Counted:
    """An app on a real store, counted by hand."""

    def __init__(self, client):
        self.registry = registry.parse(REGISTRY)
        self.store = Store(client, "shop")

    def stratum(self, metric, segment=""):
        declared = self.registry.metrics[metric]
        return Stratum(metric, 1, fingerprint(declared, mechanisms.of(declared).canonical), TODAY, segment)

    def count(self, metric, n, segment=""):
        layout = mechanisms.of(self.registry.metrics[metric]).layout
        cells = np.zeros(layout.width, np.int64)
        cells[0] = n
        assert self.store.commit("test", [], {self.stratum(metric, segment): cells}, int(NOON)) == []

    def publish(self, now):
        return Publisher(self.store, self.registry).publish(now)

    def census(self, metric, *segments):
        """Return the exact number of reports of all, or of cells; None for those that are not in it."""
        asked = [self.stratum(metric, segment) for segment in segments or ("",)]
        found = census.read(self.store, asked)
        return [found[each].n if each in found else None for each in asked]


@pytest.fixture
def shop(real_redis):
    return Counted(real_redis)


def test_it_is_written_when_a_period_closes(shop):
    """An early release has no number in it; the last has that of all that was counted."""
    for _ in range(2):
        shop.count("theme", 250)
        shop.publish(NOON)
    assert shop.census("theme") == [None]
    shop.count("theme", 60)
    shop.publish(CLOSED)
    assert shop.census("theme") == [560]
    shop.count("theme", 300)
    shop.publish(CLOSED + DAY)
    assert shop.census("theme") == [560]


def test_it_has_what_was_published(shop):
    """Of a metric with segments it has each cell that was published, and no other."""
    for segment, n in (("linux", 300), ("macos", 200), ("windows", 7)):
        shop.count("export", n, f"platform={segment}")
    shop.publish(CLOSED)
    published = {stratum.segment for stratum in release.listed(shop.store, "export")}
    assert {""} < published < {"", "platform=linux", "platform=macos"}
    numbers = {"": 507, "platform=linux": 300, "platform=macos": 200, "platform=windows": 7}
    assert shop.census("export", *numbers) == [n if cell in published else None for cell, n in numbers.items()]


def test_too_few_are_in_no_census(shop):
    """A period of which nothing is published leaves no exact number."""
    shop.count("theme", 99)
    shop.publish(CLOSED)
    assert not list(shop.store.redis.scan_iter("*census*"))


def test_who_is_too_late_writes_nothing(shop, monkeypatch):
    """A worker that made a release at the same time as another one leaves that one's numbers as they are."""
    shop.count("theme", 200)
    slow = Publisher(shop.store, shop.registry)
    write = Publisher._write

    def after_another(*args):
        monkeypatch.setattr(Publisher, "_write", write)
        shop.publish(CLOSED)
        shop.store.redis.hset(census.key("shop", "theme"), "mark", "x")
        before = shop.store.redis.dump(census.key("shop", "theme"))
        done = write(*args)
        assert shop.store.redis.dump(census.key("shop", "theme")) == before
        return done

    monkeypatch.setattr(Publisher, "_write", after_another)
    assert slow.publish(CLOSED) == []


def test_numbers_are_not_shown():
    """What is printed of a count has no number of reports."""
    assert "560" not in repr(Count.of(Breakdown({}), 560))


def test_it_knows_what_cells_meant():
    """A count fits the breakdown that it was made by; not one with another value, order or generalisation."""
    values = {"platform": ("debian", "fedora"), "plan": ("free", "paid")}
    made = Count.of(Breakdown(values, {"platform": {"debian": "linux"}}), 5)
    assert made.fits(Breakdown(values, {"platform": {"debian": "linux"}}))
    assert not made.fits(Breakdown(values))
    assert not made.fits(Breakdown(values, {"platform": {"debian": "linux", "fedora": "linux"}}))
    assert not made.fits(Breakdown(values | {"plan": ("free", "paid", "gift")}, {"platform": {"debian": "linux"}}))
