"""Erasure of a metric: afterwards a real store has no byte of it left, whatever was under way, and all else is as it was."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime

import numpy as np
import pytest
import redis
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.commands.entry import main
from deniable.declared import Declared, fingerprint
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.deletion.erase import Erased, Removal
from deniable_aggregator.deletion.retention import Retention
from deniable_aggregator.publish import release
from deniable_aggregator.publish.definitions import note
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.questions.budgets import Budgets, PaidQuestion, Payer
from deniable_aggregator.store import GROUP, Store, Upload, Weights, schema
from deniable_aggregator.store.server.servers import primaries
from deniable_aggregator.store.sums.tallies import name
from deniable_aggregator.store.uploads import batch, health
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.dead_letters import DeadLetters
from deniable_aggregator.store.uploads.registries import Loaded, say, take_back

pytestmark = [pytest.mark.both_stores, pytest.mark.cluster_too]

DAY = 86_400
ENDED = 1_795_305_600  # 2026-11-22, when the period of the day before is over
CLOSED = ENDED + 3 * DAY + 1
TODAY = "2026-11-21"
BITS = Layout(1, 3, "bits")


def text(version):
    """Write the registry of two metrics."""
    return registry_toml(
        metric_toml("ui.theme", values=["light", "dark", "system"], mechanism="oue", version=version, segments=["platform"]),
        metric_toml("ui.size", values=["small", "large", "huge"], mechanism="oue"),
        segments={"platform": ["linux", "macos"]},
        publication={"grace": "3d", "min_reports": 100},
    )


class Shop:
    """An app on a real store that has all that there can be of two metrics."""

    def __init__(self, client, url):
        self.redis, self.url = client, url
        self.store = Store(client, "shop")

    def registry(self, version=1):
        return registry.parse(text(version))

    def stratum(self, metric, version=1, period=TODAY):
        declared = self.registry(version).metrics[metric]
        segment = "platform=linux" if declared.segments else ""
        return Stratum(metric, declared.version, fingerprint(declared, mechanisms.of(declared).canonical), period, segment)

    def fill(self, version=1):
        """Count both metrics in two periods, look for alarms, publish, answer what is paid for, delete, put batches aside."""
        declared = self.registry(version)
        watch, publisher = Watch(self.store, declared), Publisher(self.store, declared)
        for day in ("2026-11-20", TODAY):
            for metric in declared.metrics:
                stratum = self.stratum(metric, version, day)
                deltas = {stratum: np.array([5000, 0, 0, 5000]), Weights(stratum): np.array([0, 5000, 0, 0])}
                assert self.store.partitions[0].commit("test", [], deltas, int(time.time())) == []
        assert watch.check(int(time.time()))
        publisher.publish(ENDED)
        publisher.publish(CLOSED + 11)
        for metric in declared.metrics:
            question = PaidQuestion(self.stratum(metric, version)._replace(segment=""), "2026-11", ((("linux",),),), 1000)
            Budgets(self.store, declared.analysts).ask(Payer("f" * 16), question, lambda: [41])
        Retention(self.store, declared, publisher).delete(CLOSED + 29 * DAY + 1)  # what is exact of the first period
        for metric in declared.metrics:  # as of a period that is published already, and not closed
            self.redis.set(self.store.snapshots.key(name(self.stratum(metric, version)._replace(segment=""))), b"\0" * 8)
        both = [self.stratum(metric, version) for metric in declared.metrics]
        for body in (self.batch(both[0]), self.batch(*both), self.batch(both[1]), b"unreadable, of ui.theme", b"unreadable"):
            self.put_aside(body)

    def batch(self, *strata):
        return batch.encode([Group(stratum, BITS, b"\1\2\4" * 10) for stratum in strata])

    def append(self, body):
        self.store.partitions[0].join()
        assert self.store.append(Upload(body, key=str(time.monotonic_ns()), remember=b"-", cap=99, ttl=60)).outcome == "appended"

    def put_aside(self, body):
        self.append(body)
        ((_, ((id_, _),)),) = self.redis.xreadgroup(GROUP, "w", {self.store.partitions[0].stream: ">"})
        assert self.store.partitions[0].bury("w", id_, "delivered more than 5 times")

    def work(self):
        Worker([self.store]).run(threading.Event(), burst=True)

    def erase(self, *words):
        return main(["erase", "--redis-url", self.url, "--app", "shop", *words])

    def all(self):
        """Return all that the store has, key by key, with whatever its blocks still hold of what was deleted."""
        self.redis.config_set("rdbcompression", "no")
        return {key.decode(): self.redis.dump(key) for key in self.redis.scan_iter()}

    def naming(self, *words):
        """List the keys in which, or in the values of which, any word stands."""
        return sorted(
            key.partition(":")[2].partition("|")[0]
            for key, dumped in self.all().items()
            if any(word.encode() in key.encode() + dumped for word in words)
        )


@pytest.fixture
def shop(real_redis, store_url, monkeypatch):
    monkeypatch.delenv("DENIABLE_REGISTRY", raising=False)
    app = Shop(real_redis, store_url)
    app.fill()
    yield app
    real_redis.config_set("rdbcompression", "yes")


EVERYWHERE = [
    "alarms",
    "answers:ui.theme",
    "audit",
    "dead",
    "definitions",
    "expired",
    "metrics",
    "published",
    "release:ui.theme",
    "releases:ui.theme",
    "snapshot:ui.theme",
    "tallies:ui.theme",
    "tally:ui.theme",
    "weights:ui.theme",
]


def test_nothing_of_an_erased_metric_is_left(shop, capsys):
    """Its name, and the fingerprints of its definition, stand nowhere but in the audit log; the rest is as it was."""
    tag = shop.stratum("ui.theme").fingerprint
    assert sorted({*shop.naming("ui.theme", tag)}) == EVERYWHERE
    shop.append(shop.batch(shop.stratum("ui.theme"), shop.stratum("ui.size", period="2026-11-23")))
    sizes = {key: dumped for key, dumped in shop.all().items() if "ui.size" in key}
    letters = [letter.id for letter in DeadLetters(shop.store)]
    assert shop.erase("--metric", "ui.theme", "--yes") == 0
    assert "batches that wait: 1" in capsys.readouterr().out
    shop.work()
    assert shop.naming("ui.theme", tag) == ["audit"]
    remains = {key: dumped for key, dumped in shop.all().items() if "ui.size" in key and "2026-11-23" not in key}
    assert {key for key in sizes if remains[key] != sizes[key]} == {
        "{shop}:tallies:ui.size"
    }  # of what waited its part was counted
    assert shop.stratum("ui.size", period="2026-11-23") in shop.store.strata("ui.size")
    assert [field.partition(b"|")[0] for field in shop.store.alarms.names()] == [b"ui.size"]
    assert shop.store.metrics.all() == {"ui.size"}
    # Dead letters keep their ids and whatever else they hold.
    left = list(DeadLetters(shop.store))
    assert [letter.id for letter in left] == [letters[1], letters[2], letters[4]]
    assert [[group.stratum.metric for group in letter.groups] for letter in left] == [["ui.size"], ["ui.size"], []]
    assert {letter.reason for letter in left} == {"delivered more than 5 times"}


def test_it_does_not_come_back(shop):
    """Neither a late batch nor a worker that still declares it brings an erased metric back; a later version is counted."""
    letter = next(iter(DeadLetters(shop.store)))
    assert DeadLetters(shop.store).requeue(letter.id, 99) == "requeued"
    assert shop.erase("--metric", "ui.theme", "--yes") == 0
    shop.append(shop.batch(shop.stratum("ui.theme", period="2026-11-24")))
    shop.work()
    publisher = Publisher(shop.store, shop.registry())
    Watch(shop.store, shop.registry()).check(int(time.time()))
    publisher.publish(CLOSED + 11)
    Retention(shop.store, shop.registry(), publisher).delete(CLOSED)
    assert shop.naming("ui.theme") == ["audit"]
    shop.append(shop.batch(shop.stratum("ui.theme", 2)))
    shop.work()
    assert list(shop.store.strata("ui.theme")) == [shop.stratum("ui.theme", 2)]


def test_one_version_may_go_alone(shop):
    """The others stay, with the alarms if these are of a later one; the version does not come back."""
    shop.redis.delete(shop.store.partitions[0].dead)
    shop.fill(2)
    old, new = (shop.stratum("ui.theme", version) for version in (1, 2))
    others = [word for word in EVERYWHERE if word not in ("alarms", "audit", "metrics", "dead")]
    assert shop.erase("--metric", "ui.theme", "--version", "1", "--yes") == 0
    shop.append(shop.batch(old, new))
    shop.work()
    assert shop.naming(old.fingerprint) == []
    assert sorted({*shop.naming(new.fingerprint)}) == sorted([*others, "alarms", "dead"])
    assert shop.store.metrics.all() == {"ui.size", "ui.theme"}
    # The latest goes with its alarms.
    assert shop.erase("--metric", "ui.theme", "--version", "2", "--yes") == 0
    assert shop.naming("ui.theme") == ["audit"]


def test_without_yes_nothing_is_changed(shop, capsys):
    """What would go is told, and the store is as it was."""
    before = shop.all()
    assert shop.erase("--metric", "ui.theme") == 0
    output = capsys.readouterr().out
    # Of two periods two releases each, one with its exact sums; fields of six indexes.
    inventory = Removal(shop.store, "ui.theme").find()
    assert f"versions 1; periods 2; keys and fields {inventory.keys}\n" in output
    assert "dead letters with reports of it: 3" in output
    assert "nothing was removed" in output
    assert shop.all() == before
    assert Removal(shop.store, "ui.theme").find() == inventory


def test_how_many_keys_there_are_is_what_goes(shop):
    """The number that is told, and logged, is that of the keys and fields that are gone after."""

    def number():
        fields = ("tallies", "releases", "answers")
        keys = shop.redis.keys("{shop}:*:ui.theme|*")
        shared = 8  # fields of the hashes of all metrics: expired, alarms, definitions, five of published
        return len(keys) + sum(shop.redis.hlen(f"{{shop}}:{word}:ui.theme") for word in fields) + shared

    count = number()
    assert count > 10
    assert Removal(shop.store, "ui.theme").find().keys == count
    shop.erase("--metric", "ui.theme", "--yes")
    assert number() == 8
    (entry,) = [each for each in map(json.loads, shop.redis.lrange("{shop}:audit", 0, -1)) if each["event"] == "metric.erased"]
    assert entry["details"] == {"metric": "ui.theme", "keys": count + 3}
    assert entry["actor"] == "command"


def test_it_is_logged_before_it_is_done(shop, monkeypatch, capsys):
    """Where the log cannot be written nothing is erased; where erasing fails the log says that it was begun. That is status 3."""
    before = shop.naming("ui.theme")

    def away(*_arguments, **_options):
        raise redis.ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "append", away)
        assert shop.erase("--metric", "ui.theme", "--yes") == 3
    assert shop.naming("ui.theme") == before
    with monkeypatch.context() as patch:
        patch.setattr(Removal, "mark", away)
        assert shop.erase("--metric", "ui.theme", "--version", "1", "--yes") == 3
    assert shop.naming("ui.theme") == before
    last = AuditLog(Store(shop.redis, "shop")).last()
    assert (last.event, last.details["version"]) == ("metric.erased", 1)
    assert "the store cannot be used: it does not answer" in capsys.readouterr().err
    # Begun anew it is done to the end.
    with monkeypatch.context() as patch:
        patch.setattr(Removal, "rewrite", away)
        assert shop.erase("--metric", "ui.theme", "--yes") == 3
    assert shop.erase("--metric", "ui.theme", "--yes") == 0
    assert shop.naming("ui.theme") == ["audit"]


def test_a_metric_that_nobody_knows(shop, capsys):
    """There is nothing to erase: status 2, and nothing is logged or told to workers. What was erased says when."""
    before = shop.all()
    assert shop.erase("--metric", "ui.thema", "--yes") == 2
    assert "has nothing of 'ui.thema' of 'shop' (did you mean 'ui.theme'?)" in capsys.readouterr().err
    assert shop.all() == before
    assert shop.erase("--metric", "ui.theme", "--yes") == 0
    before = shop.all()
    assert shop.erase("--metric", "ui.theme", "--yes") == 0
    assert "ui.theme of shop was erased on 20" in capsys.readouterr().out
    assert shop.all() == before


@pytest.mark.parametrize("words", [["--metric", "ui.theme"], []])
def test_a_full_store_is_erased_from(shop, words):
    """What makes room needs no room, and is logged; a key can be revoked."""
    leave(shop)
    keys = shop.store.table(schema.KEYS)
    keys.put({"id": "a key"})
    for server in primaries(shop.redis):
        server.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.OutOfMemoryError):
            shop.redis.set("{shop}:x", "y")
        assert AuditLog(shop.store).append("key.revoked", "command", {"id": "id"}, change=keys.dropping("id"))
        assert shop.erase(*words, "--yes") == 0
    finally:
        for server in primaries(shop.redis):
            server.config_set("maxmemory", 0)
    assert shop.naming("ui.theme") == ["audit"]
    events = [json.loads(line)["event"] for line in shop.redis.lrange("{shop}:audit", -2, -1)]
    assert events == ["key.revoked", "metric.erased" if words else "app.erased"]


def test_a_metric_that_was_never_counted(shop, tmp_path, capsys):
    """If a registry declares it, or its version is given, what waits of it is not counted either; the registry's part is told."""
    path = tmp_path / "metrics.toml"
    path.write_text(text(3), "utf-8")
    assert shop.erase("--metric", "ui.theme", "--registry", str(path), "--yes") == 0
    still = f"{path} still declares version 3: devices go on to send it, and its reports are accepted, and dropped; remove it"
    assert f"{still} there, or raise its version to 4\n" in capsys.readouterr().out
    shop.append(shop.batch(shop.stratum("ui.theme", 3)))
    assert shop.erase("--metric", "ui.theme", "--registry", str(path), "--yes") == 0
    out = capsys.readouterr().out  # a second time, too
    assert "and nothing that was counted is left\nbatches that wait: 1; reports of it are dropped" in out
    assert still in out
    assert shop.erase("--metric", "other", "--version", "4", "--yes") == 0
    other = [Stratum("other", version, "0" * 16, TODAY, "") for version in (3, 4, 5)]
    theme = [shop.stratum("ui.theme", version) for version in (3, 4)]
    shop.append(shop.batch(*other, *theme))
    shop.work()
    assert sorted(shop.store.strata("other")) == [other[0], other[2]]
    assert list(shop.store.strata("ui.theme")) == [theme[1]]


@pytest.mark.parametrize(
    "words",
    [
        ["--metric", "ui.theme", "--app", "other"],
        ["--metric", "ui.theme|1"],
        ["--metric", ""],
        ["--metric", "a\nb"],
        ["--metric", "x" * 1001],
    ],
)
def test_what_is_asked_for_wrongly(shop, words):
    """A name that is none, or two apps at once, is status 2."""
    assert shop.erase(*words) == 2


@pytest.mark.parametrize("version", ["0", "-1", "x", "1.0", str(1 << 53)])
def test_a_version_is_a_whole_number(shop, version, capsys):
    """Anything else is a wrong usage."""
    with pytest.raises(SystemExit):
        shop.erase("--metric", "ui.theme", "--version", version)
    assert f"'{version}' is no version: write a whole number of at least 1" in capsys.readouterr().err


def test_digests_are_those_of_the_store(shop):
    """What the command marks is what the commit looks for, and what a worker reads."""
    for highest in (5, 7, 6):  # what is gone stays gone
        Removal(shop.store, "a").mark(highest)
    Removal(shop.store, "b", 2).mark(7)
    erased = Erased(shop.store.erased.all())
    erasures = {(metric, version) for metric in ("a", "b", "c") for version in range(1, 10) if erased.has(metric, version)}
    strata = [Stratum(metric, version, "f" * 16, TODAY, "") for metric in ("a", "b", "c") for version in range(1, 10)]
    shop.append(shop.batch(*strata))
    shop.work()
    counted = {(stratum.metric, stratum.version) for metric in ("a", "b", "c") for stratum in shop.store.strata(metric)}
    assert erasures == {*(("a", version) for version in range(1, 8)), ("b", 2)}
    assert counted == {stratum[:2] for stratum in strata} - erasures
    assert not Erased({})
    assert erased


def test_a_release_is_gone_for_readers(shop):
    """Nothing is listed of an erased metric."""
    assert release.listed(shop.store, "ui.theme")
    shop.erase("--metric", "ui.theme", "--yes")
    assert release.listed(shop.store, "ui.theme") == {}


STAYS = {"audit", "erased", "partitions", "spent"}


def kinds(shop):
    return {key.decode().partition(":")[2].split(":")[0] for key in shop.redis.scan_iter("{shop}*")}


def leave(shop):
    """Let an hour pass without a worker."""
    for partition in shop.store.partitions:
        shop.redis.delete(partition.workers)


def test_an_app_goes_with_all_that_it_has(shop, tmp_path, capsys):
    """Only what erasing must not undo stays: the log, what was spent, which metrics were erased, the number of partitions."""
    shop.erase("--metric", "ui.size", "--yes")
    shop.append(shop.batch(shop.stratum("ui.theme")))
    shop.append(shop.batch(Stratum("unknown", 1, "0" * 16, TODAY, "")))
    shop.store.table(schema.KEYS).put({"x": "y"})
    shop.store.shared_table(schema.KEYS_APPS).put({"x": "shop", "z": "other"})
    shop.redis.hset(schema.REFUSED.of("shop", str(datetime.now(UTC).date())), "|0|unknown_metric", 3)
    other = Store(shop.redis, "other")
    other.partitions[0].join()
    other.append(Upload(b"another app's", key="k", remember=b"-", cap=99, ttl=60))
    neighbours = {key: dumped for key, dumped in shop.all().items() if key.startswith("{other}")}
    leave(shop)
    declared = tmp_path / "metrics.toml"
    declared.write_text(text(3), "utf-8")
    capsys.readouterr()
    assert shop.erase("--yes") == 0
    out = capsys.readouterr().out
    assert "ui.theme: keys and fields" in out
    assert "batches that wait: 2; dead letters: 4; keys of people and devices: 1\n" in out
    assert {"audit", "erased", "spent"} <= kinds(shop) - {"seen"} <= STAYS
    assert all(shop.redis.ttl(key) > 0 for key in shop.redis.scan_iter("{shop}:seen:*"))
    assert shop.naming("ui.theme", "ui.size", "unknown") == ["audit"]
    assert shop.store.shared_table(schema.KEYS_APPS).all() == {b"z": b"other"}
    assert {key: dumped for key, dumped in shop.all().items() if key.startswith("{other}")} == neighbours
    last = AuditLog(Store(shop.redis, "shop")).last()
    assert (last.event, last.details["metrics"]) == ("app.erased", 1)
    assert shop.erase() == 0
    assert "shop was erased on 20" in capsys.readouterr().out
    assert main(["erase", "--redis-url", shop.url, "--app", "shpo", "--registry", str(declared), "--yes"]) == 2
    assert "no app 'shpo' (did you mean 'shop'?)" in capsys.readouterr().err


def test_an_app_of_the_same_name_begins_anew(shop):
    """Afterwards uploads are taken and counted, as of an app that nobody has used; an erased metric stays erased."""
    shop.erase("--metric", "ui.size", "--yes")
    leave(shop)
    assert shop.erase("--yes") == 0
    shop.append(shop.batch(shop.stratum("ui.theme"), shop.stratum("ui.size")))
    shop.work()
    assert list(shop.store.strata("ui.theme")) == [shop.stratum("ui.theme")]
    assert not shop.store.strata("ui.size")


def test_an_app_that_is_counted_stays(shop, capsys):
    """What comes meanwhile would be counted, so a living worker is told of, and nothing is changed."""
    health.beat(shop.store.partitions[0], "w")
    before = shop.all()
    assert shop.erase("--yes") == 2
    rule = "shop is in use by 1 worker: take it out of their DENIABLE_REGISTRY"
    assert f"nothing was removed, since {rule}" in capsys.readouterr().err
    assert shop.erase() == 0  # which changes nothing
    assert rule in capsys.readouterr().out
    assert shop.all() == before
    serving = Loaded("serve", "0" * 64, "machine:7")
    say(shop.store, serving)
    assert shop.erase("--yes") == 2
    assert "start it again with the files of the other apps" in capsys.readouterr().err
    take_back(shop.store, serving)


def test_a_metric_of_which_a_worker_has_the_definition_alone(shop, tmp_path):
    """It goes, although nothing was counted of it and no registry declares it any more."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric_toml("secret.plan")), "utf-8")
    loaded = registry.load(path)
    note(shop.store, loaded, Declared.of(loaded.metrics["secret.plan"]))
    assert shop.erase("--metric", "secret.plan", "--yes") == 0
    assert shop.naming("secret.plan") == ["audit"]


def test_without_yes_an_app_stays(shop, capsys):
    leave(shop)
    before = shop.all()
    assert shop.erase() == 0
    out = capsys.readouterr().out
    assert "all of shop: metrics 2; batches that wait: 0; dead letters: 5; keys of people and devices: 0\n" in out
    assert out.endswith("nothing was removed; --yes removes it for good\n")
    assert shop.all() == before


def test_no_app_goes_that_is_not_named(shop, monkeypatch, capsys):
    """A variable names the app for a metric; who forgets the metric does not mean all of it."""
    monkeypatch.setenv("DENIABLE_APPS", "shop")
    before = shop.all()
    assert main(["erase", "--redis-url", shop.url, "--yes"]) == 2
    assert shop.erase("--version", "1", "--yes") == 2
    assert shop.erase("--app", "other", "--yes") == 2
    assert "name the metric by --metric, or by --app an app" in capsys.readouterr().err
    assert shop.all() == before


def test_what_failed_half_way_is_done_again(shop, monkeypatch):
    """Wherever the store fails, another try removes the remainder."""
    leave(shop)
    with monkeypatch.context() as patch:

        def away(*_arguments, **_options):
            raise redis.ConnectionError

        patch.setattr(Removal, "sweep", away)
        assert shop.erase("--yes") == 3
    assert len(shop.naming("ui.theme")) > 1
    assert shop.erase("--yes") == 0
    assert shop.naming("ui.theme") == ["audit"]
