"""The sections of what is published: by which rules, and what was published so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_server.privacy.document import Note, Points, Section, Table, Text
from deniable_server.privacy.words import count, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_server.privacy.document import Block
    from deniable_server.privacy.facts import Facts, MetricFacts
    from deniable_server.privacy.published import Published

__all__ = ["made", "rules"]


def rules(facts: Facts) -> Section:
    """Write what is published, when, and what that protects."""
    return Section("small-groups", "What is published, and small groups", tuple(_rules(facts)))


def _rules(facts: Facts) -> Iterator[Block]:
    yield Text(
        "The query API and the pages show releases and nothing else. A release is of one metric and period, or of several "
        "periods where one has too few reports. It is made when the period closes or, where the table says so, before that "
        "and added to; nothing else changes it. What was counted and not published yet shows nowhere."
    )
    if facts.registry.publication.trial:
        yield Note(
            "This registry is a trial: everything is published at once, however few reports it is of. Nothing of this section "
            "protects anybody then; what people answered is randomised all the same."
        )
    yield Table(
        "What anything published of a metric rests on at least, and when it is published",
        ("Metric", "reports", "published"),
        tuple((each.metric.id, count(each.metric.min_reports), _when(facts, each)) for each in facts.metrics),
        frozenset({1}),
    )
    yield Points(
        (
            (
                "Guaranteed: small groups.",
                (
                    "Numbers of reports are exact. Whatever is published, and any weighted sum of it that does not cancel out, "
                    "rests on the least number of reports. Segments that would break this are withheld, and others with them "
                    "where margins would give them back."
                ),
            ),
            (
                "Guaranteed: differences in time.",
                (
                    "A metric with segments is published at the close only; one without is added to before that only when "
                    "enough new reports came. So two releases differ by none or by enough."
                ),
            ),
            (
                "Not guaranteed: that you took part.",
                (
                    "Who knows of everybody else whether they reported can tell from an exact number whether one person did, "
                    "and one report may tip whether something is published at all. What that person answered is protected by "
                    "the noise of the device."
                ),
            ),
            (
                "Not guaranteed: answers of a group that agrees.",
                (
                    "A group that answered all but alike is published like any other, with a warning: whoever is known to "
                    "belong to it has then told what they answered."
                ),
            ),
            (
                "Not guaranteed: people.",
                (
                    "A report is counted, not a person: with several devices, or several reports in a period, a person "
                    "stands in the numbers as often."
                ),
            ),
            (
                "Not guaranteed: who runs the service.",
                (
                    "Uploads are seen by whoever runs the server; the exact sums are in the store until they are deleted. "
                    "What protects answers from them is the noise of the devices alone."
                ),
            ),
        )
    )


def _when(facts: Facts, each: MetricFacts) -> str:
    publication = facts.registry.publication
    if publication.trial:
        return "at once"
    early = publication.early and not each.metric.segments
    return "at the close, and before it when enough new reports came" if early else "at the close"


def made(published: Sequence[Published] | None) -> Section:
    """Write what was published so far; None where no store was looked at."""
    return Section("releases", "Releases made so far", tuple(_made(published)))


def _made(published: Sequence[Published] | None) -> Iterator[Block]:
    if published is None:
        yield Note("No store was looked at: this section is empty. Make the report anew with --redis-url to have it filled.")
        return
    yield Text("Read from releases only. Reports are not people: a device reports in every period.")
    yield Table(
        "What was published, under the definitions that the registry has now",
        (
            "Metric",
            "periods",
            "first",
            "last",
            "closed",
            "releases",
            "segments",
            "reports published",
            "last release",
        ),
        tuple(
            (
                each.metric,
                count(len(each.periods)),
                each.periods[0] if each.periods else "-",
                each.periods[-1] if each.periods else "-",
                count(each.closed),
                count(each.releases),
                count(each.cells),
                count(each.reports),
                f"{each.latest:%Y-%m-%d %H}:00 UTC" if each.latest else "never",
            )
            for each in published
        ),
        frozenset({1, 4, 5, 6, 7}),
        frozenset({2, 3}),
    )
    former = [each for each in published if each.former]
    if former:
        listed = ", ".join(f"{each.metric} ({plural(each.former, 'release')})" for each in former)
        yield Text(f"Kept from former versions or definitions, and not counted above: {listed}.")
