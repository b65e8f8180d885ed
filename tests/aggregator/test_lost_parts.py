"""What the store lost of one option of a set shows in no release, though all others have more reports than before."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from registries import metric_toml, registry_toml

from deniable import registry
from deniable.declared import Declared
from deniable.wire.report import Stratum
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store
from deniable_aggregator.store.sums import tallies

REGISTRY = registry_toml(
    metric_toml("plugins", type="set", values=["a", "b", "c"]), publication={"min_reports": 100, "grace": "3d"}
)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


def test_the_last_step_adds_nothing_if_one_option_has_fewer_reports(real_redis):
    declared = registry.parse(REGISTRY)
    store, of = Store(real_redis, "shop"), Declared.of(declared.metrics["plugins"])
    complete = Stratum("plugins", 1, of.fingerprint, "2026-11-21", "")

    def count(a, b, c):
        cells = np.array([number for option in (a, b, c) for number in (option, 0)], np.int64)
        assert store.partitions[0].commit("test", [], {complete: cells}, int(NOON)) == []

    for _ in range(3):
        count(100, 100, 100)
        Publisher(store, declared).publish(NOON)
    before = store.releases.read(of.layout, [complete])
    assert before.n == 600
    store._client.delete(store.partitions[0].tallies.key(tallies.name(complete)))
    count(150, 900, 900)
    Publisher(store, declared).publish(NOON + 4 * 86_400)
    assert store.releases.read(of.layout, [complete]) == before
    (note,) = release.listed(store, "plugins").values()
    assert (note.n, note.closed) == (600, True)
