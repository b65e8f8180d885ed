"""An upload that takes more than an address may store in a window counts for all of that, and is stored."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from deniable_server.access.rate_limits import Limits


def test_a_large_upload_counts_for_no_more_than_is_allowed(settings, real_redis, served):
    limits = Limits(real_redis, replace(settings, stored_limit_source="1MB/hour"))
    partition, visit = served.store.partitions[0], SimpleNamespace(source="1", environ={})
    sizes = (1, 1 << 20, 1 << 21)
    assert [limits.storing(visit, partition, size)[0].cost for size in sizes] == [1, 1 << 20, 1 << 20]
