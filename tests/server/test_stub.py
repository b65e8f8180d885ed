"""The stub server of `deniable.testing` answers as the real ingest does."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import pytest

from deniable.registry import Registry, period
from deniable.testing import StubServer
from deniable.wire.report import MAX_BODY_BYTES, MAX_INFLATED_BYTES

DAY = timedelta(days=1)


@pytest.fixture
def both(served, registry_file):
    """Give an upload to the real ingest and to a stub; return the answer they agree on, as status, code and body."""
    stub = StubServer(registry_file, key="pk_test_12345678")
    numbers = iter(range(1000))

    def outcome(status, body):
        errors = [{name: error[name] for name in ("group", "code", "count")} for error in body.get("errors", ())]
        known = {name: body[name] for name in ("accepted", "rejected", "duplicate") if name in body}
        return status, body.get("code"), known | {"errors": errors}

    def post(body, **headers):
        wire = body if isinstance(body, bytes) else json.dumps(body).encode()
        arguments = {
            "Authorization": "Bearer pk_test_12345678",
            "Idempotency-Key": f"upload-{next(numbers)}",
            "Content-Type": "application/json",
        }
        arguments.update({name.replace("_", "-"): value for name, value in headers.items()})
        arguments = {name: value for name, value in arguments.items() if value is not None}
        real = served.http.post("/v1/reports", data=wire, headers=arguments)
        status, _, answer = stub.answer(arguments, wire)
        assert outcome(status, answer) == outcome(real.status_code, real.get_json())
        assert stub.attempts[-1].status == real.status_code
        return outcome(status, answer)

    post.stub = stub
    return post


def batch(*groups, **changes):
    return {"format": 1, "groups": list(groups)} | changes


def test_what_is_taken(both, served):
    """A good batch, plain or compressed, is accepted; sent again it is a duplicate; its key is for it alone."""
    body = json.dumps(batch(served.group("ui.theme", [0, 1]), served.group("country", [3]))).encode()
    assert both(body, Idempotency_Key="mine")[2]["accepted"] == 3
    assert both(gzip.compress(body), Content_Encoding="gzip", Idempotency_Key="mine")[2]["duplicate"] is True
    assert both(body + b" ", Idempotency_Key="mine")[1] == "idempotency_mismatch"
    assert both(gzip.compress(body), Content_Encoding="gzip")[2]["duplicate"] is False
    assert len(both.stub.reports) == 6


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": None},
        {"Authorization": "Basic pk_test_12345678"},
        {"Authorization": "Bearer other"},
        {"Authorization": "bearer  pk_test_12345678 "},
        {"Idempotency_Key": None},
        {"Idempotency_Key": "k" * 129},
        {"Content_Type": "text/plain"},
        {"Content_Type": None},
        {"Content_Type": "application/json; charset=utf-8"},
        {"Content_Encoding": "br"},
        {"Content_Encoding": "gzip"},
        {"Content_Encoding": "identity"},
    ],
)
def test_headers(both, served, headers):
    """Wrong headers are refused alike, and right ones written otherwise are taken alike."""
    both(batch(served.group("ui.theme", [0])), **headers)


@pytest.mark.parametrize(
    ("wire", "encoding", "code"),
    [
        (b" " * (MAX_BODY_BYTES + 1), None, "body_too_large"),
        (gzip.compress(b" " * (MAX_INFLATED_BYTES + 1), mtime=0), "gzip", "inflated_too_large"),
        (gzip.compress(b"{}", mtime=0)[:-4], "gzip", "gzip"),
        (gzip.compress(b"{}", mtime=0) * 2, "gzip", "gzip"),
        (b" ", None, "json"),
        (b"{", None, "json"),
        (b"\xff", None, "json"),
        (b"[]", None, "batch_shape"),
        (b"{}", None, "batch_shape"),
        (b'{"format": 2, "groups": []}', None, "batch_format"),
        (b'{"format": true, "groups": []}', None, "batch_shape"),
        (b'{"format": 1, "groups": {}}', None, "batch_shape"),
        (b'{"format": 1, "groups": [7]}', None, "batch_shape"),
        (b'{"format": 1, "groups": [], "more": 0}', None, "batch_shape"),
        (b'{"format": 1, "groups": []}', None, "all_rejected"),
    ],
)
def test_bodies(both, wire, encoding, code):
    """A body that is no batch is refused with the same code."""
    assert both(wire, Content_Encoding=encoding)[1] == code


def member(group, name, value):
    return {key: value if key == name else old for key, old in group.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", -1),
        ("count", True),
        ("count", "1"),
        ("count", 0),
        ("count", 2),
        ("count", MAX_INFLATED_BYTES + 1),
        ("version", 2),
        ("version", -1),
        ("metric", "nosuch"),
        ("metric", "ended"),
        ("metric", 1),
        ("fingerprint", "0" * 16),
        ("fingerprint", None),
        ("segment", "platform=linux"),
        ("segment", "="),
        ("period", "2026-1-1"),
        ("period", f"{datetime.now(UTC) - 10 * DAY:%Y-%m-%d}"),
        ("period", f"{datetime.now(UTC) + 10 * DAY:%Y-%m-%d}"),
        ("payloads", "?"),
        ("payloads", ""),
        ("payloads", b64encode(b"\x00\x00").decode()),
        ("payloads", b64encode(b"\xff").decode()),
    ],
)
def test_groups(both, served, name, value):
    """A group with a wrong member is refused alike, beside a good one."""
    both(batch(served.group("ui.theme", [0]), member(served.group("ui.theme", [1]), name, value)))


def test_an_ended_metric_and_segments(both, served):
    """Collection that has ended and segments that are misspelt are refused alike; values that are not listed are not."""
    both(batch(served.group("ended", [0])))
    for segment in ("platform=linux", "", "platform=plan9", "platform=linux,more=1"):
        both(batch(served.group("export.used", [0], segment=segment)))


def test_bad_payloads_among_good_ones(both, served):
    """Payloads that no device could have sent are rejected one by one, with their code."""
    group = served.group("plugin", [1, 2, 3])
    payloads = b64decode(group["payloads"]) + b"\xff\xff"
    accepted = both(batch(group | {"count": 4, "payloads": b64encode(payloads).decode()}))[2]
    assert (accepted["accepted"], accepted["rejected"]) == (3, 1)


def test_the_last_hours_of_a_period(both, served):
    """A period that ended within the days of grace is still taken, by both."""
    name = period.of(datetime.now(UTC) - 2 * DAY, "day")
    assert both(batch(served.group("ui.theme", [0], period=name)))[0] == 202


def test_without_a_registry(served):
    """Without a registry the shape alone matters."""
    group = served.group("ui.theme", [0, 1], metric="anything", period="some day")
    stub = StubServer(key="k")
    headers = {"Authorization": "Bearer k", "Idempotency-Key": "1", "Content-Type": "application/json"}
    assert stub.answer(headers, json.dumps(batch(group)).encode())[0] == 202
    stub.use(Registry("shop", {}))
    assert stub.answer(headers | {"Idempotency-Key": "2"}, json.dumps(batch(group)).encode())[0] == 422


@pytest.mark.parametrize(
    ("declared", "good", "beyond"),
    [
        ('type = "number"\nrange = [0, 10]\nunit = "s"\nestimate = "mean"', b"\x1f", b"\x20"),
        ('type = "number"\nrange = [0, 10]\nunit = "s"\nestimate = "mean"\nepsilon_permanent = 2', b"\x01", b"\x02"),
        ('type = "number"\nrange = [0, 10]\nunit = "s"\nestimate = "distribution"\nepsilon_permanent = 2', b"\xff\xff", b"\xff"),
        ('type = "set"\nvalues = ["a", "b", "c"]', b"\x05", b"\x06"),
        ('type = "set"\njoint = true\nvalues = ["a", "b", "c"]', b"\x0b", b"\x0c"),
        ('type = "ordinal"\nvalues = ["a", "b", "c"]\nestimate = "mean"', b"\x1f", b"\x20"),
    ],
)
def test_numbers_and_sets(serve, tmp_path, declared, good, beyond):
    """Both take the last cell of a number or a set, and refuse the next one."""
    text = f'format = 1\napp = "shop"\n[metrics.m]\n{declared}\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    served = serve(text)
    stub = StubServer(tmp_path / "another.toml", key="pk_test_12345678")
    for payload, status in ((good, 202), (beyond, 422)):
        body = json.dumps(batch(served.group("m", [0], payloads=b64encode(payload).decode()))).encode()
        headers = {
            "Authorization": "Bearer pk_test_12345678",
            "Idempotency-Key": payload.hex(),
            "Content-Type": "application/json",
        }
        real = served.http.post("/v1/reports", data=body, headers=headers)
        mine, _, answer = stub.answer(headers, body)
        assert (real.status_code, mine) == (status, status)
        assert [each["code"] for each in real.get_json()["errors"]] == [each["code"] for each in answer["errors"]]
