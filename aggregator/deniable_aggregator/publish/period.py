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
    snapshot: Tally | None = None  # what is counted now, if the release is older: it is kept, and published later


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
    version: Version  # the version of a metric
    whole: Stratum  # its stratum with an empty segment: the cell of all reports
    strata: Sequence[Stratum]  # its strata that were counted
    known: Release | None  # the record of its last release; None before the first
    commits: int  # number of the metric's commits at the beginning; no part of a later commit may be published

    def rests_on(self, each: Tally) -> NDArray[np.int64]:
        """Return how many reports each estimate from a tally rests on: of an option of a set, those about it."""
        return each.by_parts(self.version.declared.mechanism)

    def settled(self) -> bool:
        """Return whether what was read since the beginning contains no part of a commit."""
        return self.store.settled(self.whole.metric) == self.commits

    def published(self) -> Tally:
        """Return what is published of it as a whole."""
        return self.store.releases.read(self.version.layout, [self.whole])

    def leaves(self, before: Mapping[str, Stored]) -> dict[str, Stored]:
        """Return what was counted of each finest cell, added to earlier sums."""
        leaves = dict(before)
        for stratum, each in zip(self.strata, self.store.each(self.version.layout, self.strata), strict=True):
            leaf = self.version.breakdown.filed(stratum.segment)
            leaves[leaf] = leaves[leaf].plus(each) if leaf in leaves else each
        return leaves

    def by_cells(self, leaves: Mapping[str, Stored], note: Release, least: int) -> Step | None:
        """Release what was counted, as a whole and by segments, unless an estimate would rest on fewer reports than `least`."""
        breakdown = self.version.breakdown
        cube = Cube.of(breakdown, {leaf: each.n for leaf, each in leaves.items()})
        sums = [leaves[breakdown.text(leaf)] for leaf in cube.leaves]
        # One report is no part of most estimates of a set. If one is enough, they are told as far as they go.
        cells = suppression.publishable([cube] if least <= 1 else self._cubes(leaves), least)
        if note.number > 1:  # published cells stay, even if min_reports was raised meanwhile
            cells |= {""}
        found: dict[Stratum, Released] = {}
        for cell in sorted(cells):
            counted = total(self.version.layout, (sums[each] for each in cube.members(cell)))
            found[self.whole._replace(segment=cell)] = Released(replace(note, n=counted.n), written(counted.cells))
        return Step(found) if found else None

    def _cubes(self, leaves: Mapping[str, Stored]) -> list[Cube]:
        """Return the cube of each part of the reports that estimates rest on."""
        whole = not self.version.declared.mechanism.part
        parts = {leaf: [each.n] if whole else self.rests_on(each.tally()).tolist() for leaf, each in leaves.items()}
        return [
            Cube.of(self.version.breakdown, dict(zip(parts, of_one, strict=True))) for of_one in zip(*parts.values(), strict=True)
        ]

    def last(self, leaves: Mapping[str, Stored], note: Release, least: int) -> Step | None:
        """Release what was counted, by cells, as the last step. If the store lost some of it, nothing is added.

        Otherwise the last step would show what was lost, or too few reports: releases may be on another server than the sums.
        """
        if self.known:
            snapshot, published = self.store.snapshots.read(self.version.layout, [self.whole]), self.published()
            counted = total(self.version.layout, leaves.values())
            before = np.maximum(self.rests_on(published), self.rests_on(snapshot))
            if np.any(self.rests_on(counted) < before):
                return Step({self.whole: Released(replace(note, n=self.known.n), written(published.cells))})
        return self.by_cells(leaves, note, least)

    def all_of_it(self, note: Release) -> Step | None:
        """Release everything counted, as in a trial; nothing if nothing came since the last release."""
        step = self.by_cells(self.leaves({}), note, 1)
        return None if step and self.known and step.cells[self.whole].content == written(self.published().cells) else step

    def early(self, note: Release) -> Step | None:
        """Release the snapshot if enough reports came after it, and take the next one. Without a snapshot take the first one."""
        layout, least = self.version.layout, self.version.metric.min_reports
        came, published = self.store.read(layout, self.strata), self.published()
        snapshot = self.store.snapshots.read(layout, [self.whole])
        there = self._enough(published, snapshot, least)
        last = snapshot if there else published
        if came.n - last.n < published.n // _GROWTH or not self._enough(last, came, least):
            return None
        if there:
            return Step({self.whole: Released(replace(note, n=snapshot.n), written(snapshot.cells))}, came)
        if self.settled():
            self.store.staging.replace(self.store.snapshots.key(name(self.whole)), written(came.cells))
        return None

    def _enough(self, before: Tally, after: Tally, least: int) -> bool:
        """Return whether the reports between two tallies are enough for every estimate."""
        return bool(np.all(self.rests_on(after) - self.rests_on(before) >= least))
