"""Signs of life in a store that was restored are of dead processes."""

from __future__ import annotations

from contextlib import closing

from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads import health, registries
from deniable_aggregator.store.uploads.registries import Loaded


def test_signs_from_before_the_store_started_do_not_count():
    """A copy brings those of servers and workers of its time; who lives says so again."""
    with embedded.open_store() as opened, closing(connect(opened.url)) as client:
        store, sign = Store(client, "shop"), Loaded("server", "f" * 64, "elsewhere:1")
        before = client.time()[0] - client.info("server")["uptime_in_seconds"] - 20
        client.zadd(store.registries, {sign.written: before})
        client.zadd(store.partitions[0].workers, {"worker": before})
        assert registries.running(store) == []
        assert health.read(store).workers == 0
        registries.say(store, sign)
        health.beat(store.partitions[0], "worker")
        assert registries.running(store) == [sign]
        assert health.read(store).workers == 1
