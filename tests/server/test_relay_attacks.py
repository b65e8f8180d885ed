"""What somebody can try who runs the relay, the server or many devices. Each would succeed without its defence."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise

import pytest
from mixed_world import DEVICE_KEY, REGISTRY

from deniable.registry import parse
from deniable.wire.report import Report, encode
from deniable.wire.sealing import Sealer
from deniable_relay.limits import Limits

ADDRESS = "203.0.113.77"


@pytest.fixture
def forwarded(world):
    """Keep what the relay sends to the server."""
    bodies, forward = [], world.forwarder._post

    def post(body, headers, timeout):
        bodies.append((body, dict(headers)))
        return forward(body, headers, timeout)

    world.forwarder._post = post
    return bodies


def test_the_order_of_arrival_is_not_that_of_a_pool(world, forwarded):
    """The server gets a function of the set of reports: whoever came first, the bytes are the same."""
    reports = world.reports("theme", [0, 1, 2] * 20)
    for report in reports:
        world.send([report], key=str(id(report)))
    world.close()
    body, _ = forwarded[0]
    expected = sorted(reports, key=lambda report: sha256(report.sealed).digest())
    assert json.loads(body)["group"]["payloads"] == b64encode(b"".join(report.sealed for report in expected)).decode()
    arrived = {report.sealed: place for place, report in enumerate(reports)}
    rises = sum(arrived[one.sealed] < arrived[other.sealed] for one, other in pairwise(expected))
    assert 10 < rises < 49  # of 59 steps; in order of arrival there would be 59


def test_logs_joined_have_no_address(world, forwarded, caplog, tmp_path):
    """Neither what the relay keeps, logs and sends, nor what the server keeps and logs."""
    caplog.set_level(logging.DEBUG)
    world.start(limits=Limits(60, 20), proxies=1)
    headers = {"Authorization": f"Bearer {DEVICE_KEY}", "Content-Type": "application/json", "Idempotency-Key": "one"}
    headers |= {"X-Forwarded-For": ADDRESS, "Forwarded": f"for={ADDRESS}", "User-Agent": f"app from {ADDRESS}"}
    answer = world.relay.post("/v1/reports", data=encode("shop", world.reports("theme", [0] * 6)), headers=headers)
    assert answer.status_code == 202
    contents = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    world.close()
    assert world.counted("theme") == {"platform=linux": 6}
    contents += [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    client = world.served.store._client
    stored = [client.dump(name) for name in client.scan_iter("*")]
    packed = bytes(map(int, ADDRESS.split(".")))
    for content in (*contents, *stored, *(part for body, sent in forwarded for part in (body, repr(sent).encode()))):
        assert ADDRESS.encode() not in content
        assert packed not in content
    assert ADDRESS not in caplog.text
    # Nothing that both have joins an upload to a report: the relay's name of a part is random, and the device's is gone.
    assert all(set(sent) == {"Authorization", "Content-Type", "Idempotency-Key"} for _, sent in forwarded)
    assert all(re.fullmatch(r"[0-9a-f]{32}\.\d+", sent["Idempotency-Key"]) for _, sent in forwarded)


def test_a_pool_sent_again_under_new_names_adds_nothing(world, forwarded):
    """As a relay may do that was restored from a copy, or that wants a person to count more."""
    world.send(world.reports("theme", [0] * 6))
    world.close()
    body, headers = forwarded[0]
    for number in range(3):
        world.forward(body, headers | {"Idempotency-Key": f"{number:032x}.0"}, 0)
    # A pool that says to be larger, with one report of the other many times.
    part = json.loads(body)
    part["group"]["payloads"] = b64encode(world.reports("theme", [1])[0].sealed * 6).decode()
    world.forward(json.dumps(part).encode(), headers, 0)
    assert [answer["new"] for answer in world.answers] == [6, 0, 0, 0, 1]
    assert world.counted("theme") == {"platform=linux": 7}


@pytest.mark.parametrize("change", [{"metric": "plain"}, {"period": "2026-01-01"}, {"segment": "platform=macos"}, {"version": 2}])
def test_a_relay_cannot_move_reports(world, forwarded, change):
    """To where a person's report would stand out, or where it would tell something else."""
    world.send(world.reports("theme", [0] * 6))
    world.close()
    part = json.loads(forwarded[0][0])
    part["group"] |= change
    if change.get("metric"):
        part["group"] |= {"fingerprint": world.stratum("plain").fingerprint, "segment": ""}
    status, _, answer = world.forward(json.dumps(part).encode(), forwarded[0][1], 0)
    assert status >= 400 or (answer["new"], answer["rejected"]) == (0, 6)
    assert world.counted("theme") == {"platform=linux": 6}
    assert world.counted("plain") == {}


@pytest.mark.parametrize(
    ("old", "new"), [("min = 5", "min = 2"), ("delta = 1e-9", "delta = 1e-3"), ("central = 2.9", "central = 1")]
)
def test_a_relay_that_lies_about_the_claim_gets_no_report(world, old, new):
    """It is part of the fingerprint, so devices that were told otherwise are refused, and so are its pools."""
    text = REGISTRY.format(key=world.registry.relay.key.partition(":")[2])
    assert old in text
    world.start(parse(text.replace(old, new)))
    answer = world.send(world.reports("theme", [0] * 6))
    assert answer.status_code == 422
    assert answer.get_json()["errors"][0]["code"] == "definition_mismatch"


def test_one_of_another_size_is_refused(world):
    """A length would mark a report in its pool."""
    stratum, payload = world.stratum("theme"), world.reports("theme", [0])[0].sealed
    for marked in (payload + b"\0", payload[:-1]):
        answer = world.send([Report(stratum, b"\0", marked)])
        assert answer.get_json()["errors"][0]["code"] == "payload_length"


def test_a_key_or_a_segment_of_ones_own_marks_nobody(world):
    """A copy of the app with a key number or a segment of its own: its reports are a pool of their own, and dropped."""
    world.send(world.reports("theme", [0] * 6))
    relay = world.registry.relay
    other = Sealer("shop", 2, relay.public_key)
    payload = world.served.mechanism("theme").randomize(0)
    world.send([other(Report(world.stratum("theme"), payload))], key="marked by a key")
    world.send([world.sealer(Report(world.stratum("theme", "platform=alice"), payload))], key="marked by a segment")
    world.close(4)
    assert [answer["accepted"] for answer in world.answers] == [6]
    assert world.counted("theme") == {"platform=linux": 6}
    assert world.pools.totals() == {"forwarded": 6, "too_few": 2}


def test_one_address_cannot_fill_a_pool(world):
    """So whoever wants to be alone with a person in a pool needs many addresses. The threat model says what they learn then."""
    world.start(limits=Limits(60, 3), proxies=1)
    assert world.send(world.reports("theme", [0]), key="the victim", **{"X-Forwarded-For": "192.0.2.1"}).status_code == 202
    attacker = {"X-Forwarded-For": ADDRESS}
    answers = [world.send(world.reports("theme", [1]), key=str(number), **attacker) for number in range(9)]
    assert [answer.status_code for answer in answers] == [202] * 3 + [429] * 6
    assert answers[-1].get_json()["code"] == "pool_share"
    world.close(4)
    assert world.counted("theme") == {}
    assert world.pools.totals() == {"too_few": 4}
