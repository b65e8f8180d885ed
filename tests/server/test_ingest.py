"""Ingest: what is taken, what is refused, with which code (by the stub, too), and that a refused report changes nothing."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
import redis
from fillings import once
from mixing import mixed_toml, relay_toml
from registries import metric_toml, registry_toml

from deniable.registry import period
from deniable.wire.sealing import LONGER
from deniable_aggregator.store.uploads import refused_reports
from deniable_server.api.uploads import batches


def batch(*groups, **changes):
    return {"format": 1, "app": "shop", "groups": list(groups)} | changes


def code(answer):
    assert answer.mimetype == "application/problem+json"
    body = answer.get_json()
    assert body["status"] == answer.status_code
    assert set(body) >= {"type", "title", "status", "code", "detail"}
    return answer.status_code, body["code"]


def test_a_batch_is_accepted_and_counted(served):
    """Reports of several metrics are accepted, and counted once by the worker."""
    answer = served.post(
        batch(served.group("ui.theme", [0, 1, 2]), served.group("plugin", [3] * 5), served.group("country", [1, 2]))
    )
    assert answer.status_code == 202
    assert answer.get_json() == {"accepted": 10, "rejected": 0, "errors": [], "duplicate": False}
    served.drain()
    assert [served.get(f"/api/v1/metrics/{m}").get_json()["n"] for m in ("ui.theme", "plugin", "country")] == [3, 5, 2]


def test_a_repeated_upload_gets_the_first_answer(served):
    """The same key with the same bytes is a duplicate and is counted once, however often it is sent."""
    body = json.dumps(batch(served.group("ui.theme", [0, 1]), served.group("ui.theme", [2], version=9))).encode()
    first = served.post(body, key="again").get_json()
    assert (first["accepted"], first["rejected"], first["duplicate"]) == (2, 1, False)
    for _ in range(5):
        assert served.post(body, key="again").get_json() == first | {"duplicate": True}
    # Compression is not part of the upload's identity.
    assert served.post(gzip.compress(body), key="again", Content_Encoding="gzip").get_json()["duplicate"]
    served.drain()
    assert served.post(body, key="again").get_json()["duplicate"]
    assert served.get("/api/v1/metrics/ui.theme").get_json()["n"] == 2


def test_a_key_is_for_one_upload(served):
    """The same key with other bytes is refused."""
    served.post(batch(served.group("ui.theme", [0])), key="mine")
    before = served.state()
    assert code(served.post(batch(served.group("ui.theme", [0, 0])), key="mine")) == (422, "idempotency_mismatch")
    assert served.state() == before


def test_what_is_remembered_of_an_upload_needs_its_key_to_be_tried(served):
    """Nobody who reads the store can try which reports an upload held: the same bytes are remembered otherwise under each key."""
    body = json.dumps(batch(served.group("ui.theme", [0]))).encode()
    for key in ("one", "another"):
        assert served.post(body, key=key).status_code == 202
    one, another = (served.store.recall(key, 60)[:8] for key in ("one", "another"))
    assert len({one, another, sha256(body).digest()[:8]}) == 3


def test_all_refusals_are_counted_though_not_all_are_told(served):
    """An answer has the first 100 errors; the owner's numbers have them all."""
    groups = [served.group("ui.theme", [0], version=9) for _ in range(130)]
    answer = served.post(batch(served.group("ui.theme", [0]), *groups)).get_json()
    assert (answer["accepted"], answer["rejected"], len(answer["errors"])) == (1, 130, 100)
    assert refused_reports.read(served.store, refused_reports.tables(served.store)) == {("ui.theme", 1): {"unknown_version": 130}}


def test_a_period_that_closed_takes_nothing_new_and_repeats_the_first_answer(served, monkeypatch):
    """An upload whose answer was lost gets it also when its period has closed since; a new one is refused."""
    body = json.dumps(batch(served.group("ui.theme", [0, 1]))).encode()
    first = served.post(body, key="in time").get_json()

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(days=9)

    monkeypatch.setattr(batches, "datetime", Later)
    assert served.post(body, key="in time").get_json() == first | {"duplicate": True}
    late = served.post(body, key="too late")
    assert code(late) == (422, "all_rejected")
    assert late.get_json()["errors"][0]["code"] == "period_closed"
    assert code(served.post(body + b" ", key="in time")) == (422, "idempotency_mismatch")
    assert served.store.backlog() == 1


def test_a_repeated_upload_gets_its_numbers_when_its_errors_cannot_be_told_again(served, monkeypatch):
    """Of what was refused only the number is remembered; a group that was taken is never said to be refused."""
    body = json.dumps(batch(served.group("ui.theme", [0, 1]), served.group("ui.theme", [2], version=9))).encode()
    assert served.post(body, key="mixed").get_json()["errors"][0]["code"] == "unknown_version"

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(days=9)

    monkeypatch.setattr(batches, "datetime", Later)
    assert served.post(body, key="mixed").get_json() == {"accepted": 2, "rejected": 1, "errors": [], "duplicate": True}


def test_a_metric_that_has_expired_takes_nothing_though_its_period_is_open(serve, monkeypatch):
    """Also where the server has taken reports of that period before."""
    today = datetime.now(UTC).date()
    server = serve(registry_toml(metric_toml("last", period="month", grace="30d", expires=today)))
    group = server.group("last", [0])

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(days=1)

    assert server.post(batch(group)).status_code == 202
    monkeypatch.setattr(batches, "datetime", Tomorrow)
    assert server.post(batch(group)).get_json()["errors"][0]["code"] == "metric_expired"


@pytest.mark.parametrize("longer", [0, LONGER])
def test_a_report_for_a_relay_is_refused_sealed_or_not(serve, longer):
    """No device reaches the server itself: it would see the address beside a report that hides among others."""
    server = serve(relay_toml(mixed_toml(), metric_toml("plain"), publication={"min_reports": 1, "trial": True}))
    group = server.group("m", [0], payloads=b64encode(bytes(1 + longer)).decode())
    answer = server.post(batch(group, server.group("plain", [1])))
    assert code(answer) == (422, "all_rejected")
    assert [error["code"] for error in answer.get_json()["errors"]] == ["relay_only", "relay_only"]


def now_period(delta):
    return period.of(datetime.now(UTC) + delta, "day")


GROUP_FAULTS = {
    "unknown metric": ("unknown_metric", lambda s: s.group("ui.theme", [0], metric="ui.color")),
    "another version": ("unknown_version", lambda s: s.group("ui.theme", [0], version=2)),
    "another definition": ("definition_mismatch", lambda s: s.group("ui.theme", [0], fingerprint="0" * 16)),
    "expired metric": ("metric_expired", lambda s: s.group("ended", [0])),
    "closed period": ("period_closed", lambda s: s.group("ui.theme", [0], period=now_period(-timedelta(days=5)))),
    "period to come": ("period_not_open", lambda s: s.group("ui.theme", [0], period=now_period(timedelta(days=2)))),
    "period misspelt": ("period", lambda s: s.group("ui.theme", [0], period="2026-1-1")),
    "period of another length": ("period", lambda s: s.group("ui.theme", [0], period="2026-11")),
    "segment missing": ("segment", lambda s: s.group("export.used", [0], segment="")),
    "segment misspelt": ("segment", lambda s: s.group("export.used", [0], segment="platform:linux")),
    "segment twice": ("segment", lambda s: s.group("export.used", [0], segment="platform=linux,platform=linux")),
    "segment of another metric": ("segment", lambda s: s.group("export.used", [0], segment="arch=arm")),
    "segment where none is": ("segment", lambda s: s.group("ui.theme", [0], segment="platform=linux")),
    "segment with more": ("segment", lambda s: s.group("export.used", [0], segment="platform=linux,user=7")),
    "payload too short": ("payload_length", lambda s: s.group("plugin", [0], payloads=b64encode(b"\1").decode())),
    "payload too long": ("payload_length", lambda s: s.group("plugin", [0], payloads=b64encode(b"\1\0\0").decode())),
    "count too high": ("payload_length", lambda s: s.group("ui.theme", [0], count=2)),
    "no reports": ("payload_length", lambda s: s.group("ui.theme", [])),
    "index >= width": ("index_range", lambda s: s.group("ui.theme", [0], payloads=b64encode(b"\3").decode())),
    "cell beyond the rows": (
        "index_range",
        lambda s: s.group("country", [0], payloads=b64encode(b"\xff" * s.mechanism("country").layout.payload_size).decode()),
    ),
    "padding bits set": ("padding_bits", lambda s: s.group("plugin", [0], payloads=b64encode(b"\0\x10").decode())),
    "not base64": ("base64", lambda s: s.group("ui.theme", [0], payloads="%%%")),
    "base64 unpadded": ("base64", lambda s: s.group("ui.theme", [0], payloads="AA")),
}


@pytest.mark.parametrize("fault", GROUP_FAULTS)
def test_a_faulty_group_is_refused_alone(alike, fault):
    """A bad group is refused with its code, its honest neighbour is counted, and no tally but that one's changes."""
    expected, make = GROUP_FAULTS[fault]
    alike.store.divide()  # as the first upload does
    before = alike.state()
    assert code(alike.post(batch(make(alike)))) == (422, "all_rejected")
    assert alike.state() == before
    answer = alike.post(batch(make(alike), alike.group("country", [4, 5])))
    assert answer.status_code == 202
    body = answer.get_json()
    assert body["accepted"] == 2
    assert [(error["group"], error["code"]) for error in body["errors"]] == [(0, expected)]
    assert body["errors"][0]["detail"]
    alike.drain()
    counted = {m["id"]: m["n"] for m in alike.get("/api/v1/metrics").get_json()["metrics"]}
    assert counted == {"ui.theme": 0, "export.used": 0, "plugin": 0, "country": 2, "ended": 0}


def test_bad_payloads_are_picked_out_of_a_group(alike):
    """Within a group, impossible payloads are rejected and counted as such; the others are taken."""
    group = alike.group("ui.theme", [0] * 4, payloads=b64encode(b"\0\x07\2\xff").decode())
    body = alike.post(batch(group)).get_json()
    assert (body["accepted"], body["rejected"]) == (2, 2)
    assert body["errors"] == [{"group": 0, "code": "index_range", "count": 2, "detail": body["errors"][0]["detail"]}]
    alike.drain()
    assert alike.store.read(alike.mechanism("ui.theme").layout, list(alike.store.strata("ui.theme"))).counts.tolist() == [
        [1, 0, 1]
    ]


def small(served):
    return json.dumps(batch(served.group("ui.theme", [0]))).encode()


def nested(depth):
    return b"[" * depth + b"]" * depth


REQUEST_FAULTS = {
    "no key": ((401, "missing_key"), lambda s: s.post(small(s), Authorization=None)),
    "basic auth": ((401, "missing_key"), lambda s: s.post(small(s), Authorization="Basic cGs6")),
    "unknown key": ((401, "unknown_key"), lambda s: s.post(small(s), Authorization="Bearer pk_test_00000000")),
    "read key": ((401, "unknown_key"), lambda s: s.post(small(s), Authorization="Bearer rk_test_12345678")),
    "no idempotency key": ((400, "idempotency_key"), lambda s: s.post(small(s), Idempotency_Key=None)),
    "long idempotency key": ((400, "idempotency_key"), lambda s: s.post(small(s), Idempotency_Key="x" * 129)),
    "huge body": ((413, "body_too_large"), lambda s: s.post(b"x" * (256 * 1024 + 1))),
    "gzip bomb": ((413, "inflated_too_large"), lambda s: s.post(gzip.compress(bytes(50 << 20)), Content_Encoding="gzip")),
    "truncated gzip": ((400, "gzip"), lambda s: s.post(gzip.compress(small(s))[:-9], Content_Encoding="gzip")),
    "two gzip members": ((400, "gzip"), lambda s: s.post(gzip.compress(small(s)) * 2, Content_Encoding="gzip")),
    "no gzip at all": ((400, "gzip"), lambda s: s.post(small(s), Content_Encoding="gzip")),
    "another encoding": ((415, "content_encoding"), lambda s: s.post(small(s), Content_Encoding="br")),
    "another type": ((415, "media_type"), lambda s: s.post(small(s), Content_Type="text/plain")),
    "truncated JSON": ((400, "json"), lambda s: s.post(small(s)[:-5])),
    "no length": ((411, "length_required"), lambda s: s.served.post(b"")),  # the stub finds no JSON in it
    "no JSON": ((400, "json"), lambda s: s.post(b"\xff\xfe")),
    "a text that is not UTF-8": ((400, "json"), lambda s: s.post(small(s).replace(b"ui.theme", b"ui.\xffheme"))),
    "deeply nested": (
        (400, "batch_shape"),
        lambda s: s.post(b'{"format": 1, "app": "shop", "groups": ' + nested(100_000) + b"}"),
    ),
    "negative count": ((400, "batch_shape"), lambda s: s.post(batch(s.group("ui.theme", [0], count=-1)))),
    "not an object": ((400, "batch_shape"), lambda s: s.post(b"[]")),
    "missing member": ((400, "batch_shape"), lambda s: s.post(b'{"format": 1}')),
    "unknown member": ((400, "batch_shape"), lambda s: s.post({"format": 1, "app": "shop", "groups": [], "device": "me"})),
    "bool as count": ((400, "batch_shape"), lambda s: s.post(batch(s.group("ui.theme", [0], count=True)))),
    "huge integer": ((400, "batch_shape"), lambda s: s.post(batch(s.group("ui.theme", [0], count=10**400)))),
    "another format": ((400, "batch_format"), lambda s: s.post(batch(format=2))),
    "of another app": ((403, "other_app"), lambda s: s.post(batch(s.group("ui.theme", [0]), app="blog"))),
    "of another app, as its group": (
        (403, "other_app"),
        lambda s: s.post(batch(s.group("ui.theme", [0], version=9), app="blog")),
    ),
    "of no app": ((400, "batch_shape"), lambda s: s.post({"format": 1, "groups": []})),
    "app as number": ((400, "batch_shape"), lambda s: s.post(batch(app=7))),
    "no groups": ((422, "all_rejected"), lambda s: s.post(batch())),
    "wrong method": ((405, "method_not_allowed"), lambda s: s.http.get("/v1/reports")),
    "wrong address": ((404, "not_found"), lambda s: s.http.post("/v1/report")),
}


@pytest.mark.parametrize("fault", REQUEST_FAULTS)
def test_a_faulty_request_changes_nothing(alike, store_url, fault):
    """Each kind of bad request has its own status and code, and leaves the store as it was."""

    def fill():
        alike.served.post(batch(alike.group("ui.theme", [0, 1, 2])))
        alike.drain()

    once("ingest", store_url, alike.store._client, fill)
    before = alike.state()
    expected, send = REQUEST_FAULTS[fault]
    assert code(send(alike)) == expected
    assert alike.state() == before


def test_a_full_backlog_says_when_to_come_back(served):
    """At the cap an upload gets 503 with Retry-After and is accepted once the worker has caught up."""
    for _ in range(50):
        assert served.post(batch(served.group("ui.theme", [0]))).status_code == 202
    refused = served.post(batch(served.group("ui.theme", [0])), key="late")
    assert code(refused) == (503, "backlog_full")
    assert int(refused.headers["Retry-After"]) > 0
    assert served.get("/readyz").status_code == 503
    served.drain()
    assert served.post(batch(served.group("ui.theme", [0])), key="late").status_code == 202
    served.drain()
    assert served.get("/api/v1/metrics/ui.theme").get_json()["n"] == 51


def test_a_store_that_is_away_is_said_so(served, monkeypatch):
    """Without the store uploads and queries get 503, and no trace of the error."""

    def away(*_args, **_kwargs):
        raise redis.ConnectionError("secret-host:6379 refused")

    monkeypatch.setattr(served.store._client.connection_pool, "get_connection", away)
    answer = served.post(batch(served.group("ui.theme", [0])))
    assert code(answer) == (503, "store_unavailable")
    assert "Retry-After" in answer.headers
    assert b"secret-host" not in answer.data
    assert served.http.get("/healthz").status_code == 200
    assert served.http.get("/readyz").status_code == 503
    query = served.get("/api/v1/metrics/ui.theme")
    assert code(query) == (503, "store_unavailable")


def test_an_unexpected_error_is_not_explained_to_strangers(served, monkeypatch):
    """A bug answers 500 with a code, and its message stays inside."""

    def broken(*_args, **_kwargs):
        raise RuntimeError("canary-detail")

    monkeypatch.setattr(type(served.store), "append", broken)
    answer = served.post(batch(served.group("ui.theme", [0])))
    assert code(answer) == (500, "internal")
    assert b"canary-detail" not in answer.data
