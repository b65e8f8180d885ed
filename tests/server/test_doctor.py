"""`deniable doctor`: each way in which an installation can be set up badly. Stores that are: tests/system/server."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import pytest
import redis

from deniable import mechanisms, registry
from deniable.commands import entry as cli
from deniable.declared import Declared, fingerprint
from deniable.messages.plural import plural
from deniable.registry import published
from deniable.wire.report import Stratum
from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.publish import definitions, release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, Upload, errors, schema
from deniable_aggregator.store.server import snapshot
from deniable_aggregator.store.server.durability import Durability
from deniable_aggregator.store.uploads import health, refused_reports, registries
from deniable_aggregator.store.uploads.archived import LastRecount
from deniable_aggregator.store.uploads.health import Health
from deniable_aggregator.store.uploads.refused_reports import Refused
from deniable_server import doctor
from deniable_server.access.keys import KeyStore
from deniable_server.doctor import host, pipeline, store

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.both_stores


@pytest.fixture
def registry_file(registry_file):
    """Write the registry without a metric that has expired, which is a finding."""
    return unexpired(registry_file)


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    """No server is waited for."""
    monkeypatch.setattr(doctor, "_START_SECONDS", 0.0)


@pytest.fixture
def examined(monkeypatch, capsys, registry_file):
    """Run the command; return its status and what it found, by check."""

    def run(server, *arguments, **settings):
        for name in [name for name in os.environ if name.startswith("DENIABLE_")]:
            monkeypatch.delenv(name)
        options = {"redis_url": getattr(server, "url", server), "registry": str(registry_file)} | settings
        for name, value in options.items():
            monkeypatch.setenv(f"DENIABLE_{name.upper()}", value)
        status = cli.main(["doctor", "--json", *arguments])
        findings = {finding["check"]: finding for line in capsys.readouterr().out.splitlines() if (finding := json.loads(line))}
        for finding in findings.values():
            assert bool(finding["meaning"]) == bool(finding["remedy"]) == (finding["status"] != "ok"), finding
        return status, findings

    return run


@pytest.fixture
def good(real_redis, store_url, registry_file):
    """Return the shared server, which is as it should be, with keys, a server and a worker."""
    real_redis.config_set("maxmemory", 1 << 30)
    yield furnished(SimpleNamespace(redis=real_redis, url=store_url), registry_file)
    real_redis.config_set("maxmemory", 1 << 30)


def unexpired(registry_file):
    """Let its metrics go on."""
    registry_file.write_text(registry_file.read_text("utf-8").replace("2020-01-01", "2999-01-01"), "utf-8")
    return registry_file


def furnished(server, registry_file):
    """Give an app keys, a server and a worker."""
    shop = Store(server.redis, "shop")
    now = published.identity(registry.load(registry_file))
    registries.say(shop, registries.Loaded("server", now, "web-1:7"))
    keys = KeyStore(shop)
    keys.create("ingest", "")
    keys.create("read", "")
    beat(server)
    return server


def beat(server):
    health.beat(Store(server.redis, "shop").partitions[0], "worker")


def wrong(findings):
    return {name: each["status"] for name, each in findings.items() if each["status"] != "ok"}


def test_a_good_installation(examined, good):
    """All is well, the status is 0, and nothing in the store has changed."""
    before = sorted(good.redis.keys())
    dumped = [good.redis.dump(key) for key in before]
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {})
    assert set(findings) >= {
        "version",
        "writes",
        "eviction",
        "durability",
        "memory",
        "rights",
        "clock",
        "workers",
        "keys",
        "definitions",
        "gunicorn",
    }
    assert sorted(good.redis.keys()) == before
    assert [good.redis.dump(key) for key in before] == dumped


def test_every_finding_is_documented(examined, good):
    """The table of docs/how-to/operate/watch.md has each finding, and no others."""
    section = (
        (ROOT / "docs" / "how-to" / "operate" / "watch.md").read_text("utf-8").partition("## The doctor")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)
    assert rows[0] == "finding"
    assert rows[1:] == list(examined(good)[1])


def test_a_store_that_is_full(examined, good):
    """Little room is a warning, none a fault."""
    used = good.redis.info("memory")["used_memory"]
    for share, kind in ((0.65, "warning"), (0.76, "fault")):
        good.redis.config_set("maxmemory", int(used / share))
        status, findings = examined(good)
        assert wrong(findings) == {"memory": kind}
        assert status == (kind == "fault")
    assert "maxmemory" in findings["memory"]["seen"]


def test_the_memory_of_a_small_store():
    """Below 10 MiB whole numbers would hide how much is left."""
    finding = store.memory({"used_memory": 2_013_266, "maxmemory": 2 << 20})
    assert finding.seen == "96% of its maxmemory used (1.9 of 2.0 MiB)"
    assert "(512 of 1,024 MiB)" in store.memory({"used_memory": 512 << 20, "maxmemory": 1 << 30}).seen


def test_a_store_that_is_away_comes_first(monkeypatch, capsys, registry_file):
    """The first line names it, and what is well of this machine comes after it."""
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    assert cli.main(["doctor", "--redis-url", "redis://127.0.0.1:1/0"]) == 3
    output = capsys.readouterr()
    assert output.out.splitlines()[0].startswith("1 fault: store")
    assert output.out.splitlines()[1].startswith("fault    store: ")
    assert output.out.splitlines()[3].strip().startswith("start it, or correct DENIABLE_REDIS_URL")
    assert output.err == ""
    assert cli.main(["doctor", "--json", "--redis-url", "redis://127.0.0.1:1/0"]) == 3
    away = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (away["check"], away["status"]) == ("store", "fault")


def test_a_wrong_configuration(examined, registry_file):
    """Without settings that can be read there is nothing to look at."""
    assert examined("", registry=str(registry_file))[0] == 2
    assert examined("http://h")[0] == 2
    assert examined("redis://127.0.0.1:1", clock_skew="soon")[0] == 2


def test_a_registry_with_a_fault_is_one_finding(examined, good, registry_file, capsys):
    """The rest of the installation is looked at nevertheless; `status` goes on in the same way."""
    registry_file.write_text(registry_file.read_text("utf-8").replace("\ntype =", "\ntyp =", 1), "utf-8")
    status, findings = examined(good)
    assert (status, wrong(findings)) == (1, {"registry": "fault"})
    assert "typ is no key of a metric: write type" in findings["registry"]["seen"]
    assert findings["registry"]["app"] == "shop"
    assert {"memory", "workers", "dead letters", "keys"} <= findings.keys()
    assert (cli.main(["status"]), "deniable registry lint" in capsys.readouterr().err) == (0, True)
    status, findings = examined(good, registry="")
    assert (status, wrong(findings)) == (1, {"registry": "fault"})


def test_a_password_that_is_refused_is_named(examined, good, monkeypatch, capsys):
    """It does not read as if the store were away, and names the user and the setting, but not the password."""
    monkeypatch.setattr("redis.Redis.ping", lambda _: (_ for _ in ()).throw(redis.AuthenticationError("WRONGPASS hunter2")))
    assert examined(good.url.replace("unix://", "unix://ingest:hunter2@"))[0] == 3
    cli.main(["doctor"])
    words = capsys.readouterr().out
    assert "it refuses the user or the password" in words
    assert ("'ingest'" in words, "DENIABLE_REDIS_URL" in words, "hunter2" in words) == (True, True, False)
    monkeypatch.setattr("deniable_aggregator.store.server.room.most", lambda client: client.ping())
    cli.main(["doctor", "--settings"])
    words = capsys.readouterr().out
    assert "the store's maxmemory is not known: it refuses the user or the password" in words
    assert "hunter2" not in words


def test_what_the_user_may_not_ask_is_said_once(examined, good, monkeypatch):
    """What a user of the store may not see is no fault, and says who may."""
    forbidden = redis.exceptions.NoPermissionError("NOPERM")
    for name in ("definitions", "chores"):
        monkeypatch.setattr(pipeline, name, lambda *_: (_ for _ in ()).throw(forbidden))
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"not checked": "skipped"})
    assert findings["not checked"]["seen"].startswith("chores, definitions: ")
    assert "'query'" in findings["not checked"]["remedy"]


def test_clocks_that_are_apart(good):
    """A difference of seconds is a warning; one of the shortest period a fault."""
    cases = ((0, "ok", "within"), (10, "warning", "ahead"), (-10, "warning", "behind"), (3700, "fault", "ahead"))
    for ahead, kind, word in (*cases, (-3700, "fault", "behind")):
        findings = store.clock(good.redis, lambda ahead=ahead: time.time() + ahead)
        assert (findings.status, word in findings.seen) == (kind, True)


def test_a_version_that_is_too_old():
    """Redis 7.0 and every Valkey will do, whatever version of Redis the latter says it is."""
    assert store.version({"redis_version": "6.2.14"}).status == "fault"
    assert store.version({"redis_version": "7.0.0"}).status == "ok"
    assert store.version({"redis_version": "10.1.0"}).status == "ok"
    assert store.version({"redis_version": "6.2.4", "valkey_version": "9.1.0"}).status == "ok"


def test_batches_that_nobody_counts(examined, good):
    """A backlog without a worker is a fault, as is one at its cap; batches put aside are a warning."""
    shop = Store(good.redis, "shop")
    good.redis.delete(shop.partitions[0].workers, shop.partitions[0].caught)
    for number in range(3):
        shop.append(Upload(b"batch", key=str(number), remember=b"", cap=10, ttl=60))
    status, findings = examined(good, max_backlog="4")
    assert (status, wrong(findings)) == (1, {"workers": "fault", "backlog": "warning", "lag": "warning"})
    assert "worker.env" in findings["workers"]["remedy"]
    status, findings = examined(good, max_backlog="3")
    assert wrong(findings)["backlog"] == "fault"
    beat(good)
    shop.partitions[0].join()
    ((_, entries),) = good.redis.xreadgroup("agg", "worker", {shop.partitions[0].stream: ">"}, count=1)
    assert shop.partitions[0].bury("worker", entries[0][0], "a reason")
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"dead letters": "warning"})


def test_no_server_is_a_fault_once_an_app_is_served(examined, good):
    """Keys show that an app is meant to be served; an app without any may wait for its first start."""
    shop = Store(good.redis, "shop")
    good.redis.delete(shop.registries)
    status, findings = examined(good)
    assert (status, wrong(findings)) == (1, {"servers": "fault"})
    assert findings["servers"]["seen"] == "no server reports that it runs"
    assert "gunicorn, or `deniable serve`; if it runs already (such as with a former password)" in findings["servers"]["remedy"]
    for key in KeyStore(shop).all():
        KeyStore(shop).revoke(key.id)
    assert examined(good)[1]["servers"]["status"] == "warning"


def test_a_full_store_takes_signs_of_life(examined, good):
    """Whether servers and workers live is known while the store refuses all else."""
    shop = Store(good.redis, "shop")
    good.redis.delete(shop.registries, shop.partitions[0].workers)
    good.redis.config_set("maxmemory", 1)
    with pytest.raises(errors.StoreFull):
        good.redis.set("more", "")
    registries.say(shop, registries.Loaded("server", "f" * 64, "web-1:7"))
    beat(good)
    findings = examined(good)[1]
    assert (findings["writes"]["status"], findings["servers"]["status"], findings["workers"]["status"]) == ("fault", "ok", "ok")


def test_a_store_that_takes_no_signs_of_life(examined, good):
    """Nobody is called absent who only cannot say that it lives; what to do is said once."""
    shop = Store(good.redis, "shop")
    good.redis.delete(shop.registries, shop.partitions[0].workers)
    good.redis.config_set("min-replicas-to-write", 1)
    try:
        findings = examined(good)[1]
    finally:
        good.redis.config_set("min-replicas-to-write", 0)
    assert findings["writes"]["status"] == "fault"
    for check, who in (("servers", "server can say that it runs"), ("workers", "worker can say that it lives")):
        assert findings[check]["status"] == "skipped"
        assert findings[check]["seen"] == f"no {who}: the store takes no sign of life (too few of its replicas keep up)"
        assert "finding writes" in findings[check]["remedy"]
    assert {examined(good)[1][check]["status"] for check in ("servers", "workers")} == {"fault", "warning"}


def test_what_held_counting_up_is_over_when_its_worker_is(examined, good):
    """A worker that was killed takes back nothing of what it noted."""
    shop = Store(good.redis, "shop")
    with Faults(shop).alone(health.MEMORY):
        raise errors.NoRoom
    assert examined(good)[1]["chores"]["seen"] == "counting is held up by memory (NoRoom)"
    good.redis.delete(shop.partitions[0].workers)
    findings = examined(good)[1]
    assert (findings["chores"]["status"], findings["workers"]["status"]) == ("ok", "warning")
    assert not health.read(shop).held_up


@pytest.mark.parametrize(
    ("roles", "status", "seen"),
    [
        (["query-server"], "fault", "no server takes uploads: 1 query-server alive"),
        (["ingest-server"], "warning", "no server answers questions: 1 ingest-server alive"),
        (["ingest-server", "query-server"], "ok", "1 ingest-server, 1 query-server alive"),
    ],
)
def test_a_kind_of_server_that_is_missing(good, roles, status, seen):
    """A server for queries takes no uploads, however well it lives, and a server for uploads answers nobody."""
    shop = Store(good.redis, "shop")
    good.redis.delete(shop.registries)
    for role in roles:
        registries.say(shop, registries.Loaded(role, "f" * 64, "web-1:7"))
    finding = pipeline.servers(shop)
    assert (finding.status, finding.seen) == (status, seen)


def test_servers_that_were_not_restarted_after_an_app_was_added(good):
    """They serve the other apps: the environment was read at their start."""
    shop, dice = Store(good.redis, "shop"), Store(good.redis, "dice")
    finding = pipeline.servers(dice, lambda: registries.served([shop, dice]))
    assert (finding.status, finding.seen) == ("fault", "servers run, but serve shop only")
    assert finding.remedy.startswith("restart them: ")
    assert finding.meaning.endswith("are answered 503 (app_not_served): devices keep their reports")
    assert pipeline.servers(shop).status == "ok"


def test_batches_that_wait_long():
    """A minute is a warning, an hour, the shortest period, a fault."""
    for seconds, kind in ((1.0, "ok"), (61.0, "warning"), (3601.0, "fault")):
        assert pipeline.lag("shop", Health(1, 0, seconds, 0, 1)).status == kind


def test_counting_that_is_held_up_is_called_that():
    """A store without room is no chore that fails: the finding `memory` says what to do, not the registry."""
    state = Health(1, 0, 1.0, 0, 1, held_up={"memory": "NoRoom"})
    finding = pipeline.chores("shop", {"memory": "NoRoom"}, state)
    assert finding.seen == "counting is held up by memory (NoRoom)"
    assert finding.meaning == "reports wait, and are refused when the backlog is full"
    assert "do what the finding memory says" in finding.remedy
    assert "registry" not in finding.remedy
    both = pipeline.chores("shop", {"memory": "NoRoom", "publisher of a@1": "ValueError"}, state)
    assert both.meaning.endswith("; what else is named is not published, watched or deleted")
    assert "look at that metric" in both.remedy


def test_nobody_can_send_or_read(examined, good):
    """Without an ingest key no device can send; a key that was revoked is none; keys of the environment count."""
    keys = KeyStore(Store(good.redis, "shop"))
    by_role = {key.role: key.id for key in keys.all()}
    keys.revoke(by_role["read"])
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"keys": "warning"})
    assert examined(good, read_keys="shop:rk_11111111")[1]["keys"]["status"] == "ok"
    assert examined(good, dashboard="open")[1]["keys"]["status"] == "ok"
    keys.revoke(by_role["ingest"])
    status, findings = examined(good)
    assert (status, wrong(findings)) == (1, {"keys": "fault"})
    assert "keys create --app shop --role ingest" in findings["keys"]["remedy"]
    assert "operator.env" in findings["keys"]["remedy"]
    assert (
        "; if shop had keys, the store has lost its data: restore the last copy instead (https://" in findings["keys"]["remedy"]
    )
    assert examined(good, ingest_keys="blog:pk_11111111")[1]["keys"]["status"] == "fault"


def test_an_erased_metric_that_is_still_declared(examined, good):
    """Devices go on to send it in vain, until it leaves the registry or its version is raised."""
    removal = Removal(Store(good.redis, "shop"), "ui.theme")
    removal.mark(1)
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"erased": "warning"})
    assert findings["erased"]["seen"] == "ui.theme version 1, which the registry declares"
    assert "or raise its version" in findings["erased"]["remedy"]


def test_a_metric_that_has_expired(examined, good, registry_file):
    """It is named with its last day, once that is over."""
    assert examined(good)[1]["expired"]["status"] == "ok"
    text = registry_file.read_text("utf-8")
    registry_file.write_text(text.replace('[metrics."ui.theme"]\n', '[metrics."ui.theme"]\nexpires = 2001-02-03\n'), "utf-8")
    _, findings = examined(good)
    assert (findings["expired"]["status"], findings["expired"]["seen"]) == ("warning", "ui.theme on 2001-02-03")


def test_releases_of_another_definition(examined, good, registry_file):
    """What was published of a metric that means something else by now, in the same version, is told by name."""
    declared = registry.load(registry_file).metrics["ui.theme"]
    tag = fingerprint(declared, mechanisms.of(declared).canonical)

    def publish(version, fingerprint_, n=9):
        stratum = Stratum("ui.theme", version, fingerprint_, "2026-11-21", "")
        good.redis.hset(schema.RELEASES.of("shop", "ui.theme"), "|".join(map(str, stratum)), release.Release(n=n).note())

    publish(1, tag)
    publish(2, "0" * 16)  # another version may be what it likes
    assert examined(good)[1]["definitions"]["status"] == "ok"
    publish(1, "f" * 16, n=0)  # a release without reports
    assert examined(good)[1]["definitions"]["status"] == "ok"
    publish(1, "f" * 16)
    good.redis.hdel(schema.RELEASES.of("shop", "ui.theme"), "|".join(map(str, Stratum("ui.theme", 1, tag, "2026-11-21", ""))))
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"definitions": "warning"})
    assert findings["definitions"]["seen"] == "ui.theme version 1 was also published as ffffffffffffffff"


def test_a_definition_that_was_changed_in_the_same_version(examined, good, registry_file, monkeypatch):
    """It is named before anything is published, and before a worker has read it; not once it is restored or has a new version."""
    shop, text = Store(good.redis, "shop"), registry_file.read_text("utf-8")
    clock = [shop.now()]
    monkeypatch.setattr(Store, "now", lambda _: clock[0])

    def work():
        clock[0] += 5
        definitions.remember(shop, registry.load(registry_file), lambda _id, _version: False)

    work()
    first = registry.load(registry_file).metrics["ui.theme"]
    assert examined(good)[1]["definitions"]["status"] == "ok"
    changed = text.replace("epsilon = 1.0", "epsilon = 0.75", 1)
    assert changed != text
    registry_file.write_text(changed, "utf-8")
    for step in (lambda: None, work):
        step()
        findings = examined(good)[1]
        finding = findings["definitions"]
        seen = f"ui.theme version 1 was also declared as {Declared.of(first).fingerprint}"
        assert (finding["status"], finding["seen"]) == ("fault", seen)
        assert "theme: epsilon was '1', is '0.75'; raise version to 2, or write it as it was" in finding["remedy"]
    registry_file.write_text(text, "utf-8")
    work()
    assert examined(good)[1]["definitions"]["status"] == "ok"
    registry_file.write_text(changed.replace('[metrics."ui.theme"]', '[metrics."ui.theme"]\nversion = 2', 1), "utf-8")
    work()
    assert examined(good)[1]["definitions"]["status"] == "ok"


def test_a_definition_that_was_restored(examined, good, registry_file):
    """What was published in between, in the same version, is nothing to mend; what was published before it is."""
    declared = registry.load(registry_file).metrics["ui.theme"]
    tag = fingerprint(declared, mechanisms.of(declared).canonical)

    def publish(fingerprint_, period):
        stratum = Stratum("ui.theme", 1, fingerprint_, period, "")
        good.redis.hset(schema.RELEASES.of("shop", "ui.theme"), "|".join(map(str, stratum)), release.Release(n=9).note())

    publish(tag, "2026-11-20")
    publish("f" * 16, "2026-11-20")
    publish("e" * 16, "2026-11-21")
    assert examined(good)[1]["definitions"]["status"] == "ok"
    publish("d" * 16, "2026-11-19")
    seen = examined(good)[1]["definitions"]["seen"]
    assert seen == "ui.theme version 1 was also published as dddddddddddddddd"


def test_processes_with_another_registry(examined, good):
    """A process that has loaded something else than the file is named; all is well once it has gone."""
    shop = Store(good.redis, "shop")
    ((_, now, *_),) = registries.running(shop)
    assert examined(good)[1]["registry"]["seen"] == "1 server: all have loaded the file on disk"
    other = registries.Loaded("worker", "f" * 64, "web-2:8")
    registries.say(shop, other)
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"registry": "warning"})
    assert findings["registry"]["seen"].endswith(f" is {now[:12]}, but worker web-2:8 has loaded ffffffffffff")
    assert findings["registry"]["remedy"].startswith("restart the worker; or put the file back as it was")
    serving = registries.Loaded("serve", now, "web-1:6", "ui.theme: epsilon")
    registries.say(shop, serving)
    status, findings = examined(good)
    assert (status, wrong(findings)) == (1, {"registry": "fault"})
    finding = findings["registry"]
    assert "the file was refused, and the one before is in use: ui.theme: epsilon" in finding["meaning"]
    assert finding["remedy"] == "mend what it says"
    registries.take_back(shop, serving)
    registries.say(shop, serving._replace(fault=""))
    Timer(0.5, registries.take_back, (shop, other)).start()
    assert wrong(examined(good)[1]) == {}  # it waits while processes read an edited file


def test_a_file_that_was_refused_and_is_mended(examined, good, registry_file):
    """The doctor reads the file itself: it names what was refused before, and has nobody mend what is mended."""
    shop = Store(good.redis, "shop")
    (running,) = registries.running(shop)
    registries.take_back(shop, running)
    registries.say(shop, running._replace(digest="f" * 64, fault="metrics.toml:24: this is no valid TOML"))
    finding = examined(good)[1]["registry"]
    assert finding["meaning"] == (
        "the file is valid now; when they read it last, they refused it (metrics.toml:24: this is no valid TOML), and the one "
        "before is in use"
    )
    assert finding["remedy"].startswith("send SIGHUP to gunicorn's first process")
    assert "mend" not in finding["remedy"]
    definitions.remember(shop, registry.load(registry_file), lambda _id, _version: False)
    changed = registry_file.read_text("utf-8").replace("epsilon = 1.0", "epsilon = 0.75", 1)
    registry_file.write_text(changed, "utf-8")
    finding = examined(good)[1]["registry"]
    assert finding["remedy"].startswith("mend what it says; send SIGHUP")


def test_a_server_that_loads_another_file(examined, good):
    """If others of its kind have the file, it is no edit that was not read yet: that comes first, and SIGHUP after it."""
    registries.say(Store(good.redis, "shop"), registries.Loaded("server", "0" * 64, "web-2:7"))
    remedy = examined(good)[1]["registry"]["remedy"]
    assert remedy.startswith("others of their kind have loaded this file, so they probably load another one")
    assert "DENIABLE_REGISTRY" in remedy.partition("SIGHUP")[0]


def test_refused_reports_of_another_registry(examined, good, registry_file):
    """Why, for which version and definition they were made, and what that is; other reasons are no warning."""
    shop, declared = Store(good.redis, "shop"), registry.load(registry_file).metrics["ui.theme"]
    tag = fingerprint(declared, mechanisms.of(declared).canonical)

    assert examined(good)[1]["refused"]["seen"] == "none in the last 7 days"  # a trial shows everything at once
    real = registry_file.with_name("real.toml")
    real.write_text(registry_file.read_text("utf-8").replace("trial = true", ""), "utf-8")
    seen = examined(good, registry=str(real))[1]["refused"]["seen"]
    assert seen == "none in the last 7 days; what came since a worker's last hourly copy is not counted yet"

    def refuse(*of):
        refused_reports.add(shop, {Refused("ui.theme", *of): 3})
        refused_reports.copy(shop, shop.table(schema.REFUSALS))

    refuse(1, "period_closed")
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {})
    assert findings["refused"]["seen"] == "in the last 7 days: 3 of ui.theme version 1 as period_closed"
    refuse(1, "definition_mismatch", f"1 {tag}")
    assert wrong(examined(good)[1]) == {}  # it is mended: what they were made for is served by now
    refuse(1, "definition_mismatch", f"1 {'a' * 16}")
    refuse(1, "unknown_version", f"2 {'b' * 16}")
    refuse(1, "unknown_version", "others")
    shop.published.put({f"ui.theme|1|{'a' * 16}|{name}": value for name, value in (("n", 9), ("last", "2026-11-02"))})
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"refused": "warning"})
    seen = findings["refused"]["seen"]
    early = f"3 of ui.theme version 1, defined as {tag} (as the file defines it now; sent before the file was loaded)"
    assert f"{early} as definition_mismatch" in seen
    assert f"3 of ui.theme version 1, defined as {'a' * 16} (published until 2026-11-02) as definition_mismatch" in seen
    assert f"3 of ui.theme version 2, defined as {'b' * 16} as unknown_version" in seen
    assert "3 of ui.theme of other definitions as unknown_version" in seen


def test_a_metric_whose_publication_fails(examined, good, registry_file, monkeypatch):
    """The worker notes it by name, and the doctor finds it; once it is published again nothing is left of it."""
    shop = Store(good.redis, "shop")
    publisher = Publisher(shop, registry.load(registry_file))
    published = Publisher._published
    failing = ["plugin"]

    def fail(self, version, *arguments):
        if version.metric.id in failing:
            raise ValueError("8 reports")
        return published(self, version, *arguments)

    monkeypatch.setattr(Publisher, "_published", fail)
    assert publisher.publish(time.time()) == []
    assert 0 < good.redis.ttl(shop.faults.key) <= 7200
    status, findings = examined(good)
    assert (status, wrong(findings)) == (1, {"chores": "fault"})
    assert "publisher of plugin@1 fails (ValueError)" in findings["chores"]["seen"]
    assert "8 reports" not in str(findings)
    failing.clear()
    Publisher(shop, registry.load(registry_file)).publish(time.time())  # another worker
    assert examined(good)[0] == 0
    assert not shop.faults.all()
    monkeypatch.setattr(Publisher, "publish", lambda *_: 1 / 0)
    Chore("publisher", 60.0, publisher.run, Faults(shop)).do()
    assert "publisher fails (ZeroDivisionError)" in examined(good)[1]["chores"]["seen"]


def test_an_archive_is_told(examined, good):
    """Whoever looks learns whether reports are kept."""
    assert examined(good)[1]["archive"]["seen"] == "none: a report is kept until it is counted"
    number = Store(good.redis, "shop").partitions[0].archived.begin()
    status, findings = examined(good)
    assert (status, findings["archive"]["status"]) == (0, "ok")
    assert findings["archive"]["seen"].startswith("randomised reports of bits layouts are kept")
    assert findings["archive"]["seen"].endswith(f"in these folders: {number}; no recount of all yet")


def test_the_last_recount_is_told(examined, good):
    """When it was, and what it found; what it did not find again is a warning."""
    shop = Store(good.redis, "shop")
    shop.partitions[0].archived.begin()
    LastRecount(1_795_305_600, 1234, 0, 0).note(shop)
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {})
    assert "the last recount of all was on 2026-11-22 00:00 UTC: of 1,234 strata 0 have" in findings["archive"]["seen"]
    LastRecount(1_795_305_600, 1234, 2, 1).note(shop)
    status, findings = examined(good)
    assert (status, wrong(findings)) == (0, {"archive": "warning"})
    assert "1 have files that cannot be counted, 2 differ" in findings["archive"]["seen"]


def test_an_archive_that_cannot_be_written_is_a_fault(examined, good):
    """It says why, and that nothing is counted; no chore is said to fail, and no worker to be dead."""
    faults = Faults(Store(good.redis, "shop"))
    with faults.alone(health.ARCHIVE):
        raise ArchiveError("OSError: No space left on device")
    status, findings = examined(good)
    assert (status, wrong(findings)) == (1, {"archive": "fault"})
    assert findings["archive"]["seen"] == "it cannot be written (OSError: No space left on device)"
    assert "counts nothing" in findings["archive"]["meaning"]
    with faults.alone(health.ARCHIVE):
        pass
    assert examined(good)[0] == 0


def test_a_machine_that_is_set_up_badly(tmp_path, monkeypatch):
    """No memory files, another gunicorn, a variable that nothing reads and no secret are told."""
    assert host.memory_files(tmp_path).status == "ok"
    assert host.memory_files(tmp_path / "none").status == "warning"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert host.memory_files(tmp_path).status == "warning"
    assert host.gunicorn().status == "ok"
    monkeypatch.setattr(host, "version", lambda _: "23.0.0")
    assert host.gunicorn().status == "fault"
    monkeypatch.setenv("DENIABLE_REDIS_ULR", "x")
    assert "DENIABLE_REDIS_URL meant?" in host.variables().seen


def test_a_copy_that_is_missing_or_old(examined, good, tmp_path, capsys):
    """Without a copy, but in a trial, and two days after the last one: `deniable backup` says when it made one."""
    assert examined(good)[1]["backup"]["seen"] == "none is known, and no app is known to be more than a trial"
    finding = store.backup(good.redis, real=True)
    assert (finding.status, finding.seen) == ("warning", "none is known")
    assert finding.remedy.startswith("make a copy each day: run `deniable backup`")
    now = time.time()
    assert cli.main(["backup", "--redis-url", good.url, "--to", str(tmp_path)]) == 0
    capsys.readouterr()
    assert re.fullmatch(r"the last copy is of \d{4}-\d\d-\d\d \d\d:\d\d UTC", examined(good)[1]["backup"]["seen"])
    for later, status in ((1.9, "ok"), (2.1, "warning")):
        assert store.backup(good.redis, real=False, now=lambda later=later: now + later * 86_400).status == status


@pytest.mark.parametrize(
    ("promised", "fsync", "status"),
    [("always", "everysec", "fault"), ("everysec", "no", "fault"), ("everysec", "everysec", "ok"), ("memory", "no", "ok")],
)
def test_a_store_that_keeps_less_than_promised_is_a_fault(promised, fsync, status):
    """Servers refuse uploads then. A store that keeps what is promised has no finding, whatever that loses."""
    seen = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": fsync}
    assert store.promise(Durability(promised), seen).status == status


def test_a_store_that_was_restored_shows_how_old_its_copy_is(good):
    """Its copy has the note that a copy was begun, and of the copy before."""
    now = 1_800_000_000
    snapshot.begin(good.redis, now - 3 * 3600)
    snapshot.note(good.redis, now - 86_400)
    snapshot.begin(good.redis, now - 3 * 3600)
    assert snapshot.copies(good.redis) == (now - 86_400, now - 3 * 3600)
    finding = store.backup(good.redis, real=False, now=lambda: now)
    assert (finding.status, finding.seen) == ("warning", "none since the copy begun 2027-01-15 05:00 UTC, 3 hours ago")
    assert "otherwise that copy is not finished." in finding.meaning  # it may go on just now, on a machine whose clock is ahead
    assert store.backup(good.redis, real=False, now=lambda: now - 5 * 3600).seen.endswith(", 0 minutes ago")
    assert finding.remedy.startswith("make a copy now: run `deniable backup`")
    snapshot.note(good.redis, now)
    assert store.backup(good.redis, real=False, now=lambda: now).status == "ok"


@pytest.mark.parametrize(
    ("mode", "most", "here", "status"),
    [
        ("1", 0, True, "ok"),
        ("0", 500, True, "ok"),
        ("0", 501, True, "warning"),
        ("0", 0, True, "ok"),
        ("2", 500, True, "warning"),
        ("0", 0, False, "skipped"),
        ("", 0, True, "ok"),
    ],
)
def test_whether_the_store_may_copy_its_memory(tmp_path, mode, most, here, status):
    """The kernel's guess is enough for a store of half the memory; what is not known of another machine is skipped."""
    (tmp_path / "mode").write_text(mode)
    (tmp_path / "memory").write_text("MemFree: 5 kB\nMemTotal:     1000 kB\n")
    finding = host.overcommit(most * 1024, here=here, mode=tmp_path / "mode", memory=tmp_path / "memory")
    assert finding.status == status
    assert bool(finding.remedy) == bool(finding.meaning) == (status != "ok")


def test_the_first_line_says_whether_all_is_well(good, registry_file, monkeypatch, capsys):
    """One sentence if it is, also where some checks are skipped; else which checks found something."""

    def conclusion(*extra):
        status = cli.main(["doctor", "--redis-url", good.url, *extra])
        return status, capsys.readouterr().out.splitlines()[0]

    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    assert conclusion() == (0, "All is well.")
    with monkeypatch.context() as context:
        forbidden = redis.exceptions.NoPermissionError("NOPERM")
        context.setattr(pipeline, "chores", lambda *_: (_ for _ in ()).throw(forbidden))
        status, line = conclusion()
        assert (status, line.split(".")[0]) == (0, "All is well as far as it can be seen from here")
    shop = Store(good.redis, "shop")
    health.stop(shop.partitions[0], "worker")
    good.redis.xadd(shop.partitions[0].dead, {"reason": "x"})
    assert conclusion() == (0, "2 warnings: workers, dead letters")
    shop.append(Upload(b"batch", key="one", remember=b"-", cap=10, ttl=60))
    assert conclusion()[1].startswith("1 fault: workers (")
    cli.main(["doctor", "--redis-url", good.url])
    words = re.findall(r"^(fault|warning|skipped|ok) ", capsys.readouterr().out, re.MULTILINE)
    assert words == sorted(words, key=["fault", "warning", "skipped", "ok"].index)


def test_a_worker_that_serve_starts_is_awaited(good, monkeypatch, registry_file):
    """While `deniable serve` starts its worker, the doctor looks again for some seconds before it says that none lives."""
    shop = Store(good.redis, "shop")
    health.stop(shop.partitions[0], "worker")
    monkeypatch.setattr(registries, "heard", lambda _: True)  # the store runs for long enough
    monkeypatch.setattr(pipeline.time, "sleep", lambda _: beat(good))
    assert pipeline.revived(shop).workers == 0
    registries.say(shop, registries.Loaded("serve", published.identity(registry.load(registry_file)), "web-1:1"))
    assert pipeline.revived(shop).workers == 1


@pytest.mark.parametrize("ups", [[3, 9, 21], [-1]], ids=str)
def test_a_store_that_has_just_started_is_asked_again(good, monkeypatch, ups):
    """Processes say that they live every 15 seconds, so the doctor waits for them before it says that none does."""
    shop, looks = Store(good.redis, "shop"), []
    good.redis.delete(shop.registries)
    health.stop(shop.partitions[0], "worker")
    script = type(shop).script
    monkeypatch.setattr(
        type(shop), "script", lambda store, *names: (lambda *_: ups[len(looks)]) if names == ("up",) else script(store, *names)
    )
    monkeypatch.setattr(pipeline.time, "sleep", looks.append)
    assert pipeline.servers(shop).seen == "no server reports that it runs"
    assert len(looks) == len(ups) - 1
    looks.clear()
    server = registries.Loaded("server", "f" * 64, "web-1:7")
    monkeypatch.setattr(pipeline.time, "sleep", lambda _: (looks.append(0), registries.say(shop, server), beat(good)))
    if len(ups) > 1:
        assert (pipeline.servers(shop).status, len(looks)) == ("ok", 1)
        assert pipeline.revived(shop).workers == 1


def test_a_server_that_is_started_again_is_awaited(examined, good, monkeypatch):
    """It says that it serves an app some seconds after it began, so the doctor looks again; for all apps together, not each."""
    shop, looks = Store(good.redis, "shop"), []
    server = next(each for each in registries.running(shop) if each.serves)
    good.redis.delete(shop.registries)
    monkeypatch.setattr(doctor, "_START_SECONDS", 600.0)
    monkeypatch.setattr(time, "sleep", lambda _: (looks.append(0), registries.say(shop, server)))
    assert examined(good)[1]["servers"]["status"] == "ok"
    assert len(looks) == 1


def test_what_is_the_same_of_many_apps_is_said_once(good, monkeypatch, capsys, registry_file, tmp_path):
    """Of 30 apps of which one is well, each finding is one line with its meaning and the names of some; numbers may differ."""
    text, names = registry_file.read_text("utf-8"), [f"app-{number}" for number in range(30)]
    for name in names:
        (tmp_path / f"{name}.toml").write_text(text.replace('app = "shop"', f'app = "{name}"'), "utf-8")
        for _ in range(len(name) - 4):
            KeyStore(Store(good.redis, name)).create("ingest", "")
    paths = os.pathsep.join([str(registry_file), *(str(tmp_path / f"{name}.toml") for name in names)])
    monkeypatch.setenv("DENIABLE_REGISTRY", paths)
    assert cli.main(["doctor", "--redis-url", good.url]) == 1  # they have keys, and no server
    output = capsys.readouterr().out
    assert output.startswith("1 fault: servers (servers run, but serve shop only); ")
    assert output.count(": servers run, but serve shop only") == output.count("none gives a sign of life") == 1
    assert "fault    servers (app-0, app-1, app-2, app-3 and 26 more): servers run, but serve shop only" in output
    assert "The same of app-1, app-2, app-3, app-4 and 25 more, but for" in output
    assert "ok       workers (shop): 1 alive\n" in output
    assert "warning  keys (app-0): 1 ingest, 0 read, 0 admin\n" in output
    assert output.count(" keys (") == 2
    worst = re.findall(r"^(fault|warning) ", output, re.MULTILINE)  # as many as the first line has
    counts = f"{plural(worst.count('fault'), 'fault')}: .*; {plural(worst.count('warning'), 'warning')}: .*"
    assert re.fullmatch(counts, output.splitlines()[0])
    assert len(output.splitlines()) <= 60


def test_a_key_that_a_servers_user_would_make(good, capsys):
    """A script stops within, and the answer is that of any other user who may not: run it as another."""
    line = next(line for line in (ROOT / "deploy" / "users.acl").read_text("utf-8").splitlines() if line.split()[1] == "query")
    good.redis.execute_command("ACL", "SETUSER", *line.split()[1:], ">password")
    url = good.url.replace("unix://", "unix://query:password@")
    try:
        assert cli.main(["keys", "--redis-url", url, "--app", "shop", "create", "--role", "read", "--undeclared"]) == 3
    finally:
        good.redis.execute_command("ACL", "DELUSER", "query")
    words = capsys.readouterr().err
    assert "its user may not do this" in words
    assert "this ran as the user 'query': run it as 'operator'" in words


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (redis.AuthenticationError("WRONGPASS"), "login"),
        (
            redis.ConnectionError("Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired."),
            "certificate",
        ),
        (redis.ConnectionError("Error 2 connecting to 127.0.0.1:1. No such file or directory."), "file"),
        (redis.ConnectionError("Error 2 connecting to unix:/s. No such file or directory."), "away"),
        (redis.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused."), "away"),
        (redis.exceptions.NoPermissionError("NOPERM"), "forbidden"),
        (redis.ResponseError("MISCONF Errors writing to the AOF file: File too large"), "disk"),
        (redis.ReadOnlyError("You can't write against a read only replica."), "replica"),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), "replica"),
        (redis.ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed"), "replica"),
        (redis.ResponseError("UNBLOCKED the stream key no longer exists"), "refused"),
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), "replicas"),
        (errors.PromiseBroken("x"), "durability"),
        (errors.BrokenSnapshot("x"), "copy"),
        (redis.ResponseError("ERR unknown command"), "refused"),
        (redis.ResponseError("The user executing the script can't run this command or subcommand script: 5"), "forbidden"),
        (redis.ResponseError("ACL failure in script: User q has no permissions to run the 'hset' command"), "forbidden"),
    ],
)
def test_why_a_store_cannot_be_used_is_told_apart(error, reason):
    """Each has its own remedy, and no remedy has the password."""
    assert errors.reason(error) == reason
    remedy = errors.remedy(error, "rediss://ingest:hunter2@h/0", "operator")
    assert remedy
    assert "hunter2" not in remedy


def test_every_reason_is_documented():
    """The page about the store has each reason for which it cannot be used, in a row with what to do."""
    page = (ROOT / "docs" / "how-to" / "operate" / "mend-the-store.md").read_text("utf-8")
    section = page.partition("| `reason` |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(errors.REASONS)
