"""The section of totals: what all metrics of a device tell together, and what its ledger lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.accounting.account import METHODS
from deniable_server.privacy.document import Note, Points, Section, Table, Text
from deniable_server.privacy.facts import SPANS
from deniable_server.privacy.words import chance, nats, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable_aggregator.accounting.statement import Statement
    from deniable_server.privacy.document import Block
    from deniable_server.privacy.facts import Facts

__all__ = ["section"]


def section(facts: Facts) -> Section:
    """Write the section."""
    return Section("totals", "What all reports of a device come to", tuple(_blocks(facts)))


def _blocks(facts: Facts) -> Iterator[Block]:
    budget, first = facts.plan.budget, facts.statements[-1].accounts[0]
    devices = facts.statements[-1].devices
    yield Text(
        "Epsilons of all reports add up. The plain sum always holds; a smaller total holds except with the probability "
        "delta that stands beside it. Each metric has its part of the budget reserved, whatever is answered. The device "
        "keeps a ledger, writes each spend before a report exists, and refuses what exceeds a part."
    )
    yield Table(
        "Epsilon of all metrics together, in nats, each asked once a period",
        (
            "Over",
            "asked for",
            "the ledger lets through",
            "holds without delta",
            f"holds with delta {chance(first.delta)}",
            f"{devices} devices of a person or household",
        ),
        (
            *(_over(days, found) for days, found in zip(SPANS, facts.statements, strict=True)),
            (
                "a device's lifetime",
                "-",
                nats(budget.lifetime),
                nats(budget.lifetime),
                "-",
                nats(None if budget.lifetime is None else devices * budget.lifetime),
            ),
        ),
        frozenset(range(1, 6)),
    )
    if not all(found.fits for found in facts.statements):
        yield Note("This registry asks for more than the budget has. Lint and apps refuse it: nothing is recorded until it fits.")
    window = f"reserved in any {budget.window:g} days"
    heads = ("Metric", "what is told in a year", *(f"{plural(days, 'day')}" for days in SPANS), window, "reserved ever")
    yield Table(
        "Epsilon of each metric by itself, as a plain sum in nats, before the budget",
        heads,
        tuple(_metrics(facts)),
        frozenset(range(2, len(heads))),
    )
    best = METHODS[first.quoted]
    yield Points(
        (
            (
                "Budget.",
                (f"{nats(budget.per_window)} nats in any {budget.window:g} days, {nats(budget.lifetime)} ever, for each device."),
            ),
            (
                "A window that slides on makes room again.",
                (
                    "It does not undo what was told before: the total grows as long as the device is asked, up to the "
                    "lifetime's bound."
                ),
            ),
            (
                "Kept answers.",
                (
                    "Their sums hold between histories that change, and return to an earlier answer, at the same times. That an "
                    "answer changed shows, and so does a return to an earlier one: no figure here counts that."
                ),
            ),
            (
                "Caps.",
                (
                    "The stricter of the registry's budget and of the caps of an app that states none is used here; an app "
                    "may be stricter, and no registry, from a file or from a server, can be looser than the app."
                ),
            ),
            (
                "Delta.",
                f"The least total of a year is by: {best.name} ({best.source}). 'deniable account --all' has the other methods.",
            ),
            ("Several devices.", "Each has noise and a budget of its own, so theirs add up. A new installation is a new device."),
        )
    )


def _over(days: int, found: Statement) -> tuple[str, ...]:
    (each,), (theirs,) = found.accounts, found.theirs
    return (
        plural(days, "day"),
        nats(each.basic),
        nats(found.allowed),
        nats(found.capped(each.basic)),
        nats(found.capped(each.epsilon)),
        nats(found.capped(theirs.basic, found.devices)),
    )


def _metrics(facts: Facts) -> Iterator[tuple[str, ...]]:
    for each in facts.metrics:
        uses = [plan.uses[0] for plan in each.totals]
        spend = uses[-1].spend
        yield (
            each.metric.id,
            f"{plural(spend.count, 'kept response' if uses[-1].kept else 'report')} at {nats(spend.epsilon)}",
            *(nats(use.spend.count * use.spend.epsilon) for use in uses),
            nats(each.explanation.reserved_window),
            nats(uses[-1].reserved_lifetime),
        )
