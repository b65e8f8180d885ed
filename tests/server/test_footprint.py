"""What uploads leave in the store: at most three bytes for each that was sent, whatever is sent."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from dataclasses import replace
from itertools import count

import pytest

from deniable_aggregator.store import GROUP, Upload
from deniable_server.api.uploads import intake

pytestmark = pytest.mark.both_stores

MOST = 3
UPLOADS = 24


def batch(*groups):
    return json.dumps({"format": 1, "app": "shop", "groups": groups}, separators=(",", ":")).encode()


def good(served, number):
    return batch(served.group("ui.theme", [number % 3]))


def refused(served, number):
    """One report that is taken, and as many groups as errors used to be kept; some of these in few bytes."""
    group = {"metric": "", "version": 1, "fingerprint": "", "period": "", "segment": "", "count": number, "payloads": ""}
    return batch(served.group("ui.theme", [0]), *[group] * 200)


def many(served, _):
    return batch(*(served.group(name, [0]) for name in ("ui.theme", "export.used", "plugin") * 30))


def large(served, _):
    payloads = b"\0" * 100_000
    return batch(served.group("ui.theme", [0], count=len(payloads), payloads=b64encode(payloads).decode()))


def compressed(make):
    return lambda served, number: gzip.compress(make(served, number), mtime=0)


KINDS = {
    "one report": (good, {}),
    "one report, compressed": (compressed(good), {"Content_Encoding": "gzip"}),
    "one report beside refused groups": (refused, {}),
    "one report beside refused groups, compressed": (compressed(refused), {"Content_Encoding": "gzip"}),
    "many groups": (many, {}),
    "many groups, compressed": (compressed(many), {"Content_Encoding": "gzip"}),
    "many reports": (large, {}),
    "many reports, compressed": (compressed(large), {"Content_Encoding": "gzip"}),
    "nothing that can be counted": (lambda s, _: batch(s.group("ui.theme", [0], version=9)), {}),
    "unknown metrics": (lambda s, number: batch(s.group("ui.theme", [0], metric=f"m{number}")), {}),
    "periods made up": (lambda s, number: batch(s.group("ui.theme", [0], period=f"{1000 + number}-01-01")), {}),
    "no JSON": (lambda _, __: b"{", {}),
    "no batch": (lambda _, __: b"{}", {}),
    "no groups": (lambda _, __: batch(), {}),
    "not compressed": (lambda _, __: b"x", {"Content_Encoding": "gzip"}),
    "no key of the upload": (good, {"Idempotency_Key": None}),
    "a long key": (good, {"Idempotency_Key": "k" * 129}),
    "no key": (good, {"Authorization": None}),
    "a key made up": (good, {"Authorization": "Bearer pk_made_up_1234567"}),
    "the same upload": (good, {"Idempotency_Key": "again"}),
}


@pytest.fixture
def settings(settings):
    """Serve behind a proxy, so that each upload may come from another address."""
    return replace(settings, max_backlog=10_000, trusted_proxies=1)


def used(client):
    """Return the bytes of memory that all keys take."""
    return sum(client.memory_usage(key, samples=0) for key in client.scan_iter(count=1000))


def send(served, kind, numbers, *, many_addresses=True):
    """Send uploads of a kind; return how many bytes these were, with the headers that an upload needs."""
    make, changes = KINDS[kind]
    sent = 0
    for number in numbers:
        body, key = make(served, number), f"{number:032x}"
        address = f"198.18.{number // 250}.{number % 250}" if many_addresses else "198.18.0.1"
        served.post(body, **({"Idempotency_Key": key, "X_Forwarded_For": address} | changes))
        head = f"POST /v1/reports HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer pk_test_12345678\r\nIdempotency-Key: {key}\r\n"
        sent += len(head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n") + len(body)
    return sent


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_once_all_is_counted(served, kind):
    """Neither what is remembered of uploads, nor counters of their sources, nor numbers of refused reports take more."""
    for _ in range(2):  # tallies, indexes, and how often each reason was met, do not grow with uploads
        send(served, kind, range(10**6, 10**6 + 5), many_addresses=False)
    served.drain()
    before = used(served.store._client)
    sent = send(served, kind, range(UPLOADS))
    served.drain()
    left = used(served.store._client) - before
    assert left <= MOST * sent, f"{left} bytes are left of {sent}"


@pytest.mark.parametrize("kind", ["one report", "one report beside refused groups", "many groups", "many reports"])
def test_what_waits_and_what_could_not_be_counted(served, kind):
    """Nor do batches that wait, or are put aside: the entry is smaller than the upload."""
    served.store.partitions[0].join()
    number = 20 if kind == "many reports" else UPLOADS
    before = used(served.store._client)
    sent = send(served, kind, range(number))
    assert served.store.backlog() == number
    assert used(served.store._client) - before <= MOST * sent
    reply = served.store._client.xreadgroup(GROUP, "me", {served.store.partitions[0].stream: ">"}, count=number)
    for id_, _ in reply[0][1]:
        assert served.store.partitions[0].bury("me", id_, "it could not be counted for a reason that takes some words")
    assert served.store._client.xlen(served.store.partitions[0].dead) == number
    assert used(served.store._client) - before <= MOST * sent


def test_how_few_bytes_an_upload_takes_where_there_are_many(served):
    """As many uploads as fill the lists take some thirty bytes each."""
    client, store = served.store._client, served.store
    number, keys = 60, count()
    store.partitions[0]._seen.name = lambda key, name=store.partitions[0]._seen.name: name(key)._replace(bucket="0")
    before = used(client)
    for _ in range(number):
        key = f"upload {next(keys)}"
        remember = intake.record(key, b"", {"accepted": 1, "rejected": 0})
        store.append(Upload(b"", key=key, remember=remember, cap=1000, ttl=60))
    client.delete(store.partitions[0].stream)
    assert (used(client) - before) / number < 36
