"""The sections of what is published: how participation is protected, and what was published so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.accounting.plan import periods
from deniable_server.privacy.document import Note, Points, Section, Table, Text
from deniable_server.privacy.words import chance, count, nats, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.participation import Noise
    from deniable_server.privacy.document import Block
    from deniable_server.privacy.facts import Facts, MetricFacts
    from deniable_server.privacy.published import Published

__all__ = ["made", "participation"]

_YEAR = 365  # days
_LAWS = {"laplace": "discrete Laplace, scale", "gaussian": "discrete Gaussian, sigma"}


def participation(facts: Facts) -> Section:
    """Write how publication protects those who took part."""
    return Section("participation", "Participation and small groups", tuple(_participation(facts)))


def _participation(facts: Facts) -> Iterator[Block]:
    publication = facts.registry.publication
    yield Text(
        "The query API and the pages show releases and nothing else. A release is of one metric and period. It is made "
        "when the period closes or, where the second table says so, before that and added to; nothing else changes it. "
        "What was counted and not published yet shows nowhere. Before anything is published, a random number of reports is "
        "left out: where a metric has segments, of each of the finest combinations of their values."
    )
    if publication.trial:
        yield Note(
            "This registry is a trial: everything is published at once and in exact numbers. Nothing of this section "
            "protects anybody then; what people answered is randomised all the same."
        )
    noise = facts.noise
    yield Table(
        "How each number of reports is blurred before it is published (in reports)",
        ("Noise", "left out on average", "left out at most", "standard deviation"),
        ((_noise(noise), count(noise.middle), count(2 * noise.middle), f"{noise.stderr:.2g}"),),
        frozenset({1, 2, 3}),
    )
    yield Table(
        "What anything published of a metric rests on at least, and when it is published",
        ("Metric", "reports", "published", "at most in a year"),
        tuple(
            (
                each.metric.id,
                count(each.metric.min_reports),
                _when(facts, each),
                plural(periods(each.metric.period, _YEAR), "period"),
            )
            for each in facts.metrics
        ),
        frozenset({1}),
    )
    each_year = sum(periods(each.metric.period, _YEAR) for each in facts.metrics)
    pair = f"(epsilon {nats(publication.epsilon)}, delta {chance(publication.delta)})"
    yield Points(
        (
            (
                "Guaranteed: the numbers.",
                (
                    "Who sees all numbers of reports that are published of a metric and period, and knows of everybody "
                    f"else whether they reported, learns of one report more or less no more than {pair}-differential "
                    "privacy allows. Each further metric and period costs as much again: who takes part in all of them has "
                    f"a part in {count(each_year)} numbers in a year, which come to epsilon "
                    f"{nats(each_year * publication.epsilon)} and delta {chance(each_year * publication.delta)} by the "
                    "plain sum."
                ),
            ),
            (
                "Guaranteed: small groups.",
                (
                    "Whatever is published, and any weighted sum of it that does not cancel out, rests on the least number "
                    "of reports. Segments that would break this are withheld, and others with them where margins would "
                    "give them back."
                ),
            ),
            (
                "Guaranteed: differences in time.",
                (
                    "Each report is published once. A metric with segments is published at the close only; one without is "
                    "added to before that only when enough new reports came."
                ),
            ),
            (
                "Not guaranteed: that there are enough.",
                (
                    "That a release or a segment was published at all is told as it is. It takes the least number of "
                    "people to make that true, but one to tip it."
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


def _noise(noise: Noise) -> str:
    return f"{_LAWS[noise.law]} {noise.scale:.3g}" if noise.law in _LAWS else "none"


def made(published: Sequence[Published] | None) -> Section:
    """Write what was published so far; None where no store was looked at."""
    return Section("releases", "Releases made so far", tuple(_made(published)))


def _made(published: Sequence[Published] | None) -> Iterator[Block]:
    if published is None:
        yield Note("No store was looked at: this section is empty. Make the report anew with --redis-url to have it filled.")
        return
    yield Text(
        "Read from releases only. Reports are those in releases, from which a random number was left out; how many there "
        "were is estimated from it, with its standard error. Reports are not people: a device reports in every period."
    )
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
            "there were about",
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
                f"{count(each.participants)} (± {each.stderr:.2g})" if each.periods else "-",
                f"{each.latest:%Y-%m-%d %H}:00 UTC" if each.latest else "never",
            )
            for each in published
        ),
        frozenset({1, 4, 5, 6, 7, 8}),
        frozenset({2, 3}),
    )
    former = [each for each in published if each.former]
    if former:
        listed = ", ".join(f"{each.metric} ({plural(each.former, 'release')})" for each in former)
        yield Text(f"Kept from former versions or definitions, and not counted above: {listed}.")
