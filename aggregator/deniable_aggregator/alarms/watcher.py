"""The watch: regularly tests counted reports for made-up ones, and stores alarms.

A look tests every period, and each of its segments, that has grown by a tenth since its last test. If the last test was in
another hour, any growth is enough. So a period is tested about seventy times on its way from a thousand reports to a million, and
once an hour. All tests of a look together raise a false alarm with probability `checks.ALPHA` at most. An alarm stays with its
period: its sums remain suspect, however many honest reports follow.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.registry.period import end
from deniable_aggregator.alarms import checks, volume
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.store import schema
from deniable_aggregator.store.sums import tallies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.declared import Definition
    from deniable.registry import Registry
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store

log = logging.getLogger("deniable.watch")

EVERY_SECONDS = 60.0
"""Seconds between looks."""

_GROWTH = 1.1
_LEAST_REPORTS = 100  # with fewer, no test is useful
_MOST_KEPT = 100  # alarms of a metric
_MOST_PERIODS = 90  # whose numbers are kept, to measure growth and the usual volume
_HOUR = 3600  # the finest time that is stored about reports


@dataclass(frozen=True, slots=True)
class Alarm:
    """A result of a look."""

    test: str  # `checks.Finding.test`; or "volume" or "share", which are rules
    p_value: float | None  # upper bound on the probability of such an alarm in a look at honest reports; None for a rule
    # period, segment: the reports it is about; an empty segment means all of the period
    period: str
    segment: str
    n: int  # reports that were tested
    what: str  # what was found, in words
    values: tuple[int, ...]  # some of the values it is about, as places in the domain
    since: int  # Unix time of the hour in which it was first raised


def alarms(
    store: Store,  # the app's store
    definitions: Sequence[Definition],  # metric, version and fingerprint of each
) -> dict[Definition, list[Alarm]]:
    """Read the alarms of those metrics that have any, the latest first."""
    names = [tallies.name(each) for each in definitions]
    texts = store.alarms.values(names)
    by_definition = {}
    for definition, text in zip(definitions, texts, strict=True):
        recent = _Record.read(text).alarms.values()
        if recent:
            by_definition[definition] = sorted(recent, key=lambda alarm: (alarm.since, alarm.period), reverse=True)
    return by_definition


def checked(store: Store) -> int | None:
    """Return the Unix time of the last check of all metrics of an app, or None."""
    text = store.get(schema.WATCHED)
    return int(text) if text else None


def forget(
    store: Store,  # the app's store
    metric: str,  # its id
    before: float,  # Unix time: a period that ended before it is old
) -> bool:
    """Delete alarms of old periods, and the numbers that growth is measured by; return whether there were any."""
    own = {name.decode(): text for name, text in store.alarms.all().items() if name.startswith(f"{metric}|".encode())}
    return sum(_forget(store, name, text, before) for name, text in own.items()) > 0


def _forget(store: Store, definition: str, text: bytes, before: float) -> bool:
    def young(name: str) -> bool:
        ended = end(name)
        return ended is not None and ended.timestamp() >= before

    record = _Record.read(text)
    number = len(record.tested) + len(record.alarms)
    record.tested = {name: last for name, last in record.tested.items() if young(name.partition("|")[0])}
    record.alarms = {place: each for place, each in record.alarms.items() if young(each.period)}
    if len(record.tested) + len(record.alarms) == number:
        return False
    after = record.write() if record.tested or record.alarms else ""
    return store.alarms.replace(definition, text, after)


@dataclass(slots=True)
class _Record:
    """What is stored of a definition between looks."""

    tested: dict[str, tuple[int, int]]  # by `_Unit.name`: reports at its last test, and the hour of that
    alarms: dict[tuple[str, str, str], Alarm]  # by period, segment and test

    @classmethod
    def read(cls, text: bytes | None) -> _Record:
        if not text:
            return cls({}, {})
        written = json.loads(text)
        alarms = [Alarm(**each | {"values": tuple(each["values"])}) for each in written["alarms"]]
        tested = {name: (n, hour) for name, (n, hour) in written["tested"].items()}
        return cls(tested, {(each.period, each.segment, each.test): each for each in alarms})

    def write(self) -> str:
        latest = sorted(self.alarms.values(), key=lambda alarm: alarm.since)[-_MOST_KEPT:]
        periods = set(sorted({name.partition("|")[0] for name in self.tested})[-_MOST_PERIODS:])
        tested = {name: last for name, last in self.tested.items() if name.partition("|")[0] in periods}
        return json.dumps({"tested": tested, "alarms": [asdict(each) for each in latest]})


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of tests: a period, or a segment of one."""

    definition: Definition
    record: _Record
    period: str
    segment: str
    n: int
    findings: list[checks.Finding]

    @property
    def name(self) -> str:
        return f"{self.period}|{self.segment}"

    def alarm(self, test: str, p_value: float | None, what: str, hour: int, values: tuple[int, ...] = ()) -> Alarm:
        return Alarm(test, p_value, self.period, self.segment, self.n, what, values, hour)


class Watch:
    """Tests the reports of one app."""

    def __init__(
        self,
        store: Store,  # the app's store
        registry: Registry,  # its metrics
        *,
        faults: Faults | None = None,  # records a metric that fails, while the others continue
    ) -> None:
        self._store, self._faults = store, faults or Faults(store)
        self._questions = [Declared.of(metric) for metric in registry.definitions]
        self._trial = registry.publication.trial

    def run(self) -> None:
        """Test once an hour, so that no alarm shows a single report as it comes; in a trial each minute."""
        # If two workers test at once, they find the same.
        now, last = int(time.time()), checked(self._store) or 0
        if not 0 <= now - last < EVERY_SECONDS if self._trial else now // _HOUR != last // _HOUR:
            self.check(now)

    def check(
        self,
        now: int,  # Unix time in seconds
    ) -> list[Alarm]:
        """Test what has grown, and store and return the alarms that this raises."""
        before = checked(self._store) or 0
        since = before - before % _HOUR - _HOUR  # the index of strata has hours, by clocks that may differ a little
        hour = now - now % _HOUR
        units: list[_Unit] = []
        complete = True
        for question in self._questions:
            with self._faults.alone("watch", question.name):
                settled = self._store.settled(question.metric.id)
                grown = self._grown(question, since, hour) if settled is not None else []
                if settled is not None and self._store.settled(question.metric.id) == settled:
                    units += grown
                else:  # a part of a commit may look made up
                    complete = False
        raised = self._raise(units, hour)
        self._store.alarms.put({tallies.name(unit.definition): unit.record.write() for unit in units})
        # Stored after the alarms: a worker that stops in between tests again, and loses none.
        if complete:  # else the next check goes as far back as this one
            self._store.put(schema.WATCHED, now)
        return raised

    def _grown(self, question: Declared, since: int, hour: int) -> list[_Unit]:
        """Test the periods of a version that have grown since a Unix time."""
        definition = question.definition
        strata = {each: updated for each, updated in self._store.strata(question.metric.id).items() if each[:3] == definition}
        units: list[_Unit] = []
        record = _Record.read(self._store.alarms.get(tallies.name(definition)))
        for period in sorted({stratum.period for stratum, updated in strata.items() if updated >= since}):
            chosen = [stratum for stratum in strata if stratum.period == period]
            units += self._units(question, record, period, chosen, hour)
        return units

    def _units(self, question: Declared, record: _Record, period: str, strata: Sequence[Stratum], hour: int) -> Iterator[_Unit]:
        """Test a period as a whole, and each of its segments if there are several and they have enough reports."""
        layout = question.layout
        least = max(_LEAST_REPORTS, question.metric.min_reports)  # readers of alarms learn of no smaller group
        parts = dict(zip(strata, self._store.sums(layout, strata), strict=True))
        groups = [("", list(strata)), *((stratum.segment, [stratum]) for stratum in strata if len(strata) > 1)]
        for segment, members in groups:
            n = sum(parts[stratum].n for stratum in members)
            before, then = record.tested.get(f"{period}|{segment}", (0, 0))
            grown = n >= _GROWTH * before if then == hour else n > before
            if grown and n >= least:
                weights = self._store.read_weights(layout, members) if layout.kind == "bits" else None
                counted = tallies.total(layout, (parts[stratum] for stratum in members))
                findings = checks.examine(question.mechanism, counted, weights)
                yield _Unit(question.definition, record, period, segment, n, findings)

    def _raise(self, units: Sequence[_Unit], hour: int) -> list[Alarm]:
        raised = []
        for unit, findings in zip(units, checks.raised([unit.findings for unit in units]), strict=True):
            unit.record.tested[unit.name] = unit.n, hour
            raised += [(unit, unit.alarm(alarm.test, alarm.p_value, alarm.what, hour, alarm.values)) for alarm in findings]
        for unit in units:
            raised += [(unit, alarm) for alarm in _volume(unit, hour)]
        for unit, alarm in raised:
            place = (alarm.period, alarm.segment, alarm.test)
            older = unit.record.alarms.get(place)
            if older is None:
                log.warning("alarm %s over %d reports of %s: %s", alarm.test, alarm.n, alarm.period, alarm.what)
            unit.record.alarms[place] = _worse(older, alarm)
        return [alarm for _, alarm in raised]


def _worse(older: Alarm | None, newer: Alarm) -> Alarm:
    """Return the stronger of two alarms, with the earlier time."""
    if older is None:
        return newer
    stronger = newer if (newer.p_value or 0.0) <= (older.p_value or 0.0) else older
    return Alarm(**asdict(stronger) | {"since": older.since})


def _volume(unit: _Unit, hour: int) -> Iterator[Alarm]:
    """Compare a period, or a segment's share of one, with earlier periods."""
    history: dict[str, dict[str, int]] = defaultdict(dict)
    for name, (n, _) in unit.record.tested.items():
        period, _, segment = name.partition("|")
        if period < unit.period:  # names of periods sort by time
            history[segment][period] = n
    totals = history[""]
    if not unit.segment:
        before: list[float] = [totals[period] for period in sorted(totals)]
        times = volume.sudden(before, unit.n, unit.n)
        test, what = "volume", "as many reports as in the median of the periods before"
    else:
        total, _ = unit.record.tested.get(f"{unit.period}|", (unit.n, 0))
        own = history[unit.segment]
        before = [_odds(own[period], totals[period]) for period in sorted(own) if period in totals]
        times = volume.sudden(before, _odds(unit.n, total), unit.n)
        test, what = "share", "the odds of this segment in the median of the periods before"
    if times is not None:
        yield unit.alarm(test, None, f"{times:.3g} times {what}", hour)


def _odds(part: int, total: int) -> float:
    return (part + 0.5) / (max(total - part, 0) + 0.5)
