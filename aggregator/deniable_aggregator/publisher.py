"""The publisher: makes releases of what was counted, when it is time to, in the worker.

A period is published when it closes: when its reports are taken no more, and none that was taken waits to be counted. A metric
without segments is also published before, whenever there is a quarter more than is published already, and `Metric.min_reports`
at least; the first time with four times as many; all without the reports that are left out. What comes in between shows nowhere,
but in a trial.

A metric with segments is not: between a part of a period and a breakdown of all of it there would be too many differences to
watch.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from deniable import mechanisms, period
from deniable.report import fingerprint
from deniable_aggregator import census, pulse, release, tally
from deniable_aggregator.audit import AuditLog
from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.census import Count
from deniable_aggregator.participation import Noise
from deniable_aggregator.release import GRACE_SECONDS, Release
from deniable_aggregator.script import Script
from deniable_aggregator.shelf import cells, name
from deniable_aggregator.thinning import thin

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deniable.layout import Layout
    from deniable.registry import Metric, Registry
    from deniable.report import Stratum
    from deniable_aggregator.store import Store
    from deniable_aggregator.tally import Tally

__all__ = ["EVERY_SECONDS", "TRIAL_SECONDS", "Publisher"]

log = logging.getLogger("deniable.publisher")

EVERY_SECONDS = 60.0
"""Between looks at whether it is time to."""
TRIAL_SECONDS = 2.0
"""The same, where everything is published at once."""

_FIRST = 4  # times min_reports that there must be for a first early release: at the close less than that is held back
_GROWTH = 4  # an early release adds at least one report for each so many that are published
_ON_THE_WAY = 10  # seconds after which an upload that was let in has been appended, or answered that it was not
_PATIENCE = 16  # a period that has been counted for so long is looked at again after this part of that time

_Releases = dict["Stratum", tuple[Release, "Tally", int]]  # and how many reports were counted of it


@dataclass(frozen=True, slots=True)
class _Question:
    """A metric as it is published."""

    metric: Metric
    layout: Layout
    fingerprint: str
    breakdown: Breakdown
    noise: Noise


class Publisher:
    """Publishes one app.

    Parameters
    ----------
    store
        Where it is counted.
    registry
        What its metrics are, and how they are published.
    grace
        Seconds after a period's end in which its reports are still taken; the same as the server's.
    actor
        Who publishes, for the audit log.
    """

    def __init__(self, store: Store, registry: Registry, *, grace: float = GRACE_SECONDS, actor: str = "worker") -> None:
        self._store = store
        self._released = release.shelf(store)
        self._early, self._trial = registry.publication.early, registry.publication.trial
        self._grace, self._actor = grace, actor
        self._every = TRIAL_SECONDS if self._trial else EVERY_SECONDS
        self._next = 0.0
        self._looked: dict[Stratum, tuple[float, float]] = {}  # when a period was first looked at, and when it is next
        self._too_few: set[Stratum] = set()  # closed, and never to be published
        self._publish = Script(store.redis, "chain", "publish")
        self._audit = AuditLog(store.redis, store.app)
        self._questions = []
        for metric in registry.metrics.values():
            mechanism = mechanisms.of(metric)
            breakdown = Breakdown.of(registry, metric)
            noise = Noise.of(registry.publication)
            tag = fingerprint(metric, mechanism.canonical)
            self._questions.append(_Question(metric, mechanism.layout, tag, breakdown, noise))

    def __call__(self) -> None:
        """Publish what is due, if it is time to look."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            self.publish(time.time())

    def publish(self, now: float, *, at_once: bool = False) -> list[Stratum]:
        """Publish what is due.

        Parameters
        ----------
        now
            Unix time in seconds.
        at_once
            Whether to add `Metric.min_reports` reports to what is published, where there are so many, instead of waiting for a
            quarter more. What a closed period alone may tell is not published earlier.

        Returns
        -------
        list of Stratum
            What was published, or had reports added, by cell.
        """
        made: list[Stratum] = []
        drained = self.drained(now)
        for question in self._questions:
            counted = self._counted(question)
            listed = release.listed(self._store, question.metric.id) if counted else {}
            for whole, strata in counted.items():
                known = listed.get(whole)
                if (known and known.closed) or whole in self._too_few:
                    continue
                ended = period.bounds(whole.period, question.metric.period)[1].timestamp()
                taken: Tally | None = None
                if ended + self._grace + _ON_THE_WAY < drained:
                    releases = self._last(question, whole, strata, known, now)
                elif self._trial:
                    releases = self._cells(question, whole, strata, known, now)
                    if known and releases[whole][1] == self._released.read(question.layout, [whole]):
                        continue
                else:
                    releases, taken = self._early_release(question, whole, strata, known, now, at_once=at_once)
                if releases and self._write(question, whole, known, releases, taken):
                    note, *_ = next(iter(releases.values()))
                    log.info("published %s of %s, number %d", whole.metric, whole.period, note.number)
                    made += releases
        return made

    @property
    def withheld(self) -> Collection[Stratum]:
        """Periods that are closed and will never be published: too few reports came."""
        return self._too_few

    def drained(self, now: float) -> float:
        """Return the Unix time up to which whatever was taken is counted."""
        felt = pulse.feel(self._store)
        if not felt.backlog:
            return now
        return now - felt.lag if felt.lag is not None else 0.0

    def _counted(self, question: _Question) -> dict[Stratum, list[Stratum]]:
        """List the strata of each period."""
        found: dict[Stratum, list[Stratum]] = {}
        for stratum in sorted(self._store.strata(question.metric.id)):
            if (stratum.version, stratum.fingerprint) == (question.metric.version, question.fingerprint):
                found.setdefault(stratum._replace(segment=""), []).append(stratum)
        return found

    def _due(self, whole: Stratum) -> bool:
        """Tell whether to look at an open period: a quarter more takes about a quarter of the time that it was counted."""
        now = time.monotonic()
        first, at = self._looked.get(whole, (now, 0.0))
        if not self._early or now < at:
            return False
        self._looked[whole] = first, now + (now - first) / _PATIENCE
        return True

    def _early_release(
        self, question: _Question, whole: Stratum, strata: Sequence[Stratum], known: Release | None, now: float, *, at_once: bool
    ) -> tuple[_Releases, Tally | None]:
        """Add what is new to what is published, if it is enough; return what was counted, too."""
        if question.metric.segments or not (at_once or self._due(whole)):
            return {}, None
        counted = self._store.read(question.layout, strata)
        out, taken = self._taken(question, whole, known)
        step = question.metric.min_reports
        if not at_once:
            step = max(step, self._released.read(question.layout, [whole]).n // _GROWTH) if known else _FIRST * step
        if counted.n - taken.n - out < step:
            return {}, None
        return {whole: (*self._added(question, whole, known, _less(counted, taken), out, now), counted.n)}, counted

    def _last(
        self, question: _Question, whole: Stratum, strata: Sequence[Stratum], known: Release | None, now: float
    ) -> _Releases:
        """Make the last release of a period, if there ever is one."""
        make = self._cells if self._trial or question.metric.segments else self._rest
        releases = make(question, whole, strata, known, now)
        if not releases:
            self._too_few.add(whole)
        return {stratum: (note.closing(), each, n) for stratum, (note, each, n) in releases.items()}

    def _rest(
        self, question: _Question, whole: Stratum, strata: Sequence[Stratum], known: Release | None, now: float
    ) -> _Releases:
        """Add what is left at the close, if it is enough."""
        counted = self._store.read(question.layout, strata)
        out, taken = self._taken(question, whole, known)
        rest = _less(counted, taken)
        if rest.n - out >= question.metric.min_reports:
            return {whole: (*self._added(question, whole, known, rest, out, now), counted.n)}
        return {whole: (known, self._released.read(question.layout, [whole]), counted.n)} if known else {}

    def _cells(
        self, question: _Question, whole: Stratum, strata: Sequence[Stratum], known: Release | None, now: float
    ) -> _Releases:
        """Release all that was counted of a period, as a whole and by segments, as far as that tells of few reports nowhere.

        Reports are left out of each leaf, the finest cell, once, and other cells are sums of these: so what is published adds up,
        and nothing comes of its differences that the suppression did not see.
        """
        from deniable_aggregator import suppression  # noqa: PLC0415 - loads a solver, which only breakdowns need
        from deniable_aggregator.cube import Cube  # noqa: PLC0415

        layout = question.layout
        counted = dict(zip((stratum.segment for stratum in strata), self._store.tallies.each(layout, strata), strict=True))
        cube = Cube.of(question.breakdown, {segment: each.n for segment, each in counted.items()})
        leaves = [question.breakdown.text(leaf) for leaf in cube.leaves]
        thinned = [thin(counted[leaf], min(question.noise.draw(), counted[leaf].n)) for leaf in leaves]
        number, releases = known.number if known else 0, _Releases()
        least = 1 if self._trial else question.metric.min_reports
        for cell in sorted(suppression.publishable(cube, least).cells):
            members = cube.members(cell)
            # How many leaves have a report at all would tell of single ones; how many have any left tells no more than the noise.
            left = sum(thinned[place].n > 0 for place in members)
            note = Release(number).added(now, question.noise, parts=left)
            summed = tally.merge(tally.empty(layout), *(thinned[place] for place in members))
            releases[whole._replace(segment=cell)] = note, summed, cube.total(cell)
        return releases

    def _added(
        self, question: _Question, stratum: Stratum, known: Release | None, fresh: Tally, out: int, now: float
    ) -> tuple[Release, Tally]:
        """Add reports that were not published yet to a release, without so many."""
        thinned = thin(fresh, out)
        note = (known or Release()).added(now, question.noise)
        return note, tally.merge(self._released.read(question.layout, [stratum]), thinned) if known else thinned

    def _taken(self, question: _Question, whole: Stratum, known: Release | None) -> tuple[int, Tally]:
        """Return how many reports the next release leaves out, and what the ones before were made of.

        That number is drawn once and then waited with: whether there are enough is asked of what is left without it. So when a
        release comes tells no more than the number of its reports does: with one report more, and one more left out, both are the
        same.
        """
        key = self._key(whole)
        found = cast("bytes | None", self._store.redis.get(key))
        if found is None:
            # If there is a release nevertheless, a trial has ended within the period, which left nothing out.
            drawn = _waiting(question) + (_bytes(self._released.read(question.layout, [whole])) if known else b"")
            self._store.redis.set(key, drawn, nx=True)  # another worker may be quicker
            found = cast("bytes | None", self._store.redis.get(key)) or drawn
        numbers = cells(found)
        return int(numbers[0]), tally.from_cells(question.layout, numbers[1:])

    def _key(self, whole: Stratum) -> str:
        return self._store.taken(name(whole))

    def _write(
        self, question: _Question, whole: Stratum, known: Release | None, releases: _Releases, taken: Tally | None
    ) -> bool:
        """Publish all cells at once, with the census of a closed period, and log it, unless another worker was quicker."""
        shelf = self._released
        kept = [self._key(whole), self._audit.key, census.key(self._store.app, whole.metric)]
        keys = [shelf.index(whole.metric), *kept, *(shelf.key(name(stratum)) for stratum in releases)]
        waiting = _waiting(question) + _bytes(taken) if taken else ""
        state: list[str | bytes] = [name(whole), known.note() if known else "", waiting]
        cells_: list[str | bytes] = []
        for stratum, (note, each, n) in releases.items():
            cells_ += [name(stratum), note.note(), _bytes(each), Count.of(question.breakdown, n).note() if note.closed else ""]
        first, *_ = next(iter(releases.values()))
        told: dict[str, str | int] = {"metric": whole.metric, "version": whole.version, "period": whole.period, "segment": ""}
        entry = self._audit.append(
            "release.published",
            self._actor,
            told | {"number": first.number, "closed": int(first.closed)},
            along=lambda seen, line: self._publish(keys, [*state, seen, line, *cells_]),
        )
        return entry is not None


def _less(counted: Tally, taken: Tally) -> Tally:
    return tally.Tally(counted.layout, counted.counts - taken.counts, counted.reports - taken.reports)


def _waiting(question: _Question) -> bytes:
    """Draw how many reports the next release leaves out, and write it as a first cell."""
    return question.noise.draw().to_bytes(8, "big")


def _bytes(counted: Tally) -> bytes:
    return counted.cells.astype(">i8").tobytes()
