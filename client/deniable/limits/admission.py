"""Which metrics of a registry a device records: those that keep to the caps, in the order of the file, as long as there is room.

Lint, the SDK and servers ask here. A metric that is off has a fault, which names the line to change. Which metrics are on follows
from the registry, the app and the day, and does not depend on any answer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.declared import declare_all
from deniable.errors import Fault
from deniable.frozen import NamedTuple, dataclass
from deniable.limits.allowance import MICRO, Admitted, Allowance, month_of
from deniable.limits.caps import budget_of, caps_of, exceeding, mended
from deniable.limits.exposure import MANY_GROUPS, Exposure
from deniable.messages.plural import plural
from deniable.messages.reasons import ANSWERS
from deniable.registry import refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import date

    from deniable.registry import Registry
    from deniable.registry.tables import Budget, Caps

__all__ = ["Admission", "Admitted", "admit", "off"]


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
    declared = declare_all(registry, registry.metrics.values(), decoded=False)
    excesses = list(exceeding(declared, caps, place))
    refused = {id_ for id_, _ in excesses}
    metrics = {each.metric.id: Admitted(each, Allowance.of(each, budget)) for each in declared}
    living = {id_: admitted for id_, admitted in metrics.items() if not admitted.declared.metric.expired(today)}
    for id_ in refused & living.keys():
        lower = mended(metrics[id_].declared, caps)
        living[id_] = Admitted(lower, Allowance.of(lower, budget))
    crowded = list(_without_room(registry, caps, budget, living, refused, place, in_code))
    off = refused | {id_ for id_, _ in crowded}
    order = list(registry.metrics)
    reasons = sorted([*excesses, *crowded], key=lambda reason: order.index(reason[0]))
    on = {id_: admitted for id_, admitted in metrics.items() if id_ not in off}
    return Admission(budget, on, tuple(Fault(registry.file, id_, rule) for id_, rule in reasons))


def off(
    registry: Registry,
    today: date,
) -> dict[str, str]:
    """Say of each metric that devices do not record today why, and what to do, by id."""
    ended = {
        id_: [ANSWERS["expired"].words(f"on {metric.expires}")]
        for id_, metric in registry.metrics.items()
        if metric.expired(today)
    }
    faults: dict[str, list[str]] = {}
    for fault in admit(registry, None, today).faults:
        faults.setdefault(fault.metric, []).append(fault.words)
    return {
        id_: "; ".join([*faults.get(id_, ()), *ended.get(id_, ())]) for id_ in registry.metrics if id_ in faults or id_ in ended
    }


def load_all(joined: str) -> dict[str, Registry]:
    """Read registries as `published.load_all` does; a RegistryError also says why a metric would be off in the newest app."""
    from deniable.registry import published  # noqa: PLC0415 - a device needs no folder

    loaded = published.load_all(joined)
    for path, declared in zip(published.paths(joined), loaded.values(), strict=True):
        newest = published.newest(path) if len(published.files(path)) > 1 else declared
        faults = admit(newest, None, datetime.now(UTC).date()).faults
        if faults:
            raise refusal(newest.file, faults)
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
        return room and self.month <= month_of(budget)


def _without_room(
    registry: Registry,
    caps: Caps,
    budget: Budget,
    metrics: Mapping[str, Admitted],  # those that have not ended
    refused: Collection[str],  # which of them exceed the caps, here as they are once mended: they get what room the others leave
    place: str,
    in_code: Caps | None,
) -> Iterator[tuple[str, str]]:
    """Take metrics in their order as long as there is room; yield each other one, with the change that makes room for all."""
    everything = _Demand.of(registry, metrics.values())
    if everything.fits(caps, budget):
        return
    most, changes = everything.exposure, None
    taken: list[Admitted] = []
    for id_, metric in sorted(metrics.items(), key=lambda item: item[0] in refused):
        demand = _Demand.of(registry, [*taken, metric])
        if demand.fits(caps, budget):
            taken.append(metric)
            continue
        if demand.exposure.rows > caps.rows:
            groups = (
                f"with it, rows of kept answers divide devices into {demand.exposure.rows} groups, and {caps.rows} are allowed"
            )
            raised = "" if most.rows > MANY_GROUPS else f", or write rows = {most.rows} in {place}"
            fewer = "use fewer cohorts" if metric.declared.metric.open else "use fewer cohorts, or a mechanism such as l_grr"
            yield id_, f"{groups}: {fewer}{raised}"
        if demand.exposure.segments > caps.segments:
            groups = f"with it, segments have {demand.exposure.segments} combinations, and {caps.segments} are allowed"
            raised = "" if most.segments > MANY_GROUPS else f", or write segments = {most.segments} in {place}"
            yield id_, f"{groups}: use fewer segments, or fewer values{raised}"
        if demand.month > month_of(budget):
            needs = metric.allowance.month
            others = "other metrics" if id_ in refused else "metrics above"
            left = (month_of(budget) - demand.month + needs) / MICRO
            room_left = f"the {others} leave {left:.4g} of {budget.per_month:g}" if taken else f"the budget has {left:.4g}"
            from deniable.limits.advice import room  # noqa: PLC0415 - only a budget that is too small needs it

            if changes is None:
                changes = room(registry, metrics, refused, caps, budget, in_code)
            otherwise = "mend what exceeds the caps first" if refused else "remove metrics, or ask them less often"
            change = f"write {changes}" if changes else otherwise
            nats = plural(needs / MICRO, "nat", ".4g")
            why = f"{'within the caps ' * (id_ in refused)}it needs {nats} a month, and {room_left}"
            yield id_, f"{why}: {change}"
