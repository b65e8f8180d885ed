"""Sealed reports: nobody but the server can read them, they count for nothing else, and none ever travels as it is."""

from __future__ import annotations

import gzip
import importlib.util
import json
from base64 import b64decode
from itertools import product
from types import SimpleNamespace

import pytest
from mixing import NUMBER, PRIVATE, PUBLIC, mixed_toml, relay_toml
from registries import metric_toml, registry_toml
from senders import Fake, problem
from wire_page import rows

from deniable.client import Client
from deniable.declared import Declared
from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.errors import ConfigurationError, PayloadError
from deniable.frozen import replace
from deniable.registry import parse
from deniable.registry.relay import Relay
from deniable.transport import SenderSettings
from deniable.wire.batch import Batch
from deniable.wire.report import Report, Stratum, encode
from deniable.wire.sealing import LONGER, Sealer, binding, lacking

pytest.importorskip("cryptography.hazmat.primitives.hpke", reason="deniable[relay] is not installed")

import hpke
from cryptography.exceptions import InvalidTag

STRATUM = Stratum("m", 1, "f" * 16, "2026-11", "platform=linux")
SEAL = Sealer("shop", NUMBER, PUBLIC)
DSN = "https://key@relay.example/shop"


def groups_of(post):
    """Return the groups of all bodies that were sent."""
    bodies = [gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body for body, headers, _ in post.calls]
    return [group for body in bodies for group in json.loads(body)["groups"]]


def opened(group):
    """Open the reports of a group, as the server will."""
    stratum = Stratum(*(group[name] for name in Stratum._fields))
    joined, count = b64decode(group["payloads"]), group["count"]
    size = len(joined) // count
    parts = [joined[start : start + size] for start in range(0, len(joined), size)]
    assert {part[0] for part in parts} == {NUMBER}
    return [hpke.opened(PRIVATE, binding("shop", stratum, NUMBER), part[1:]) for part in parts]


@pytest.fixture
def client_of(tmp_path):
    """Make clients of a registry with a relay, and close them."""
    clients = []

    def make(post, registry=None, **options):
        loaded = parse(registry or relay_toml(mixed_toml(), metric_toml("plain", period="month")))
        usual = {"dsn": DSN, "consent": True, "state": tmp_path / "state", "post": post, "strict": True}
        clients.append(Client(registry=loaded, **(usual | options)))
        return clients[-1]

    yield make
    for client in clients:
        client.close(5)


def test_our_opening_is_that_of_the_standard():
    """RFC 9180, A.1.1: key and nonce of the first message."""
    ephemeral = hpke.X25519PrivateKey.from_private_bytes(
        bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736")
    )
    shared = ephemeral.exchange(hpke.X25519PublicKey.from_public_bytes(PUBLIC))
    info = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
    key, nonce = hpke.context(shared, ephemeral.public_key().public_bytes_raw(), PUBLIC, info)
    assert (key.hex(), nonce.hex()) == ("4531685d41d65f03dc48f6b8302c05b0", "56d890e5accaaf011cff4b7d")


@pytest.mark.parametrize("row", rows("sealed"))
def test_the_worked_vectors(row):
    """What the specification says is enough to seal, and is what we bind a report to."""
    stratum = Stratum(row["metric"], int(row["version"]), row["fingerprint"], row["period"], row["segment"].strip("-"))
    info, number = binding(row["app"], stratum, int(row["number"])), int(row["number"])
    payload, ephemeral, sealed = (bytes.fromhex(row[name]) for name in ("payload", "ephemeral key", "sealed"))
    assert bytes([number]) + hpke.seal(PUBLIC, info, payload, ephemeral) == sealed
    assert hpke.opened(PRIVATE, info, sealed[1:]) == payload
    ours = Sealer(row["app"], number, PUBLIC)(Report(stratum, payload))
    assert (len(ours.sealed), ours.sealed[0]) == (len(sealed), number)
    assert hpke.opened(PRIVATE, info, ours.sealed[1:]) == payload


def test_two_reports_of_one_answer_differ_and_have_one_size():
    """Each has a key of its own, so nobody on the way sees which reports are alike."""
    sealed = {SEAL(Report(STRATUM, payload)).sealed for payload in (b"\0", b"\1") for _ in range(50)}
    assert len(sealed) == 100
    assert len({part[1:33] for part in sealed}) == 100
    assert {len(part) for part in sealed} == {1 + LONGER}


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "n"},
        {"version": 2},
        {"fingerprint": "e" * 16},
        {"period": "2026-12"},
        {"segment": "platform=macos"},
        {"segment": ""},
    ],
)
def test_it_opens_for_nothing_else(change):
    """A relay cannot move a report to another metric, version, definition, period or segment, nor to another app or key."""
    sealed = SEAL(Report(STRATUM, b"\1")).sealed[1:]
    assert hpke.opened(PRIVATE, binding("shop", STRATUM, NUMBER), sealed) == b"\1"
    for info in (
        binding("shop", STRATUM._replace(**change), NUMBER),
        binding("toys", STRATUM, NUMBER),
        binding("shop", STRATUM, 8),
    ):
        with pytest.raises(InvalidTag):
            hpke.opened(PRIVATE, info, sealed)


def test_no_two_reports_have_one_binding():
    """Whatever the parts are: none has a line end, so the lines say which is which."""
    words = ("a", "ab", "")
    strata = [Stratum(metric, 1, print_, "2026-11", segment) for metric, print_, segment in product(words, repeat=3)]
    assert (
        len({binding(app, stratum, number) for app in ("s", "sa") for stratum in strata for number in (1, 11)}) == len(strata) * 4
    )


def test_a_report_is_sealed_once():
    """It keeps its bytes for good."""
    sealed = SEAL(Report(STRATUM, b"\1"))
    assert SEAL(sealed) is sealed


def test_from_record_to_the_wire(client_of):
    """What was recorded arrives sealed, of metrics without a claim, too, and the device shows what was in it."""
    post = Fake()
    client = client_of(post)
    assert client.record("m", value=True)
    assert client.record("plain", value=True)
    assert client.flush(60)
    mixed, plain = groups_of(post)
    (payload,), (other,) = opened(mixed), opened(plain)
    assert (len(payload), len(other)) == (1, 1)
    by_metric = {each.metric: each for each in client._session.sent(client._metrics.registry)}
    assert (by_metric["m"].payload, by_metric["m"].sealed, by_metric["plain"].sealed) == (payload.hex(), True, True)
    assert str(by_metric["m"]).endswith(f", sent as bytes {payload.hex()}, sealed")


def test_retries_halves_and_the_spool_have_the_same_bytes():
    """A report is sealed once: a relay that gets it twice sees one report. What is in it is kept beside, to be shown."""
    reports = tuple(SEAL(Report(STRATUM, bytes([number % 2]))) for number in range(5))
    batch = Batch.of("shop", (*reports, Report(Stratum("n", 1, "0" * 16, "2026-11", ""), b"\7")))
    read = Batch.read(batch.key, batch.write())
    assert (read.body, sorted(read.reports)) == (batch.body, sorted(batch.reports))
    assert [half.body for half in read.halves()] == [half.body for half in batch.halves()]
    assert encode("shop", read.reports) == batch.body
    written = json.loads(batch.write())
    for broken in (["AA=="], ["AA==", "AA=="], 3):
        with pytest.raises(PayloadError):
            Batch.read(batch.key, json.dumps(written | {"opened": broken}).encode())


def test_a_server_that_is_away_gets_the_same_bytes_later(client_of):
    """Also from the disk, in another run of another edition of the app that knows no relay."""
    post = Fake(*[OSError()] * 9)
    first = client_of(post, settings=SenderSettings(max_tries=1))
    assert first.record("m", value=True)
    first.close(5)
    before = {group["payloads"] for group in groups_of(post)}
    later = Fake()
    second = client_of(later, registry_toml(metric_toml("plain", period="month")))
    assert second.record("plain", value=True)
    assert second.flush(60)
    arrived = [group for group in groups_of(later) if group["metric"] == "m"]
    assert {group["payloads"] for group in arrived} == before
    assert len(before) == 1
    assert len(opened(arrived[0])) == 1
    (report,) = [each for each in second._session.sent(second._metrics.registry) if each.metric == "m"]
    assert report.sealed
    assert report.payload == opened(arrived[0])[0].hex()


def test_what_waits_on_the_device_is_sealed_before_it_is_on_disk(client_of, tmp_path):
    """A later run may be of an edition without a relay. It must not send the report as it is."""
    delayed = relay_toml(mixed_toml(delay="12h"), metric_toml("plain", period="month"))
    first = client_of(Fake(), delayed)
    assert first.record("m", value=True)
    first.close(5)
    state = State(tmp_path / "state" / "shop")
    with state.transaction() as db:
        ((payload, sealed),) = db.execute("SELECT payload, sealed FROM waiting").fetchall()
    assert len(sealed) == len(payload) + LONGER
    Waiting(state).make_due()
    later = Fake()
    second = client_of(later, registry_toml(metric_toml("plain", period="month")))
    assert second.record("plain", value=True)
    second._session.sender.make_due()
    assert second.flush(60)
    (group,) = [group for group in groups_of(later) if group["metric"] == "m"]
    assert opened(group) == [payload]


@pytest.mark.parametrize("delay", [{}, {"delay": "12h"}])
def test_what_cannot_be_sealed_is_lost_and_counted_and_never_sent(client_of, delay):
    """A public key with which nothing can be agreed (of low order): no byte of the report leaves the device."""
    post = Fake()
    weak = relay_toml(mixed_toml(**delay), metric_toml("plain", period="month"), relay={"operator": "x", "key": f"1:{'A' * 43}="})
    client = client_of(post, weak)
    assert client.record("m", value=True)
    assert client.record("plain", value=True) or delay
    client.close(30)
    assert [group["metric"] for group in groups_of(post)] in ([], ["plain"])
    assert client.stats()["sent"] <= 1
    assert client._session.sender.counts["error"] >= 1


def test_without_the_extra_metrics_are_off_by_name(client_of, monkeypatch, caplog):
    """The app starts, nothing is sent, and what to install is said; strict raises."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "cryptography" else find(name, *more))
    assert "pip install 'deniable[relay]'" in lacking()
    post = Fake()
    client = client_of(post, strict=False)
    assert not client.record("m", value=True)
    assert not client.record("plain", value=True)
    client.close(30)
    assert post.calls == []
    assert "pip install 'deniable[relay]'" in caplog.text
    with pytest.raises(ConfigurationError, match=r"reports for a relay are sealed.*deniable\[relay\]"):
        client_of(post)


def test_an_older_package_is_as_good_as_none(monkeypatch, tmp_path):
    """Before version 47 it has no HPKE."""
    old = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: old)
    assert "47 or later" in lacking()


def test_without_a_relay_nothing_of_it_is_recorded():
    """A registry that was made by code, without the rules of a file."""
    loaded = parse(relay_toml())
    with pytest.raises(ConfigurationError, match=r"declares no \[relay\]"):
        Client(dsn=DSN, registry=replace(loaded, relay=None), consent=True, state=None, post=Fake(), strict=True)


def test_a_server_that_is_no_relay_is_named(client_of):
    """The refusal says what to do: the DSN leads to a server, which takes no report of this metric from a device."""
    refusal = problem("all_rejected", accepted=0, rejected=1, errors=[{"group": 0, "code": "relay_only", "count": 1}])
    client = client_of(Fake((422, {}, refusal)), strict=False)
    assert client.record("m", value=True)
    arrival = client.flush(60)
    assert not arrival
    assert "sealed for a relay" in str(arrival)


def test_a_key_is_read_as_it_is_written():
    """The device seals to the key of the file."""
    declared = parse(relay_toml())
    assert declared.relay == Relay(operator="Example Foundation", key=declared.relay.key)
    fingerprint = Declared.of(declared.metrics["m"]).fingerprint
    sealer = Sealer("shop", declared.relay.number, declared.relay.public_key)
    stratum = Stratum("m", 1, fingerprint, "2026-11", "")
    assert hpke.opened(PRIVATE, binding("shop", stratum, NUMBER), sealer(Report(stratum, b"\1")).sealed[1:]) == b"\1"
