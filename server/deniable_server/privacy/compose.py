"""Composes a report: all facts, in sections, in the order in which a reviewer needs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deniable_server.privacy import claims, keeping, law, metric, questions, releases, totals
from deniable_server.privacy.document import Document, Points, Section, Table, Text
from deniable_server.privacy.words import chance, nats, percent, plain, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from deniable_server.privacy.document import Block
    from deniable_server.privacy.facts import Facts, MetricFacts
    from deniable_server.privacy.proofs import Proved
    from deniable_server.privacy.published import Published

__all__ = ["compose"]


def compose(
    facts: Facts,
    *,
    made: datetime,
    software: str,
    published: Sequence[Published] | None = None,
    spent: Mapping[str, Mapping[str, int]] | None = None,
    proved: Sequence[Proved] | None = None,
) -> Document:
    """Compose a report.

    Parameters
    ----------
    facts
        Of the registry.
    made
        When, in UTC.
    software
        Version of the software.
    published
        Of each metric; None where no store was looked at.
    spent
        By analysts, as `Budgets.spent` has it; likewise.
    proved
        Of each metric; None where no proof was asked for.
    """
    registry = facts.registry
    looked = {each.metric: each for each in published or ()}
    parts = tuple(
        metric.section(registry, each, place, looked.get(each.metric.id)) for place, each in enumerate(facts.metrics, 1)
    )
    words = Text("An entry for each question of the registry, with what its reports tell about the person who answered.")
    store = "looked at, read only" if published is not None else "not looked at"
    return Document(
        title=f"Privacy report: {registry.app}",
        lede=(
            "What this app's telemetry asks, how answers are randomised before they leave a device, what they tell all the "
            "same, what is stored and published, and what is not protected. For a privacy reviewer, as an annex to an "
            "impact assessment."
        ),
        facts=(
            ("App", registry.app),
            ("Registry", f"{plain(Path(registry.file).name)}, revision {registry.revision or 'none'}"),
            ("SHA-256 of the registry", facts.digest),
            ("Software", f"deniable {software}"),
            ("Store", store),
            ("Made", f"{made:%Y-%m-%d %H:%M} UTC, by 'deniable report privacy'"),
        ),
        sections=(
            Section("summary", "Summary", tuple(_summary(facts, published))),
            Section("reading", "How to read the figures", (_READING,)),
            Section("metrics", "The metrics", (words,), parts),
            totals.section(facts),
            releases.rules(facts),
            releases.made(published),
            questions.section(registry, spent),
            keeping.storage(registry),
            keeping.access(),
            claims.claims(proved),
            claims.risks(),
            law.section(),
        ),
    )


_READING = Points(
    (
        (
            "Epsilon",
            (
                "(in nats) bounds what reports tell: whatever two answers one compares, the reports are at most e^epsilon "
                "times as likely under one as under the other. So odds of 1 to 1 become at most e^epsilon to 1. 0 tells "
                "nothing; at 1 a belief of 50% becomes 73.2% at most, at 2 it becomes 88.1%, at 4 it becomes 98.3%."
            ),
        ),
        ("Delta", "is a probability with which an epsilon beside it may not hold. Without a delta it always holds."),
        ("A report", "is one randomised answer. A person makes many; the section on totals adds them up."),
        (
            "A kept answer",
            (
                "is a noisy answer that a device draws once and keeps. Its reports are noisy copies of that one, so asking "
                "again and again does not average the noise out. That the answer changed shows, and so does a return to an "
                "earlier one: figures for kept answers hold between histories that do both at the same times."
            ),
        ),
        ("Figures", "are worked out from the integers that devices run on. Bounds are rounded up."),
        ("Statements about the law", "are not made here. What the controller has to say is marked NOT FILLED IN."),
    )
)


def _summary(facts: Facts, published: Sequence[Published] | None) -> Iterator[Block]:
    year = facts.statements[-1]
    (each,) = year.accounts
    budget = facts.plan.budget
    yield Text(
        f"{plural(len(facts.metrics), 'metric')}. If each is asked once a period, all reports of one device come to an "
        f"epsilon of {nats(year.capped(each.basic))} in a year; with a delta of {chance(each.delta)}, to "
        f"{nats(year.capped(each.epsilon))}. Whatever it is asked, its ledger lets through no more than "
        f"{nats(budget.per_window)} in any {budget.window:g} days, and {nats(budget.lifetime)} ever."
    )
    heads = (
        "Metric",
        "purpose",
        "owner",
        "until",
        "mechanism",
        "epsilon, one report",
        "epsilon, kept answer",
        "best guess, one report",
    )
    rows = tuple(_row(each) for each in facts.metrics)
    yield Table(
        "The metrics at a glance (epsilon in nats; the best guess is between two answers, equally likely)",
        heads,
        rows,
        frozenset({5, 6, 7}),
        frozenset({3}),
    )
    found = tuple(_to_look_at(facts, published))
    if found:
        yield Text("To look at first:")
        yield Points(found)


def _row(each: MetricFacts) -> tuple[str, ...]:
    declared = each.metric
    (one,) = (guess for guess in each.guesses if guess.reports == 1)
    return (
        declared.id,
        plain(declared.description) or "not stated",
        plain(declared.owner) or "not stated",
        declared.expires.isoformat() if declared.expires else "no end",
        each.mechanism.name,
        nats(each.mechanism.epsilon),
        nats(each.explanation.epsilon_permanent) if declared.kept else "none kept",
        percent(one.even),
    )


def _to_look_at(facts: Facts, published: Sequence[Published] | None) -> Iterator[tuple[str, str]]:
    for doubt in facts.doubts:
        yield "Registry:", f"{plain(doubt)}."
    for each in facts.metrics:
        for doubt in each.doubts:
            yield f"{each.metric.id}:", f"{plain(doubt)}."
    again = [each.metric.id for each in facts.metrics if not each.metric.kept]
    if again:
        yield (
            "Noise drawn anew for each report:",
            (
                f"{', '.join(again)}. Reports of one answer add up; their tables show how fast the answer shows where it is "
                "asked again."
            ),
        )
    if not all(found.fits for found in facts.statements):
        yield "Budget:", "more is asked than it allows; what exceeds it is not recorded."
    if published is None:
        yield "Releases:", "no store was looked at, so nothing is said about what was published."
    yield "For the controller:", "the last section is not filled in."
