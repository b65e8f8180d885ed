"""The section of one metric: what is asked, how it is randomised, and what reports tell of a person at most."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

from deniable_server.privacy.document import Note, Section, Table, Text
from deniable_server.privacy.facts import SPANS
from deniable_server.privacy.guess import SURE, posterior
from deniable_server.privacy.words import nats, odds, percent, plain, plural, precise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.mechanisms import Mechanism
    from deniable.registry import Registry
    from deniable_server.privacy.document import Block
    from deniable_server.privacy.facts import MetricFacts
    from deniable_server.privacy.guess import Guess
    from deniable_server.privacy.published import Published

__all__ = ["asked", "section"]

_PRIORS = (0.01, 0.5, SURE)
_LISTED = 30  # answers, of a metric that has more
_TOLD = ("permanent", "rows", "width", "bits", "cohorts", "buckets")  # options that other words tell of
_LONGEST_FRACTION = 50  # characters


def section(registry: Registry, facts: MetricFacts, place: int, published: Published | None) -> Section:
    """Write the section of a metric, the `place`th; with what was published of it, if that was looked at."""
    return Section(f"metric-{place}", facts.metric.id, tuple(_blocks(registry, facts, published)))


def _blocks(registry: Registry, facts: MetricFacts, published: Published | None) -> Iterator[Block]:
    if facts.doubts:
        yield Note(f"Worth a second look: {'; '.join(map(plain, facts.doubts))}.")
    rows = (*_declared(registry, facts), ("Published so far", _so_far(published)))
    yield Table("What is asked, and how it is randomised", ("", "As declared and resolved"), rows)
    yield _loss(facts)
    yield _guess(facts)
    yield Text(_reading(facts))


def asked(facts: MetricFacts) -> str:
    """Tell when there is a report."""
    if facts.metric.kept:
        return f"at most once a {facts.metric.period}, from a noisy answer that the device keeps"
    return f"whenever the app records an answer; the figures are for once a {facts.metric.period}"


def _declared(registry: Registry, facts: MetricFacts) -> Iterator[tuple[str, str]]:
    metric, mechanism = facts.metric, facts.mechanism
    yield "Purpose", plain(metric.description) or "not stated"
    yield "Owner", plain(metric.owner) or "not stated"
    yield "Version", str(metric.version)
    yield "Collected until", f"{metric.expires.isoformat()} at the latest" if metric.expires else "no end is declared"
    yield "Possible answers", _answers(facts)
    yield "A report is made", asked(facts)
    share = (
        f"a share of {metric.sample} of the answers, drawn on the device before an answer is looked at; the server sees who "
        "reports"
    )
    yield "Of whom", "all who consented, without sampling" if metric.sample == "1" else f"of those who consented, {share}"
    openly = "; ".join(f"{name} ({', '.join(registry.segments[name])})" for name in metric.segments)
    yield "Sent openly beside it", f"metric, version, the {metric.period}; segments: {plain(openly) or 'none'}"
    yield "Mechanism", f"{mechanism.name}: {mechanism.summary}"
    yield "Its parameters", _parameters(facts)
    fraction = str(mechanism.ratio)
    exactly = f" = ln({fraction})" if len(fraction) <= _LONGEST_FRACTION else ""
    yield "Epsilon of one report", f"{precise(mechanism.epsilon)} nats{exactly}; declared: {metric.epsilon}"
    if metric.kept:
        permanent = facts.explanation.epsilon_permanent
        yield "Epsilon of all reports of one answer", f"{precise(permanent)} nats; declared: {metric.epsilon_permanent}"
        yield "Answers kept on a device", _responses(facts)
    least = f"{plural(metric.min_reports, 'report')}, as well as any difference of two things published"
    yield "Anything published rests on at least", least


def _answers(facts: MetricFacts) -> str:
    metric = facts.metric
    if metric.open:
        what = f"any text of at most {metric.max_length} bytes" if metric.type == "string" else "any whole number below 2^64"
        number, digest = facts.candidates
        if metric.discover:
            return f"{what}; common ones are found without a list, rare ones stay unknown"
        return f"{what}; only {number:,} candidates are looked for (SHA-256 of the list: {digest})"
    labels = "; ".join(plain(metric.label(place)) for place in range(min(_LISTED, metric.domain_size)))
    more = f"; and {metric.domain_size - _LISTED:,} more" if metric.domain_size > _LISTED else ""
    having_none = f" (having none is: {plain(metric.none)})" if metric.none is not None else ""
    return f"{metric.domain_size:,}: {labels}{more}{having_none}"


def _so_far(published: Published | None) -> str:
    if published is None:
        return "not looked at"
    if not published.periods:
        return "nothing"
    return f"{plural(published.reports, 'report')} in {plural(len(published.periods), 'period')}"


def _responses(facts: MetricFacts) -> str:
    told, ever = facts.explanation, facts.allowance.answers_ever
    most = f"at most {told.answers_per_window} different ones in any {told.window:g} days"
    if isfinite(ever):
        most += (
            f" and {ever:,.0f} ever, of this version: together at most {nats(told.reserved_lifetime)} nats, but for when answers "
            "change and return"
        )
    return f"{most}; beyond that the last one is reported again"


def _parameters(facts: MetricFacts) -> str:
    mechanism, size = facts.mechanism, facts.explanation.report_bytes
    options = "".join(f", {name} {value}" for name, value in mechanism.chosen.items() if name not in _TOLD)
    return (
        f"{_shape(mechanism)}{options}; {plural(size, 'byte')}, whatever the answer. It points to the true answer with "
        f"probability {facts.explanation.p:.4g}, and to any given other one with {facts.explanation.q:.4g}"
    )


def _shape(mechanism: Mechanism) -> str:
    layout = mechanism.layout
    what = f"one of {layout.width:,} cells" if layout.kind == "index" else plural(layout.width, "bit")
    return f"a report is {what}" + (f" in one of {layout.rows:,} rows, which the server sees" if layout.rows > 1 else "")


def _loss(facts: MetricFacts) -> Table:
    rows = [("one report", facts.mechanism.epsilon)]
    if facts.metric.kept:
        rows.append(("all reports of one answer, however many", facts.explanation.epsilon_permanent or inf))
        rows.append(("all reports ever, but for when the answer changes and returns", _ever(facts)))
    else:
        for days, plan in zip(SPANS[1:], facts.totals[1:], strict=True):
            (use,) = plan.uses
            total = use.spend.count * use.spend.epsilon
            rows.append((f"{plural(use.occasions, 'report')}, as many as in {days} days, by the plain sum", total))
    heads = ("What is seen", "epsilon (nats)", "odds grow at most", *(f"{prior:.0%} sure becomes" for prior in _PRIORS))
    cells = [
        (what, nats(total), f"{odds(total)} times", *(f"at most {percent(posterior(prior, total))}" for prior in _PRIORS))
        for what, total in rows
    ]
    caption = (
        "What reports tell at most: by how much they change the odds between any two answers, and how sure somebody "
        "becomes of one"
    )
    return Table(caption, heads, tuple(cells), frozenset(range(1, len(heads))))


def _ever(facts: MetricFacts) -> float:
    lifetime = facts.explanation.reserved_lifetime
    return inf if lifetime is None else lifetime


def _guess(facts: MetricFacts) -> Table:
    size = facts.metric.domain_size
    many = any(guess.alike is not None for guess in facts.guesses) and size > 2  # noqa: PLR2004 - two are a column already
    heads = ["What the guesser sees", "two answers, alike"]
    heads += [f"all {size:,} answers, alike"] if many else []
    heads += [f"one answer {SURE:.0%} sure"]
    rows = []
    for guess in facts.guesses:
        cells = [_seen(facts, guess), percent(guess.even)]
        cells += [percent(guess.alike or 0.0)] if many else []
        rows.append((*cells, percent(guess.sure)))
    caption = "How often the best of all guessers is right at most, by what is known before (probability)"
    return Table(caption, tuple(heads), tuple(rows), frozenset(range(1, len(heads))))


def _seen(facts: MetricFacts, guess: Guess) -> str:
    if guess.reports is None:
        return "any number of reports of one kept answer"
    if not guess.reports:
        return "nothing of this device"
    if facts.metric.kept and guess.reports > 1:
        return f"for comparison, not done: {plural(guess.reports, 'report')} (a year), each with noise of its own"
    year = " (a year)" if guess.reports > 1 and guess.reports == max(each.reports or 0 for each in facts.guesses) else ""
    return f"{plural(guess.reports, 'report')}{year}"


def _reading(facts: MetricFacts) -> str:
    words = (
        "The first table holds for every single report, whoever sees it and whatever else they know; the second is an "
        "average over what the devices may send, for somebody who knows which reports are of this device."
    )
    if facts.metric.kept:
        return (
            f"{words} An answer that changes has a noisy answer of its own, which adds as much again; that it changed, and "
            "when, is not hidden."
        )
    return f"{words} Each further report adds to both, until the device's budget is spent."
