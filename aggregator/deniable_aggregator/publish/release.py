"""Releases: what is published of a metric and period, for all reports and by cells.

A release is stored as a tally. The segment of its stratum is a cell, such as ``platform=linux``, and empty for all reports. For
each metric an index has the records of its releases. For each definition a summary has a few numbers, updated with every release
and deletion: all that a list of metrics reads.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import msgspec

from deniable.registry import period
from deniable_aggregator.store import schema
from deniable_aggregator.store.sums.tallies import name, stratum
from deniable_aggregator.store.values import collections

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Definition
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Release:
    """The record of a release."""

    number: int = 0  # raised whenever reports are added; the first is 1
    published: int = 0  # Unix time of the hour of the last one
    closed: bool = False  # whether nothing more will be published for the period
    first: str = ""  # The first of its periods; the stratum has the last one. Empty if it covers all earlier periods.
    n: int = 0  # number of its reports

    def added(self, now: float) -> Release:
        """Return the record after reports were added at a Unix time."""
        return replace(self, number=self.number + 1, published=int(now) - int(now) % _HOUR)

    def covers(self, last: str, period: str) -> bool:
        """Return whether it covers a period; `last` is its last one."""
        return self.first <= period <= last

    def note(self) -> str:
        """Return the record as text for the index."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, note: bytes | str) -> Release:
        """Read the text of `note`."""
        return _decoder.decode(note)


_decoder = msgspec.json.Decoder(Release)


def listed(store: Store, metric: str) -> dict[Stratum, Release]:
    """Return what was published of a metric, by cell and period."""
    return read(records(store, metric))


def records(store: Store, metric: str) -> dict[bytes, bytes]:
    """Return what the index has of a metric, as it is stored."""
    return store.table(schema.RELEASES, metric).all()


def read(records: Mapping[bytes, bytes]) -> dict[Stratum, Release]:
    """Read what the index has of a metric."""
    return {stratum(written.decode()): Release.read(note) for written, note in records.items()}


def noted(store: Store, strata: Sequence[Stratum]) -> dict[Stratum, Release]:
    """Return the records of the releases of some strata, without those that have none."""
    notes = collections.values_at([(store.table(schema.RELEASES, each.metric), name(each)) for each in strata])
    return {each: Release.read(note) for each, note in zip(strata, notes, strict=True) if note}


def by_period(
    releases: Mapping[Stratum, Release],
    length: str,  # of a period
    least: float,  # reports that a release rests on; infinite if not all are of each estimate
) -> dict[str, float]:
    """Return how many reports each period has in some releases of one cell, as far as it is published."""
    # Of a release that joins periods only the sum is known. All periods but the last had fewer than `least` reports together. So
    # many are taken to be theirs, in equal parts: in no other case could more devices have reported again. If the first period
    # is not known, the release is taken to be of its last one.
    numbers: dict[str, float] = {}
    for last, note in releases.items():
        waited, current = list[str](), note.first or last.period
        while current < last.period:
            waited.append(current)
            current = period.of(period.bounds(current, length)[1], length)
        joined = min(least - 1, note.n * len(waited) / (len(waited) + 1)) if waited else 0
        numbers |= {each: joined / len(waited) for each in waited}
        numbers[last.period] = note.n - joined
    return numbers


@dataclass(frozen=True, slots=True)
class Summary:
    """What was published of one definition of a metric, over all periods."""

    n: int = 0  # number of reports in all releases
    updated: int = 0  # Unix time of the hour of the last one
    last: str = ""  # the last period with a release; empty if there is none
    # The last period that a closed release covers, or empty. It stays when all releases are deleted, so the next one begins
    # after.
    closed: str = ""
    open: str = ""  # the first period in which reports are still counted, from `Store.seal`; empty for all


def summary(store: Store, definition: Definition) -> Summary:
    """Read the summary of one definition."""
    names = [f"{name(definition)}|{each.name}" for each in fields(Summary)]
    values = store.published.values(names)
    return _summary({each.name: value for each, value in zip(fields(Summary), values, strict=True) if value is not None})


def summaries(store: Store) -> dict[Definition, Summary]:
    """Read the summaries of all definitions."""
    by_definition: dict[Definition, dict[str, bytes]] = {}
    for written, value in store.published.all().items():
        metric, version, fingerprint, member = written.decode().split("|")
        by_definition.setdefault((metric, int(version), fingerprint), {})[member] = value
    return {definition: _summary(members) for definition, members in by_definition.items() if "last" in members}


def _summary(members: Mapping[str, bytes]) -> Summary:
    last, closed, first_open = (members.get(member, b"").decode() for member in ("last", "closed", "open"))
    return Summary(int(members.get("n", 0)), int(members.get("updated", 0)), last, closed, first_open)
