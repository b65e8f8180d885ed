"""Releases: what is published of a metric and period, as a whole and of cells of its segments.

A release is a tally as of what was counted; its stratum's segment is a cell, such as ``platform=linux``, empty for all. An index
of each metric has what is noted of its releases. A summary has a few numbers for each definition, kept true by whatever publishes
or deletes: whoever lists metrics reads this alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import msgspec

from deniable_aggregator.store import schema, table
from deniable_aggregator.store.tallies import name, stratum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Definition
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store

__all__ = ["Release", "Summary", "listed", "noted", "summaries", "summary"]

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Release:
    """What is noted of a release.

    Parameters
    ----------
    number
        Raised whenever reports are added; the first is 1.
    published
        Unix time of the hour of the last one.
    closed
        Whether this is all that will be published of the period.
    first
        The first of the periods that it covers; the stratum's is the last one. Empty for all before.
    n
        Its reports.
    """

    number: int = 0
    published: int = 0
    closed: bool = False
    first: str = ""
    n: int = 0

    def added(self, now: float) -> Release:
        """Return what is noted once reports were added to it at a Unix time."""
        return replace(self, number=self.number + 1, published=int(now) - int(now) % _HOUR)

    def covers(self, last: str, period: str) -> bool:
        """Tell whether a period is among those that it covers, of which one is the last."""
        return self.first <= period <= last

    def note(self) -> str:
        """Write it for the index."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, note: bytes | str) -> Release:
        """Read what `note` wrote."""
        return _decoder.decode(note)


_decoder = msgspec.json.Decoder(Release)


def listed(store: Store, metric: str) -> dict[Stratum, Release]:
    """List what was published of a metric, by cell and period."""
    found = store.table(schema.RELEASES, metric).all()
    return {stratum(written.decode()): Release.read(note) for written, note in found.items()}


def noted(store: Store, strata: Sequence[Stratum]) -> dict[Stratum, Release]:
    """Read what is noted of the releases of some strata; of those that there are."""
    found = table.each([(store.table(schema.RELEASES, each.metric), name(each)) for each in strata])
    return {each: Release.read(note) for each, note in zip(strata, found, strict=True) if note}


@dataclass(frozen=True, slots=True)
class Summary:
    """What was published of one definition of a metric, over all periods.

    Parameters
    ----------
    n
        Reports in all releases.
    updated
        Unix time of the hour of the last one.
    last
        The last period of which anything is published; empty if there is none.
    closed
        The last period that a closed release covers; likewise. It stays when all releases are deleted: the next one begins after.
    open
        The first period in which reports are counted still, as `Store.seal` was told; empty for all.
    """

    n: int = 0
    updated: int = 0
    last: str = ""
    closed: str = ""
    open: str = ""


def summary(store: Store, definition: Definition) -> Summary:
    """Read what was published of one definition."""
    names = [f"{name(definition)}|{each.name}" for each in fields(Summary)]
    told = store.published.some(names)
    return _summary({each.name: value for each, value in zip(fields(Summary), told, strict=True) if value is not None})


def summaries(store: Store) -> dict[Definition, Summary]:
    """Read what was published of each definition, of those of which there is anything."""
    found: dict[Definition, dict[str, bytes]] = {}
    for written, value in store.published.all().items():
        metric, version, fingerprint, member = written.decode().split("|")
        found.setdefault((metric, int(version), fingerprint), {})[member] = value
    return {definition: _summary(members) for definition, members in found.items() if "last" in members}


def _summary(members: Mapping[str, bytes]) -> Summary:
    last, closed, first_open = (members.get(member, b"").decode() for member in ("last", "closed", "open"))
    return Summary(int(members.get("n", 0)), int(members.get("updated", 0)), last, closed, first_open)
