"""Whatever is uploaded, the door answers what Flask answers, header for header, and leaves the same in the store."""

from __future__ import annotations

import gc
import gzip
import json
import logging
import math
import re
import time
from dataclasses import replace
from io import BytesIO
from random import Random

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import EnvironBuilder

from deniable_aggregator.process import logs
from deniable_aggregator.store.server.room import Room
from deniable_aggregator.store.uploads import refused_reports
from deniable_server.access.key_ring import FRESH_SECONDS
from deniable_server.access.keys import KeyStore
from deniable_server.api.uploads import intake
from deniable_server.http.visit import Visit
from deniable_server.rates import Volume

INGEST, METRICS = "pk_test_12345678", "mk_test_12345678"
ELSEWHERE = "203.0.113.9"
UPLOADS, MOST = 160, 6  # and how many arrive together


class Way:
    """A server that was just started, and how uploads get to it."""

    def __init__(self, served, *, direct):
        self.served, self.door, self.direct = served, served.flask.extensions["deniable.door"], direct
        self.answered_directly = 0

    def send(self, requests):
        """Send uploads, together if the way is direct; return status, headers and body of each answer."""
        environs = [environ(*request) for request in requests]
        if not self.direct:
            answers = [None] * len(environs)
        elif self.door.together:
            answers = self.door.answer(environs)
        else:
            answers = [answer for each in environs for answer in self.door.answer([each])]
        return [self.outcome(*each) for each in zip(environs, answers, strict=True)]

    def outcome(self, environ, answer):
        """Return an answer, without what differs from one request to the next."""
        if answer:
            self.answered_directly += 1
            status, headers, body = answer.status, answer.headers, answer.body
        else:
            status, headers, body = by_flask(self.served.flask, environ)
        number = dict(headers)["X-Request-ID"]
        remainder = [(name, value) for name, value in headers if name not in ("X-Request-ID", "Retry-After", "Content-Length")]
        assert dict(headers)["Content-Length"] == str(len(body))
        return status, [name for name, _ in headers], remainder, body.replace(number.encode(), b"a number")

    def left(self):
        """Return what is in the store, and what Prometheus is told."""
        store, client = self.served.store, self.served.store._client
        entries = sorted(entry[b"d"] for each in store.partitions for _, entry in client.xrange(each.stream))
        remembered = sum(client.hlen(key) for key in client.scan_iter("*:seen:*:*"))
        refused = refused_reports.read(store, refused_reports.tables(store))
        requests = sorted(
            (re.sub(rb"source:[0-9a-f]+", b"source:x", key), int(client.get(key))) for key in client.scan_iter("*:rate:*")
        )
        text = self.served.http.get("/metrics", headers={"Authorization": f"Bearer {METRICS}"}).get_data(as_text=True)
        counts = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.endswith(("_total", "_count")) and sample.labels.get("route") != "/metrics"
        }
        return entries, remembered, refused, requests, counts


@pytest.fixture
def start(served):
    """Start servers, and close what they have opened at the end."""
    ways = []

    def make(settings, *, direct):
        ways.append(Way(type(served)(settings), direct=direct))
        return ways[-1]

    yield make
    for way in ways:
        way.served.store._client.close()


def by_flask(app, environ):
    """Let Flask answer, as a server does; `werkzeug.test` would copy the environment."""
    begun = []
    answer = app(environ, lambda *start: begun.extend(start[:2]))
    body = b"".join(answer)
    answer.close()
    return *begun, body


def environ(body, headers):
    """Return the environment of an upload, as a server makes it."""
    environment = EnvironBuilder("/v1/reports", method="POST", data=body, headers=headers).get_environ()
    return environment | {"REMOTE_ADDR": ELSEWHERE, "wsgi.input": BytesIO(body)}


def some_groups(served):
    return [served.group(metric, [0, 1, 1]) for metric in ("ui.theme", "export.used", "plugin", "country")]


def some_uploads(served):
    """Make uploads: most of them good, some sent again, others with one thing wrong."""
    draw = Random("uploads")
    good = some_groups(served)
    broken = [
        good[0] | {"fingerprint": "f" * 16},
        good[1] | {"period": "2020-01-01"},
        good[0] | {"metric": "nobodys"},
        good[0] | {"version": 7},
        good[0] | {"segment": "platform=toaster"},
        good[2] | {"payloads": "AAA"},
        good[2] | {"count": 99},
    ]
    requests = []
    for number in range(UPLOADS):
        groups = draw.sample(good, draw.randint(1, 3)) + draw.sample(broken, draw.choice([0, 0, 0, 1]))
        body = json.dumps({"format": 1, "app": "shop", "groups": groups}).encode()
        headers = {
            "Authorization": f"Bearer {INGEST}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"upload-{number}",
            "X-Forwarded-For": f"198.51.100.{number}",
        }
        match draw.randrange(16):
            case 0 if requests:
                body, headers = draw.choice(requests)  # again
            case 1:
                body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
            case 2:
                headers["Idempotency-Key"] = "upload-0"  # with another body
            case 3:
                body = json.dumps({"format": 1, "app": "shop", "groups": draw.sample(broken, 2)}).encode()
            case 4:
                change = draw.choice(
                    [
                        {"Authorization": "Bearer pk_nobody_12345678"},
                        {"Authorization": "Bearer rk_test_12345678"},
                        {"Authorization": ""},
                        {"Idempotency-Key": ""},
                        {"Idempotency-Key": "k" * 200},
                        {"Content-Type": "text/plain"},
                        {"Content-Type": "Application/JSON; charset=utf-8"},
                        {"Content-Encoding": "br"},
                        {"Content-Encoding": "gzip"},
                        {"Origin": "https://example.org"},
                    ]
                )
                headers |= change
            case 5:
                body = draw.choice([b"", b"{", b"[]", b"\xff", body.replace(b'"format": 1', b'"format": 2'), body + b" x"])
        requests.append((body, headers))
    return requests


def both(start, served, settings, prepare=lambda _: None):
    """Send the same uploads both ways, each to a server that was just started on an empty store; return the two ways."""
    requests, seen, ways = some_uploads(served), [], []
    for direct in (True, False):
        served.store._client.flushall()
        way = start(settings, direct=direct)
        prepare(way.served)
        sizes, answers, remainder = Random("sizes"), [], list(requests)
        while remainder:
            number = sizes.randint(1, MOST)
            answers += way.send(remainder[:number])
            remainder = remainder[number:]
        seen.append(answers)
        ways.append(way)
    for (body, headers), direct, by_flask in zip(requests, *seen, strict=True):
        assert direct == by_flask, (body, headers)
    return ways


@pytest.mark.cluster_too
@pytest.mark.divided_too
@pytest.mark.parametrize(
    "more", [{}, {"trusted_proxies": 1}, {"cors_origins": "https://example.org"}], ids=["usual", "proxy", "origins"]
)
def test_both_ways_answer_alike(start, served, settings, more):
    """Good, repeated, compressed, half good and refused uploads."""
    watched = replace(settings, metrics_key=METRICS, max_backlog=10_000, **more)
    direct, by_flask = both(start, served, watched)
    assert direct.left() == by_flask.left()
    assert direct.answered_directly > UPLOADS / 2
    assert by_flask.answered_directly == 0


def test_both_ways_limit_alike(start, served, settings):
    """A source above its limit, and a full backlog."""
    more = {"rate_limit_source": "60/minute", "rate_limit_key": "100/minute", "trusted_proxies": 0}
    direct, by_flask = both(start, served, replace(settings, metrics_key=METRICS, **more))
    assert direct.left()[0] == by_flask.left()[0]
    assert len(direct.left()[0]) <= 50


def test_both_ways_count_what_is_stored_alike(start, served, settings):
    """Refused where an address takes too much of the store; what is refused is not stored."""

    def limit(another):
        another.post({"format": 1, "app": "shop", "groups": some_groups(another)})  # from here: it pays for the sums
        another.service.limits._stored = Volume(20_000, 3600)

    direct, by_flask = both(start, served, replace(settings, metrics_key=METRICS, max_backlog=10_000), limit)
    assert [way.left()[0] for way in (direct, by_flask)] == [by_flask.left()[0]] * 2
    assert sum(map(len, by_flask.left()[0])) < 20_000 + 2000


def test_both_ways_refuse_alike_where_there_is_no_room(start, served, settings):
    """A store that is full."""

    def fill(another):
        client = another.store._client
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.2))

    try:
        direct, by_flask = both(start, served, replace(settings, metrics_key=METRICS), fill)
    finally:
        served.store._client.config_set("maxmemory", 1 << 30)
    assert direct.left()[0] == by_flask.left()[0] == []


@pytest.fixture
def way(start, settings):
    """Serve directly, when all is known that the store need not be asked for: one upload was answered."""
    way = start(replace(settings, metrics_key=METRICS), direct=True)
    way.send(good(way, "first"))
    return way


def good(way, *keys):
    body = json.dumps({"format": 1, "app": "shop", "groups": some_groups(way.served)}).encode()
    usual = {"Authorization": f"Bearer {INGEST}", "Content-Type": "application/json"}
    return [(body, usual | {"Idempotency-Key": key}) for key in keys]


def test_a_failure_counts_once(way, monkeypatch):
    """After a bug when the store has answered, Flask answers all that arrived together: each counts once."""
    requests = good(way, "a", "b", "c")
    monkeypatch.setattr(intake, "_note_paid", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        way.send(requests)
    monkeypatch.undo()
    answers = Way(way.served, direct=False).send(requests)
    assert [json.loads(body)["accepted"] for *_, body in answers] == [12] * 3
    assert len(way.left()[0]) == 1 + 3


@pytest.mark.parametrize("refused", [False, True])
def test_the_first_of_a_group_pays_for_new_sums(start, served, settings, refused):
    """The others of the group do not pay again; if the first is refused, the next one pays."""
    taken = []
    for direct in (True, False):
        served.store._client.flushall()
        way = start(replace(settings, metrics_key=METRICS), direct=direct)
        way.send(good(way, "first"))
        way.served.service.apps["shop"].paid.clear()
        ((body, headers),) = good(way, "first")
        repeated = [(body + b" ", headers)] * refused  # its key was used for another upload
        answers = way.send([*repeated, *good(way, "a", "b", "c")])
        assert [status[:3] for status, *_ in answers] == ["422"] * refused + ["202"] * 3
        ((_, size),) = [(key, size) for key, size in way.left()[3] if key.endswith(b":bytes")]
        taken.append(size)
    assert taken[0] == taken[1]


def test_a_store_that_hangs_is_waited_for_once(way, monkeypatch):
    """Not once for each upload: one thread answers them all. Each gets the error that Flask makes of it."""
    query = []

    def take(*_):
        query.append(1)
        raise redis.TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(Room, "take", take)
    assert way.door.answer([environ(*each) for each in good(way, *"abcdefgh")]) == [None] * 8
    assert len(query) == 1
    assert {status for status, *_ in way.send(good(way, *"abc"))} == {"503 SERVICE UNAVAILABLE"}
    assert len(query) == 2


@pytest.mark.parametrize("unknown", ["a key", "partitions", "the day's key of sources", "nothing"])
def test_nothing_is_asked_to_prepare_an_upload(way, unknown, monkeypatch):
    """Where the store would have to be asked first, Flask does so."""
    known, requests = way.served.service, good(way, "x")
    if unknown == "a key":
        key, _ = KeyStore(way.served.store).create("ingest", "")
        requests[0][1]["Authorization"] = f"Bearer {key}"
        way.send(requests)
        assert intake.prepare(known, Visit(environ(*requests[0])))
        known.ring._clock = lambda: time.monotonic() + FRESH_SECONDS
    elif unknown == "partitions":
        known.apps["shop"].store._checked = -math.inf
    elif unknown == "the day's key of sources":
        known.limits._sources._day = "2020-01-01"
    for kind in (redis.Connection, redis.UnixDomainSocketConnection):
        monkeypatch.setattr(kind, "send_packed_command", lambda *_, **__: pytest.fail("the store was asked"))
    prepared = intake.prepare(known, Visit(environ(*requests[0])))
    monkeypatch.undo()
    assert (prepared is None) == (unknown != "nothing")


@pytest.mark.parametrize(
    ("address", "more"), [("127.0.0.1", {}), (ELSEWHERE, {"rate_limit_source": "off", "stored_limit_source": "off"})], ids=str
)
def test_who_has_no_source_is_answered_directly(start, settings, address, more):
    """The machine's own tools, a proxy that is not trusted, and everybody where nothing is limited by source."""
    way = start(replace(settings, **more), direct=True)
    way.send(good(way, "first"))
    ((body, headers),) = good(way, "x")
    (answer,) = way.door.answer([environ(body, headers) | {"REMOTE_ADDR": address}])
    assert answer.status == "202 ACCEPTED"


def test_what_costs_much_to_refuse_is_checked_by_flask(way):
    """A body that is large, and one of which a part is refused, do not hold up the others."""
    groups = some_groups(way.served)
    bad = [groups[0] | {"metric": f"nobodys-{number}"} for number in range(3)]
    for part in (groups + bad, [groups[0]] * 600):
        ((_, headers),) = good(way, f"{len(part)}")
        assert way.door.answer([environ(json.dumps({"format": 1, "app": "shop", "groups": part}).encode(), headers)]) == [None]


@pytest.mark.parametrize(
    ("more", "status"), [({"max_backlog": 1}, "503"), ({"rate_limit_key": "1/minute"}, "429"), ({}, "202")], ids=str
)
def test_no_upload_stays_in_memory(start, served, settings, more, status):
    """Whatever becomes of it, nothing holds it when it is answered: no error, no cycle."""
    served.store._client.flushall()
    way = start(replace(settings, metrics_key=METRICS, **more), direct=True)
    way.send(good(way, "first"))
    way.send(good(way, *"uvw"))
    gc.collect()
    before = visits()
    assert {status[:3] for status, *_ in way.send(good(way, *"abc"))} == {status}
    assert visits() == before


def visits():
    """Count the visits in memory. Tests run without the collector of garbage, so a cycle is still there."""
    return sum(isinstance(each, Visit) for each in gc.get_objects())


def test_a_refusal_is_logged_with_its_app(start, served, settings, caplog):
    """Whether it was decided before Flask was asked or not."""
    caplog.set_level("INFO", "deniable.request")
    for direct in (True, False):
        served.store._client.flushall()
        way = start(replace(settings, max_backlog=1), direct=direct)
        way.send(good(way, "first"))
        handler = Seen()
        logging.getLogger("deniable.request").addHandler(handler)
        way.send(good(way, "a"))
        logging.getLogger("deniable.request").removeHandler(handler)
        assert handler.seen == [{"app": "shop", "code": "backlog_full"}]


class Seen(logging.Handler):
    """Keeps what a line of the log would say."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, _record):
        self.seen.append({name: logs.current().get(name) for name in ("app", "code")})
