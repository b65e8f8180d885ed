"""A period of one version of a metric: what was counted, what was published, and what may be published next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator.publish import suppression
from deniable_aggregator.publish.suppression.cube import Cube
from deniable_aggregator.store.sums.tallies import name, total, written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.breakdown import Breakdown
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.sums.tallies import Stored
    from deniable_aggregator.tally import Tally

_GROWTH = 4  # two snapshots differ by at least one report for this many published ones


class Released(NamedTuple):
    """A release, and its tally as the store keeps it."""

    note: Release
    content: bytes


class Step(NamedTuple):
    """What is published of a period at one moment."""

    cells: dict[Stratum, Released]  # the release of each cell, by its stratum, including the cell of all reports
    snapshot: Tally | None = None  # what is counted now, if the release is an older snapshot; it is published later


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a metric, and its cells."""

    declared: Declared
    breakdown: Breakdown

    @property
    def metric(self) -> Metric:
        """The metric as declared."""
        return self.declared.metric

    @property
    def layout(self) -> Layout:
        """Shape of its reports."""
        return self.declared.layout


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a version, at one moment."""

    store: Store  # where its reports are counted
    version: Version
    stratum: Stratum  # with an empty segment: the cell of all reports
    strata: Sequence[Stratum]  # those that were counted, one for each segment text
    known: Release | None  # the record of its last release; None before the first
    commits: int  # the metric's commits in pieces at the beginning (`Store.settled`): no part of a later one may be published

    def rests_on(self, tally: Tally) -> NDArray[np.int64]:
        """Return how many reports each estimate from a tally rests on; an option of a set rests on those about it."""
        return tally.by_parts(self.version.declared.mechanism)

    def settled(self) -> bool:
        """Return whether what was read since the beginning contains no part of a commit."""
        return self.store.settled(self.stratum.metric) == self.commits

    def published(self) -> Tally:
        """Return what is published of all reports."""
        return self.store.releases.read(self.version.layout, [self.stratum])

    def leaves(self, before: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return what was counted of each finest cell, with the sums of earlier periods."""
        leaves = dict(before)
        for stratum, stored in zip(self.strata, self.store.sums(self.version.layout, self.strata), strict=True):
            leaf = self.version.breakdown.filed(stratum.segment)
            leaves[leaf] = leaves[leaf].plus(stored) if leaf in leaves else stored
        return leaves

    def by_cells(self, leaves: Mapping[str, Stored], note: Release, least: int) -> Step | None:
        """Release what was counted, in all and by segments, unless an estimate would rest on fewer reports than `least`."""
        breakdown = self.version.breakdown
        cube = Cube.of(breakdown, {leaf: each.n for leaf, each in leaves.items()})
        sums = [leaves[breakdown.text(leaf)] for leaf in cube.leaves]
        # One report says nothing about most options of a set, which would withhold it even where one report is enough.
        cells = suppression.publishable([cube] if least <= 1 else self._cubes(leaves), least)
        if note.number > 1:  # published cells stay, even if min_reports was raised meanwhile
            cells |= {""}
        releases: dict[Stratum, Released] = {}
        for cell in sorted(cells):
            counted = total(self.version.layout, (sums[each] for each in cube.members(cell)))
            releases[self.stratum._replace(segment=cell)] = Released(replace(note, n=counted.n), written(counted.cells))
        return Step(releases) if releases else None

    def _cubes(self, leaves: Mapping[str, Stored]) -> list[Cube]:
        """Return a cube for each part of the reports on which an estimate rests."""
        undivided = not self.version.declared.mechanism.part
        parts = {leaf: [each.n] if undivided else self.rests_on(each.tally()).tolist() for leaf, each in leaves.items()}
        return [
            Cube.of(self.version.breakdown, dict(zip(parts, of_one, strict=True))) for of_one in zip(*parts.values(), strict=True)
        ]

    def last(self, leaves: Mapping[str, Stored], note: Release, least: int) -> Step | None:
        """Release what was counted, by cells, as the last step. If the store lost some of it, nothing is added."""
        # Releases may be on another server than the sums, and survive what these lose. A last step with fewer reports would show
        # what was lost; with a few more, those few.
        if self.known:
            snapshot, published = self.store.snapshots.read(self.version.layout, [self.stratum]), self.published()
            counted = total(self.version.layout, leaves.values())
            before = np.maximum(self.rests_on(published), self.rests_on(snapshot))
            if np.any(self.rests_on(counted) < before):
                return Step({self.stratum: Released(replace(note, n=self.known.n), written(published.cells))})
        return self.by_cells(leaves, note, least)

    def all_of_it(self, note: Release) -> Step | None:
        """Release everything counted, as in a trial; nothing if nothing came since the last release."""
        step = self.by_cells(self.leaves({}), note, 1)
        return None if step and self.known and step.cells[self.stratum].content == written(self.published().cells) else step

    def early(self, note: Release) -> Step | None:
        """Release the snapshot if enough reports came after it, and take the next one. Without a snapshot take the first one."""
        layout, least = self.version.layout, self.version.metric.min_reports
        came, published = self.store.read(layout, self.strata), self.published()
        snapshot = self.store.snapshots.read(layout, [self.stratum])
        there = self._enough(published, snapshot, least)
        last = snapshot if there else published
        if came.n - last.n < published.n // _GROWTH or not self._enough(last, came, least):
            return None
        if there:
            return Step({self.stratum: Released(replace(note, n=snapshot.n), written(snapshot.cells))}, came)
        if self.settled():
            self.store.staging.replace(self.store.snapshots.key(name(self.stratum)), written(came.cells))
        return None

    def _enough(self, before: Tally, after: Tally, least: int) -> bool:
        """Return whether the reports between two tallies are enough for every estimate."""
        return bool(np.all(self.rests_on(after) - self.rests_on(before) >= least))
