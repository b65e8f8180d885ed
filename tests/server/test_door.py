"""Whatever is uploaded, the door answers what Flask answers, header for header, and leaves the same in the store."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from io import BytesIO
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import EnvironBuilder, run_wsgi_app

from deniable_aggregator.store import refused_reports
from deniable_server.api import uploads
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
        return [self.told(*each) for each in zip(environs, answers, strict=True)]

    def told(self, environ, answer):
        """Return an answer, without what differs from one request to the next."""
        if answer:
            self.answered_directly += 1
            status, headers, body = answer.status, answer.headers, answer.body
        else:
            chunks, status, headers = run_wsgi_app(self.served.flask, environ)
            body = b"".join(chunks)
        number = dict(headers)["X-Request-ID"]
        rest = [(name, value) for name, value in headers if name not in ("X-Request-ID", "Retry-After", "Content-Length")]
        assert dict(headers)["Content-Length"] == str(len(body))
        return status, [name for name, _ in headers], rest, body.replace(number.encode(), b"a number")

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
        # Uploads that arrive together pay for the same new sums; the first of those that follow one another pays alone.
        return entries, remembered, refused, [each for each in requests if not each[0].endswith(b":bytes")], counts


def environ(body, headers):
    """Return the environment of an upload, as a server makes it."""
    made = EnvironBuilder("/v1/reports", method="POST", data=body, headers=headers).get_environ()
    return made | {"REMOTE_ADDR": ELSEWHERE, "wsgi.input": BytesIO(body)}


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
        body = json.dumps({"format": 1, "groups": groups}).encode()
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
                body = json.dumps({"format": 1, "groups": draw.sample(broken, 2)}).encode()
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


def both(served, settings, prepare=lambda _: None):
    """Send the same uploads both ways, each to a server that was just started on an empty store; return the two ways."""
    requests, seen, ways = some_uploads(served), [], []
    for direct in (True, False):
        served.store._client.flushall()
        way = Way(type(served)(settings), direct=direct)
        prepare(way.served)
        sizes, answers, rest = Random("sizes"), [], list(requests)
        while rest:
            number = sizes.randint(1, MOST)
            answers += way.send(rest[:number])
            rest = rest[number:]
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
def test_both_ways_answer_alike(served, settings, more):
    """Good, repeated, compressed, half good and refused uploads."""
    watched = replace(settings, metrics_key=METRICS, max_backlog=10_000, **more)
    direct, by_flask = both(served, watched)
    assert direct.left() == by_flask.left()
    assert direct.answered_directly > UPLOADS / 2
    assert by_flask.answered_directly == 0


def test_both_ways_limit_alike(served, settings):
    """A source above its limit, and a full backlog."""
    more = {"rate_limit_source": "60/minute", "rate_limit_key": "100/minute", "trusted_proxies": 0}
    direct, by_flask = both(served, replace(settings, metrics_key=METRICS, **more))
    assert direct.left()[0] == by_flask.left()[0]
    assert len(direct.left()[0]) <= 50


def test_both_ways_count_what_is_stored_alike(served, settings):
    """Refused where an address takes too much of the store; what is refused is not stored."""

    def limit(another):
        another.post({"format": 1, "groups": some_groups(another)})  # from here: it pays for the sums
        another.service.limits._stored = Volume(20_000, 3600)

    direct, by_flask = both(served, replace(settings, metrics_key=METRICS, max_backlog=10_000), limit)
    assert [way.left()[0] for way in (direct, by_flask)] == [by_flask.left()[0]] * 2
    assert sum(map(len, by_flask.left()[0])) < 20_000 + 2000


def test_both_ways_refuse_alike_where_there_is_no_room(served, settings):
    """A store that is full."""

    def fill(another):
        client = another.store._client
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.2))

    direct, by_flask = both(served, replace(settings, metrics_key=METRICS), fill)
    served.store._client.config_set("maxmemory", 0)
    assert direct.left()[0] == by_flask.left()[0] == []


def test_a_failure_counts_once(served, settings, monkeypatch):
    """After a bug when the store has answered, Flask answers all that arrived together: each counts once."""
    way = Way(type(served)(replace(settings, metrics_key=METRICS)), direct=True)
    body = json.dumps({"format": 1, "groups": some_groups(served)}).encode()
    usual = {"Authorization": f"Bearer {INGEST}", "Content-Type": "application/json"}
    good = [(body, usual | {"Idempotency-Key": f"upload-{number}"}) for number in range(3)]
    monkeypatch.setattr(uploads, "_note_paid", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        way.send(good)
    monkeypatch.undo()
    answers = Way(way.served, direct=False).send(good)
    assert [json.loads(body)["accepted"] for *_, body in answers] == [12] * 3
    assert len(way.left()[0]) == 3
