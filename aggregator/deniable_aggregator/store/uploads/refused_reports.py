"""Refused reports by day and reason, for administrators.

For each day a hash has the number of reports by ``<metric>|<version>|<code>``. If the registry declares no such metric, the
metric is empty and the version 0.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from deniable_aggregator.store import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.values.collections import Table

DAYS = 7
"""Days for which numbers are kept, including the current one."""


def add(
    store: Store,  # the app's
    reports: Mapping[tuple[str, int, str], int],  # their number by metric, version and code
) -> None:
    """Count refused reports."""
    key = tables(store)[0].key
    pipeline = store._client.pipeline(transaction=False)
    for (metric, version, code), number in reports.items():
        pipeline.hincrby(key, f"{metric}|{version}|{code}", number)
    pipeline.expire(key, DAYS * 86_400)
    pipeline.execute()


def read(store: Store, of: Sequence[Table]) -> dict[tuple[str, int], dict[str, int]]:
    """Add up the numbers of some tables: by metric and version, then by code."""
    pipeline = store._client.pipeline(transaction=False)
    for table in of:
        pipeline.hgetall(table.key)
    found: dict[tuple[str, int], dict[str, int]] = {}
    for day in cast("list[dict[bytes, bytes]]", pipeline.execute()):
        for field, number in day.items():
            metric, version, code = field.decode().split("|")
            of_it = found.setdefault((metric, int(version)), {})
            of_it[code] = of_it.get(code, 0) + int(number)
    return found


def copy(store: Store, to: Table) -> None:
    """Replace a table by the numbers of all days together."""
    found = read(store, tables(store))
    told = {f"{metric}|{version}|{code}": n for (metric, version), some in found.items() for code, n in some.items()}
    over = {name for name in to.names() if name.decode() not in told}
    to.put(told)
    to.drop(*over)


def tables(store: Store) -> list[Table]:
    """Return the tables of all days that are kept, the latest first."""
    today = datetime.now(UTC).date()
    return [store.table(schema.REFUSED, str(today - timedelta(days=ago))) for ago in range(DAYS)]
