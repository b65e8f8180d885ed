"""``GET /v1/registry``: the signed registry as devices get it."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Thread

import jsonschema_rs
import pytest
from werkzeug.serving import make_server

from deniable.client import Client
from deniable.errors import ConfigurationError, ServedRegistryError
from deniable.registry import load, parse
from deniable.registry.tables import Budget, Caps
from deniable.served_registry.restrictions import Restriction
from deniable.served_registry.signature import Envelope, generate, seal
from deniable.transport.settings import SenderSettings
from deniable_aggregator.audit.entry import intact_entry
from deniable_server.api import schemas
from deniable_server.doctor import pipeline

INGEST, READ = "pk_test_12345678", "rk_test_12345678"
PRIVATE, PUBLIC = generate()


@pytest.fixture
def revised(registry_file, tmp_path):
    """Give the served registry a revision; return its file."""
    path = tmp_path / "revised.toml"
    path.write_text(
        Path(registry_file).read_text("utf-8").replace("format = 1", "format = 1\nrevision = 7", 1),
        "utf-8",
    )
    return path


@pytest.fixture
def start(served):
    """Start a server with other settings."""
    servers = []

    def another(settings):
        servers.append(type(served)(settings))
        return servers[-1]

    yield another
    for server in servers:
        server.store._client.close()


@pytest.fixture
def signed(start, settings, revised, tmp_path):
    """Serve a text, signed, beside the registry with a revision."""

    def serve(text=None, registry=revised, until=None):
        file = tmp_path / "registry.signed.json"
        file.write_bytes(seal(text_of(revised) if text is None else text, PRIVATE, until)[0].write())
        return start(replace(settings, registry=str(registry), signed_registry=str(file)))

    return serve


def text_of(path):
    """Return what devices are told of a registry."""
    return Restriction.of(load(path)).write()


def get(served, key=INGEST, **headers):
    arguments = {"Authorization": f"Bearer {key}"} if key else {}
    return served.http.get("/v1/registry", headers=arguments | {name.replace("_", "-"): value for name, value in headers.items()})


def test_devices_get_what_was_signed(signed, revised):
    """The same bytes for every device, and nothing in the headers that it could be asked to repeat."""
    served = signed()
    answer = get(served)
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    envelope = Envelope.read(answer.data)
    envelope.verify(PUBLIC)
    assert envelope.text == text_of(revised)
    assert answer.headers["Cache-Control"] == "no-store"
    assert not {"ETag", "Last-Modified", "Set-Cookie"} & set(answer.headers.keys())
    assert get(served).data == answer.data


def test_nobody_is_told_that_they_have_it(signed):
    """Whatever a request says that it knows, the answer is the whole: no device has a reason to name what it was served."""
    served = signed()
    response = get(served).data
    digest = Envelope.read(response).digest
    for known in (f'"{digest}"', f'W/"{digest}"', "*"):
        answer = get(served, If_None_Match=known)
        assert (answer.status_code, answer.data) == (200, response)


@pytest.mark.parametrize(("key", "code"), [(None, "missing_key"), ("pk_wrong_12345", "unknown_key"), (READ, "unknown_key")])
def test_it_takes_the_ingest_key(signed, key, code):
    """As for uploads."""
    answer = get(signed(), key)
    assert (answer.status_code, answer.json["code"]) == (401, code)


def test_a_server_without_one_says_so(served):
    """404, and the app's own registry stays in use."""
    answer = get(served)
    assert (answer.status_code, answer.json["code"]) == (404, "no_signed_registry")


@pytest.mark.parametrize("until", [None, datetime.now(UTC).date()])
def test_the_document_says_what_is_sent(signed, until):
    """With a last day and without, and nothing else."""
    answer = get(signed(until=until)).get_json()
    schema = schemas.components()["SignedRegistry"]
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(answer)
    assert ("valid_until" in answer) == (until is not None)
    for wrong in (answer | {"seed": 7}, answer | {"valid_until": None}, {**answer, "signature": 1}, {"format": 1}):
        with pytest.raises(jsonschema_rs.ValidationError):
            validator.validate(wrong)


def test_what_devices_are_told_is_what_is_served(signed, revised, registry_file):
    """A server does not start with an envelope that says something else than its registry: somebody forgot to sign it again."""
    text = text_of(revised)
    for other, app in (
        (text.replace('"revision":7', '"revision":6'), "shop"),
        (text.replace('"app":"shop"', '"app":"blog"'), "blog"),
        (re.sub('"sample":"1"', '"sample":"0.5"', text, count=1), "shop"),
        (re.sub('"until":null', '"until":"2099-01-01"', text, count=1), "shop"),
        (re.sub(r'("metrics":{)"[^{]*{[^}]*},', r"\1", text, count=1), "shop"),
    ):
        assert other != text
        words = f"says something else than this server's registry for {app}: sign its metrics"
        with pytest.raises(ConfigurationError, match=words):
            signed(other)
    with pytest.raises(ConfigurationError, match="says something else than this server's registry for shop"):
        signed(text, registry_file)  # without a revision
    for odd in ("nonsense", revised.read_text("utf-8"), f"{text}\n"):
        with pytest.raises(ServedRegistryError, match="its text is no canonical JSON: write names in order"):
            signed(odd)
    revised.write_text(f"# only a comment more\n{revised.read_text('utf-8')}", "utf-8")
    signed(text)


def test_what_devices_are_told_is_in_the_audit_log(signed, revised, real_redis):
    """With its digest, which whoever watches a server can compare; once, until something else is signed."""

    def logged():
        results = map(intact_entry, real_redis.lrange("{shop}:audit", 0, -1))
        return [entry.details for entry in results if entry.event == "registry.served"]

    before = len(logged())
    served = signed()
    digest = Envelope.read(get(served).data).digest
    assert digest == sha256(text_of(revised).encode()).hexdigest()
    signed(until=datetime.now(UTC).date())
    (last,) = logged()[before:]
    assert last["signed"] == digest
    assert last["digest"] == sha256(revised.read_bytes()).hexdigest()
    assert last["revision"] == 7


def test_a_server_without_it_logs_nothing_anew(signed, start, settings, revised, real_redis):
    """Servers of one app take turns, and one for queries hands out nothing: its registry is the same."""
    signed()
    before = real_redis.llen("{shop}:audit")
    start(replace(settings, registry=str(revised), serves="query"))
    signed()
    assert real_redis.llen("{shop}:audit") == before


def test_of_a_folder_the_newest_registry_is_what_devices_are_told(signed, revised, tmp_path):
    """What it leaves out is off in every app, and reports of it are taken while they come."""
    folder = tmp_path / "published"
    folder.mkdir()
    text = revised.read_text("utf-8")
    (folder / "0001.toml").write_text(text, "utf-8")
    head, mark, remainder = text.rpartition("[metrics.")
    newest = folder / "0002.toml"
    newest.write_text(head.replace("revision = 7", "revision = 8"), "utf-8")
    served = signed(text_of(newest), folder)
    left_out = remainder.partition("]")[0].strip('"')
    assert mark
    assert left_out in served.app.highest
    page = Restriction.read(Envelope.read(get(served).data).text)
    assert set(page.metrics) == set(load(revised).metrics) - {left_out}


def test_files_that_are_none_stop_the_start(start, settings, revised, tmp_path):
    """The message names the variable and the file."""
    wrong = tmp_path / "wrong.json"
    for content, error, words in (
        (None, ConfigurationError, "DENIABLE_SIGNED_REGISTRY names readable files"),
        (b"<html>", ConfigurationError, "wrong.json is none"),
        (revised.read_bytes(), ConfigurationError, "wrong.json is none"),
        (b'{"restriction": 1}', ServedRegistryError, "envelope = 'restriction': write format, restriction, signature"),
    ):
        if content is not None:
            wrong.write_bytes(content)
        with pytest.raises(error, match=words):
            start(replace(settings, registry=str(revised), signed_registry=str(wrong)))
    good = tmp_path / "good.json"
    good.write_bytes(seal(text_of(revised), PRIVATE)[0].write())
    twice = os.pathsep.join([str(good), str(good)])
    with pytest.raises(ConfigurationError, match="one file for each app; shop has two"):
        start(replace(settings, registry=str(revised), signed_registry=twice))


@pytest.mark.parametrize("public", [PUBLIC, b64encode(bytes(range(32))).decode()], ids=["right", "another"])
def test_a_real_device_gets_it_over_http(signed, revised, public):
    """From the file to the device: used with the right key, and with another key the device sends nothing."""
    served = signed()
    server = make_server("127.0.0.1", 0, served.flask)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    before = revised.read_text("utf-8").replace("revision = 7", "revision = 6")
    try:
        client = Client(
            dsn=f"http://{INGEST}@127.0.0.1:{server.port}/shop",
            registry=parse(before),
            consent=True,
            segments={"platform": "linux"},
            caps=Caps(budget=Budget(per_month=None, lifetime=None)),
            registry_key=public,
            settings=SenderSettings(flush_at=1),
        )
        metric = next(iter(served.app.registry.metrics.values()))
        assert client.record(metric.id, metric.value(0))
        client.flush(5)
        client.close(2)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    if public == PUBLIC:
        assert (client.disabled, client.stats()["sent"]) == (None, 1)
    else:
        assert "the signature is of another text, or by another key" in client.disabled
        assert client.stats()["sent"] == 0


@pytest.mark.parametrize(("left", "status"), [(None, "ok"), (30, "ok"), (6, "warning"), (0, "warning"), (-1, "fault")])
def test_a_registry_that_ends_soon_is_a_finding(left, status):
    """A week before its last day the doctor warns; after it, devices do not use it any more."""
    until = None if left is None else datetime.now(UTC).date() + timedelta(days=left)
    finding = pipeline.signed_registry("shop", Envelope("", b"", until))
    assert finding.status == status
    assert pipeline.signed_registry("shop", None).status == "ok"
