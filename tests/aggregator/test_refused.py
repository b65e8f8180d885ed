"""Numbers of refused reports: by metric and reason, for seven days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.store import Store, schema
from deniable_aggregator.store.uploads import refused_reports
from deniable_aggregator.store.uploads.refused_reports import MOST, OTHERS, Refused, made_for


def test_numbers_add_up_for_seven_days(real_redis):
    """They are added over days and calls, told by metric and version, and go by themselves."""
    store = Store(real_redis, "shop")
    today = datetime.now(UTC).date()
    for ago in (6, 7):
        real_redis.hset(f"{{shop}}:refused:{today - timedelta(days=ago)}", "ui.theme|1|period_closed|", 100)
    for _ in range(2):
        refused_reports.add(
            store,
            {
                Refused("ui.theme", 1, "period_closed"): 3,
                Refused("ui.theme", 2, "segment"): 1,
                Refused("", 0, "unknown_metric"): 2,
            },
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
    refused_reports.add(
        store, {Refused("ui.theme", 1, "segment"): 3, Refused("ui.theme", 2, "segment"): 1, Refused("ui.themes", 1, "segment"): 2}
    )
    Removal(store, "ui.theme", 1).sweep()
    assert refused_reports.read(store, refused_reports.tables(store)).keys() == {("ui.theme", 2), ("ui.themes", 1)}
    Removal(store, "ui.theme").sweep()
    assert refused_reports.read(store, refused_reports.tables(store)).keys() == {("ui.themes", 1)}


def test_what_they_were_made_for_is_told_of_so_many_only(real_redis):
    """A version and a definition are what a client says: beyond a bound, and where they are none, they are added up."""
    store = Store(real_redis, "shop")
    for number in range(2 * MOST):
        version = made_for(1 + number, f"{number:016x}")
        refused_reports.add(store, {Refused("ui.theme", 1, "unknown_version", version): 2})
    refused_reports.add(store, {Refused("ui.theme", 1, "unknown_version", made_for(3, f"{2:016x}")): 1})
    refused_reports.add(store, {Refused("ui.theme", 1, "definition_mismatch", made_for(1, "me@example.org")): 5})
    numbers = refused_reports.numbers(store, refused_reports.tables(store))
    assert len(numbers) == MOST + 2
    assert numbers[Refused("ui.theme", 1, "unknown_version", OTHERS)] == 2 * MOST
    assert numbers[Refused("ui.theme", 1, "unknown_version", f"3 {2:016x}")] == 3
    assert numbers[Refused("ui.theme", 1, "definition_mismatch", OTHERS)] == 5
    assert refused_reports.read(store, refused_reports.tables(store)) == {
        ("ui.theme", 1): {"unknown_version": 4 * MOST + 1, "definition_mismatch": 5}
    }
    copy = store.table(schema.REFUSALS)
    refused_reports.copy(store, copy)
    assert refused_reports.numbers(store, refused_reports.visible(store, trial=False)) == numbers
