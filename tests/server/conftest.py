"""A served app on a real store."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from time import time

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flask import Flask
from jinja2 import BytecodeCache
from mixed_world import REGISTRY, World
from werkzeug.routing import Rule

from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable.registry import period
from deniable.testing import StubServer
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.deletion.erase import Erased
from deniable_aggregator.publish import definitions
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import schema
from deniable_relay.pools import Pools
from deniable_server import create_app
from deniable_server.settings import Settings

INGEST, READ = "pk_test_12345678", "rk_test_12345678"


class CompiledTemplates(BytecodeCache):
    """Templates of all apps that tests make: to compile them anew for each took a third of the time."""

    def __init__(self):
        self._code = {}

    def load_bytecode(self, bucket):
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket):
        self._code[bucket.key] = bucket.bytecode_to_string()


Flask.jinja_options = {"bytecode_cache": CompiledTemplates()}


def compile_rules_once():
    """Compile each rule of addresses once, for all apps that tests make: it is half of the time of `create_app`."""
    first, compile_ = {}, Rule.compile

    def compiled(rule):
        key = rule.rule, rule.subdomain, repr(rule.defaults), rule.merge_slashes
        if key not in first:
            compile_(rule)
            first[key] = rule
            return
        same = first[key]
        rule._parts, rule._trace, rule._converters, rule.arguments = same._parts, same._trace, same._converters, same.arguments
        rule._build, rule._build_unknown = (build.__func__.__get__(rule) for build in (same._build, same._build_unknown))

    Rule.compile = compiled


@pytest.fixture(scope="package", autouse=True)
def read_registries_once():
    """Parse each text of a registry once, for all apps that tests make."""
    parsed, parse = {}, registry.parse

    def parse_once(text, file="metrics.toml", publication=None):
        if (text, publication) not in parsed:
            parsed[text, publication] = parse(text, file, publication)
        return replace(parsed[text, publication], file=file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "parse", parse_once)
        yield


compile_rules_once()


class Served:
    """A test client of the server, with the app's keys at hand."""

    def __init__(self, settings):
        self.flask = create_app(settings)
        self.http = self.flask.test_client()
        self.service = self.flask.extensions["deniable"]
        self.app = self.service.apps["shop"]
        self.store = self.app.store
        self._keys = 0

    def restarted(self):
        """Return the same server after a restart, with the registry read anew."""
        return Served(self.service.settings)

    def post(self, batch, key=None, **headers):
        """Upload a batch (a document, or bytes as they are)."""
        self._keys += 1
        arguments = {
            "Authorization": f"Bearer {INGEST}",
            "Idempotency-Key": key or f"key-{id(self)}-{self._keys}",
            "Content-Type": "application/json",
        }
        arguments.update({name.replace("_", "-"): value for name, value in headers.items()})
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if isinstance(batch, bytes):
            return self.http.post("/v1/reports", data=batch, headers=arguments)
        return self.http.post("/v1/reports", json=batch, headers=arguments)

    def get(self, path, key=READ):
        """Query."""
        return self.http.get(path, headers={"Authorization": f"Bearer {key}"} if key else {})

    def drain(self, *, days=0):
        """Count what is in the stream, and publish what may be published; when so many days have passed, if any are given.

        Live figures are those of the next full hour.
        """
        Worker([self.store]).run(Event(), burst=True)
        self.turn_the_hour()
        known = definitions.remember(self.store, self.app.declared, Erased(self.store.erased.all()).has)
        return Publisher(self.store, known).publish(time() + 86400 * days)

    def turn_the_hour(self):
        """Copy what administrators see, as after the next full hour."""
        client = self.store._client
        client.delete(schema.COPIED.of(self.store.app))
        for key in client.scan_iter(schema.COPIES.of("*", "*")):
            copied = {name: 0 for name, hour in client.hgetall(key).items() if hour.isdigit()}
            if copied:
                client.hset(key, mapping=copied)
        Hourly(self.store).run(self.app.registry)

    def mechanism(self, metric):
        return self.app.highest[metric].mechanism

    def group(self, metric, values, /, **changes):
        """Make a group of honest reports, with some members changed."""
        declared = self.app.declared.metrics[metric]
        mechanism = mechanisms.of(declared)
        payloads = b"".join(mechanism.randomize(value) for value in values)
        group = {
            "metric": metric,
            "version": declared.version,
            "fingerprint": fingerprint(declared, mechanism.canonical),
            "period": period.of(datetime.now(UTC), declared.period),
            "segment": "platform=linux" if declared.segments else "",
            "count": len(values),
            "payloads": b64encode(payloads).decode(),
        }
        return group | changes

    def state(self):
        """Everything in the store but what was remembered and counted of requests: a refused upload must not change it."""
        client = self.store._client
        counters = (b":seen:", b":rate:", b":refused:", b":latest", b":session:")
        return {key: client.dump(key) for key in client.scan_iter() if not any(word in key for word in counters)}


class Alike:
    """A served app beside the stub server of `deniable.testing`: both get each upload, and answer it alike."""

    def __init__(self, served, registry):
        self.served = served
        self.stub = StubServer(registry, key=INGEST)

    def __getattr__(self, name):
        return getattr(self.served, name)

    def post(self, batch, key=None, **headers):
        """Upload a batch to both, and return the server's response."""
        response = self.served.post(batch, key, **headers)
        body = batch if isinstance(batch, bytes) else json.dumps(batch).encode()
        status, _, answer = self.stub.answer(dict(response.request.headers), body)
        assert outcome(status, answer) == outcome(response.status_code, response.get_json())
        assert self.stub.attempts[-1].status == response.status_code
        return response


def outcome(status, body):
    """Return what an upload is answered, but for the words."""
    errors = [{name: error[name] for name in ("group", "code", "count")} for error in body.get("errors", ())]
    return status, body.get("code"), {name: body.get(name) for name in ("accepted", "rejected", "duplicate")}, errors


@pytest.fixture
def alike(served, registry_file):
    return Alike(served, registry_file)


@pytest.fixture
def settings(real_redis, store_url, registry_file):  # noqa: ARG001 - emptied for each test
    return Settings(
        redis_url=store_url, registry=str(registry_file), ingest_keys=f"shop:{INGEST}", read_keys=f"shop:{READ}", max_backlog=50
    )


@pytest.fixture
def served(settings):
    server = Served(settings)
    yield server
    server.store._client.close()


@pytest.fixture
def serve(settings, tmp_path):
    """Serve another registry, with the files that it names beside it and open pages."""
    servers = []

    def start(registry, **files):
        path = tmp_path / "another.toml"
        path.write_text(registry, "utf-8")
        for name, content in files.items():
            (tmp_path / f"{name}.txt").write_text(content, "utf-8")
        servers.append(Served(replace(settings, registry=str(path), dashboard="open")))
        return servers[-1]

    yield start
    for server in servers:
        server.store._client.close()


@pytest.fixture
def private():
    """Draw the private key that reports for a relay are sealed to."""
    return X25519PrivateKey.generate()


@pytest.fixture
def world(settings, private, tmp_path):
    """Make devices, a relay and a server."""
    key = tmp_path / "sealing.pem"
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path = tmp_path / "shop.toml"
    path.write_text(REGISTRY.format(key=b64encode(private.public_key().public_bytes_raw()).decode()), "utf-8")
    served = Served(replace(settings, registry=str(path), sealing_keys=str(key), max_backlog=1000))
    pools = Pools(tmp_path / "pools.db")
    yield World(served, pools, private)
    pools.close()
    served.store._client.close()
