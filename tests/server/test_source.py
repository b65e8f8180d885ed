"""Sources: one number for all of an address's requests of a day, many addresses for each number, and no address anywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count

import fakeredis
import pytest

from deniable.wire.ip import network
from deniable_aggregator.store.values import secret
from deniable_server.access import addresses as source
from deniable_server.access.addresses import Sources


@pytest.fixture
def client(monkeypatch):
    """Make an empty store; the keys of days are the same in every run, so that what meets by chance always does."""
    draws = count()
    monkeypatch.setattr(secret, "token_bytes", lambda size: sha256(b"%d" % next(draws)).digest()[:size])
    return fakeredis.FakeRedis(server=fakeredis.FakeServer())


def test_all_processes_number_alike(client):
    """Two servers on one store give an address one number."""
    one, other = Sources(client), Sources(client)
    assert one.number("192.0.2.1") == other.number("192.0.2.1")
    assert one.number("192.0.2.1") != one.number("192.0.2.2")


def test_a_number_is_that_of_many_addresses(client):
    """There are 2^20 numbers at most: each stands for thousands of IPv4 addresses."""
    sources = Sources(client)
    numbers = {sources.number(f"10.{i % 256}.{i // 256}.1") for i in range(20_000)}
    assert {len(number) for number in numbers} == {5}
    assert 19_000 < len(numbers) < 20_000  # 190 of them are expected to meet; far from 0 and from 1000


@pytest.mark.parametrize("address", [None, "", "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_this_machine_is_no_source(client, address):
    """Requests over a Unix socket and from loopback have no source, and nothing is kept for them."""
    assert Sources(client).number(address) is None
    assert not client.keys()


def test_a_network_of_ipv6_is_one_source(client):
    """All addresses of a /64 are one source; an IPv4 address is the same written either way; other texts are sources, too."""
    sources = Sources(client)
    assert sources.number("2001:db8::1") == sources.number("2001:db8::ffff:2")
    assert sources.number("2001:db8::1") != sources.number("2001:db8:0:1::1")
    assert sources.number("::ffff:192.0.2.1") == sources.number("192.0.2.1")
    assert sources.number("fe80::1%eth0") == sources.number("fe80::2")
    assert sources.number("unknown") not in (None, sources.number("elsewhere"))


def test_numbers_change_with_the_day(client, monkeypatch):
    """The key is drawn anew each day (UTC) and is gone soon after midnight, so that no two days can be joined."""

    class Clock(datetime):
        moment = datetime(2026, 11, 21, 23, 0, tzinfo=UTC)

        @classmethod
        def now(cls, tz=None):  # noqa: ARG003
            return cls.moment

    monkeypatch.setattr(source, "datetime", Clock)
    sources = Sources(client)
    addresses = [f"192.0.2.{i}" for i in range(50)]
    first = [sources.number(address) for address in addresses]
    life = client.ttl("{deniable}:source:2026-11-21")
    assert 3600 < life <= 3900
    Clock.moment += timedelta(hours=2)
    second = [sources.number(address) for address in addresses]
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 5
    assert client.get("{deniable}:source:2026-11-21") != client.get("{deniable}:source:2026-11-22")


def test_a_network_is_of_one_household():
    """An IPv4 address stands for itself, however it is written, and an IPv6 address for its 64 bits; what is none, for itself."""
    assert network("203.0.113.7") == network("::ffff:203.0.113.7") != network("203.0.113.8")
    assert network("2001:db8:0:7::1") == network("2001:db8:0:7:ffff::2%eth0") != network("2001:db8:0:8::1")
    assert network("127.0.0.1") != network("127.0.0.2")
    assert network("no address") == b"no address"
