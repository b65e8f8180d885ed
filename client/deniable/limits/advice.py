"""What to write so that all metrics of a registry have room in the budget: nothing that lint would then warn of.

That is longer periods or kept answers, or as a choice a smaller epsilon or a larger budget, up to the default; else less for
the greediest metrics or a larger budget; else both.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.errors import ParameterError
from deniable.exact.epsilon import exact
from deniable.frozen import NamedTuple, replace
from deniable.limits.allowance import MICRO, Admitted, Allowance, month_of
from deniable.limits.caps import exceeding
from deniable.limits.exposure import MANY_GROUPS, Exposure
from deniable.registry.period import LENGTHS
from deniable.registry.tables import LARGEST, Budget, Caps

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deniable.registry import Metric, Registry

_TENTH = MICRO // 10
_MOST_METRICS = 8  # that a message asks to change; for more, only a larger budget is advised
_HALF, _LEAST = Fraction(1, 2), Fraction(1, 20)  # the parts of its epsilon that a metric should keep, and has to
_STEPS = 20  # a smaller epsilon is a multiple of 1 / 20
_KEPT = 1.5  # kept answers are a larger change than the next longer period, and a smaller one than the period after that


class _Change(NamedTuple):
    """One line in one metric, which makes it spend less."""

    line: str
    changed: Admitted
    saved: int  # millionths of a nat in a month
    size: float  # how much it changes: in steps of the period


def room(
    registry: Registry,
    metrics: Mapping[str, Admitted],  # all that need room
    refused: Collection[str],  # which of them exceed the caps, so that another line is about their epsilon
    caps: Caps,
    budget: Budget,
    in_code: Caps | None,
) -> str:
    """Return the smallest change that makes room for all metrics, as the lines to write; empty if none does."""
    exposure = Exposure.together(registry, (each.declared for each in metrics.values()))
    # Larger caps of rows and segments, where they are needed, are advised beside this.
    rows = max(exposure.rows, min(caps.rows, MANY_GROUPS))
    caps = replace(caps, rows=rows, segments=max(caps.segments, exposure.segments))
    longer = [_least(registry, metrics, _longer(metrics, length, budget), caps, budget) for length in LENGTHS]
    permanent = _least(registry, metrics, _permanent(metrics, refused, caps, budget), caps, budget)
    best = [
        min(options, key=_size) for options in ([each for each in longer if each], [permanent] if permanent else []) if options
    ]
    if not best:
        return _larger(registry, metrics, refused, budget, in_code)
    changes = min(best, key=_size)
    first = f"{_written(changes)} ({'for an answer that seldom changes' if changes == permanent else 'which saves most'})"
    # A longer period may ask another question. Smaller losses and a larger budget change no meaning.
    total = sum(each.allowance.month for each in metrics.values())
    smaller = _less(metrics, refused, month_of(budget), budget, _HALF)
    less = "" if any(change.line.startswith("period") for change in smaller.values()) else _written(smaller)
    raised = _raised(registry, in_code, total) if total <= month_of(Budget()) else ""
    return ", or ".join(filter(None, (first, less, raised)))


def _size(changes: Mapping[str, _Change]) -> tuple[int, float]:
    return len(changes), max(change.size for change in changes.values())


def _least(
    registry: Registry, metrics: Mapping[str, Admitted], changes: Mapping[str, _Change], caps: Caps, budget: Budget
) -> dict[str, _Change]:
    """Return the fewest of some changes with which all metrics have room, those that save most; empty if all are not enough."""
    over = sum(each.allowance.month for each in metrics.values()) - month_of(budget)
    chosen: dict[str, _Change] = {}
    for id_ in sorted(changes, key=lambda id_: -changes[id_].saved)[:_MOST_METRICS]:
        chosen[id_] = changes[id_]
        over -= changes[id_].saved
        if over <= 0:
            after = [chosen[id_].changed if id_ in chosen else metric for id_, metric in metrics.items()]
            exposure = Exposure.together(registry, (each.declared for each in after))
            return chosen if exposure.rows <= caps.rows and exposure.segments <= caps.segments else {}
    return {}


def _longer(metrics: Mapping[str, Admitted], length: str, budget: Budget) -> dict[str, _Change]:
    """Return the changes to a longer period."""
    steps = {id_: LENGTHS.index(length) - LENGTHS.index(each.declared.metric.period) for id_, each in metrics.items()}
    changes = {
        id_: _changed(each, replace(each.declared.metric, period=length), f'period = "{length}"', budget, steps[id_])
        for id_, each in metrics.items()
        if steps[id_] > 0
    }
    return {id_: change for id_, change in changes.items() if change.saved > 0}


def _permanent(metrics: Mapping[str, Admitted], refused: Collection[str], caps: Caps, budget: Budget) -> dict[str, _Change]:
    """Return the changes to kept answers, of metrics that can have them."""
    changes = {}
    for id_, admitted in metrics.items():
        metric = admitted.declared.metric
        if id_ in refused or metric.permanent or metric.per_period > 1 or metric.step is not None:
            continue  # of a number whose answers are kept, a step has no effect
        # Twice the epsilon of a report is what the guide advises, and lint warns of more than the default cap.
        own = exact(metric.epsilon)
        if own > Fraction(str(Caps().permanent)):
            continue
        nats = f"{float(max(own, min(2 * own, Fraction(str(min(caps.permanent, Caps().permanent)))))):.12g}"
        try:
            change = _changed(admitted, replace(metric, epsilon_permanent=nats), f"epsilon_permanent = {nats}", budget, _KEPT)
        except ParameterError:
            continue  # no mechanism of this metric keeps answers
        if change.saved > 0 and not any(exceeding([change.changed.declared], caps, "")):
            changes[id_] = change
    return changes


def _larger(
    registry: Registry, metrics: Mapping[str, Admitted], refused: Collection[str], budget: Budget, in_code: Caps | None
) -> str:
    """Return a larger budget, as lines to write; if it would promise people little, smaller losses of the greediest metrics."""
    total, usual = sum(each.allowance.month for each in metrics.values()), int(month_of(Budget()))
    if total <= usual:
        less = _written(_less(metrics, refused, month_of(budget), budget, _HALF))
        return ", or ".join(filter(None, (less, _raised(registry, in_code, total))))
    raised = _raised(registry, in_code, usual)
    for least in (_HALF, _LEAST):
        for budget_lines, month in (("", month_of(budget)), (raised, usual)):
            changes = _less(metrics, refused, month, budget, least)
            if changes:
                return " and ".join(filter(None, (budget_lines, _written(changes))))
    return ""


def _less(
    metrics: Mapping[str, Admitted], refused: Collection[str], month: float, budget: Budget, least: Fraction
) -> dict[str, _Change]:
    """Return smaller losses of the fewest metrics, the greediest, with which all fit into a month; empty if none do."""
    greediest = sorted(metrics, key=lambda id_: (id_ in refused, -metrics[id_].allowance.month))
    for length in ("hour", LENGTHS[-1]):
        for number in range(1, min(len(metrics.keys() - refused), _MOST_METRICS) + 1):
            others = sum(metrics[id_].allowance.month for id_ in greediest[number:])
            part = (month - others) / number
            changes = {id_: _within(metrics[id_], length, part, budget, least) for id_ in greediest[:number]}
            possible = {id_: change for id_, change in changes.items() if change}
            if len(possible) == number:
                return {id_: change for id_, change in possible.items() if change.line}
    return {}


def _within(admitted: Admitted, length: str, part: float, budget: Budget, least: Fraction) -> _Change | None:
    """Return the change with which a metric spends no more than a part of a month; None if it would keep too little epsilon."""
    metric, lines = admitted.declared.metric, []
    if LENGTHS.index(length) > LENGTHS.index(metric.period):
        metric, lines = replace(metric, period=length), [f'period = "{length}"']
    change = _changed(admitted, metric, " and ".join(lines), budget, 0)
    spends = change.changed.allowance
    if spends.month <= part:
        return change
    nats = Fraction(int(part * spends.cost / spends.month / MICRO * _STEPS), _STEPS)
    own = exact(metric.epsilon if metric.epsilon_permanent is None else metric.epsilon_permanent)
    if nats <= 0 or nats < own * least:
        return None
    epsilon = f"{float(nats):g}"
    if metric.epsilon_permanent is None or exact(metric.epsilon) > nats:
        metric, lines = replace(metric, epsilon=epsilon), [*lines, f"epsilon = {epsilon}"]
    if metric.epsilon_permanent is not None:
        metric, lines = replace(metric, epsilon_permanent=epsilon), [*lines, f"epsilon_permanent = {epsilon}"]
    try:
        change = _changed(admitted, metric, " and ".join(lines), budget, 0)
    except ParameterError:
        return None  # what the parameters of its mechanism spend, only they change
    return change if change.changed.allowance.month <= part else None


def _changed(before: Admitted, metric: Metric, line: str, budget: Budget, size: float) -> _Change:
    declared = Declared.of(metric)
    after = Admitted(declared, Allowance.of(declared, budget))
    return _Change(line, after, before.allowance.month - after.allowance.month, size)


def _written(changes: Mapping[str, _Change]) -> str:
    """Write each line with the metrics that it belongs to."""
    places: dict[str, list[str]] = {}
    for id_, change in changes.items():
        places.setdefault(change.line, []).append(f'[metrics."{id_}"]')
    return " and ".join(f"{line} in {', '.join(ids)}" for line, ids in places.items())


def _raised(registry: Registry, in_code: Caps | None, total: int) -> str:
    """Return the budget that has room for a total, as the lines to write; empty if there is no such budget."""
    tenths = ceil(total / _TENTH)
    if tenths > LARGEST * 10:
        return ""
    most = in_code.budget if in_code else None
    own = registry.budget or (Budget() if most is None else None)
    lines = []
    for budget, place in ((own, "[budget]"), (most, "the budget of the app's Caps")):
        if budget is not None and month_of(budget) < total:
            longer = budget.lifetime is not None and budget.lifetime * 10 < tenths
            lifetime = f" and lifetime = {Budget(per_month=tenths / 10).lifetime:g}" if longer else ""
            lines.append(f"per_month = {tenths / 10}{lifetime} in {place}")
    return " and ".join(lines)
