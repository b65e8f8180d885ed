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

from .conftest import Alike


def batch(*groups, **changes):
    return {"format": 1, "app": "shop", "groups": list(groups)} | changes


def test_what_is_taken(alike):
    """A good batch, plain or compressed, is accepted; sent again it is a duplicate; its key is for it alone."""
    body = json.dumps(batch(alike.group("ui.theme", [0, 1]), alike.group("country", [3]))).encode()
    assert alike.post(body, key="mine").get_json()["accepted"] == 3
    assert alike.post(gzip.compress(body), key="mine", Content_Encoding="gzip").get_json()["duplicate"] is True
    assert alike.post(body + b" ", key="mine").get_json()["code"] == "idempotency_mismatch"
    assert alike.post(gzip.compress(body), Content_Encoding="gzip").get_json()["duplicate"] is False
    assert len(alike.stub.reports) == 6


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer other"},
        {"Authorization": "bearer  pk_test_12345678 "},
        {"Content_Type": None},
        {"Content_Type": "application/json; charset=utf-8"},
        {"Content_Encoding": "identity"},
    ],
)
def test_headers(alike, headers):
    """Headers that are written otherwise are taken, or refused, alike; `test_ingest.py` has those that are wrong."""
    alike.post(batch(alike.group("ui.theme", [0])), **headers)


@pytest.mark.parametrize(
    ("body", "encoding", "code"),
    [
        (b" " * (MAX_BODY_BYTES + 1), None, "body_too_large"),
        (gzip.compress(b" " * (MAX_INFLATED_BYTES + 1), 1), "gzip", "inflated_too_large"),
        (b" ", None, "json"),
        (b"{", None, "json"),
        (b"{}", None, "batch_shape"),
        (b'{"format": true, "app": "shop", "groups": []}', None, "batch_shape"),
        (b'{"format": 1, "app": "shop", "groups": {}}', None, "batch_shape"),
        (b'{"format": 1, "app": "shop", "groups": [7]}', None, "batch_shape"),
    ],
)
def test_bodies(alike, body, encoding, code):
    """More bodies that are no batch, to the byte, are refused with the same code."""
    assert alike.post(body, Content_Encoding=encoding).get_json()["code"] == code


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "1"),
        ("count", 0),
        ("count", MAX_INFLATED_BYTES + 1),
        ("version", -1),
        ("metric", "ended"),
        ("metric", 1),
        ("fingerprint", None),
        ("segment", "="),
        ("payloads", ""),
        ("payloads", b64encode(b"\x00\x00").decode()),
        ("payloads", b64encode(b"\xff").decode()),
    ],
)
def test_groups(alike, name, value):
    """More groups with a wrong member are refused alike, beside a good one."""
    alike.post(batch(alike.group("ui.theme", [0]), alike.group("ui.theme", [1]) | {name: value}))


@pytest.mark.parametrize("segment", ["platform=linux", "platform=plan9"])
def test_segments(alike, segment):
    """Both take a value of a segment that is not listed."""
    assert alike.post(batch(alike.group("export.used", [0], segment=segment))).status_code == 202


def test_bad_payloads_among_good_ones(alike):
    """Payloads that no device could have sent are rejected one by one, with their code."""
    group = alike.group("plugin", [1, 2, 3])
    payloads = b64decode(group["payloads"]) + b"\xff\xff"
    body = alike.post(batch(group | {"count": 4, "payloads": b64encode(payloads).decode()})).get_json()
    assert (body["accepted"], body["rejected"]) == (3, 1)


def test_the_last_hours_of_a_period(alike):
    """A period that ended within the days of grace is still taken, by both."""
    name = period.of(datetime.now(UTC) - timedelta(days=2), "day")
    assert alike.post(batch(alike.group("ui.theme", [0], period=name))).status_code == 202


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
    alike = Alike(serve(text), tmp_path / "another.toml")
    for payload, status in ((good, 202), (beyond, 422)):
        body = batch(alike.group("m", [0], payloads=b64encode(payload).decode()))
        assert alike.post(body).status_code == status
