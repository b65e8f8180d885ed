"""The section of questions about exact numbers: what analysts may spend on them, and what they spent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.allowance import MICRO
from deniable_aggregator import census
from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.budgets import Budgets
from deniable_aggregator.spending import most
from deniable_server.privacy.document import Note, Points, Section, Table, Text
from deniable_server.privacy.words import count, nats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.registry import Metric, Registry
    from deniable.report import Stratum
    from deniable_aggregator.spending import Spend
    from deniable_aggregator.store import Store
    from deniable_server.privacy.document import Block

__all__ = ["Spent", "section", "tally"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What analysts have spent on a metric.

    Parameters
    ----------
    metric
        Its id.
    questions, keys, periods
        How many were paid for, by how many keys, about how many periods, as far as is still known.
    one
        The most that one key has spent on any one report, in the window that ends now, in nats.
    together
        The most that all keys have ever spent on any one report, in nats.
    """

    metric: str
    questions: int
    keys: int
    periods: int
    one: float
    together: float


def tally(store: Store, registry: Registry, metric: Metric) -> Spent:
    """Add up what was spent on a metric.

    Raises
    ------
    redis.RedisError
        If the store cannot be used.
    """
    accounts = Budgets(store, registry.analysts).accounts(metric.id)
    breakdown, periods = Breakdown.of(registry, metric), sorted({period for _, period in accounts})
    counts = census.read(store, periods) if periods else {}
    # Where it is not known what cells then were, each question may have touched any report.
    known = {each: breakdown if each in counts and counts[each].fits(breakdown) else None for each in periods}
    since = int(time.time()) - registry.analysts.seconds
    together: dict[Stratum, list[Spend]] = {}
    for (_, period), spends in accounts.items():
        together.setdefault(period, []).extend(spends)
    one = (most(known[period], spends, "", since) for (_, period), spends in accounts.items())
    return Spent(
        metric=metric.id,
        questions=sum(map(len, accounts.values())),
        keys=len({key for key, _ in accounts}),
        periods=len(periods),
        one=max(one, default=0) / MICRO,
        together=max((most(known[period], spends, "", 0) for period, spends in together.items()), default=0) / MICRO,
    )


def section(registry: Registry, spent: Sequence[Spent] | None) -> Section:
    """Write what analysts may ask; None where no store was looked at."""
    return Section("questions", "Questions of analysts, and their budgets", tuple(_blocks(registry, spent)))


def _blocks(registry: Registry, spent: Sequence[Spent] | None) -> Iterator[Block]:
    analysts = registry.analysts
    if not analysts.epsilon:
        yield Text("This registry allows no questions about exact numbers of reports.")
    else:
        yield Text(
            "Beside releases, a read key may ask how many reports a segment has in a period, and which value of a segment "
            "has most. Such questions are answered from exact numbers with central noise (discrete Laplace; "
            f"report-noisy-max), only about what was published and is closed. A key may spend epsilon {nats(analysts.epsilon)} "
            f"on any one report in any {analysts.window:g} days."
        )
        yield Points(
            (
                (
                    "The same question again",
                    "has the same answer, whoever asks, and costs nothing: nobody can average the noise out.",
                ),
                (
                    "A refilled budget",
                    "does not undo what was told. Over the years, what a key learns of one report grows with every window.",
                ),
                (
                    "Keys add up.",
                    "People who share what they learned have learned as much as the sum of what their keys have spent.",
                ),
            )
        )
    if spent is None:
        yield Note("No store was looked at: nothing is said of what was spent.")
        return
    heads = ("Metric", "questions", "keys", "periods", "most by one key in this window", "most by all keys, ever")
    rows = tuple(
        (each.metric, count(each.questions), count(each.keys), count(each.periods), nats(each.one), nats(each.together))
        for each in spent
    )
    caption = "Budgets spent on any one report (epsilon in nats), as far as it is still kept"
    yield Table(caption, heads, rows, frozenset(range(1, len(heads))))
