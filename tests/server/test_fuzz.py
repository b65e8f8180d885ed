"""What nobody thought of: whatever is sent, the answer is one of those documented, and what is refused changes nothing."""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64encode
from dataclasses import replace

import pytest
import schemathesis
from direct_way import directly
from fillings import once
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from werkzeug.test import Client as WsgiClient

from deniable.errors import PayloadError
from deniable.upload_rules import Refused, inflated
from deniable.wire.layout import Layout
from deniable.wire.report import MAX_INFLATED_BYTES, Stratum
from deniable_aggregator import tally
from deniable_aggregator.store import GROUP
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_server.access.keys import KeyStore
from deniable_server.api.openapi import OPERATIONS
from deniable_server.api.uploads import batches
from deniable_server.http.visit import Upload

INGEST, READ, METRICS = "pk_test_12345678", "rk_test_12345678", "mk_test_12345678"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# The fixtures serve all examples of a test: what an example leaves behind is what the next one meets, as in life.
few = settings(max_examples=20, suppress_health_check=list(HealthCheck))
many = settings(max_examples=300, suppress_health_check=list(HealthCheck))


def counted(served):
    """Everything in the store that reports are in, before and after they are counted."""
    stored = (b":reports", b":tally:", b":tallies:", b":weights:", b":dead")
    return {key: value for key, value in served.state().items() if any(part in key for part in stored)}


# What the document describes, kept to and not


# Where nothing is sent, nothing can be wrong with it.
ASKED = [
    pytest.param(
        operation,
        mode,
        way,
        id=f"{operation.method} {operation.path} {mode.value} {name}",
        marks=[pytest.mark.slow("batches are drawn from a large schema")] * (operation.path == "/v1/reports"),
    )
    for operation in OPERATIONS
    for mode in GenerationMode
    for name, way in {"by Flask": lambda flask: flask, "directly": directly}.items()
    if mode is GenerationMode.POSITIVE or operation.parameters or operation.key
    if name == "by Flask" or operation.path == "/v1/reports"
]


_documents = []


def document(flask):
    """Return the document, which is the same for each app: to read it, and all that the app's modules name, takes long."""
    if not _documents:
        _documents.append(schemathesis.openapi.from_wsgi("/openapi.json", flask))
    return _documents[0]


@pytest.mark.parametrize("examples", [6, pytest.param(80, marks=[pytest.mark.campaign, pytest.mark.nightly])])
@pytest.mark.parametrize(("operation", "mode", "way"), ASKED)
def test_what_is_asked_is_answered_as_documented(served, store_url, operation, mode, way, examples):
    """Requests made from the document, and such as break it, get an answer of its shape; no refused one changes a count."""
    if operation.key == "metrics":
        served = type(served)(replace(served.service.settings, metrics_key=METRICS))

    def fill():
        served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0, 1, 2])]})
        served.drain()

    once("fuzz", store_url, served.store._client, fill)
    cases = document(served.flask)[operation.path][operation.method.upper()].as_strategy(generation_mode=mode)
    client = WsgiClient(way(served.flask))
    admin, _ = KeyStore(served.store).create("admin", "")
    key = {"ingest": INGEST, "read": READ, "admin": admin, "metrics": METRICS}.get(operation.key, "nobodys-key")
    before = counted(served)

    @settings(few, max_examples=examples)
    @given(case=cases)
    def ask(case):
        answer = case.call(session=client, headers={"Authorization": f"Bearer {key}"})
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert counted(served) == before

    ask()


# Batches


texts = st.text(max_size=30) | st.sampled_from(["ui.theme", "plugin", "country", "2026-11-21", "", "platform=linux", "a|b", "\0"])
numbers = st.integers() | st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**63, 10**30])
scraps = st.none() | st.booleans() | numbers | st.floats() | texts | st.binary(max_size=40).map(lambda b: b64encode(b).decode())
documents = st.recursive(
    scraps, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


@st.composite
def nearly_batches(draw, honest_groups):
    """Draw a batch that is honest but for a few members, which may be missing, doubled, or anything at all."""
    groups = [dict(draw(st.sampled_from(honest_groups))) for _ in range(draw(st.integers(0, 4)))]
    for group in groups:
        for member in draw(st.lists(st.sampled_from([*group, "more"]), max_size=2)):
            if draw(st.booleans()):
                group[member] = draw(scraps)
            else:
                group.pop(member, None)
    full = {"format": draw(st.just(1) | scraps), "groups": draw(st.just(groups) | documents)}
    return json.dumps(full).encode()


@st.composite
def nearly_bytes(draw, honest_groups):
    """Draw an honest batch of which a byte or a few are others, which need not be JSON, nor UTF-8."""
    body = bytearray(json.dumps({"format": 1, "app": "shop", "groups": [draw(st.sampled_from(honest_groups))]}).encode())
    for _ in range(draw(st.integers(1, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


def test_no_batch_breaks_the_ingest(served):
    """A batch is taken, or refused with a problem; what is taken can be counted, and is as many reports as the answer says."""
    result = [served.group(metric, [0, 1, 1]) for metric in ("ui.theme", "export.used", "plugin", "country")]
    others = documents.map(lambda document: json.dumps(document).encode())
    bodies = nearly_batches(result) | nearly_bytes(result) | others | st.binary(max_size=200)

    @many
    @given(body=bodies)
    def take(body):
        try:
            checked = batches.check(served.app, served.service.settings, body, Upload())
        except Refused as refusal:
            refused.add((refusal.status, refusal.code))
            return
        groups = batch.decode(checked.entry)
        assert checked.answer["accepted"] == sum(tally.count(group.layout, group.payloads).n for group in groups) > 0

    refused = set()
    take()
    assert refused <= {(400, "json"), (400, "batch_shape"), (400, "batch_format"), (422, "all_rejected")}


@many
@given(
    wire=st.binary(max_size=300) | st.binary(max_size=300).map(gzip.compress), junk=st.binary(max_size=9), cut=st.integers(0, 40)
)
def test_no_compression_breaks_the_ingest(wire, junk, cut):
    """Whatever claims to be gzip is inflated as everybody would, or refused."""
    wire = wire[: len(wire) - cut] + junk
    refused = None
    try:
        body = inflated(wire, "application/json", "gzip", MAX_INFLATED_BYTES)
    except Refused as refusal:
        refused = (refusal.status, refusal.code)
    assert refused in (None, (400, "gzip"))
    assert refused or body == zlib.decompress(wire, wbits=31)


@few
@given(size=st.integers(0, 5000), limit=st.integers(1, 5000))
def test_inflating_stops_at_the_limit(size, limit):
    """Exactly what fits is inflated."""
    wire = gzip.compress(bytes(size))
    if size <= limit:
        assert inflated(wire, "application/json", "gzip", limit) == bytes(size)
    else:
        with pytest.raises(Refused) as caught:
            inflated(wire, "application/json", "gzip", limit)
        assert caught.value.status == 413


# Entries of the stream


@st.composite
def nearly_entries(draw):
    """Draw an entry of which a byte or a few are other than the ingest wrote them."""
    layout = Layout(draw(st.integers(1, 3)), draw(st.integers(2, 20)), draw(st.sampled_from(["index", "bits"])))
    group = Group(Stratum("m", 1, "f", "2026-11-21", ""), layout, draw(st.binary(max_size=30)))
    entry = bytearray(batch.encode([group] * draw(st.integers(0, 3))))
    for _ in range(draw(st.integers(0, 3))):
        entry[draw(st.integers(0, len(entry) - 1))] = draw(st.integers(0, 255))
    return bytes(entry)


@many
@given(entry=st.binary(max_size=200) | nearly_entries())
def test_no_entry_breaks_the_worker(entry):
    """An entry is read and counted, or refused as a payload: nothing else comes out of it."""
    try:
        groups = batch.decode(entry)
        tallies = [tally.count(group.layout, group.payloads) for group in groups]
    except PayloadError:
        return
    assert sum(counts.n for counts in tallies) == sum(group.reports for group in groups)


def test_poison_harms_nobody(served):
    """Among entries of any bytes, honest batches are counted, each once, and the worker lives."""
    accepted = 0

    @few
    @given(poison=st.binary(max_size=200) | nearly_entries())
    def feed(poison):
        nonlocal accepted
        assume(not honest(poison))
        served.store._client.xadd(served.store.partitions[0].stream, {"d": poison})
        assert served.post({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0, 1])]}).status_code == 202
        accepted += 2
        served.drain()
        assert served.store.backlog() == 0
        assert served.store._client.xpending(served.store.partitions[0].stream, GROUP)["pending"] == 0

    feed()
    assert served.get("/api/v1/metrics/ui.theme").get_json()["n"] == accepted > 0


def honest(entry):
    try:
        return bool(batch.decode(entry))
    except PayloadError:
        return False
