"""Retention: what goes when, what never goes too early, and that nothing comes back."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace

import numpy as np
import pytest
import redis
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.alarms import watcher
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.deletion.retention import Retention
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.questions.budgets import Budgets, PaidQuestion, Payer
from deniable_aggregator.store import GROUP, Store, Upload, Weights
from deniable_aggregator.store.sums.tallies import name
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.dead_letters import DeadLetters

pytestmark = pytest.mark.cluster_too

DAY = 86_400
ENDED = 1_795_305_600  # 2026-11-22, when the period of the day before is over
CLOSED = ENDED + 3 * DAY
TODAY = "2026-11-21"
EXACT = ("tally", "tallies", "weights", "snapshot")
OLD = Stratum("old", 3, "0" * 16, "2026-11", "")


REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark", "system"], mechanism="oue"),
    metric_toml("export", segments=["platform"]),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 100, "grace": "3d"},
    retention={"tallies": 10, "releases": 20, "alarms": 5},
)


class Shop:
    """An app on a real store, counted by hand."""

    def __init__(self, client):
        self.redis = client
        self.registry = registry.parse(REGISTRY)
        self.store = Store(client, "shop")
        self.publisher = Publisher(self.store, self.registry)
        self.retention = Retention(self.store, self.registry, self.publisher)

    def chore(self):
        return Chore("retention", 3600.0, self.retention.run, Faults(self.store))

    def stratum(self, metric="theme", period=TODAY, segment=""):
        declared = self.registry.metrics[metric]
        return Stratum(metric, declared.version, fingerprint(declared, mechanisms.of(declared).canonical), period, segment)

    def count(self, n, stratum=None):
        """Count reports as a worker would, spread over the partitions."""
        stratum, parts = stratum or self.stratum(), self.store.partitions
        for place, partition in enumerate(parts):
            own = (n + place) // len(parts)
            deltas = {stratum: np.array([own, 0, 0, own] if stratum.metric == "theme" else [own, 0], np.int64)}
            if stratum.metric == "theme":
                deltas[Weights(stratum)] = np.array([0, own, 0, 0], np.int64)
            assert partition.commit("test", [], deltas, ENDED) == []

    def keys(self, *words):
        """List the keys of some kinds, all that there are if none are named, of all partitions."""
        keys = sorted({key.decode().partition(":")[2] for key in self.redis.scan_iter("{shop*}:*")})
        return [key for key in keys if not words or key.partition(":")[0] in words]


@pytest.fixture
def shop(real_redis):
    return Shop(real_redis)


def test_sums_go_once_they_are_published_and_their_days_are_over(shop):
    """Not a second before: then all that is exact goes, with what stands of it in indexes, and the release stays."""
    shop.count(400)
    shop.publisher.publish(ENDED)  # a snapshot, for an early one
    shop.count(400)
    assert {key.partition(":")[0] for key in shop.keys("snapshot", "tally", "weights")} == {"snapshot", "tally", "weights"}
    shop.publisher.publish(CLOSED + 11)
    shop.redis.set(shop.store.snapshots.key(name(shop.stratum())), b"left by a worker that was killed")
    released = shop.redis.get("{shop}:release:" + name(shop.stratum()))
    before = shop.keys()
    assert shop.retention.delete(CLOSED + 10 * DAY) == 0
    assert sorted({*shop.keys()} - {"metrics"}) == before
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 3
    assert shop.keys(*EXACT) == []
    assert shop.redis.get("{shop}:release:" + name(shop.stratum())) == released
    assert [each.closed for each in release.listed(shop.store, "theme").values()] == [True]
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 0


def test_a_period_with_segments_goes_whole(shop):
    """The sums of all segments of a period go in one step, and those of another period stay."""
    for segment in ("platform=linux", "platform=macos"):
        shop.count(200, shop.stratum("export", segment=segment))
        shop.count(200, shop.stratum("export", "2026-11-22", segment))
    shop.publisher.publish(CLOSED + 2 * DAY)
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 2
    assert sorted(shop.store.strata("export")) == [
        shop.stratum("export", "2026-11-22", f"platform={each}") for each in ("linux", "macos")
    ]
    assert {stratum.period for stratum in release.listed(shop.store, "export")} == {TODAY, "2026-11-22"}


def test_what_is_not_published_yet_stays(shop):
    """However old it is: a publisher that did not run has not published it, and then it goes."""
    shop.count(400)
    much_later = CLOSED + 1000 * DAY
    assert shop.retention.delete(much_later) == 0
    shop.publisher.publish(ENDED)
    assert shop.retention.delete(much_later) == 0  # published early, and not closed
    shop.publisher.publish(much_later)
    assert shop.retention.delete(much_later) > 0
    assert shop.keys(*EXACT) == []


@pytest.mark.parametrize("steps", range(5))
def test_of_what_a_worker_was_killed_in_nothing_stays(real_redis, monkeypatch, steps):
    """A divided app is deleted from step by step: wherever that ends, the next search deletes the rest."""
    Store(real_redis, "shop").divide(3)
    shop = Shop(real_redis)
    old = shop.stratum()._replace(fingerprint="1" * 16)  # never published, so no release leads to it
    shop.count(400, old)
    shop.redis.set(shop.store.snapshots.key(name(old)), b"left by a worker that was killed")
    left = list(range(steps))

    def dying(do):
        def step(*args, **options):
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return do(*args, **options)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(shop.retention, "_expire", dying(shop.retention._expire))
        patch.setattr(shop.store, "delete", dying(shop.store.delete))
        with suppress(KeyboardInterrupt):
            shop.retention.delete(CLOSED + 10 * DAY + 1)
    Shop(real_redis).retention.delete(CLOSED + 10 * DAY + 1)
    assert shop.keys(*EXACT) == []


def test_a_release_that_was_extended_meanwhile_stays(shop, monkeypatch):
    """What is noted of the release is compared in the moment of deletion: if it is another one by then, nothing goes."""
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    withdraw = shop.retention._withdrawing

    def late(keys, args):
        shop.redis.hset("{shop}:releases:theme", name(shop.stratum()), release.Release(2).note())
        return withdraw(keys, args)

    assert shop.retention.delete(CLOSED + 10 * DAY + 1) > 0
    with monkeypatch.context() as patch:
        patch.setattr(shop.retention, "_withdrawing", late)
        assert shop.retention.delete(CLOSED + 20 * DAY + 1) == 0
    assert shop.keys("release")
    assert shop.retention.delete(CLOSED + 20 * DAY + 1) == 1


def test_too_few_wait_as_long_as_releases_are_kept(shop):
    """A period of too few reports waits for others; if none come its sums go when its release would have gone."""
    shop.count(49)
    shop.publisher.publish(CLOSED + 11)
    assert shop.retention.delete(CLOSED + 20 * DAY) == 0
    assert Retention(shop.store, shop.registry, Publisher(shop.store, shop.registry)).delete(CLOSED + 20 * DAY + 1) == 0
    assert shop.retention.delete(CLOSED + 20 * DAY + 1) == 2
    assert shop.keys(*EXACT) == []
    assert Publisher(shop.store, shop.registry).publish(CLOSED + 10 * DAY + 1) == []
    assert shop.keys("release", "releases") == []


def test_what_was_joined_goes_with_the_others(shop):
    """Sums of a period that was published together with a later one go as that one's do: by their own days."""
    shop.count(60)
    shop.count(60, shop.stratum(period="2026-11-23"))
    shop.publisher.publish(CLOSED + 2 * DAY + 11)
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 2
    assert [each.period for each in shop.store.strata("theme")] == ["2026-11-23"]
    assert shop.retention.delete(CLOSED + 12 * DAY + 1) == 2
    assert shop.keys(*EXACT) == []


def test_what_nobody_publishes_goes_by_the_same_days(shop):
    """Metrics that left the registry, and other versions and definitions, are never published; their sums go with the others."""
    other = shop.stratum()._replace(fingerprint="1" * 16)
    shop.store.metrics.add(["old"])
    for stratum in (OLD, other):
        shop.count(400, stratum)
    shop.publisher.publish(CLOSED + 11)
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 2
    assert list(shop.store.strata("old")) == [OLD]  # its month is not over
    assert shop.retention.delete(CLOSED + 19 * DAY + 1) == 1
    assert shop.keys(*EXACT) == []


def test_what_a_registry_once_declared_is_found(real_redis):
    """A worker whose registry no longer has a metric deletes what is due of it, since one before it had."""
    first = Shop(real_redis)
    first.count(400, first.stratum("export", segment="platform=linux"))
    first.retention.delete(CLOSED)
    second = Shop(real_redis)
    del second.registry.metrics["export"]
    second.retention = Retention(second.store, second.registry, Publisher(second.store, second.registry))
    assert second.retention.delete(CLOSED + 10 * DAY + 1) == 1
    assert second.keys("tally", "tallies") == []


def test_while_batches_wait_nothing_goes_that_they_may_be_of(shop):
    """A batch may have been taken in time and wait since: until it is counted no period that it may be of is deleted."""
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    shop.store.append(Upload(b"batch", key="a", remember=b"-", cap=10, ttl=60))
    assert shop.retention.delete(CLOSED + 10 * DAY + 1) == 0  # nobody ever came to read it
    shop.redis.set(shop.store.partitions[0].caught, shop.redis.time()[0] - 5 * DAY)
    assert shop.retention.delete(CLOSED + 14 * DAY) == 0
    assert shop.retention.delete(CLOSED + 16 * DAY) == 2


def put_aside(shop, *strata):
    """Put aside a batch of a hundred reports of each of some strata; return the dead letter."""
    layout = Layout(1, 3, "bits")
    groups = [Group(each, layout, b"\1" * 100) for each in strata]
    shop.store.partitions[0].join()
    shop.store.append(Upload(batch.encode(groups), key=str(time.monotonic_ns()), remember=b"-", cap=10, ttl=60))
    ((_, ((id_, _),)),) = shop.redis.xreadgroup(GROUP, "w", {shop.store.partitions[0].stream: ">"})
    assert shop.store.partitions[0].bury("w", id_, "delivered more than 5 times")
    return list(DeadLetters(shop.store))[-1]


def give_back(shop, letter):
    """Have a dead letter counted after all."""
    assert DeadLetters(shop.store).requeue(letter.id, 10) == "requeued"
    Worker([shop.store]).run(threading.Event(), burst=True)
    assert shop.store.backlog() == 0


def test_a_letter_that_is_given_back_too_late_is_not_counted(shop):
    """It would begin a new sum of a period that is gone, as if its reports were all there are; what else it has is counted."""
    tomorrow = shop.stratum(period="2026-11-22")
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    shop.retention.delete(CLOSED + 10 * DAY + 1)
    give_back(shop, put_aside(shop, shop.stratum(), tomorrow))
    assert list(shop.store.strata("theme")) == [tomorrow]
    assert shop.keys("tally", "weights") == [f"{word}:{name(tomorrow)}" for word in ("tally", "weights")]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_period_is_not_published_twice(shop, forgets):
    """Not even where its release is gone, too; it would be if the store did not remember which periods are sealed."""
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    shop.retention.delete(CLOSED + 20 * DAY + 1)
    assert shop.keys("release", "releases", *EXACT) == []
    if forgets:
        shop.redis.delete(shop.store.partitions[0].expired.key, shop.store.published.key)
    give_back(shop, put_aside(shop, shop.stratum()))
    again = TODAY if forgets else "2026-11-22"
    assert Publisher(shop.store, shop.registry).publish(CLOSED + 100 * DAY) == [shop.stratum(period=again)]


def test_a_release_does_not_claim_periods_that_are_gone(shop):
    """Once all releases have gone, the next one begins where the last of them ended, and nothing else is told of those."""
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    shop.retention.delete(CLOSED + 100 * DAY)
    assert release.listed(shop.store, "theme") == release.summaries(shop.store) == {}
    shop.count(300, shop.stratum(period="2027-03-02"))
    shop.publisher.publish(CLOSED + 110 * DAY)
    ((stratum, note),) = release.listed(shop.store, "theme").items()
    assert (note.first, stratum.period) == ("2026-11-22", "2027-03-02")
    assert not note.covers(stratum.period, TODAY)
    assert [summary.n for summary in release.summaries(shop.store).values()] == [300]


def test_releases_go_when_their_days_are_over(shop):
    """With the answers that were paid for of their reports; what is left is what was spent, and which periods are gone."""
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    question = PaidQuestion(shop.stratum(), "2026-11", ((("linux",),),), 1000)
    Budgets(shop.store, shop.registry.analysts).ask(Payer("f" * 16), question, lambda: [41])
    assert shop.keys("answers", "spent") == ["answers:theme", "spent"]
    assert shop.retention.delete(CLOSED + 20 * DAY) == 2
    assert shop.keys("release", "releases", "answers") != []
    assert shop.retention.delete(CLOSED + 20 * DAY + 1) == 1
    assert shop.keys() == ["audit", "definitions", "expired", "metrics", "published", "spent"]
    assert Publisher(shop.store, shop.registry).publish(CLOSED + 21 * DAY) == []


def test_alarms_of_old_periods_go(shop):
    """With the numbers of reports that later periods are compared with; those of younger periods stay."""
    alarms = {
        "test": "volume",
        "p_value": None,
        "segment": "",
        "n": 9000,
        "what": "9 times as many",
        "values": [],
        "since": ENDED,
    }
    standing = {
        "tested": {f"{TODAY}|": [9000, ENDED], "2026-11-22|": [9000, ENDED]},
        "alarms": [alarms | {"period": TODAY}, alarms | {"period": "2026-11-22"}],
    }
    shop.store.alarms.put({"theme|1|f": json.dumps(standing)})
    shop.retention.delete(CLOSED + 5 * DAY)
    assert json.loads(shop.store.alarms.get("theme|1|f")) == standing
    shop.retention.delete(CLOSED + 5 * DAY + 1)
    assert [each.period for each in watcher.alarms(shop.store, [("theme", 1, "f")])["theme", 1, "f"]] == ["2026-11-22"]
    assert list(json.loads(shop.store.alarms.get("theme|1|f"))["tested"]) == ["2026-11-22|"]
    shop.retention.delete(CLOSED + 6 * DAY + 1)
    assert not shop.store.alarms.all()


def test_dead_letters_go_with_the_sums(shop):
    """What could not be counted is no older than the sums that it is not in."""
    letter = put_aside(shop, shop.stratum())
    put = int(letter.id.partition("-")[0]) / 1000
    shop.retention.delete(put + 10 * DAY)
    assert len(DeadLetters(shop.store)) == 1
    shop.retention.delete(put + 10 * DAY + 1)
    assert len(DeadLetters(shop.store)) == 0


def test_many_workers_delete_once(shop):
    """Several that look at once delete each key once in all: sums of twenty days, and what was published of the first eleven."""
    for day in range(1, 21):
        shop.count(400, shop.stratum(period=f"2026-11-{day:02}"))
    shop.publisher.publish(CLOSED + 11)
    deleted = []

    def delete():
        deleted.append(Retention(shop.store, shop.registry, shop.publisher).delete(CLOSED + 10 * DAY + 1))

    threads = [threading.Thread(target=delete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(deleted) == 40 + 11
    assert shop.keys(*EXACT) == []
    assert len(release.listed(shop.store, "theme")) == 9
    assert shop.store.partitions[0].expired.all() == {"|".join(map(str, shop.stratum()[:3])).encode(): b"2026-11-20"}


def test_what_was_written_while_a_metric_was_erased_goes(shop):
    """A worker that was about to publish when its metric was erased leaves nothing behind for long."""
    shop.count(400)
    Removal(shop.store, "theme").mark(1)
    shop.publisher.publish(CLOSED + 11)
    assert shop.keys("release")
    shop.retention.delete(CLOSED + 1)
    assert shop.keys() == ["audit", "erased", "metrics"]
    assert shop.store.metrics.all() == {"export"}


def test_it_is_called_now_and_then(shop, monkeypatch):
    """A worker calls it all the time; it looks at its start and each hour after."""
    looks, chore = [], shop.chore()
    monkeypatch.setattr(Retention, "_due", lambda _, now: iter(looks.append(now) or (0, 0)))
    assert [chore.do() for _ in range(9)] == [True, True, *[False] * 7]
    assert len(looks) == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3601)
    for _ in range(9):
        chore.do()
    assert len(looks) == 2


def test_a_worker_that_stops_by_itself_looks_at_every_metric(shop):
    """Where the stream is empty at once, too: a worker that runs now and then deletes what is due of all metrics."""
    for metric in ("theme", "old"):
        stratum = shop.stratum()._replace(metric=metric, fingerprint="1" * 16, period="2020-01-01")
        shop.count(400, stratum)
        shop.store.metrics.add([metric])
    Worker([shop.store], chores=[shop.chore()]).run(threading.Event(), burst=True)
    assert shop.keys(*EXACT) == []


@pytest.mark.parametrize("ahead", [-1e9, 1e9])
def test_a_clock_that_is_ahead_deletes_nothing(shop, monkeypatch, ahead):
    """Of the worker's clock and the store's it goes by the earlier one."""
    looks = []
    monkeypatch.setattr(Retention, "_due", lambda _, now: iter(looks.append(now) or (0, 0)))
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now + ahead)
        shop.retention.run()
    assert looks[0] == pytest.approx(min(now, now + ahead), abs=60)


@pytest.mark.both_stores
def test_it_makes_room_in_a_full_store(shop):
    """Where the store is full, what is due is deleted all the same: it is what makes room."""
    shop.count(400)
    shop.publisher.publish(CLOSED + 11)
    alarm = watcher.Alarm("volume", None, TODAY, "", 400, "x", (), ENDED)
    document = {"tested": {}, "alarms": [asdict(each) for each in (alarm, replace(alarm, period="2026-12-12"))]}
    shop.store.alarms.put({"theme|1|f": json.dumps(document)})
    shop.redis.config_set("maxmemory", 1)
    try:
        assert shop.retention.delete(CLOSED + 20 * DAY + 1) == 3
    finally:
        shop.redis.config_set("maxmemory", 0)
    assert shop.keys() == ["alarms", "audit", "definitions", "expired", "published"]
    assert [each.period for each in watcher.alarms(shop.store, [("theme", 1, "f")])["theme", 1, "f"]] == ["2026-12-12"]
    shop.retention.delete(CLOSED + 20 * DAY + 1)
    assert shop.store.metrics.all() == {"theme", "export"}


def test_a_store_that_was_away_is_looked_at_again_soon(shop, monkeypatch):
    """Not an hour later: the look in the midst of which the store was away was none."""
    counted, clock = Retention._counted, [1e9]

    def away(_self, _metric, _closed):
        raise redis.ConnectionError

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(Retention, "_counted", away)
    chore = shop.chore()
    with pytest.raises(redis.ConnectionError):
        chore.do()
    looked = []
    monkeypatch.setattr(Retention, "_counted", lambda *arguments: looked.append(arguments) or counted(*arguments))
    chore.do()
    assert looked == []
    clock[0] += 61
    chore.do()
    assert len(looked) == 1


def test_a_store_that_refuses_is_told_and_nothing_else_stops(shop, monkeypatch, caplog):
    """A user that may not delete leaves the worker at its work, with a word in the log; a store that is away does not."""

    def refused(_self, _metric, _closed):
        raise redis.exceptions.NoPermissionError("no permissions")

    monkeypatch.setattr(Retention, "_counted", refused)
    for _ in range(9):  # a call is for one metric
        shop.retention.run()
    assert "retention of theme failed (NoPermissionError)" in caplog.text
    assert "retention of export failed (NoPermissionError)" in caplog.text

    def away(_self, _metric, _closed):
        raise redis.ConnectionError

    monkeypatch.setattr(Retention, "_counted", away)
    with pytest.raises(redis.ConnectionError):
        Retention(shop.store, shop.registry, shop.publisher).run()
