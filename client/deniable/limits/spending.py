"""What a device may give away on each metric of a registry, as a table with its legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.limits.allowance import MICRO, Allowance
from deniable.limits.guess import in_year
from deniable.messages.percent import percent
from deniable.messages.plural import plural
from deniable.registry.period import months_between

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from deniable.limits.admission import Admission
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget


def rows(registry: Registry, admission: Admission, today: date) -> Iterator[tuple[str, ...]]:
    """Write the rows of the table, in nats: the headings, each metric whose collection has not ended, and all together."""
    budget = admission.budget
    yield "metric", "asked", "a month", "share", "ever", "right guess in a year", ""
    month, ever = 0, 0.0
    for id_, metric in registry.metrics.items():
        if metric.expired(today):
            continue
        declared = Declared.of(metric)
        allowance = Allowance.of(declared, budget)
        month += allowance.month
        ever += allowance.lifetime or 0
        mark = _lasts(declared, allowance, today) if id_ in admission.metrics else "off"
        figures = (_nats(allowance.month), _share(allowance.month, budget), _ever(allowance.lifetime), percent(in_year(declared)))
        yield id_, _question(metric, allowance), *figures, mark
    yield "all", "", _of(month, budget.per_month), _share(month, budget), _of(ever, budget.lifetime), "", ""


def legend(registry: Registry, today: date) -> Iterator[str]:
    """Say what the guesses of the table are, and of which metrics a person gives away more with each report."""
    best = "somebody sees a year's reports of one answer and guesses between two equally likely answers"
    yield f"right guess in a year: {best}: at most so many guesses are right; 50% is luck"
    anew = {id_: metric for id_, metric in registry.metrics.items() if not (metric.permanent or metric.expired(today))}
    never = [id_ for id_, metric in anew.items() if not metric.can_keep]
    if never:
        yield f"ask {', '.join(never)} rarely: each report adds up, and epsilon_permanent cannot be declared there"
    fresh = [id_ for id_ in anew if id_ not in never]
    if fresh:
        yield drawn_anew(fresh)


def drawn_anew(
    names: Sequence[str],  # metrics whose answers could be kept
) -> str:
    """Say that each report of some metrics reveals more, and what bounds it where answers stay the same."""
    mend = "if a person's answer stays the same, declare epsilon_permanent, which bounds what all reports of it reveal"
    return f"each report of {', '.join(names)} has new noise: {mend}"


def _question(metric: Metric, allowance: Allowance) -> str:
    """Write what one report or kept answer gives away, and how often."""
    if allowance.answers:
        return f"{_nats(allowance.cost)} a kept answer, {allowance.answers} a month"
    times = f"{metric.per_period} x " if metric.per_period > 1 else ""
    return f"{times}{_nats(allowance.cost)} a {metric.period}"


def _lasts(declared: Declared, allowance: Allowance, today: date) -> str:
    """Say for how long a device can report a metric, if its part of the lifetime ends before the metric expires."""
    # If answers are kept and all are paid for, it never ends. Otherwise only answers that were reported before are reported then.
    permanent = declared.permanent if allowance.answers else None
    endless = permanent and not declared.metric.open and allowance.answers_ever >= permanent.kept_responses
    if allowance.lifetime is None or endless:
        return ""
    months, expires = allowance.lifetime // allowance.month, declared.metric.expires
    if expires is not None and months_between(today, expires) <= months:
        return ""
    return f"{'new answers for' if permanent else 'lasts'} {plural(months, 'month')}"


def _share(month: int, budget: Budget) -> str:
    return "-" if budget.per_month is None else f"{month / MICRO / budget.per_month:.0%}"


def _of(micro: float, bound: float | None) -> str:
    return _nats(micro) if bound is None else f"{_nats(micro)} of {bound:g}"


def _ever(micro: int | None) -> str:
    return "-" if micro is None else _nats(micro)


def _nats(micro: float) -> str:
    return f"{micro / MICRO:.4g}"
