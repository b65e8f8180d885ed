"""What everybody may see of a metric: its public results are made of this, and of nothing else.

Of a closed release two things may be shown: the total, and the cells that fix the metric's first segment. Cells are nested or
disjoint, so they divide the reports into *groups*: a cell less the cells shown within it. Whatever is computed from cells, of
any number of releases, is a weighted sum of groups. So two rules for groups are enough:

* a group has ``min_reports`` reports, of each part that its estimates rest on;
* no answer has an estimated share of 90% in a group. Estimates are linear in the reports. So the share in several groups together
  is an average of their shares, and lies below 90%, too.

If a group of the cells breaks a rule, none of the cells is shown, only the total. If the total does, nothing of the release is
shown. What is not shown is in no figure at all. What is shown can be true if each group answers as a whole does in each of its
parts. So nobody can conclude that 90% of any other set of people gave one answer, whoever these are.

The rules are for the estimates. An answer that more people gave may be estimated below 90%, by the noise of its reports.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from deniable_aggregator import tally
from deniable_aggregator.answer.readings import ShareReading, read
from deniable_aggregator.answer.select import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deniable.wire.report import Stratum
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.answer.select import Published
    from deniable_aggregator.publish.breakdown import Breakdown
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.store import Store
    from deniable_aggregator.tally import Tally

ALIKE = 0.9
"""The estimated share of one answer from which on nothing is shown of a group."""

_MOST_REMEMBERED = 10_000  # releases of each store
_remembered: WeakKeyDictionary[Store, dict[tuple[object, ...], set[str]]] = WeakKeyDictionary()
_lock = Lock()


class PublicPart(NamedTuple):
    """What everybody may see of one version of a metric."""

    published: Published  # only the releases and cells that are shown
    hidden: int  # closed releases of which nothing is shown
    totals: int  # closed releases of which only the total is shown, although they have segments


def for_everybody(published: Published) -> PublicPart:
    """Select what everybody may see of a version."""
    sealed, breakdown = published.sealed(), published.breakdown
    cells = {cell: releases for cell, releases in sealed.cells.items() if not cell or _is_first(breakdown, cell)}
    by_release: dict[str, dict[str, tuple[Stratum, Release]]] = {}
    for cell, releases in cells.items():
        for last, pair in releases.items():
            by_release.setdefault(last, {})[cell] = pair
    visible = _visible(sealed, by_release)
    remaining = {cell: {last: pair for last, pair in each.items() if cell in visible[last]} for cell, each in cells.items()}
    return PublicPart(
        replace(sealed, cells={cell: each for cell, each in remaining.items() if each}),
        sum(not each for each in visible.values()),
        sum(each == {""} and len(by_release[last]) > 1 for last, each in visible.items()),
    )


def _visible(
    sealed: Published,
    by_release: Mapping[str, Mapping[str, tuple[Stratum, Release]]],  # by last period, then by cell
) -> dict[str, set[str]]:
    """Return which cells of each release everybody may see. A closed release never changes, so the answer is remembered."""
    declared, breakdown, store = sealed.declared, sealed.breakdown, sealed.app.store
    about = declared.metric.min_reports, repr(breakdown)
    keys = {last: (about, *sorted(cells.values())) for last, cells in by_release.items()}
    with _lock:
        known = dict(_remembered.setdefault(store, {}))
    selections = {
        (last, cell): Selection(sealed.app, declared, dict([pair]))
        for last, cells in by_release.items()
        if keys[last] not in known
        for cell, pair in cells.items()
    }
    readings: dict[str, dict[str, Reading]] = {}
    for (last, cell), reading in zip(selections, read(list(selections.values())), strict=True):
        readings.setdefault(last, {})[cell] = reading
    known |= {keys[last]: shown_cells(breakdown, each) for last, each in readings.items()}
    with _lock:
        _remembered[store] = dict(list(known.items())[-_MOST_REMEMBERED:])
    return {last: known[key] for last, key in keys.items()}


def shown_cells(
    breakdown: Breakdown,
    readings: Mapping[str, Reading],  # what one release says of the total and of cells that fix the first segment
) -> set[str]:
    """Return which cells of a release everybody may see: all of these, the total, or none."""
    if "" not in readings:
        return set()
    # Of a word that the registry no longer has it is not known which cells contain it.
    words = {cell.partition("=")[2] for cell in readings if cell}
    known = not words or words <= set(breakdown.words_of(breakdown.names[0]))
    if known and all(_may_be_shown(group) for group in _groups(breakdown, readings)):
        return set(readings)
    return {""} if _may_be_shown(readings[""]) else set()


def _is_first(breakdown: Breakdown, cell: str) -> bool:
    """Return whether a cell fixes the first segment only."""
    return "," not in cell and cell.partition("=")[0] in breakdown.names[:1]


def _groups(breakdown: Breakdown, readings: Mapping[str, Reading]) -> Iterator[Reading]:
    """Yield each cell less the cells within it, without groups of no report."""
    within: dict[str, list[Tally]] = {cell: [] for cell in readings}
    for cell, reading in readings.items():
        if cell:
            name, _, word = cell.partition("=")
            above = (f"{name}={more}" for more in breakdown.lineage(name, word)[1:])
            within[next((more for more in above if more in readings), "")].append(reading.counted)
    for cell, inner in within.items():
        reading = readings[cell]
        group = replace(reading, counted=tally.without(reading.counted, *inner)) if inner else reading
        if np.any(group.counted.reports):
            yield group


def _may_be_shown(group: Reading) -> bool:
    declared = group.declared
    enough = np.all(group.counted.by_parts(declared.mechanism) >= declared.metric.min_reports)
    return bool(enough) and not answers_alike(group)


def answers_alike(group: Reading) -> bool:
    """Return whether nearly all of a group gave one answer: this reveals the answer of everybody who is known to be in it."""
    # Of a number no single answer is estimated.
    if not isinstance(group, ShareReading):
        return False
    shares = group.shares.frequency
    factors = [len(values) for _, values in group.declared.metric.factors]
    margins = [shares.reshape(factors).sum(axis=tuple({*range(len(factors))} - {axis})) for axis in range(len(factors))]
    return any(bool(np.any(each >= ALIKE)) for each in (shares, *margins))
