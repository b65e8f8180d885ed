"""From sealed reports of devices over a relay to sums: each counts once, and a report that does not fit is refused alone."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from deniable.errors import ConfigurationError
from deniable.wire.report import Report, encode
from deniable.wire.sealing import LONGER, Sealer
from deniable_relay import doctor as relay_doctor
from deniable_relay.forwarding import Forwarder
from deniable_relay.settings import Settings as RelaySettings
from deniable_server.access.keys import KeyStore
from deniable_server.access.sealing_keys import Opener
from deniable_server.doctor import relays


def test_reports_of_a_pool_are_counted_once(world):
    """Each segment is a pool. What comes again, to the relay or to the server, adds nothing."""
    linux, macos = world.reports("theme", [0, 1, 2, 0, 1, 2]), world.reports("theme", [1] * 5, "platform=macos")
    assert world.send([*linux, *macos]).status_code == 202
    assert world.send([*linux[:3], *macos], key="another").status_code == 202
    world.close(0)
    assert world.counted("theme") == {}
    world.close()
    assert world.counted("theme") == {"platform=linux": 6, "platform=macos": 5}
    assert [answer["new"] for answer in world.answers] == [6, 5]
    assert world.pools.totals() == {"forwarded": 11}


def test_later_reports_go_by_themselves_or_not_at_all(world):
    """A late pool is a crowd, too; fewer are dropped, and the relay says how many."""
    world.send(world.reports("theme", [0] * 5))
    world.close(1.3)
    assert world.counted("theme") == {"platform=linux": 5}
    world.send(world.reports("theme", [0] * 4))
    world.close(4)
    assert world.counted("theme") == {"platform=linux": 5}
    assert world.pools.totals() == {"forwarded": 5, "too_few": 4}


def test_what_waits_is_shown_as_it_was_at_the_first_look_of_an_hour(world, monkeypatch):
    """Whoever looks at each moment does not see when a report came, only that nothing waits any more."""
    hour = 3600 * (world.now // 3600 + 1)
    moment = SimpleNamespace(time=lambda: now[0])
    monkeypatch.setattr("deniable_relay.app.time", moment)

    def waiting():
        text = world.relay.get("/metrics").get_data(as_text=True)
        return float(re.search(r"^deniable_relay_waiting_reports (\S+)$", text, re.MULTILINE)[1])

    now = [hour]
    seen = [waiting()]
    for minute, key in enumerate(("one", "two")):
        world.send(world.reports("plain", [1, 0]), key=key)
        now[0] = hour + 60 * minute
        seen.append(waiting())
    now[0] = hour + 3600
    seen.append(waiting())
    world.close()
    assert [*seen, waiting()] == [0, 0, 0, 4, 0]


def test_metrics_without_a_claim_go_the_same_way(world):
    """Sealed, without an address, in pools of `min_reports`."""
    world.send(world.reports("plain", [1] * 4))
    world.close()
    assert world.counted("plain") == {"": 4}


@pytest.mark.parametrize(
    "fault",
    ["a bit", "another metric", "another segment", "another period", "another key", "another app", "a layout"],
)
def test_a_report_that_does_not_fit_is_refused_alone(world, private, fault):
    """It was changed, moved, or sealed to somebody else: it does not open, and the others of its pool count."""
    good, stratum = world.reports("theme", [0] * 5), world.stratum("theme")
    payload = world.served.mechanism("theme").randomize(0)
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    stranger = X25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    bad = {
        "a bit": lambda: good[0].sealed[:-1] + bytes([good[0].sealed[-1] ^ 1]),
        "another metric": lambda: world.sealer(Report(world.stratum("plain"), payload)).sealed,
        "another segment": lambda: world.reports("theme", [0], "platform=macos")[0].sealed,
        "another period": lambda: world.sealer(Report(stratum._replace(period="2026-01-01"), payload)).sealed,
        "another key": lambda: Sealer("shop", 1, stranger)(Report(stratum, payload)).sealed,
        "another app": lambda: Sealer("other", 1, public)(Report(stratum, payload)).sealed,
        "a layout": lambda: world.sealer(Report(stratum, b"\xff" * len(payload))).sealed,
    }[fault]()
    assert world.send([*good, Report(stratum, payload, bad)]).get_json()["accepted"] == 6
    world.close()
    assert world.counted("theme") == {"platform=linux": 5}
    code = "seal" if fault != "a layout" else "index_range"
    assert world.answers == [{"accepted": 5, "new": 5, "rejected": 1, "errors": {code: 1}}]


def test_a_pool_that_is_too_small_is_refused_and_stays(world):
    """A relay whose metrics.toml declares a smaller crowd; nothing is deleted, and it goes once the files agree."""
    world.send(world.reports("theme", [0] * 4))
    with world.pools._commit() as file:
        file.execute("UPDATE pools SET least = 4")
    world.close()
    assert world.answers[0]["code"] == "pool_too_small"
    assert world.counted("theme") == {}
    assert world.pools.totals() == {"closed": 4}


def test_no_report_of_a_device_comes_to_the_server_itself(world):
    """Sealed or not: a server that took one would see its address and time."""
    (report,) = world.reports("theme", [0])
    for sent in (report, report._replace(sealed=b"")):
        answer = world.served.post(encode("shop", [sent]))
        assert answer.status_code == 422
        assert answer.get_json()["errors"][0]["code"] == "relay_only"
    assert world.served.post(encode("shop", [report]), Authorization=f"Bearer {world.key}").status_code == 401


@pytest.mark.parametrize("key", [None, "pk_test_12345678", "rk_test_12345678"])
def test_only_a_relay_sends_pools(world, key):
    """Devices and analysts have other keys."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = json.dumps({"format": 1, "app": "shop", "pool": 9, "group": {}})
    answer = world.served.http.post("/v1/pools", data=body, headers=headers | {"Content-Type": "application/json"})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"metric": "nothing"}, "unknown_metric"),
        ({"version": 2}, "unknown_version"),
        ({"fingerprint": "0" * 16}, "definition_mismatch"),
        ({"period": "2020-01-01"}, "period_closed"),
        ({"count": 2}, "payload_length"),
        ({"payloads": "!"}, "base64"),
    ],
)
def test_relay_and_server_check_a_group_alike(world, change, code):
    """By one rule: what the relay takes, the server takes."""
    group = json.loads(encode("shop", world.reports("theme", [0] * 5)))["groups"][0] | change
    upload = world.send(json.dumps({"format": 1, "app": "shop", "groups": [group]}).encode())
    assert upload.status_code == 422
    assert upload.get_json()["errors"][0]["code"] == code
    headers = {"Authorization": f"Bearer {world.key}", "Content-Type": "application/json"}
    part = world.served.http.post(
        "/v1/pools", data=json.dumps({"format": 1, "app": "shop", "pool": 5, "group": group}), headers=headers
    )
    assert part.get_json()["code"] == code


def test_relay_and_server_take_reports_of_their_app_alone(world):
    """What names another app is refused as a whole, so a device and a relay keep it."""
    upload = world.send(encode("blog", world.reports("theme", [0] * 5)))
    assert (upload.status_code, upload.get_json()["code"]) == (403, "other_app")
    world.send(world.reports("theme", [0] * 5))
    world.forwarder = Forwarder("blog", world.pools, world.forward, world.key)
    world.close()
    assert [answer["code"] for answer in world.answers] == ["other_app"]
    assert world.counted("theme") == {}
    world.forwarder = Forwarder("shop", world.pools, world.forward, world.key)
    world.close()
    assert world.counted("theme") == {"platform=linux": 5}


def test_without_the_private_key_the_relay_keeps_its_pools(world, settings, caplog):
    """The server says at its start which key it lacks, and what to do. Nothing is lost meanwhile."""
    registry = world.served.service.settings.registry
    lacking = type(world.served)(replace(settings, registry=registry))
    assert "name the file that `deniable registry keygen --sealing` wrote in DENIABLE_SEALING_KEYS" in caplog.text
    world.send(world.reports("theme", [0] * 5))
    world.served, holder = lacking, world.served
    world.close()
    assert world.answers[0]["code"] == "no_sealing_key"
    world.served = holder
    world.close(3)
    assert world.counted("theme") == {"platform=linux": 5}


def test_what_is_no_private_key_stops_the_start(tmp_path):
    """By name, with what to write."""
    file = tmp_path / "key.pem"
    for content in (None, b"nonsense"):
        if content:
            file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"DENIABLE_SEALING_KEYS names .*key\.pem"):
            Opener.read(str(file))


def test_a_report_has_one_length(world):
    """Whatever the answer."""
    assert {len(report.sealed) for report in world.reports("theme", [0, 1, 2])} == {1 + LONGER}


def examined(world, tmp_path):
    """Have the relay's doctor ask the server; return what it found, by check."""
    settings = RelaySettings.of(
        {"registry": str(tmp_path / "shop.toml"), "server": "https://telemetry.example", "data": str(tmp_path)},
        {"DENIABLE_RELAY_INGEST_KEY": "pk_device_123456", "DENIABLE_RELAY_SERVER_KEY": world.key},
    )
    return {each.check: each.status for each in relay_doctor.server(world.registry, settings, world.forward, time.time)}


def test_the_relays_doctor_asks_the_server(world, tmp_path):
    """A server that agrees refuses its pools for their reports that are not there, and counts nothing."""
    assert examined(world, tmp_path) == {"server": "ok", "clock": "skipped", "agreement": "ok"}
    assert [answer["code"] for answer in world.answers] == ["payload_length", "pool_too_small"] * 2
    world.key = "xk_of_nobody_123456"
    assert examined(world, tmp_path) == {"server": "ok", "key": "fault"}
    assert world.counted("theme") == {}


def test_the_servers_doctor_looks_for_the_relay(world):
    """A key, the private key, the last pool, and pools that are published in part: each has a finding."""
    store, registry = world.served.store, world.registry
    known = world.served.service.settings
    assert relays.sealing_key(known, registry).status == "ok"
    assert relays.sealing_key(replace(known, sealing_keys=""), registry).status == "fault"
    assert relays.sealing_key(replace(known, sealing_keys="/nothing.pem"), registry).status == "fault"
    assert relays.sealing_key(replace(known, sealing_keys="", serves="query"), registry).status == "ok"
    now = datetime.now(UTC)
    finding = relays.relay(registry.relay, registry, store, now)
    assert (finding.status, finding.seen) == ("ok", "no pool of Example Foundation has come")
    assert relays.relay(registry.relay, registry, store, now + timedelta(days=20)).status == "warning"
    world.send(world.reports("theme", [0] * 5))
    world.close()
    finding = relays.relay(registry.relay, registry, store, now)
    assert (finding.status, finding.seen) == ("ok", f"the last pool of Example Foundation came on {now:%Y-%m-%d}")
    assert relays.relay(registry.relay, registry, store, now + timedelta(days=20)).status == "warning"
    keys = KeyStore(store)
    for key in keys.all():
        if key.role == "relay":
            keys.revoke(key.id)
    assert relays.relay(registry.relay, registry, store, now).status == "fault"


def test_a_pool_that_came_in_part_is_found(world, monkeypatch):
    """What is published of it has fewer reports than the registry says a pool has."""
    stratum = world.stratum("theme")
    notes = {stratum: SimpleNamespace(n=4), stratum._replace(period="2026-01-01"): SimpleNamespace(n=5)}
    monkeypatch.setattr(relays.release, "listed", lambda _, metric: notes if metric == "theme" else {})
    finding = relays.pools(world.registry.relay, world.registry, world.served.store)
    assert (finding.status, f"theme of {stratum.period} (platform=linux): 4 of at least 5" in finding.seen) == ("warning", True)
    notes.pop(stratum)
    assert relays.pools(world.registry.relay, world.registry, world.served.store).status == "ok"


def test_an_empty_page_says_that_the_relay_may_hold_small_pools(world):
    """The server cannot know it, and names who can say; that no pool has come is no fault of devices."""
    body = world.served.get("/api/v1/metrics/theme/diagnosis").get_json()
    says = {each["name"]: (each["state"], each["says"]) for each in body["conditions"]}
    assert says["uploads"][0] == "waits"
    assert "Example Foundation sends pools after a period" in says["uploads"][1]
    assert says["enough"][0] == "unknown"
    assert "drops a pool of fewer than 5 reports" in says["enough"][1]
    assert "cannot know" in says["enough"][1]
    opened = type(world.served)(replace(world.served.service.settings, dashboard="open"))
    page = opened.http.get("/m/theme").get_data(as_text=True)
    opened.store._client.close()
    assert "fewer are dropped by the relay" in page
    world.send(world.reports("theme", [0] * 5))
    world.close()
    assert "The last one came on" in world.served.get("/api/v1/metrics/theme/diagnosis").get_data(as_text=True)


def statuses_from_an_address(world, **limits):
    """Return how a server with such limits answers pools of the relay, and of a key that nobody has, all from one address."""
    served = type(world.served)(replace(world.served.service.settings, **limits))

    def ask(key):
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        body = json.dumps({"format": 1, "pool": 5, "group": {}})
        place = {"REMOTE_ADDR": "192.0.2.1"}
        return served.http.post("/v1/pools", data=body, headers=headers, environ_base=place).status_code

    statuses = [[ask(key) for _ in range(4)] for key in (world.key, "xk_of_nobody_123456")]
    served.store._client.close()
    return statuses


def test_a_relay_is_not_limited_as_a_device_is(world):
    """It brings from one address what thousands of devices have sent. Its key has a limit, and so has a key that nobody has."""
    assert statuses_from_an_address(world, rate_limit_key="2/minute", rate_limit_source="off") == [
        [400, 400, 429, 429],
        [401] * 4,
    ]
    # A key that a process has not read yet is a stranger's, once.
    assert statuses_from_an_address(world, rate_limit_source="3/minute") == [[400] * 4, [401, 401, 429, 429]]
