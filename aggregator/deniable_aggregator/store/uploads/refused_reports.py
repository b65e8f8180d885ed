"""Refused reports by day and reason, for administrators.

For each day a hash has the number of reports by ``<metric>|<version>|<code>|<definition>``. If the registry declares no such
metric, the metric is empty and the version 0. A report does not say of which version of the app it is. It says the version of
its metric, and the fingerprint of the definition that it was made by. Where these are not the declared ones, they are kept, such
as ``2 6f0c2a9e51b3d784``. Clients write them, so a day has at most `MOST` such fields, and all others are added up as `OTHERS`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, cast

from deniable_aggregator.store import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.values.collections import Table

DAYS = 7
"""Days for which numbers are stored, including the current one."""
MOST = 50
"""Fields of a day with a definition that is not the declared one."""
OTHERS = "others"
"""Stands for all definitions beyond `MOST`, and for what is none."""

_DAY, _HOUR = 86_400, 3600

_FINGERPRINT = re.compile("[0-9a-f]{16}")


class Refused(NamedTuple):
    """Of which reports a number is."""

    metric: str  # its id; empty if no registry declares it
    version: int  # the declared version that it is told under
    code: str  # why they were refused
    made_for: str = ""  # version and definition that they were made for, if it is not a declared one

    @property
    def field(self) -> str:
        """Its name in the store."""
        return "|".join(map(str, self))


class Hours(NamedTuple):
    """When reports of a metric were refused for a reason, in seconds since 1970."""

    metric: str  # its id; empty if no registry declares it
    version: int
    code: str  # the reason
    first: int  # the hour in which it began
    last: int  # the last hour


def made_for(version: int, fingerprint: str) -> str:
    """Write the version and the definition that reports were made for, as a client says it."""
    return f"{version} {fingerprint}" if _FINGERPRINT.fullmatch(fingerprint) else OTHERS


def add(
    store: Store,  # the app's
    reports: Mapping[Refused, int],  # their number
) -> None:
    """Count refused reports."""
    numbers: list[str | int] = []
    for of, number in reports.items():
        alike = of._replace(made_for=OTHERS) if of.made_for else of
        numbers += [of.field, alike.field, number]
    keys = [tables(store)[0].key, store.table(schema.REFUSED_HOURS).key]
    store.script("refuse")(keys, [MOST, DAYS * _DAY, *numbers])


def numbers(store: Store, of: Sequence[Table]) -> dict[Refused, int]:
    """Add up the numbers of some tables."""
    pipeline = store._client.pipeline(transaction=False)
    for table in of:
        pipeline.hgetall(table.key)
    totals: dict[Refused, int] = {}
    for day in cast("list[dict[bytes, bytes]]", pipeline.execute()):
        for field, number in day.items():
            metric, *others = field.decode().split("|")
            if len(others) == len(Refused._fields) - 1:  # else it is the number of fields
                version, code, definition = others
                refused = Refused(metric, int(version), code, definition)
                totals[refused] = totals.get(refused, 0) + int(number)
    return totals


def read(store: Store, of: Sequence[Table]) -> dict[tuple[str, int], dict[str, int]]:
    """Add up the numbers of some tables, by metric and version, then by code."""
    totals: dict[tuple[str, int], dict[str, int]] = {}
    for refused, number in numbers(store, of).items():
        codes = totals.setdefault((refused.metric, refused.version), {})
        codes[refused.code] = codes.get(refused.code, 0) + number
    return totals


def copy(store: Store, to: Table) -> None:
    """Replace a table by the numbers of all days together."""
    fields: dict[str, str | int] = {refused.field: number for refused, number in numbers(store, tables(store)).items()}
    over = {name for name in to.names() if name.decode() not in fields}
    to.put(fields)
    to.drop(*over)


def hours(
    store: Store,  # the app's
    *,
    trial: bool,  # whether everything is shown at once; else what happens in this hour is not
) -> list[Hours]:
    """Return when reports were refused in the last days, by metric and reason."""
    now = int(store.now())
    seen = now if trial else now - now % _HOUR - 1
    listed = []
    for field, between in store.table(schema.REFUSED_HOURS).all().items():
        metric, version, code = field.decode().split("|")
        first, last = map(int, between.split())
        if first <= seen and now - last <= DAYS * _DAY:
            listed.append(Hours(metric, int(version), code, first, min(last, seen - seen % _HOUR)))
    return sorted(listed)


def tables(store: Store) -> list[Table]:
    """Return the tables of all days, the latest first."""
    today = datetime.now(UTC).date()
    return [store.table(schema.REFUSED, str(today - timedelta(days=ago))) for ago in range(DAYS)]


def stored(store: Store) -> list[Table]:
    """Return all tables: those of the days, their copy, and that of the hours."""
    return [*tables(store), store.table(schema.REFUSALS), store.table(schema.REFUSED_HOURS)]


def visible(
    store: Store,
    *,
    trial: bool,  # whether everything is shown at once
) -> list[Table]:
    """Return the tables that people see: those of all days in a trial, else what they were after the last full hour."""
    return tables(store) if trial else [store.table(schema.REFUSALS)]
