"""What an insider finds: who sent what, from where and with which device is nowhere, in no log, file or key, at no log level."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import sys
import time
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from urllib.parse import quote, urlencode
from uuid import UUID

import pytest
from stores import CLUSTER
from waiting import eventually

import deniable
from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable.registry import period
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.publish import release
from deniable_aggregator.store import Store, connect, schema
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.server.servers import primaries
from deniable_aggregator.store.sums import tallies
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 on its loopback")

SOURCE = "127.77.66.55"  # the address that clients have
CANARIES = {
    "User-Agent": "canary-agent-f00d/7.7",
    "Referer": "http://canary-referer.example/f00d",
    "X-Forwarded-For": "203.0.113.77",
    "Forwarded": "for=203.0.113.78;by=canary-proxy",
    "X-Real-IP": "203.0.113.79",
    "Cookie": "canary-cookie-f00d=canary-crumb; deniable=canary-session",
    "Accept-Language": "x-canary-tongue",
    "Origin": "http://canary-origin.example",
    "X-Device-Id": "canary-device-f00d",
    "From": "canary-person@shop.example",
    "Sec-CH-UA-Model": "canary-model",
    "X-Request-Id": "canary-request-id",
    "traceparent": "00-ca4a12ca4a12ca4a12ca4a12ca4a12ff-ca4a12ca4a12ca4a-01",
}
INGEST, READ, OTHER = "pk_canary_ingest_f00d", "rk_canary_read_f00d", "pk_canary_nobody_f00d"
METRICS = "mk_canary_metrics_f00d"
KEY = "canary-idempotency-f00d"
WORDS = ("canary-path", "canary-query", "canary-body", "canary-metric", "canary-segment", "canary-form", "canary-answer")
SECRETS = [SOURCE, *CANARIES.values(), "canary-crumb", INGEST, READ, OTHER, METRICS, KEY, *WORDS, "canary"]

REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"

[publication]
trial = true

[metrics."page"]
type = "string"
candidates = "pages.txt"
epsilon = 1.0
description = "Which page"
owner = "o@shop.example"

[metrics."used"]
type = "boolean"
epsilon = 1.0
epsilon_permanent = 2.0
description = "Whether it was used"
owner = "o@shop.example"
"""

LOUD = Path(__file__).parent / "loud"
"""Has the module by which each process says all that it would say while it is debugged."""


def forms(secret):
    """Return the ways in which a text may be written down."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield quote(secret, safe="").encode()
    for offset in range(3):  # of what base64 makes of it, the part that does not depend on what stands around it
        written = b64encode(bytes(offset) + raw)
        yield written[(offset * 8 + 5) // 6 : (offset + len(raw)) * 8 // 6]
    if re.fullmatch(r"[0-9.]+", secret):
        yield socket.inet_aton(secret)


PATTERN = re.compile(b"|".join(re.escape(form) for form in sorted({f for s in SECRETS for f in forms(s)}, key=len, reverse=True)))


def hits(content):
    """Return what gives somebody away, with some of what stands around it."""
    return [content[max(0, hit.start() - 60) : hit.end() + 60] for hit in PATTERN.finditer(content)]


def test_the_search_finds():
    """What is looked for is found in plain text and as it may be encoded, and in an honest line is not."""
    for secret in SECRETS:
        for text in (secret.encode(), b"x" + secret.encode() + b"y"):
            assert hits(text)
            assert hits(text.hex().encode())
            assert hits(b64encode(text))
    assert hits(b"\0\0" + socket.inet_aton(SOURCE))
    assert not hits(b"2026-11-21 INFO counted 7 reports from 127.0.0.1")


class Served:
    """A server, a worker and a store that say and keep all that they ever would."""

    def __init__(self, folder, stack, url):
        self.folder = folder
        self.stack = stack
        self.redis = connect(url)
        self.store = Store(self.redis, "shop")
        self.registry = registry.load(folder / "metrics.toml")
        self.answers = []

    def ask(self, method, path, body=b"", **headers):
        """Send a request that carries every canary; what is answered must not say more than that it is wrong."""
        lines = CANARIES | {"Content-Length": str(len(body))} | {n.replace("_", "-"): v for n, v in headers.items()}
        host, _, port = self.stack.bind.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=120, source_address=(SOURCE, 0))
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in lines.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert b"Traceback" not in content
        self.answers.append(answer.status)
        self.last = answer, content.decode(errors="replace")
        return answer.status

    def upload(self, body, **headers):
        sent = {"Authorization": f"Bearer {INGEST}", "Content-Type": "application/json", "Idempotency-Key": KEY} | headers
        return self.ask("POST", f"/v1/reports?{urlencode({'q': 'canary-query'})}", body, **sent)

    def group(self, metric, /, **changes):
        declared = self.registry.metrics[metric]
        mechanism = mechanisms.of(declared)
        value = "canary-answer" if metric == "page" else True
        payload = mechanism.randomize(declared.position(value))
        return {
            "metric": metric,
            "version": declared.version,
            "fingerprint": fingerprint(declared, mechanism.canonical),
            "period": period.of(datetime.now(UTC), declared.period),
            "segment": "",
            "count": 1,
            "payloads": b64encode(payload).decode(),
        } | changes

    def drained(self):
        deadline = time.monotonic() + 120
        while self.store.backlog():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def published(self, metric):
        """Wait until something of a metric is published; return its stratum and the release."""
        deadline = time.monotonic() + 120
        while not (releases := release.listed(self.store, metric)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return next(iter(releases.items()))

    def contents(self):
        """Return all that the store says of itself and everything in it, all files, and all numbers."""
        assert self.ask("GET", "/metrics?canary-query=1", Authorization=f"Bearer {METRICS}") == 200
        yield "metrics", self.last[1].encode()
        for server in primaries(self.redis):
            yield "info", repr(server.info("all")).encode()
        for key in self.redis.scan_iter():
            yield repr(key), key + b" " + self.content(key)
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name not in ("metrics.toml", "pages.txt"):
                yield str(path), path.read_bytes()

    def content(self, key):
        kind = self.redis.type(key)
        if kind == b"string":
            return self.redis.get(key)
        if kind == b"stream":
            full = self.redis.execute_command("XINFO", "STREAM", key, "FULL")
            return repr((self.redis.xrange(key), full)).encode()
        read = {b"hash": self.redis.hgetall, b"set": self.redis.smembers, b"list": lambda k: self.redis.lrange(k, 0, -1)}
        return repr(read[kind](key) if kind in read else self.redis.zrange(key, 0, -1, withscores=True)).encode()


@pytest.fixture(params=["server", "wheel", CLUSTER])
def store_here(request, tmp_path):
    """Start each real server, and a cluster with replicas, with its data where we look, and nothing compressed that it writes."""
    if request.param == "cluster":
        machines = request.getfixturevalue("machines")  # in this very folder
        yield machines.cluster(3, 1, "--appendonly", "yes", "--rdbcompression", "no")
        return
    packaged = which("redis-server") if request.param == "server" else None
    executable = Path(packaged) if packaged else None
    with embedded.open_store(directory=tmp_path / "data", executable=executable) as server, connect(server.url) as client:
        client.config_set("rdbcompression", "no")
        yield server.url


@pytest.fixture
def served(store_here, tmp_path, monkeypatch, request):
    """Serve with everything logged that can be, in one format on each store."""
    log_format = {"wheel": "json", "server": "console", "cluster": "json"}[request.node.callspec.params["store_here"]]
    (tmp_path / "metrics.toml").write_text(REGISTRY, "utf-8")
    (tmp_path / "pages.txt").write_text("home\ncart\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(LOUD), prepend=os.pathsep)
    arguments = "--log-level debug --access-logfile - --capture-output --forwarded-allow-ips *"
    monkeypatch.setenv("GUNICORN_CMD_ARGS", arguments)
    settings = Settings(
        redis_url=store_here,
        registry=str(tmp_path / "metrics.toml"),
        ingest_keys=f"shop:{INGEST}",
        read_keys=f"shop:{READ}",
        metrics_key=METRICS,
        log_level="debug",
        log_format=log_format,
    )
    with Stack(settings, bind=f"127.0.0.1:{free_port()}", log_file=tmp_path / "log") as stack:
        service = Served(tmp_path, stack, store_here)
        service.log_format = log_format
        yield service
        service.redis.close()


def test_nobody_can_be_found(served):
    """Requests good, bad and broken, pages, and a device's own reports: nothing of who sent them is left anywhere."""
    uploads(served)
    reads(served)
    nonsense(served)
    device(served)
    breakages(served)
    served.drained()
    assert {200, 202, 303, 400, 401, 404, 405, 411, 413, 415, 422, 500, 503} <= set(served.answers)
    for server in primaries(served.redis):
        server.save()
    log = (served.folder / "log").read_bytes()
    assert b"POST 202" in log  # the access log is on
    assert b"Error in /v1/reports" in log  # a bug is told, and where
    lines = [entry for line in log.splitlines() if (entry := read(served.log_format, line.decode()))]
    assert {"debug", "info", "error"} <= {each["level"] for each in lines}
    answered = [each for each in lines if each["event"] == "answered"]
    assert len(answered) >= len(served.answers) - len([each for each in lines if each["event"] == "a request was refused"])
    assert {each.get("route") for each in answered} >= {"/v1/reports", "/api/v1/metrics/<id_>", "/m/<id_>", "/login", None}
    assert {each.get("method") for each in answered} >= {"GET", "POST", None}  # None: one that a client made up
    codes = {each.get("code") for each in answered}
    assert {"unknown_key", "all_rejected", "internal", "store_unavailable", "not_found"} <= codes
    assert all(UUID(each["request"]).version == 4 for each in answered)
    assert [name for name in served.folder.rglob("*.rdb") if name.stat().st_size]
    assert [name for name in served.folder.rglob("*.aof") if name.stat().st_size]
    seen = {place: parts for place, content in served.contents() if (parts := hits(content))}
    assert not seen, "\n".join(f"{place}: {part}" for place, parts in seen.items() for part in parts[:20])


def read(form, line):
    """Read a line of the log; None for what is none: what a process prints, and the end of what takes several lines."""
    if form == "json":
        return json.loads(line) if line.startswith("{") else None
    match = re.fullmatch(r"[0-9T:.-]+Z (?P<level>[a-z]+) +(?P<logger>\S+): (?P<event>.*?)(?P<rest>( [a-z]+=\S+)*)", line)
    if match is None:
        return None
    return match.groupdict() | dict(pair.split("=", 1) for pair in match["rest"].split())


@pytest.mark.parametrize("store_here", ["server"], indirect=True)  # what writes it down is the same on each store
def test_nothing_tells_a_time(served):
    """Once counted, an upload has left no entry, and nothing that is finer than its hour."""
    assert served.upload(json.dumps({"format": 1, "app": "shop", "groups": [served.group("page")]}).encode()) == 202
    served.drained()
    (key,) = served.redis.scan_iter(match="*:seen:[0-9]*")
    assert served.redis.expiretime(key) % 86_400 == 0
    (updated,) = served.store.strata("page").values()
    assert updated % 3600 == 0
    _, released = served.published("page")
    assert released.published % 3600 == 0
    stream = served.redis.xinfo_stream(served.store.partitions[0].stream)
    assert (stream["length"], stream["entries-added"]) == (0, 1)
    for name in ("last-generated-id", "max-deleted-entry-id"):
        assert int(stream[name].split(b"-")[0]) % 3_600_000 == 0


def uploads(served):
    good = json.dumps({"format": 1, "app": "shop", "groups": [served.group("page"), served.group("used")]}).encode()
    assert served.upload(good) == 202
    assert served.upload(gzip.compress(good), Content_Encoding="gzip") == 202
    assert served.upload(good + b" ") == 422
    strange = [
        served.group("page", metric="canary-metric"),
        served.group("page", period="canary-body"),
        served.group("page", segment="canary-segment=canary-segment"),
        served.group("page", payloads="canary-body"),
        served.group("page", payloads=b64encode(b"canary-body").decode()),
        served.group("page", fingerprint="canary-body"),
    ]
    mixed = json.dumps({"format": 1, "app": "shop", "groups": [served.group("page"), *strange]}).encode()
    assert served.upload(mixed, **{"Idempotency-Key": f"{KEY}-2"}) == 202
    bad = {"Idempotency-Key": f"{KEY}-3"}
    for body in (
        json.dumps({"format": 1, "app": "shop", "groups": strange}).encode(),
        b"canary-body",
        b'{"canary-body": 1}',
        json.dumps({"format": "canary-body", "groups": []}).encode(),
        json.dumps({"format": 1, "app": "shop", "groups": [], "device": CANARIES["X-Device-Id"]}).encode(),
    ):
        assert served.upload(body, **bad) in (400, 422)
    assert served.upload(b"canary-body", **bad, Content_Encoding="gzip") == 400
    assert served.upload(good, **bad, Content_Encoding="canary-body") == 415
    assert served.upload(good, **bad, Content_Type="text/canary-body") == 415
    assert served.upload(good, **bad, Transfer_Encoding="chunked", Content_Length=None) in (400, 411)
    assert served.upload(b"x", **bad, Content_Length="999999999") == 413
    assert served.upload(good, **{"Idempotency-Key": KEY * 9}) == 400
    assert served.upload(good, **{"Idempotency-Key": None}) == 400
    assert served.upload(good, Authorization=f"Bearer {OTHER}") == 401
    assert served.upload(good, Authorization=f"Basic {OTHER}") == 401
    assert served.ask("GET", "/v1/registry", Authorization=f"Bearer {INGEST}", If_None_Match='"canary-body"') == 404


def reads(served):
    read = {"Authorization": f"Bearer {READ}"}
    for path in ("/api/v1/metrics", "/api/v1/metrics/page", "/healthz", "/readyz", "/openapi.json", "/login"):
        assert served.ask("GET", path, **read) == 200
    for query in ("period=canary-query", "segment=canary-query", "level=canary-query", "canary-query=1"):
        assert served.ask("GET", f"/api/v1/metrics/page?{query}", **read) in (400, 404)
    assert served.ask("GET", "/api/v1/metrics/canary-metric", **read) == 404
    assert served.ask("GET", "/?canary-query=canary-query") == 303
    assert served.ask("GET", "/m/canary-metric") == 303
    sign_in(served)
    form = urlencode({"key": READ, "token": "canary-form"}).encode()
    assert served.ask("POST", "/login", form, Content_Type="application/x-www-form-urlencoded") == 400


def sign_in(served):
    """Look at the pages as somebody with the key does."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert served.ask("GET", "/login", Cookie=None) == 200
    answer, page = served.last
    cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0] + "; canary-cookie-f00d=canary-crumb"}
    token = re.search('name="token" value="([^"]+)"', page)[1]
    for key, expected in ((OTHER, 401), (READ, 303)):
        assert served.ask("POST", "/login", urlencode({"key": key, "token": token}).encode(), **form, **cookie) == expected
    cookie = {"Cookie": served.last[0].headers["Set-Cookie"].partition(";")[0] + "; canary-cookie-f00d=canary-crumb"}
    for path, expected in (
        ("/", 200),
        ("/m/page?order=canary-query", 400),
        ("/m/page?period=canary-query", 400),
        ("/m/canary-metric", 404),
    ):
        assert served.ask("GET", path, **cookie) == expected


def nonsense(served):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "CANARY", "TRACE"):
        for path in ("/canary-path", "/v1/reports/canary-path", "/static/canary-path", "/../canary-path"):
            assert served.ask(method, path) in (200, 404, 405)  # 200: OPTIONS of a static path
    assert served.ask("DELETE", "/v1/reports") == 405
    host, _, port = served.stack.bind.partition(":")
    for line in (
        b"canary-path",
        b"GET /canary-path HTTP/9.9",
        b"GET /" + b"canary-path" * 500 + b" HTTP/1.1",
        b"\x16\x03canary-path",
    ):
        with socket.create_connection((host, int(port)), source_address=(SOURCE, 0)) as connection:
            connection.sendall(line + b"\r\nX-Device: canary-device-f00d\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 4")


def device(served):
    """Let the SDK report, in this very process, with a canary for an answer."""
    dsn = f"http://{INGEST}@{served.stack.bind}/shop"
    free = deniable.Caps(budget=deniable.Budget(per_month=None, lifetime=None))
    with deniable.Client(dsn=dsn, registry=served.registry, consent=True, caps=free, state=None, strict=True) as client:
        assert client.record("page", "canary-answer")
        assert client.flush(30)


def breakages(served):
    """Let the server run into what cannot be, and into a store that fails it."""
    good = json.dumps({"format": 1, "app": "shop", "groups": [served.group("page")]}).encode()
    seen = served.store.partition("")._seen
    seen.recall(f"{KEY}-9", 60)  # and so know the store's secret
    _, bucket, field = seen.name(f"{KEY}-9")
    spoiled = f"{seen.base}{int(time.time()) // 86_400}:{bucket}"
    served.redis.hset(spoiled, field, b"no number")
    assert served.upload(good, **{"Idempotency-Key": f"{KEY}-9"}) == 500
    served.redis.delete(spoiled)
    served.redis.rpush(spoiled, b"no text")
    assert served.upload(good, **{"Idempotency-Key": f"{KEY}-9"}) == 503
    served.redis.delete(spoiled)
    served.drained()
    published, released = served.published("page")
    spoiled = tallies.name(published._replace(period="2020-01-01"))  # of which no worker knows
    index, copy = schema.RELEASES.of("shop", "page"), schema.RELEASE.of("shop", spoiled)

    def fails():
        served.redis.hset(index, spoiled, replace(released, first="2020-01-01").note())
        served.redis.set(copy, b"odd")
        return served.ask("GET", "/api/v1/metrics/page?period=2020-01-01", Authorization=f"Bearer {READ}") == 500

    assert eventually(fails)  # a worker deletes so old a release as soon as it looks after them
    served.redis.hdel(index, spoiled)
    served.redis.delete(copy)
