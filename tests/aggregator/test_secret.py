"""Shared secrets: the first one that needs a secret draws it for all."""

from __future__ import annotations

import fakeredis
import pytest

from deniable_aggregator.store.values.secret import shared
from deniable_aggregator.store.values.sessions import Sessions


@pytest.fixture
def client():
    return fakeredis.FakeRedis(server=fakeredis.FakeServer())


def test_whoever_comes_later_has_what_the_first_one_drew(client):
    """A secret is drawn once, and stays."""
    first = shared(client, "secret")
    assert len(first) == 32
    assert shared(client, "secret") == first
    assert client.ttl("secret") == -1
    assert shared(client, "another") != first


def test_a_secret_with_a_life_is_not_prolonged_by_use(client):
    """Its life begins when it is drawn; when it is over, the next one is another."""
    first = shared(client, "secret", 60)
    assert 0 < client.ttl("secret") <= 60
    assert shared(client, "secret", 6000) == first
    assert client.ttl("secret") <= 60
    client.delete("secret")
    assert shared(client, "secret", 60) != first


def test_servers_of_one_store_sign_alike(client):
    """A cookie that one server has signed is good for all others."""
    assert Sessions(client).secret() == Sessions(client).secret()
