"""What is said first of shares: which value is the most frequent one, or which ones may be."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deniable.messages.plural import plural_noun
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.shares import Leading
from deniable_aggregator.inference.leaders import Leaders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.registry import Metric
    from deniable_aggregator.answer.model.shares import ValueEstimate
    from deniable_aggregator.decode.estimate import Estimate

_MOST_NAMED = 4
_MOST_LISTED = 3  # options of a set


def leading(
    metric: Metric,
    shares: Estimate,  # with reports
    rows: Sequence[ValueEstimate],  # what is estimated of each value, as they stand in `shares`
    level: float,
    limit: float,  # the share that is detected half of the time, nan if none is
) -> Leading | None:
    """Say which values lead; None if no value has an estimate."""
    tests = Leaders(shares, level)
    count, of = len(tests.places), len(tests.order)
    if not of:
        return None
    if not any(row.detected for row in rows):
        return Leading(_undetected(limit), [], of, of, ahead=False)
    # What a search tried and could not confirm is not an answer that anybody is known to have given.
    named = [rows[place] for place in tests.places.tolist() if rows[place].detected or not metric.discover]
    lead = Leading("", [row.value for row in named], count, of, tests.ahead)
    return replace(lead, says=in_words(metric, lead, rows, limit))


def in_words(
    metric: Metric,
    lead: Leading,  # which values lead
    rows: Sequence[ValueEstimate],  # what is estimated of each value; numbers in the sentence are theirs
    limit: float,  # the share that is detected half of the time, nan if none is
) -> str:
    """Say which values lead, in a sentence."""
    if not lead.leaders and lead.count == lead.of and not any(row.detected for row in rows):
        return _undetected(limit)
    yes = next((row for row in rows if row.value is True), None)
    return _of_yes(yes) if yes else _of_many(metric, lead, rows)


def _undetected(limit: float) -> str:
    if isnan(limit):
        return "These reports detect no answer, and could detect none, however many give it."
    least = figures.share(limit, limit / 10)
    return f"These reports detect no answer. They would detect, half of the time, one that {least} of people give."


def _of_yes(yes: ValueEstimate) -> str:
    """Say how many answer yes: the share of no mirrors it."""
    return f"{_share(yes)} answer {figures.quoted('yes')} ({between([yes])})."


def _of_many(metric: Metric, lead: Leading, rows: Sequence[ValueEstimate]) -> str:
    by_value = {row.value: row for row in rows}
    named = [by_value[value] for value in lead.leaders]
    noun = "option" if metric.kind.options else "answer"
    count, of = lead.count, lead.of
    if of == 1:
        return f"{_share(named[0])} answer {figures.quoted(named[0].label)} ({between(named)})."
    searched = " found" if metric.discover else ""
    if count == 1 and named:
        first = f"{figures.quoted(named[0].label)} is the most frequent {noun}{searched}: {_share(named[0])} ({between(named)})."
        return " ".join([first, *_next(rows)]) if metric.kind.options else first
    if count == of or count > _MOST_NAMED or count > len(named):
        those = f"all {count:,}" if count == of else f"{count:,} of {of:,}"
        return f"No clear leader: {those} {plural_noun(noun)}{searched} may be first."
    names = figures.listed([figures.quoted(row.label) for row in named])
    most = f"are the {count} most frequent {plural_noun(noun)}{searched}" if lead.ahead else "lead"
    return f"{names} {most}: {between(named)} each. Which is first cannot be told."


def _next(rows: Sequence[ValueEstimate]) -> list[str]:
    """Name the options after the first by their estimates. That they come in this order is not tested, and not said."""
    ordered = sorted((row for row in rows if not isnan(row.frequency)), key=lambda row: -row.frequency)
    others = [row for row in ordered[1:_MOST_LISTED] if row.detected]
    listed = [f"{figures.quoted(row.label)} {_share(row)} ({between([row])})" for row in others]
    return [f"Next by estimate: {figures.listed(listed)}."] if listed else []


def _share(row: ValueEstimate) -> str:
    """Write a share as far as it is possible."""
    return figures.share(figures.possible(row.frequency), row.stderr)


def between(
    rows: Sequence[ValueEstimate],  # of some values
) -> str:
    """Write between which shares some values lie, by the intervals of all values together."""
    lows, highs = zip(*(row.simultaneous for row in rows), strict=True)
    return figures.possible_share_range((min(lows), max(highs)), min(row.stderr for row in rows))
