"""What is remembered of uploads: in days, under a secret, in few bytes, on fakeredis and on the real server alike."""

from __future__ import annotations

import time

import fakeredis
import pytest
from stores import EVERY, REAL

from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server.room import Room

DAY = 86_400
SECRET = "{shop}:seen:secret"


@pytest.fixture(params=EVERY)
def client(request, start_store):
    """Empty each server in turn."""
    client = fakeredis.FakeRedis() if request.param == "fake" else connect(start_store(request.param))
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def store(client):
    return Store(client, "shop")


def append(store, key, ttl=3 * DAY):
    return store.append(Upload(b"entry", key=key, remember=f"answer {key}".encode(), cap=10, ttl=ttl))


def only(client):
    """Return the day and the bucket under which the one upload is remembered."""
    (name,) = [key.decode() for key in client.scan_iter() if b":seen:" in key and key.count(b":") > SECRET.count(":")]
    return int(name.split(":")[2]), name.split(":")[3]


def test_uploads_are_remembered_by_the_day(store, client):
    """The hash has the day, and goes at the end of the day that is three days later; nothing tells more than the day."""
    append(store, "k")
    day, bucket = only(client)
    assert day in {int(time.time()) // DAY - ago for ago in (0, 1)}
    assert client.expiretime(f"{{shop}}:seen:{day}:{bucket}") == (day + 4) * DAY
    assert client.ttl(SECRET) == -1


@pytest.mark.parametrize(("days", "known"), [(1, True), (0, True), (-1, True), (-3, True), (-4, False)])
def test_an_upload_that_is_repeated_on_another_day(store, client, days, known):
    """It is known after midnight, and until the last day is over; also when the clock was set back over midnight."""
    append(store, "k")
    day, bucket = only(client)
    client.rename(f"{{shop}}:seen:{day}:{bucket}", f"{{shop}}:seen:{int(time.time()) // DAY + days}:{bucket}")
    assert (store.recall("k", 3 * DAY) == b"answer k") == known
    again = append(store, "k")
    assert (again.outcome, again.previous) == (("duplicate", b"answer k") if known else ("appended", b""))


def test_a_shorter_life_looks_back_less(store, client):
    """An upload need not be known longer than was asked for."""
    append(store, "k", ttl=60)
    day, bucket = only(client)
    assert client.expiretime(f"{{shop}}:seen:{day}:{bucket}") == (day + 2) * DAY
    client.rename(f"{{shop}}:seen:{day}:{bucket}", f"{{shop}}:seen:{int(time.time()) // DAY - 2}:{bucket}")
    assert store.recall("k", 60) is None


def test_a_hash_that_lost_its_end_gets_one(store, client):
    """A store restored from elsewhere may have lost it; the next upload in that hash brings it back."""
    append(store, "k")
    day, bucket = only(client)
    name = f"{{shop}}:seen:{day}:{bucket}"
    client.persist(name)
    client.hdel(name, *client.hkeys(name))
    client.hset(name, "another", "upload")
    append(store, "k")
    assert client.expiretime(name) == (day + 4) * DAY


def test_all_processes_use_the_secret_of_the_store(store, client):
    """A process that starts later, and one whose store was emptied or put back, knows what others have taken."""
    assert append(store, "k").outcome == "appended"
    later = Store(client, "shop")
    assert later.recall("k", DAY) == b"answer k"
    assert append(later, "k").outcome == "duplicate"
    backup = {key: client.dump(key) for key in client.scan_iter()}
    client.flushall()
    assert append(later, "k").outcome == "appended"
    assert append(store, "k").outcome == "duplicate"
    client.flushall()
    assert append(Store(client, "shop"), "other").outcome == "appended"  # with a secret of its own
    assert append(store, "other").outcome == "duplicate"
    client.flushall()
    for key, value in backup.items():
        client.restore(key, 0, value)
    for process in (store, later):
        assert append(process, "k").outcome == "duplicate"


def test_a_wrong_secret_counts_for_no_limit(client):
    """An upload that is asked for twice, because its process did not know the secret, counts once."""
    from deniable_aggregator.store.values.limit import Limit

    append(Store(client, "shop"), "k")
    limit = Limit("{shop}:rate:key:x", 9, 60, cost=5)
    Store(client, "shop").append(Upload(b"entry", key="other", remember=b"", cap=10, ttl=60, limits=[limit]))
    assert client.get(limit.key) == b"5"


def test_nobody_without_the_secret_can_tell_where_an_upload_is_remembered(client):
    """The same key is under another name in each store; so nobody can make keys that meet somebody else's."""
    names = set()
    for _ in range(5):
        client.flushall()
        append(Store(client, "shop"), "k")
        day, bucket = only(client)
        (field,) = client.hkeys(f"{{shop}}:seen:{day}:{bucket}")
        assert len(field) == 10
        names.add(field)
    assert len(names) == 5


class Full(Room):
    """A store that has no room for uploads."""

    def take(self, client, size):  # noqa: ARG002 - nothing is asked
        return False


def remembered(client):
    """Return how many days ago the days were of which uploads are remembered."""
    today = int(time.time()) // DAY
    names = [key.decode().split(":") for key in client.scan_iter() if b":seen:" in key and not key.endswith(b":hour")]
    return sorted((today - int(name[2]) for name in names if len(name) == 4), reverse=True)


@pytest.mark.parametrize("client", REAL, indirect=True)
def test_the_oldest_day_goes_where_there_is_no_room(store, client, caplog):
    """One day a minute is forgotten, for all processes together, and today's uploads never."""
    for ago in (3, 1, 0):
        append(store, f"of {ago}")
        today = int(time.time()) // DAY
        for key in list(client.scan_iter(match=f"{{shop}}:seen:{today}:*")):
            if ago:
                client.rename(key, key.replace(f":{today}:".encode(), f":{today - ago}:".encode()))
    full = [Store(client, "shop", room=Full()) for _ in range(2)]
    for expected in ([1, 0], [0], [0]):
        assert [append(each, "more").outcome for each in full] == ["no room"] * 2
        assert remembered(client) == expected
        assert 0 < client.ttl("{shop}:seen:dropped") <= 60
        client.delete("{shop}:seen:dropped")
    assert append(store, "of 0").outcome == "duplicate"
    messages = [record.getMessage() for record in caplog.records if record.name == "deniable.store"]
    assert len(messages) == 2
    assert "is counted twice" in messages[0]
