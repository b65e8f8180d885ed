"""A store that uploads would fill: they are refused in time, and everything else goes on."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deniable.commands.entry import main
from deniable_aggregator.store.server import room
from deniable_aggregator.store.server.room import Room

pytestmark = pytest.mark.both_stores

MB = 1 << 20
EACH = 150_000  # reports, of a byte each


@pytest.fixture
def settings(settings):
    """Take more than fits."""
    return replace(settings, max_backlog=10_000)


@pytest.fixture
def limited(real_redis):
    """Let the store have so many bytes more than it uses."""

    def limit(more):
        most = real_redis.info("memory")["used_memory"] + more
        real_redis.config_set("maxmemory", most)
        return most

    yield limit
    real_redis.config_set("maxmemory", 1 << 30)


@pytest.fixture
def again(served):
    """Have the server look at the memory now, and not within a second."""
    return served.store._room._known.clear


def upload(served, number):
    """Send an upload that takes room."""
    payloads = b64encode(b"\0" * EACH).decode()
    body = json.dumps({"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0], count=EACH, payloads=payloads)]})
    answer = (
        served.post(body.encode(), key=f"upload {number}") if number % 2 else served.post(small(served), key=f"upload {number}")
    )
    if answer.status_code == 503:
        assert answer.get_json()["code"] == "store_full"
        assert int(answer.headers["Retry-After"]) > 0
        return None
    assert answer.status_code == 202
    return answer.get_json()


def small(served):
    """Return the same bytes at each call."""
    return json.dumps(
        {"format": 1, "app": "shop", "groups": [served.group("ui.theme", [0, 0], payloads=b64encode(b"\0\0").decode())]}
    ).encode()


def run(capsys, *arguments):
    """Run a command on the store; return its status and what it printed."""
    status = main(list(arguments))
    return status, capsys.readouterr()


def test_uploads_that_fill_the_store(served, settings, limited, again, monkeypatch, capsys, caplog):
    """They are refused while there is room for the rest; keys, erasure and queries work; then all is counted, once each."""
    monkeypatch.setattr("deniable_server.doctor._START_SECONDS", 0.0)  # no server starts
    monkeypatch.setenv("DENIABLE_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("DENIABLE_REGISTRY", settings.registry)
    most = limited(20 * MB)
    again()
    first = []
    for number in range(1000):
        first.append(upload(served, number))
        if first[-1] is None:
            break
    # Redis gives back what idle connections took: that is no room for uploads here.
    served.store._client.config_set("maxmemory", most - 4 * MB)
    ready = served.get("/readyz", None)
    part = ready.get_json()["parts"]["store"]
    assert (ready.status_code, part["ok"], part["reason"]) == (503, False, "full")
    assert "it has no memory left" in part["detail"]
    assert "cannot be used: it has no memory left. To mend that: make room first: https://" in caplog.text
    accepted = sum(answer["accepted"] for answer in first if answer)
    assert accepted > 10 * EACH
    memory = served.store._client.info("memory")
    assert room.UPLOADS * most < memory["used_memory"] + 4 * MB < (room.UPLOADS + 0.05) * most + 4 * MB

    status, printed = run(capsys, "keys", "create", "--role", "ingest")
    assert status == 0
    key = printed.err.split()[1].rstrip(",")
    assert run(capsys, "keys", "revoke", "--yes", key)[0] == 0
    assert run(capsys, "erase", "--app", "shop", "--metric", "gone", "--yes")[0] == 2  # nobody has sent it
    status, printed = run(capsys, "doctor", "--json")
    results = {each["check"]: each["status"] for each in map(json.loads, printed.out.splitlines())}
    assert results["memory"] in ("warning", "fault")  # the one above three quarters, the other a little below
    assert served.get("/api/v1/metrics").status_code == 200

    refused = len(first) - 1
    again()
    assert upload(served, refused) is None
    served.store._client.config_set("maxmemory", most)
    backlog = served.store.backlog()
    assert backlog == refused
    served.drain()
    again()
    for number in range(refused + 1):
        answer = upload(served, number)
        assert answer["duplicate"] == (number < refused)
        accepted += 0 if answer["duplicate"] else answer["accepted"]
    served.drain()
    assert served.get("/api/v1/metrics/ui.theme").get_json()["n"] == accepted


def test_a_store_that_is_full_beyond_that(served, limited, again):
    """Where the store itself refuses, before anybody looked, uploads are told the same."""
    assert upload(served, 2)["accepted"] == 2
    limited(-MB)
    assert upload(served, 4) is None
    again()
    assert upload(served, 4) is None
    limited(100 * MB)
    again()
    assert upload(served, 2)["duplicate"]
    assert not upload(served, 4)["duplicate"]
    served.drain()
    assert served.get("/api/v1/metrics/ui.theme").get_json()["n"] == 4


def test_what_is_remembered_of_earlier_days_takes_no_room_for_long(served, limited, again):
    """Many small uploads of yesterday fill the store: after the first upload that is refused there is room again."""
    assert upload(served, 2)["accepted"] == 2
    yesterday = int(time.time()) // 86_400 - 1
    for bucket in range(100):
        served.store._client.hset(f"{{shop}}:seen:{yesterday}:{bucket:x}", bytes(10), bytes(3 * MB // 10))
    limited(8 * MB)
    again()
    assert upload(served, 4) is None
    again()
    assert upload(served, 4)["accepted"] == 2
    assert upload(served, 2)["duplicate"]


class TestLimits:
    """Limits of requests, while the store is full."""

    @pytest.fixture
    def settings(self, settings):
        return replace(settings, rate_limit_key="3/hour", stored_limit_source="16MB/minute", trusted_proxies=1)

    def test_they_hold(self, served, limited):
        """Uploads that find no room are counted as requests, and for no bytes."""
        limited(served.store._client.info("memory")["used_memory"] // 5)
        answer = [served.post(small(served), X_Forwarded_For="203.0.113.7").status_code for _ in range(5)]
        assert answer == [503, 503, 503, 429, 429]
        assert not [key for key in served.store._client.scan_iter() if key.endswith(b":bytes")]


def test_memory_is_looked_at_now_and_then(real_redis, limited, monkeypatch):
    """A process looks once a second, or when it has appended a hundredth of what there is; not at each upload."""
    most = limited(100 * MB)
    looks, now = Room(), 1000.0
    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: now))

    def calls():
        return real_redis.info("commandstats").get("cmdstat_info", {}).get("calls", 0)

    before = calls()
    for _ in range(50):
        assert looks.take(real_redis, 10)
    assert calls() - before == 2  # that of this test, and one
    now += 1
    before = calls()
    assert looks.take(real_redis, 10)
    assert looks.take(real_redis, 10)
    assert calls() - before == 2
    before = calls()
    assert looks.take(real_redis, most // 50)
    assert looks.take(real_redis, 10)
    assert calls() - before == 2


def test_a_store_without_a_limit_has_room():
    """Nor does one that does not tell refuse anything."""
    assert room.left({"used_memory": 10, "maxmemory": 0}) == float("inf")
    assert room.left({}) == float("inf")
    assert room.left({"used_memory": 76, "maxmemory": 100}) == -1
