"""Numbers of refused reports: by metric and reason, for seven days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.store import Store
from deniable_aggregator.store.uploads import refused_reports


def test_numbers_add_up_for_seven_days(real_redis):
    """They are added over days and calls, told by metric and version, and go by themselves."""
    store = Store(real_redis, "shop")
    today = datetime.now(UTC).date()
    for ago in (6, 7):
        real_redis.hset(f"{{shop}}:refused:{today - timedelta(days=ago)}", "ui.theme|1|period_closed", 100)
    for _ in range(2):
        refused_reports.add(
            store, {("ui.theme", 1, "period_closed"): 3, ("ui.theme", 2, "segment"): 1, ("", 0, "unknown_metric"): 2}
        )
    assert refused_reports.read(store, refused_reports.tables(store)) == {
        ("ui.theme", 1): {"period_closed": 106},
        ("ui.theme", 2): {"segment": 2},
        ("", 0): {"unknown_metric": 4},
    }
    assert 0 < real_redis.ttl(f"{{shop}}:refused:{today}") <= 7 * 86_400


def test_those_of_an_erased_metric_go(real_redis):
    """Erasing a version takes its numbers, and those of no other."""
    store = Store(real_redis, "shop")
    refused_reports.add(store, {("ui.theme", 1, "segment"): 3, ("ui.theme", 2, "segment"): 1, ("ui.themes", 1, "segment"): 2})
    Removal(store, "ui.theme", 1).sweep()
    assert refused_reports.read(store, refused_reports.tables(store)).keys() == {("ui.theme", 2), ("ui.themes", 1)}
    Removal(store, "ui.theme").sweep()
    assert refused_reports.read(store, refused_reports.tables(store)).keys() == {("ui.themes", 1)}
