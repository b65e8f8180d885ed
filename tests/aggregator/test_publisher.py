"""The publisher: what is published when, and that it never changes after."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import numpy as np
import pytest

from deniable import mechanisms, registry
from deniable.report import Stratum, fingerprint
from deniable_aggregator import release
from deniable_aggregator.audit import AuditLog
from deniable_aggregator.entry import whole
from deniable_aggregator.participation import Noise
from deniable_aggregator.publisher import Publisher
from deniable_aggregator.store import Store

DAY = 86400
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
CLOSED = NOON + 4 * DAY
TODAY = "2026-11-21"

REGISTRY = """
format = 1
app = "shop"

[segments]
platform = ["linux", "macos", "windows"]
version = ["1.0", "1.1", "2.0"]

[generalize]
version = "."

[publication]
min_reports = 100
{publication}

[metrics.theme]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
mechanism = "grr"
description = "Which theme"
owner = "design@shop.example"

[metrics.export]
type = "boolean"
epsilon = 1.0
segments = ["platform", "version"]
description = "Whether it was exported"
owner = "core@shop.example"
"""


class Counted:
    """An app on a real store, counted by hand."""

    def __init__(self, client, publication=""):
        self.registry = registry.parse(REGISTRY.format(publication=publication))
        self.store = Store(client, "shop")
        self.publisher = Publisher(self.store, self.registry)

    def stratum(self, metric, period=TODAY, segment=""):
        declared = self.registry.metrics[metric]
        return Stratum(metric, 1, fingerprint(declared, mechanisms.of(declared).canonical), period, segment)

    def count(self, metric, cells, period=TODAY, segment=""):
        """Count reports as a worker would."""
        assert self.store.commit("test", [], {self.stratum(metric, period, segment): np.array(cells, np.int64)}, int(NOON)) == []

    def counted(self, metric, n, **where):
        cells = np.zeros(mechanisms.of(self.registry.metrics[metric]).layout.width, np.int64)
        cells[0] = n
        self.count(metric, cells, **where)

    def published(self, metric):
        """Return the number of reports in each release, by period and cell."""
        layout = mechanisms.of(self.registry.metrics[metric]).layout
        listed = release.listed(self.store, metric)
        return {(each.period, each.segment): release.shelf(self.store).read(layout, [each]).n for each in listed}


@pytest.fixture
def exact(monkeypatch):
    """Let no report be left out, so that numbers can be compared."""
    monkeypatch.setattr(Noise, "draw", lambda _: 0)


@pytest.fixture
def shop(real_redis, exact):  # noqa: ARG001
    return Counted(real_redis)


def test_early_releases_take_enough_new_reports(shop):
    """First four times min_reports, then min_reports and a quarter of what is published; nothing shows in between."""
    steps = []
    for _ in range(16):
        shop.counted("theme", 50)
        Publisher(shop.store, shop.registry).publish(NOON)
        steps.append(shop.published("theme").get((TODAY, ""), 0))
    assert steps == [0] * 7 + [400] * 2 + [500] * 3 + [650] * 4


def test_nothing_early_where_it_is_switched_off(real_redis, exact):  # noqa: ARG001
    """With early = false a period is published when it closes, and not before."""
    shop = Counted(real_redis, "early = false")
    shop.counted("theme", 5000)
    shop.publisher.publish(NOON)
    assert shop.published("theme") == {}
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 5000}


def test_the_close_adds_the_rest_and_is_the_end(shop):
    """At the close the rest is added if it is enough; after it nothing changes, whatever is counted."""
    shop.counted("theme", 400)
    shop.publisher.publish(NOON)
    shop.counted("theme", 100)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 500}
    before = {key: shop.store.redis.dump(key) for key in shop.store.redis.scan_iter("*release*")}
    shop.counted("theme", 4000)
    assert Publisher(shop.store, shop.registry).publish(CLOSED + DAY, at_once=True) == []
    assert {key: shop.store.redis.dump(key) for key in shop.store.redis.scan_iter("*release*")} == before
    assert not list(shop.store.redis.scan_iter("*taken*"))
    (note,) = release.listed(shop.store, "theme").values()
    assert (note.number, note.closed) == (2, True)


def test_a_rest_of_too_few_is_held_back(shop):
    """Fewer new reports than min_reports are never published: the difference to what was would tell of them alone."""
    shop.counted("theme", 400)
    shop.publisher.publish(NOON)
    shop.counted("theme", 99)
    shop.publisher.publish(NOON, at_once=True)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 400}
    assert all(note.closed for note in release.listed(shop.store, "theme").values())


def test_too_few_are_never_published(shop):
    """A period of fewer than min_reports leaves no trace among what is published."""
    shop.counted("theme", 99)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {}
    assert not list(shop.store.redis.scan_iter("*release*"))


def test_cells_are_published_at_the_close(shop):
    """A metric with segments is published when its period closes: cells of enough reports, none that gives another away."""
    for segment, n in {
        "platform=linux,version=1.0": 300,
        "platform=linux,version=1.1": 40,
        "platform=linux,version=2.0": 500,
        "platform=macos,version=2.0": 200,
        "platform=windows,version=2.0": 7,
    }.items():
        shop.counted("export", n, segment=segment)
    shop.publisher.publish(NOON, at_once=True)
    assert shop.published("export") == {}
    shop.publisher.publish(CLOSED)
    found = {cell: n for (_, cell), n in shop.published("export").items()}
    assert found[""] == 1047
    assert "platform=windows" not in found
    assert not {"platform=linux", "platform=macos"} <= set(found)  # beside all reports, both would tell of the 7
    assert "version=1.1" not in found
    assert all(n >= 100 for n in found.values())


def test_reports_that_wait_are_waited_for(shop):
    """A period does not close while batches that were taken before its close may wait to be counted."""
    shop.counted("theme", 200)
    shop.store.join()
    shop.store.append(b"a batch", key="one", remember=b"", cap=10, ttl=60)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {}
    shop.store.redis.delete(shop.store.stream)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 200}


def test_several_workers_publish_once(shop):
    """Of workers that publish the same at the same time one is heard: each report is in the release once."""
    shop.counted("theme", 1000)
    publishers = [Publisher(shop.store, shop.registry) for _ in range(8)]
    start, made = threading.Barrier(8), []

    def publish(publisher):
        start.wait()
        made.extend(publisher.publish(NOON, at_once=True))

    threads = [threading.Thread(target=publish, args=(each,)) for each in publishers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert shop.published("theme") == {(TODAY, ""): 1000}


def test_numbers_are_blurred(real_redis):
    """Fewer reports are published than were counted, by a number that differs; the index tells how many on average."""
    shop = Counted(real_redis, "epsilon = 1.0")
    periods = [f"2026-11-{day:02}" for day in range(1, 25)]
    for period in periods:
        shop.count("theme", [600, 300, 100], period)
    Publisher(shop.store, shop.registry).publish(CLOSED + 30 * DAY)
    left_out = [1000 - n for n in shop.published("theme").values()]
    assert len(left_out) == 24
    assert len(set(left_out)) > 1
    for note in release.listed(shop.store, "theme").values():
        assert (note.left_out, round(note.stderr, 2)) == (15, 1.36)
    assert all(0 <= number <= 30 for number in left_out)


def test_a_definition_that_is_gone_is_not_published(shop):
    """What was counted under another definition than the registry's is not published under its name."""
    stratum = shop.stratum("theme")._replace(fingerprint="another")
    shop.store.commit("test", [], {stratum: np.array([500, 0, 0])}, int(NOON))
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {}


def test_a_trial_shows_everything_at_once(real_redis):
    """In a trial what was counted is published at every look, with its segments, however few, exactly, until it closes."""
    shop = Counted(real_redis, "trial = true")
    shop.counted("theme", 15)
    shop.counted("export", 20, segment="platform=linux,version=2.0")
    assert shop.publisher.publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 15}
    assert shop.published("export")[TODAY, "version=2"] == 20
    assert shop.publisher.publish(NOON) == []
    shop.counted("theme", 1)
    shop.publisher.publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 16}
    shop.publisher.publish(CLOSED)
    shop.counted("theme", 1)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 16}
    assert {note.closed for note in release.listed(shop.store, "export").values()} == {True}


def test_releases_are_in_the_audit_log(shop):
    """Each release is an entry of the audit log, made in the same moment; a look that publishes nothing leaves none."""
    shop.counted("theme", 400)
    shop.publisher.publish(NOON)
    shop.publisher.publish(NOON)
    shop.publisher.publish(CLOSED)
    log = AuditLog(shop.store.redis, "shop")
    entries = [whole(line) for line in log.lines(log.first())]
    assert [(each.event, each.actor) for each in entries] == [("release.published", "worker")] * 2
    assert [(each.details["number"], each.details["closed"]) for each in entries] == [(1, 0), (1, 1)]


def test_a_single_report_shows_in_no_number(real_redis):
    """Whether a leaf has one report or none changes nothing of what is noted of the cells that are published in either case."""
    notes = []
    for single in (0, 1):
        real_redis.flushall()
        shop = Counted(real_redis)
        for version, n in (("1.0", 300), ("1.1", 200), ("2.0", single)):
            shop.counted("export", n, segment=f"platform=linux,version={version}")
        shop.publisher.publish(CLOSED)
        listed = release.listed(shop.store, "export")
        notes.append({stratum.segment: (each.left_out, each.stderr) for stratum, each in listed.items()})
    both = notes[0].keys() & notes[1].keys()
    assert both >= {"", "platform=linux", "version=1.0"}
    assert {cell: notes[0][cell] for cell in both} == {cell: notes[1][cell] for cell in both}


def test_a_trial_that_ends_counts_nothing_twice(real_redis, exact):  # noqa: ARG001
    """Where a registry's trial ends within a period, what it has shown is not added again."""
    trial = Counted(real_redis, "trial = true")
    trial.counted("theme", 500)
    trial.publisher.publish(NOON)
    shop = Counted(real_redis)
    shop.counted("theme", 130)
    shop.publisher.publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 630}
    shop.counted("theme", 200)
    shop.publisher.publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 830}


def test_when_there_are_enough_is_asked_of_the_blurred_number(real_redis, monkeypatch):
    """A release comes when enough are there without those that it leaves out, whose number is drawn once, for all workers."""
    drawn = iter([5, 11, 0, 0])
    monkeypatch.setattr(Noise, "draw", lambda _: next(drawn))
    shop = Counted(real_redis)
    shop.counted("theme", 404)
    for _ in range(3):  # workers, and looks of each
        assert Publisher(shop.store, shop.registry).publish(NOON) == []
    shop.counted("theme", 1)
    Publisher(shop.store, shop.registry).publish(NOON)
    assert shop.published("theme") == {(TODAY, ""): 400}
    shop.counted("theme", 110)
    assert Publisher(shop.store, shop.registry).publish(NOON) == []
    shop.counted("theme", 1)
    Publisher(shop.store, shop.registry).publish(CLOSED)
    assert shop.published("theme") == {(TODAY, ""): 500}
