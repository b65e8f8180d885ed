"""Releases: what is published of a metric and period, as a whole and of cells of its segments.

``{app}:release:<stratum>``
    a tally as of what was counted; the stratum's segment is a cell, such as ``platform=linux``, empty for all;
``{app}:releases:<metric>``
    hash from each such stratum to what is noted of its release.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from deniable_aggregator.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.report import Stratum
    from deniable_aggregator.store import Store

__all__ = ["Release", "last", "listed", "shelf"]

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
    """

    number: int = 0
    published: int = 0
    closed: bool = False
    first: str = ""

    def added(self, now: float) -> Release:
        """Return what is noted once reports were added to it at a Unix time."""
        return replace(self, number=self.number + 1, published=int(now) - int(now) % _HOUR)

    def covers(self, last: str, period: str) -> bool:
        """Tell whether a period is among those that it covers, of which one is the last."""
        return self.first <= period <= last

    def note(self) -> str:
        """Write it for the index."""
        return json.dumps(asdict(self))


def shelf(store: Store) -> Shelf:
    """Open the released tallies of an app."""
    return Shelf(store.redis, store.app, "release", "releases")


def last(listed: Mapping[Stratum, Release], definition: tuple[str, int, str]) -> str:
    """Name the last period that closed releases of a definition cover; empty if there are none."""
    return max((each.period for each, note in listed.items() if note.closed and each[:3] == definition), default="")


def listed(store: Store, metric: str) -> dict[Stratum, Release]:
    """List what was published of a metric, by cell and period."""
    return {stratum: Release(**json.loads(note)) for stratum, note in shelf(store).notes(metric).items()}
