"""The watch: what it looks at, what it keeps, and that counting goes on whatever becomes of it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial

import forgery
import numpy as np
import pytest
import redis

from deniable import mechanisms, registry
from deniable.declared import Declared, fingerprint
from deniable.wire.report import Stratum
from deniable_aggregator.alarms import checks, volume, watcher
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.prometheus import Vitals
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, Upload, schema
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group

HOUR = 3600
NOW = int(time.time())


@pytest.fixture(autouse=True)
def rare(monkeypatch):
    """Let honest reports, which come from the operating system's generator, raise nothing by accident."""
    monkeypatch.setattr(checks, "raised", partial(checks.raised, alpha=1e-9))


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


@pytest.fixture
def shop(registry_file):
    return registry.load(registry_file)


def question(shop, metric):
    declared = shop.metrics[metric]
    mechanism = mechanisms.of(declared)
    return mechanism, fingerprint(declared, mechanism.canonical)


def send(store, shop, metric, payloads, period="2026-11-21", segment=""):
    """Append reports as the ingest does, and count them."""
    mechanism, tag = question(shop, metric)
    stratum = Stratum(metric, 1, tag, period, segment)
    key = f"{metric} {period} {segment} {store._client.dbsize()} {len(payloads)} {hash(payloads)}"
    store.append(Upload(batch.encode([Group(stratum, mechanism.layout, payloads)]), key=key, remember=b"-", cap=10_000, ttl=60))
    Worker([store]).run(threading.Event(), burst=True)


def honest(shop, metric, n, value=0):
    mechanism, _ = question(shop, metric)
    return b"".join(mechanism.randomize(value) for _ in range(n))


def made_up(shop, metric, n):
    mechanism, _ = question(shop, metric)
    return forgery.maximal_gain(mechanism, [1, 3], n, np.random.default_rng(4))


def standing(store, shop):
    alarms = watcher.alarms(store, [Declared.of(metric).definition for metric in shop.metrics.values()])
    return {metric: group for (metric, _, _), group in alarms.items()}


def test_an_alarm_is_raised_kept_and_read(store, shop, caplog):
    """Made-up reports raise an alarm with all that is to be known of it, in the log too; honest metrics have none."""
    send(store, shop, "plugin", honest(shop, "plugin", 3000) + made_up(shop, "plugin", 600))
    send(store, shop, "ui.theme", honest(shop, "ui.theme", 3000))
    assert watcher.checked(store) is None
    raised = Watch(store, shop).check(NOW)
    assert {each.test for each in raised} >= {"weight"}
    assert watcher.checked(store) == NOW
    alarms = standing(store, shop)
    assert set(alarms) == {"plugin"}
    (weight,) = [each for each in alarms["plugin"] if each.test == "weight"]
    assert (weight.period, weight.segment, weight.n, weight.since) == ("2026-11-21", "", 3600, NOW - NOW % HOUR)
    assert weight.p_value is not None
    assert weight.p_value < checks.ALPHA
    assert "bits set" in weight.what
    assert "alarm weight over 3600 reports of 2026-11-21" in caplog.text


def test_few_reports_raise_nothing(store, shop):
    """An alarm is about as many reports as anything that is told, at least: it would tell of a small segment otherwise."""
    few = replace(shop, metrics=shop.metrics | {"plugin": replace(shop.metrics["plugin"], min_reports=1000)})
    send(store, shop, "plugin", made_up(shop, "plugin", 900))
    assert Watch(store, few).check(NOW) == []
    send(store, shop, "plugin", made_up(shop, "plugin", 100))
    assert Watch(store, few).check(NOW)


@pytest.mark.parametrize("between", [False, True])
def test_a_commit_in_pieces_holds_up_no_metric_that_it_is_not_of(store, shop, monkeypatch, between):
    """While one is added, or where one came meanwhile, its metric is looked at later and the others now."""
    send(store, shop, "plugin", honest(shop, "plugin", 3000) + made_up(shop, "plugin", 600))
    send(store, shop, "ui.theme", honest(shop, "ui.theme", 3000))
    apply, grown = store.partitions[0].staging.apply, Watch._grown
    monkeypatch.setattr("deniable_aggregator.store.sums.deltas.AT_ONCE", 0)
    monkeypatch.setattr(store.partitions[0].staging, "apply", lambda: None)

    def overtaken(self, declared, *arguments):
        grew = grown(self, declared, *arguments)
        if declared.metric.id == "ui.theme" and store.settled() is not None:
            send(store, shop, "ui.theme", honest(shop, "ui.theme", 10))
        return grew

    if between:
        monkeypatch.setattr(Watch, "_grown", overtaken)
    else:
        send(store, shop, "ui.theme", honest(shop, "ui.theme", 10))
    assert Watch(store, shop).check(NOW)
    assert store.settled() is None
    assert standing(store, shop).keys() == {"plugin"}
    assert {name.split(b"|")[0] for name in store.alarms.names()} == {b"plugin"}
    assert watcher.checked(store) is None  # so the next look goes as far back
    monkeypatch.setattr(Watch, "_grown", grown)
    apply()
    Watch(store, shop).check(NOW)
    assert {name.split(b"|")[0] for name in store.alarms.names()} == {b"plugin", b"ui.theme"}
    assert watcher.checked(store) == NOW


def test_an_alarm_stays_with_its_period(store, shop):
    """However many honest reports follow, what was counted remains suspect, and the time of the first alarm is kept."""
    send(store, shop, "plugin", honest(shop, "plugin", 1000) + made_up(shop, "plugin", 400))
    Watch(store, shop).check(NOW - 5 * HOUR)
    (before,) = [each for each in standing(store, shop)["plugin"] if each.test == "weight"]
    send(store, shop, "plugin", honest(shop, "plugin", 40_000))
    Watch(store, shop).check(NOW - 2 * HOUR)
    (after,) = [each for each in standing(store, shop)["plugin"] if each.test == "weight"]
    assert after == before
    send(store, shop, "plugin", made_up(shop, "plugin", 20_000))
    Watch(store, shop).check(NOW)
    (worse,) = [each for each in standing(store, shop)["plugin"] if each.test == "weight"]
    assert (worse.n, worse.since) == (61_400, before.since)
    assert worse.p_value <= before.p_value


def test_a_look_waits_for_growth(store, shop, monkeypatch):
    """What has grown by less than a tenth since it was tested in this hour, or has too few reports, is not tested again."""
    tested = []
    examine = checks.examine

    def noted(mechanism, counted, weights):
        tested.append(counted.n)
        return examine(mechanism, counted, weights)

    monkeypatch.setattr(checks, "examine", noted)
    looking = Watch(store, shop)
    for more, expected in ((99, []), (901, [1000]), (90, []), (10, [1100]), (0, [])):
        tested.clear()
        if more:
            send(store, shop, "ui.theme", honest(shop, "ui.theme", more))
        looking.check(NOW)
        assert tested == expected
    send(store, shop, "ui.theme", honest(shop, "ui.theme", 5))
    looking.check(NOW + HOUR)
    assert tested == [1105]
    looking.check(NOW + 2 * HOUR)
    assert tested == [1105]


def test_segments_are_tested_together_and_apart(store, shop):
    """Where a period has several segments, made-up reports of one are told of that one and of the whole."""
    mechanism, _ = question(shop, "export.used")
    send(store, shop, "export.used", honest(shop, "export.used", 2000, 1), segment="platform=linux")
    send(store, shop, "export.used", mechanism.layout.pack(0, 1) * 2000, segment="platform=macos")
    raised = Watch(store, shop).check(NOW)
    assert {each.segment for each in raised} == {"", "platform=macos"}


def test_alarms_of_another_definition_are_gone(store, shop, registry_file):
    """When the definition changes, so does the fingerprint, and what was found of the old one is no longer told."""
    send(store, shop, "plugin", honest(shop, "plugin", 500) + made_up(shop, "plugin", 500))
    Watch(store, shop).check(NOW)
    assert set(standing(store, shop)) == {"plugin"}
    registry_file.write_text(registry_file.read_text().replace('"k", "l"', '"l", "k"'))
    changed = registry.load(registry_file)
    assert standing(store, changed) == {}
    Watch(store, changed).check(NOW)
    assert standing(store, changed) == {}
    assert watcher.alarms(store, []) == {}


def test_workers_take_turns(store, shop, monkeypatch):
    """A watch looks when no other has looked of late, whichever worker has it."""
    looks = []
    monkeypatch.setattr(Watch, "check", lambda self, now: (looks.append(now), self._store.put(schema.WATCHED, now)))
    first, second = Watch(store, shop), Watch(store, shop)
    for worker in (first, first, second, second):
        worker.run()
    assert len(looks) == 1
    monkeypatch.setattr(watcher, "EVERY_SECONDS", 0.0)
    for worker in (first, second):
        worker.run()
    assert len(looks) == 3


def test_a_failing_look_does_not_stop_the_worker(store, shop, caplog):
    """Whatever goes wrong in a look is logged without its text, and counting goes on."""

    def broken():
        raise ValueError("with 123 counts in it")

    send(store, shop, "ui.theme", honest(shop, "ui.theme", 5))
    mechanism, tag = question(shop, "ui.theme")
    stratum = Stratum("ui.theme", 1, tag, "2026-11-21", "")
    for key in range(3):
        group = Group(stratum, mechanism.layout, honest(shop, "ui.theme", 5))
        store.append(Upload(batch.encode([group]), key=str(key), remember=b"-", cap=10, ttl=60))
    worker = Worker([store], chores=[Chore("broken", 60.0, broken, Faults(store))])
    worker.run(threading.Event(), burst=True)
    assert worker.counted == 15
    assert "broken failed (ValueError)" in caplog.text
    assert "123 counts" not in caplog.text


def test_a_chore_that_the_store_refuses_holds_up_no_other(store, caplog):
    """What one chore may not do is told under its name, and the next one has its turn."""

    def refused():
        raise redis.ResponseError("NOPERM")

    looked = []
    vitals = Vitals(["shop"])
    faults = Faults(store, vitals)
    chores = [Chore("refused", 60.0, refused, faults), Chore("next", 60.0, lambda: looked.append(1), faults)]
    Worker([store], chores=chores).run(threading.Event(), burst=True)
    assert looked
    assert "refused failed (ResponseError)" in caplog.text
    assert vitals.registry.get_sample_value("deniable_worker_faults_total", {"chore": "refused"}) == 1


def test_the_worker_looks_at_what_it_counts(store, shop):
    """A worker that was given a watch looks after its commits."""
    mechanism, tag = question(shop, "plugin")
    payloads = honest(shop, "plugin", 500) + made_up(shop, "plugin", 500)
    group = Group(Stratum("plugin", 1, tag, "2026-11-21", ""), mechanism.layout, payloads)
    store.append(Upload(batch.encode([group]), key="k", remember=b"-", cap=10, ttl=60))
    Worker([store], chores=[Chore("watch", 0.0, Watch(store, shop).run, Faults(store))]).run(threading.Event(), burst=True)
    assert set(standing(store, shop)) == {"plugin"}


def test_sudden_volume():
    """A rule on robust deviations: far more than ever is told, a busy week or a strange day before is not."""
    rng = np.random.default_rng(5)
    week = [10_000 * (0.4 if day % 7 > 4 else 1.0) * float(np.exp(rng.normal(0, 0.1))) for day in range(28)]
    assert volume.sudden(week, 100_000, 100_000) == pytest.approx(10, rel=0.3)
    assert volume.sudden(week, 18_000, 18_000) is None
    assert volume.sudden([*week[:-1], 10**7], 100_000, 100_000) == pytest.approx(10, rel=0.3)
    assert volume.sudden(week, 10, 10) is None
    assert volume.sudden(week[:6], 10**6, 10**6) is None
    assert volume.sudden([5.0] * 30, 900.0, 900) is None


def test_sudden_volume_is_seldom_an_accident():
    """Of twenty thousand periods with weekly rhythm and noise, a handful at most break the rule."""
    rng = np.random.default_rng(6)
    days = np.arange(20_060)
    traffic = 5000 * np.where(days % 7 > 4, 0.5, 1.0) * np.exp(rng.normal(0, 0.2, len(days)))
    surprises = sum(
        volume.sudden(traffic[day - 60 : day].tolist(), float(traffic[day]), 5000) is not None for day in range(60, 20_060)
    )
    assert surprises == 0


def test_too_few_periods_tell_nothing_of_volume(store, shop):
    """The period itself is none of those before it: with six of them nothing is told, with seven it is."""
    looking = Watch(store, shop)
    for day, n in enumerate([1000] * 6 + [9000], 1):
        send(store, shop, "ui.theme", honest(shop, "ui.theme", n), f"2026-11-{day:02}")
        looking.check(NOW)
    assert standing(store, shop) == {}
    send(store, shop, "ui.theme", honest(shop, "ui.theme", 9000), "2026-11-08")
    looking.check(NOW)
    assert [each.period for each in standing(store, shop)["ui.theme"]] == ["2026-11-08"]


def test_volume_and_shares_are_watched(store, shop):
    """A flood in one segment is told as a sudden period, and as a sudden share of it, without a p-value."""
    for day in range(1, 10):
        for segment, n in (("platform=linux", 900 + 10 * day), ("platform=macos", 300 + day)):
            send(store, shop, "export.used", honest(shop, "export.used", n), f"2026-11-{day:02}", segment)
        Watch(store, shop).check(NOW)
    assert standing(store, shop) == {}
    send(store, shop, "export.used", honest(shop, "export.used", 1000), "2026-11-10", "platform=linux")
    send(store, shop, "export.used", honest(shop, "export.used", 9000), "2026-11-10", "platform=macos")
    Watch(store, shop).check(NOW)
    alarms = {(each.test, each.segment): each for each in standing(store, shop)["export.used"]}
    assert set(alarms) == {("volume", ""), ("share", "platform=macos")}
    assert all(each.p_value is None for each in alarms.values())
    assert alarms["volume", ""].what.startswith("7.")
