"""Which metrics of a registry a device records: those that keep to the caps, in the order of the file, as long as there is room.

Lint, the SDK and servers ask here. A metric that is off has a fault, which names the line to change. Which metrics are on follows
from the registry, the app and the day, and does not depend on any answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from deniable.declared import Declared, declare
from deniable.errors import Fault, RegistryError
from deniable.limits.allowance import MICRO, Allowance, micro
from deniable.limits.caps import budget_of, caps_of, exceeding
from deniable.limits.exposure import Exposure
from deniable.registry import published, read
from deniable.registry.period import LENGTHS
from deniable.registry.places import placed
from deniable.registry.tables import LARGEST, Budget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import date

    from deniable.limits.caps import Broken
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Caps

_TENTH = MICRO // 10


@dataclass(frozen=True, slots=True)
class Admitted:
    """A metric, and what it may spend."""

    declared: Declared
    allowance: Allowance


@dataclass(frozen=True, slots=True)
class Admission:
    """What a device may record."""

    budget: Budget  # the device's budget
    metrics: Mapping[str, Admitted]  # those that are on, by id, in the order of the registry
    faults: tuple[Fault, ...]  # why each other metric is off; one may have several


def admit(
    registry: Registry,
    in_code: Caps | None,  # the caps that the app's code gives; None if it gives none
    today: date,  # a metric whose collection has ended needs no room
) -> Admission:
    """Find which metrics a device records; raise `RegistryError` if a metric has no mechanism."""
    caps, budget = caps_of(registry, in_code), budget_of(registry, in_code)
    place = "[caps]" if in_code is None else "the app's Caps"
    declared = [declare(registry, metric) for metric in registry.metrics.values()]
    excesses = list(exceeding(declared, caps, place))
    refused = {id_ for id_, _ in excesses}
    metrics = {each.metric.id: Admitted(each, Allowance.of(each, budget)) for each in declared if each.metric.id not in refused}
    living = {id_: each for id_, each in metrics.items() if not each.declared.metric.expired(today)}
    crowded = list(_without_room(registry, caps, budget, living, place, in_code))
    for id_, _ in crowded:
        metrics.pop(id_, None)
    order = list(registry.metrics)
    reasons = sorted([*excesses, *crowded], key=lambda reason: order.index(reason[0]))
    return Admission(budget, metrics, tuple(Fault(registry.file, id_, *broken) for id_, broken in reasons))


def load_all(paths: str) -> dict[str, Registry]:
    """Read registries as `published.load_all` does; a RegistryError also says why a metric would be off in the newest app."""
    loaded = published.load_all(paths)
    for path, declared in zip(filter(None, paths.split(os.pathsep)), loaded.values(), strict=True):
        newest = published.newest(path) if len(published.files(path)) > 1 else declared
        faults = admit(newest, None, datetime.now(UTC).date()).faults
        if faults:
            raise RegistryError(placed(read(newest.file), faults))
    return loaded


class _Demand(NamedTuple):
    """What some metrics take together."""

    exposure: Exposure
    month: int  # millionths of a nat

    @classmethod
    def of(cls, registry: Registry, metrics: Collection[Admitted]) -> _Demand:
        exposure = Exposure.together(registry, (each.declared for each in metrics))
        return cls(exposure, sum(each.allowance.month for each in metrics))

    def fits(self, caps: Caps, budget: Budget) -> bool:
        room = self.exposure.rows <= caps.rows and self.exposure.segments <= caps.segments
        return room and self.month <= _month(budget)


def _without_room(
    registry: Registry, caps: Caps, budget: Budget, metrics: Mapping[str, Admitted], place: str, in_code: Caps | None
) -> Iterator[tuple[str, Broken]]:
    """Take metrics in their order as long as there is room; yield each other one, with the change that makes room for all."""
    everything = _Demand.of(registry, metrics.values())
    if everything.fits(caps, budget):
        return
    taken: list[Admitted] = []
    for id_, metric in metrics.items():
        demand = _Demand.of(registry, [*taken, metric])
        if demand.fits(caps, budget):
            taken.append(metric)
            continue
        exposure, most = demand.exposure, everything.exposure
        if exposure.rows > caps.rows:
            rule = f"rows of kept answers divide devices into {caps.rows} groups at most, over all metrics: use fewer cohorts"
            yield id_, (f"{rule}, or write rows = {most.rows} in {place}", exposure.rows)
        if exposure.segments > caps.segments:
            rule = f"segments have {caps.segments} combinations at most, over all metrics: use fewer values"
            yield id_, (f"{rule}, or write segments = {most.segments} in {place}", exposure.segments)
        if demand.month > _month(budget):
            left = (_month(budget) - demand.month + metric.allowance.month) / MICRO
            rule = f"the metrics above leave {left:.4g} of {budget.per_month:g} nats a month for it"
            changes = [*_asked_less(metrics, everything.month, budget), *_raised(registry, in_code, everything.month)]
            change = f"write {', or '.join(changes)}" if changes else "ask less often, or with a smaller epsilon"
            yield id_, (f"{rule}: {change}", metric.allowance.month / MICRO)


def _month(budget: Budget) -> float:
    return inf if budget.per_month is None else micro(budget.per_month)


def _raised(registry: Registry, in_code: Caps | None, total: int) -> Iterator[str]:
    """Return the budget that has room for a total, as the lines to write."""
    tenths = ceil(total / _TENTH)
    if tenths > LARGEST * 10:
        return
    most = in_code.budget if in_code else None
    own = registry.budget or (Budget() if most is None else None)
    lines = []
    for budget, place in ((own, "[budget]"), (most, "the budget of the app's Caps")):
        if budget is not None and _month(budget) < total:
            longer = budget.lifetime is not None and budget.lifetime * 10 < tenths
            lifetime = f" and lifetime = {min(float(tenths), LARGEST)}" if longer else ""
            lines.append(f"per_month = {tenths / 10}{lifetime} in {place}")
    yield " and ".join(lines)


def _asked_less(metrics: Mapping[str, Admitted], total: int, budget: Budget) -> Iterator[str]:
    """Return the longer period of the dearest metric with which all fit; else the month, if all fit when each has it."""
    dearest = max(metrics.values(), key=lambda admitted: admitted.allowance.month)
    metric = dearest.declared.metric
    for length in LENGTHS[LENGTHS.index(metric.period) + 1 :]:
        if total - dearest.allowance.month + _month_with(length, metric, budget) <= _month(budget):
            yield f'period = "{length}" in [metrics."{metric.id}"]'
            return
    if sum(_month_with("month", each.declared.metric, budget) for each in metrics.values()) <= _month(budget):
        yield 'period = "month" in each metric'


def _month_with(length: str, metric: Metric, budget: Budget) -> int:
    """Return what a metric would reserve of a month with periods of another length."""
    return Allowance.of(Declared.of(replace(metric, period=length)), budget).month
