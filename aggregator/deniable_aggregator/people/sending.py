"""Simulated reports on their way into a store, where they are counted as others are.

A server takes no reports of periods that are long over, and a worker closes such a period as soon as any of its reports are
counted. So the reports of a period are made here, summed as a worker sums them, and committed at one moment; and earlier periods
come first. From there on all is as ever: they are published, and questions are answered.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from deniable.declared import Declared
from deniable.errors import ConfigurationError, RegistryError
from deniable.limits.admission import admit
from deniable.messages.plural import plural
from deniable.registry import period
from deniable.source import ONE, OS
from deniable.wire.report import Stratum
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.counting import batch_sums
from deniable_aggregator.people.crowd import NOTHING
from deniable_aggregator.people.devices import Devices
from deniable_aggregator.people.truth import Truth
from deniable_aggregator.process import children
from deniable_aggregator.publish import release
from deniable_aggregator.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry
    from deniable_aggregator.people.crowd import Crowd
    from deniable_aggregator.store import Store

    Integers = NDArray[np.signedinteger[Any]]

WORKER = "simulate"
"""The name under which sums are committed."""
_FEW = 100_000  # reports that are made in this process, before others would have started
_MOST_PROCESSES = 4
_AHEAD = 4  # periods that are made while an earlier one is counted


class Days(NamedTuple):
    """The days in which people answer."""

    first: datetime  # when the first one begins
    last: datetime  # now

    @classmethod
    def until(cls, now: datetime, days: int, registry: Registry) -> Days:
        """Return so many days, of which today is the last."""
        most = registry.retention.releases
        if not 1 <= days <= most:
            raise ConfigurationError(f"--days {days}: write 1 to {most}, for which [retention] keeps releases")
        return cls(datetime(now.year, now.month, now.day, tzinfo=UTC) - timedelta(days=days - 1), now)

    def __str__(self) -> str:
        return f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d}"


class Occasion(NamedTuple):
    """A period of a metric, in which everybody answers once."""

    ends: datetime
    metric: str
    period: str
    time: float  # 0 for the first period, 1 for the last one


def occasions(
    registry: Registry,
    metrics: Sequence[str],  # those that are answered
    days: Days,
) -> list[Occasion]:
    """List the periods that days touch, in the order in which they end, without those after a metric's last day."""
    listed = []
    for id_ in metrics:
        metric = registry.metrics[id_]
        names = [
            name
            for name in _touched(metric, days)
            if not metric.expired(max(period.bounds(name, metric.period)[0], days.first).date())
        ]
        for number, name in enumerate(names):
            ends = period.bounds(name, metric.period)[1]
            listed.append(Occasion(ends, id_, name, number / max(len(names) - 1, 1)))
    return sorted(listed)


def _touched(metric: Metric, days: Days) -> Iterator[str]:
    moment = days.first
    while moment <= days.last:
        name = period.of(moment, metric.period)
        yield name
        moment = period.bounds(name, metric.period)[1]


def check_trial(store: Store, registry: Registry, days: Days) -> None:
    """Refuse a store that is not one of a trial, served with this registry, and a registry that asks more than devices tell."""
    if not registry.publication.trial:
        raise ConfigurationError(
            f"simulated reports go into a trial only, for nobody can tell them from real ones: {registry.file} says no "
            "trial = true under [publication]. Copy it, add that, and serve the copy with another --data"
        )
    faults = admit(registry, None, days.last.date()).faults
    if faults:
        raise RegistryError(faults)
    served = (store.get(schema.AUDIT_SERVED) or b"").decode().split(" ")[0]
    if served != registry.digest:
        what = "with another registry of it, or with this one before it was changed" if served else "with no registry of it"
        raise ConfigurationError(
            f"{registry.app} was served {what}: start `deniable serve --registry {registry.file}` anew, and send then"
        )
    if any(partition.archived.number() for partition in store.partitions):
        raise ConfigurationError(
            f"{registry.app} has an archive, which would lack the reports of simulated people: start `deniable serve` without "
            "DENIABLE_ARCHIVE and with another --data, and name the same here"
        )
    if store.simulated:
        remedy = "others would be mixed with them. Start `deniable serve` with another --data, and name the same here"
        raise ConfigurationError(f"people were sent already, for {store.simulated}: {remedy}")


def check_open(store: Store, registry: Registry, planned: Sequence[Occasion]) -> None:
    """Refuse occasions in periods that are closed."""
    if not planned:
        raise ConfigurationError(f"the collection of every metric of {registry.file} has ended (expires)")
    firsts: dict[str, str] = {}
    for occasion in planned:
        firsts.setdefault(occasion.metric, occasion.period)
    for id_, first in firsts.items():
        summary = release.summary(store, Declared.of(registry.metrics[id_]).definition)
        if first <= summary.closed or first < summary.open:
            raise ConfigurationError(
                f"{id_} takes no more reports of {first}, because later ones were published: name fewer --days, or start "
                "`deniable serve` with another --data, and name the same here"
            )


def check_empty(store: Store, registry: Registry) -> None:
    """Refuse a store that has reports of somebody."""
    # In a trial this number is no secret.
    counted, waiting = sum(_counted(store, Declared.of(metric)) for metric in registry.definitions), store.backlog()
    if counted or waiting:
        there = [plural(counted, "report")] if counted else []
        there += [f"{plural(waiting, 'batch')} that {'waits' if waiting == 1 else 'wait'} to be counted"] if waiting else []
        raise ConfigurationError(
            f"this store has {' and '.join(there)} of {registry.app} already, and nobody could tell simulated ones from them: "
            "start `deniable serve --data other`, and send with --data other. If these reports are of no use, stop the server, "
            "and empty its folder instead"
        )


def _counted(store: Store, declared: Declared) -> int:
    strata = [stratum for stratum in store.strata(declared.metric.id) if stratum[:3] == declared.definition]
    return store.read(declared.layout, strata).n


def put(
    store: Store,
    # The reports of whole periods: payloads, joined, by stratum. Of a metric's periods, none comes after a later one.
    reports: Mapping[Stratum, bytes],
    declared: Declared,  # their metric
    now: float,  # Unix time in seconds
) -> int:
    """Count reports at one moment, as a worker does; return how many there were."""
    deltas, number = batch_sums.count({(stratum, declared.layout): payloads for stratum, payloads in reports.items()})
    store.partition("").commit(WORKER, [], deltas, int(now))
    return number


def send(
    store: Store,
    registry: Registry,
    crowd: Crowd,
    days: Days,
    planned: Sequence[Occasion],  # of these days
    advance: Callable[[], None] = lambda: None,  # called after each period
) -> tuple[Truth, int]:
    """Have everybody answer on each occasion, and count the reports; return what they answered, and how many reports came."""
    # Marked first: whatever happens from here on, the store says that it has simulated reports.
    # The first period counts as a whole, although the days may begin within it.
    begins = min(period.bounds(each.period, registry.metrics[each.metric].period)[0] for each in planned)
    covered = str(days._replace(first=begins))
    details: dict[str, str | int] = {"people": crowd.size, "days": covered}
    AuditLog(store).append("reports.simulated", "command", details, change=store.putting(schema.SIMULATED, covered))
    truth, sent = Truth(registry, crowd), 0
    declared = {id_: Declared.of(registry.metrics[id_]) for id_ in crowd.answers}
    processes = 1 if crowd.size * len(planned) <= _FEW else min(os.cpu_count() or 1, _MOST_PROCESSES, crowd.size)
    with _Makers(registry, crowd, declared, processes) as makers:
        for occasion, payloads in makers.reports(_answers(registry, crowd, planned, truth)):
            of = declared[occasion.metric]
            by_stratum = {Stratum(*of.definition, occasion.period, segment): joined for segment, joined in payloads.items()}
            sent += put(store, by_stratum, of, store.now())
            advance()
    return truth, sent


def _answers(registry: Registry, crowd: Crowd, planned: Sequence[Occasion], truth: Truth) -> Iterator[tuple[Occasion, Integers]]:
    """Yield what everybody answers on each occasion, and count it; of some metrics only a sample of the answers is recorded."""
    for occasion in planned:
        metric = registry.metrics[occasion.metric]
        held = crowd.answers[metric.id].at(occasion.time)
        truth.add(metric, occasion.period, held)
        sample = Fraction(metric.sample)
        if sample != 1:
            recorded = np.frombuffer(OS.bits(sample.numerator, sample.denominator, len(held)), np.uint8) == ord(ONE)
            held = np.where(recorded, held, NOTHING)
        yield occasion, held


class _Makers:
    """Processes that make reports. Each has a share of the devices, and keeps their permanent responses."""

    def __init__(self, registry: Registry, crowd: Crowd, declared: Mapping[str, Declared], processes: int) -> None:
        self._undo = ExitStack()
        self._shares = np.array_split(np.arange(crowd.size), processes)
        # What the devices of each metric need, by share
        segments = {id_: crowd.segment(registry, of.metric) for id_, of in declared.items()}
        self._needs = [
            {id_: (of, crowd.answers[id_].positions, segments[id_][0], segments[id_][1][share]) for id_, of in declared.items()}
            for share in self._shares
        ]
        self._pools: list[ProcessPoolExecutor] = []

    def __enter__(self) -> Self:
        if len(self._shares) == 1:
            _begin(self._needs[0])
            return self
        spawning = multiprocessing.get_context("spawn")
        with children.spared():
            for needs in self._needs:
                pool = ProcessPoolExecutor(1, spawning, initializer=_begin, initargs=(needs,))
                self._undo.callback(pool.shutdown, cancel_futures=True)
                pool.submit(_begun)  # which starts the process
                self._pools.append(pool)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        _devices.clear()

    def reports(self, answered: Iterator[tuple[Occasion, Integers]]) -> Iterator[tuple[Occasion, Mapping[str, bytes]]]:
        """Yield the payloads of each occasion by segment, in order; some occasions are begun ahead."""
        begun: deque[tuple[Occasion, list[Future[dict[str, bytes]]]]] = deque()
        for occasion, held in answered:
            if not self._pools:
                yield occasion, _report(occasion.metric, held)
                continue
            parts = [held[share].astype(np.int32) for share in self._shares]  # half the bytes on the way to the processes
            begun.append(
                (occasion, [pool.submit(_report, occasion.metric, part) for pool, part in zip(self._pools, parts, strict=True)])
            )
            if len(begun) > _AHEAD:
                yield _joined(*begun.popleft())
        while begun:
            yield _joined(*begun.popleft())


def _joined(occasion: Occasion, futures: Sequence[Future[dict[str, bytes]]]) -> tuple[Occasion, dict[str, bytes]]:
    """Join what the processes made of an occasion."""
    payloads: dict[str, list[bytes]] = {}
    for future in futures:
        for segment, joined in future.result().items():
            payloads.setdefault(segment, []).append(joined)
    return occasion, {segment: b"".join(parts) for segment, parts in payloads.items()}


_devices: dict[str, Devices] = {}
"""The devices of this process, by metric."""


def _begin(needs: Mapping[str, tuple[Declared, Sequence[int], Sequence[str], Integers]]) -> None:
    _devices.clear()
    _devices.update({id_: Devices(*of) for id_, of in needs.items()})


def _begun() -> None:
    """Do nothing."""


def _report(metric: str, held: Integers) -> dict[str, bytes]:
    return _devices[metric].report(held)
