"""Space: how much of the store's memory the sums of a registry take at most.

A *stratum* is all that is counted together: a metric, version, period and segment. Its sum is a list of additions of 8 bytes
each, or all its cells of 8 bytes each, whichever is shorter. A report of a ``bits`` layout is counted by its number of ones, too.
So the layout bounds a sum, however many reports come. The registry bounds how many sums, copies and releases there are at once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import timedelta
from functools import partial
from math import ceil, inf, prod
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.frozen import dataclass
from deniable.registry.period import touched
from deniable.registry.tables import Retention, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.registry import Metric, Registry
    from deniable.wire.layout import Layout

UPLOADS = 0.75
"""Share of the store's memory up to which it accepts uploads. Sums that fit into it leave room to count and to operate."""

STRATUM = 700
"""Bytes that the names of a sum take in the store at most, with its place in an index."""

_MORE = 1 << 20  # bytes
_LATE = timedelta(hours=3)  # a period is open before and after: clocks ahead, a copy's last hour, the hour between two searches
_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1000**2, "mb": 1 << 20, "g": 1000**3, "gb": 1 << 30}
_SHOWN = 3
_DAY = timedelta(days=1)


def text(
    size: int,  # its bytes
    *,
    grows: bool,  # whether it is written bit by bit; a text above a mebibyte always is
) -> int:
    """Return how much memory a text of so many bytes takes at most."""
    # The store keeps as much room again for a text that grows, up to a mebibyte. Its allocator rounds up by a quarter at most.
    return 5 * (size + (min(size, _MORE) if grows or size > _MORE else 0)) // 4


def stratum(layout: Layout, reports: float = inf) -> int:
    """Return how many bytes the sums of so many reports of a stratum take at most."""
    if layout.kind == "index":
        return STRATUM + text(8 * int(min(reports, layout.rows * layout.width)), grows=True)
    cells = min(reports, layout.rows) * (layout.width + 1)  # of each row its bits and its reports
    weights = min(reports, layout.width + 1)
    return 2 * STRATUM + text(8 * int(cells), grows=True) + text(8 * int(weights), grows=True)


def _written(layout: Layout) -> int:
    """Return how many bytes a copy or a release takes at most."""
    return STRATUM + text(8 * layout.rows * (layout.width + (layout.kind == "bits")), grows=False)


@dataclass(frozen=True, slots=True)
class Space:
    """What one version of a metric takes in the store at most."""

    app: str
    metric: Metric  # as the registry declares it
    layout: Layout  # shape of its reports
    segments: int  # segments that reports may have: the product of the listed values, each list with what is not listed
    cells: int  # cells that a release may have: the same with more general values, and with segments left open
    retention: Retention  # how long it is kept
    partitions: int = 1  # into how many parts the app is divided, each with sums of its own

    @classmethod
    def of(cls, registry: Registry, metric: Metric, layout: Layout, partitions: int = 1) -> Space:
        """Return the space of a metric of a registry, or of an older version of one."""
        lists = [len(registry.segments[name]) + 1 for name in metric.segments]
        general = [set(registry.generalize.get(name, {}).values()) for name in metric.segments]
        cells = prod(listed + len(words) + 1 for listed, words in zip(lists, general, strict=True))
        return cls(registry.app, metric, layout, prod(lists), cells, registry.retention, partitions)

    @property
    def name(self) -> str:
        """Its name for people, such as ``ui.theme@2``."""
        return f"{self.metric.id}@{self.metric.version}"

    @property
    def sums(self) -> int:
        """Bytes of its exact sums, with the copies of those that still grow, or the snapshots."""
        open_ = self._periods(0)
        copies = _written(self.layout) * open_ * (self.segments + (not self.metric.segments))
        return self.partitions * (stratum(self.layout) * self.segments * self._periods(self.retention.tallies) + copies)

    def releases(self, days: int) -> int:
        """Return the bytes of its releases, which may be kept for fewer days than declared."""
        # A period that waits for more reports has sums instead, which take less.
        return _written(self.layout) * self.cells * self._periods(days)

    def made_of(self) -> str:
        """Return what it comes from, in words."""
        counted, published = self._periods(self.retention.tallies), self._periods(self.retention.releases)
        sums = f"{self.segments:,} segments x {counted:,} periods of exact sums, kept for {self.retention.tallies} days"
        releases = f"{self.cells:,} x {published:,} of releases, for {self.retention.releases}"
        return f"{stratum(self.layout):,} bytes x ({sums}), + {_written(self.layout):,} x ({releases})"

    def _periods(self, days: int) -> int:
        """Return how many periods take reports, or closed within some days."""
        return touched(self.metric.period, (duration("grace", self.metric.grace) + _LATE) / _DAY + days)


def spaces(registry: Registry, partitions: int = 1) -> list[Space]:
    """Return the space of each version of each metric, the largest first; raise `ParameterError` if a metric has no mechanism."""
    versions = [Space.of(registry, metric, mechanisms.of(metric).layout, partitions) for metric in registry.definitions]
    return sorted(versions, key=lambda version: -total([version]))


def total(of: Sequence[Space], days: float = inf) -> int:
    """Return the bytes of several, with releases kept for so many days at most."""
    return sum(each.sums + each.releases(int(min(days, each.retention.releases))) for each in of)


def summary(of: Sequence[Space]) -> str:
    """Return the figure in words, with the metrics that make most of it, and their apps if there are several."""
    largest = sorted(of, key=lambda version: -total([version]))[:_SHOWN]
    apps = {version.app for version in of}
    names = [version.name if len(apps) == 1 else f"{version.name} of {version.app}" for version in largest]
    most = ", ".join(f"{name} {written(total([version]))}" for name, version in zip(names, largest, strict=True))
    sentence = f"sums and releases take at most {written(total(of))} in the store"
    # Rounded up, each of some small metrics takes as much as all of them.
    return sentence if written(total(of)) == written(total(largest[-1:])) else f"{sentence}, most of it for {most}"


def doubt(of: Sequence[Space], maxmemory: int) -> str | None:
    """Compare the figure with a store's ``maxmemory`` in bytes; return in words what to change if it is too small."""
    room = UPLOADS * maxmemory
    if total(of) <= room:
        return None
    days = range(max(each.retention.tallies for each in of), max(each.retention.releases for each in of))
    fit = bisect_right(days, room, key=partial(total, of))  # how many of them do
    fewer = f"write releases = {days[fit - 1]} under [retention], or " if fit else ""
    limit = f"{UPLOADS:.0%} of a maxmemory of {written(maxmemory)}"
    needed = ceil(total(of) / UPLOADS / _MORE)
    return f"{summary(of)}; beyond {limit} no uploads are accepted: {fewer}set maxmemory {needed}mb"


def read(size: str) -> int:
    """Read a number of bytes as the store's configuration has it, such as ``512mb``; raise `ParameterError` if it is none."""
    match = re.fullmatch(r"([1-9][0-9]{0,17})([kmg]?b?)", size.lower())
    if match is None:
        raise ParameterError("maxmemory: write a number of bytes such as 512mb or 2gb", size)
    return int(match[1]) * _UNITS[match[2]]


def written(size: int) -> str:
    """Write a number of bytes in MiB, or in GiB from 1 GiB on."""
    return f"{size / 2**30:,.1f} GiB" if size >= 1 << 30 else f"{max(size, 1 << 20) / 2**20:,.0f} MiB"
