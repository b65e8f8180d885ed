"""What is said of a comparison: what differs most between its sides."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import Measure, distance
from deniable_aggregator.answer.model.fields import so_far
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.question.side import side_of
from deniable_aggregator.answer.readings.numbers_differing import MEDIAN

if TYPE_CHECKING:
    from deniable.registry import Metric
    from deniable_aggregator.answer.model.comparison import Compared, Comparison, ValueDiffering
    from deniable_aggregator.answer.model.fields import Days


_MOST_NAMED = 3  # values that differ
_POINT = 0.01


def sentence(
    comparison: Comparison,
    length: str,  # of the metric's periods
) -> str:
    """Say what differs most, if anything differs beyond chance."""
    a, b = sides_in_words(comparison, length)
    scale = comparison.scale
    rows = [row for row in comparison.differences if row.value is not False]  # the share of no mirrors that of yes
    if not rows:
        return f"{a} and {b} cannot be compared: {comparison.reason}."
    moved = sorted((row for row in rows if row.differs), key=partial(clearness, scale=scale))
    if not moved:
        if len(rows) > 1 and comparison.overall is not None and comparison.overall.differs:
            return f"No single value differs beyond chance between {a} and {b}, but all values together do."
        return f"No difference beyond chance between {a} and {b}."
    most, *others = (how(row, comparison) for row in moved[:_MOST_NAMED])
    more = len(moved) - _MOST_NAMED
    count = [f"{more} more {'differs' if more == 1 else 'differ'}"] if more > 0 else []
    first, second = both_sides(moved[0], comparison)
    if comparison.kind == "segments":
        first_of_all = of_segments(moved[0], comparison)
    elif all(side_of(side.name, length).is_one for side in (comparison.a, comparison.b)):
        first_of_all = f"{most[0]} from {a} to {b}: {first} before, {second} after, {most[1]}"
    else:
        first_of_all = f"{most[0]}: {first} before ({a}), {second} after ({b}), {most[1]}"
    return " ".join(f"{figures.beginning(each)}." for each in (first_of_all, *map(" ".join, others), *count))


def clearness(row: ValueDiffering, scale: str) -> tuple[float, float, float]:
    """Return what rows are sorted by so that the clearest difference comes first: every page names that one."""
    return clarity(row.p_value, row.difference, scale)


def clarity(p_value: float, difference: float, scale: str) -> tuple[float, float, float]:
    """Return the same of the numbers of a row."""
    # Of answers that differ as clearly the larger difference; of two that mirror each other the one that is more.
    size = distance(difference, scale)
    return p_value, -abs(size), -size


def of_segments(row: ValueDiffering, comparison: Comparison) -> str:
    """Say of two segments, or an arm and its base, what is more or less with which, and by how much: every page says it so."""
    sides = (comparison.a.name, comparison.b.name)
    differs = more_with(row.label, row.difference, row.simultaneous, measure_of(row, comparison), sides)
    first, second = both_sides(row, comparison)
    return f"{differs} ({second} against {first})"


def more_with(
    label: str,  # of an answer, or the name of a figure
    difference: float,
    ends: tuple[float, float],  # of its interval
    measure: Measure,
    sides: tuple[str, str],  # two segments, the base first
) -> str:
    """Say which answer or figure is more or less with which of two segments, and by how much."""
    is_more = distance(difference, measure.scale) > 0
    subject = figures.quoted(label) if measure.is_share else f"the {label.lower().replace('_', ' ')}"
    base, segment = sides
    words = ("more frequent" if is_more else "less frequent") if measure.is_share else "higher" if is_more else "lower"
    by = measure.size(ends, is_rise=is_more)
    return f"{subject} is {words} with {figures.group(segment)} than with {beside(segment, base)}, by {by}"


def of_arm(row: ValueDiffering, comparison: Comparison) -> str:
    """Say whether an arm has an effect on a value, which way, and by how much; and what both arms answer."""
    if row.differs:
        return f"{figures.beginning(of_segments(row, comparison))}."
    between = measure_of(row, comparison).signed(row.simultaneous)
    subject = figures.quoted(row.label) if is_of_shares(comparison) else f"the {name_of(row)}"
    first, second = both_sides(row, comparison)
    arm, base = (side.name.partition("=")[2] for side in (comparison.b, comparison.a))
    answers = f"{figures.beginning(subject)}: {second} with {arm}, {first} with {base}."
    return f"No effect of {figures.group(comparison.b.name)} on {subject} found so far ({between}). {answers}"


def beside(name: str, other: str) -> str:
    """Write a segment that stands beside one of the same dimension: only its value.

    Examples
    --------
    >>> beside("platform=web", "platform=tv"), beside("platform=web,arm=new", "platform=tv,arm=new")
    ('tv', 'platform tv and arm new')
    """
    dimension, _, value = other.partition("=")
    return value if "," not in name + other and name.partition("=")[0] == dimension else figures.group(other)


def how(row: ValueDiffering, comparison: Comparison) -> tuple[str, str]:
    """Say of one value in which direction it differs, and by how much."""
    up, of_shares = distance(row.difference, comparison.scale) > 0, is_of_shares(comparison)
    subject = figures.quoted(row.label) if of_shares else f"the {name_of(row)}"
    verb = (
        ("rose" if up else "fell")
        if comparison.kind == "periods"
        else f"is {('more' if up else 'less') + ' frequent' if of_shares else 'higher' if up else 'lower'}"
    )
    return f"{subject} {verb}", f"by {measure_of(row, comparison).size(row.simultaneous, is_rise=up)}"


def sides_in_words(
    comparison: Comparison,
    length: str,  # of the metric's periods
) -> tuple[str, str]:
    """Write what the two sides are."""
    a, b = comparison.a.name, comparison.b.name
    if comparison.kind == "segments":
        return figures.group(a), figures.group(b)
    return side_of(a, length).words, side_of(b, length).words


def times_in_words(
    a: Compared,
    b: Compared,
    length: str,  # of the metric's periods
) -> str:
    """Say which whole periods two times have; empty if these are all that both name, or if a time has none."""
    times = [(so_far(each.days, each.updated), side_of(each.name, length), _number(each, length)) for each in (a, b)]
    named = [date_range.number_of(*side.span, length) for _, side, _ in times]
    is_cut = any(side.is_cut for _, side, _ in times)
    if not is_cut and [number for _, _, number in times] == named:
        return ""
    words = [_periods_of(days, number, of, length) for (days, _, number), of in zip(times, named, strict=True) if days]
    if len(words) < len(times):
        return ""
    part = f" A {length} that is only partly in a side is left out, so no report counts on both sides." if is_cut else ""
    return f"{figures.beginning(', with '.join(words))}.{part}"


def _number(side: Compared, length: str) -> int:
    """Count the periods of a side; of a first release only the last one is known."""
    return sum(date_range.number_of(span.first or span.last, span.last, length) for span in side.included)


def _periods_of(days: Days, number: int, named: int, length: str) -> str:
    """Write how many whole periods a side has, of how many, and their days."""
    if days.first is None:
        return f"all {length}s up to {figures.brief(str(days.last), 'day')}"
    return f"{f'{number} of ' * (number < named)}{plural(max(number, named), f'whole {length}')}, {figures.brief_days(days)}"


def both_sides(row: ValueDiffering, comparison: Comparison) -> tuple[str, str]:
    """Write the estimates of both sides as they stand in a sentence."""
    measure = measure_of(row, comparison)
    return measure.possible(row.first, row.first_interval), measure.possible(row.second, row.second_interval)


def is_of_shares(comparison: Comparison) -> bool:
    """Tell whether the differences are of shares, and not of the means of a number."""
    return all(row.value is not None for row in comparison.differences)


def measure_of(row: ValueDiffering, comparison: Comparison) -> Measure:
    """Return what the estimates of a value are of."""
    return Measure(row.value is not None, comparison.unit, comparison.scale, comparison.range, _is_median(row))


def _is_median(row: ValueDiffering) -> bool:
    return row.value is None and row.label == MEDIAN


def name_of(row: ValueDiffering) -> str:
    """Return what people call a value, or a mean."""
    return row.label.replace("_", " ") if row.value is None else row.label


def planned_in_words(
    planned: float,  # the difference for which an experiment was planned: of a number, as a share of its range
    metric: Metric,
) -> str:
    """Write a planned difference: in points, in the metric's unit, or as a factor."""
    axis = metric.axis
    if axis is None:
        return f"{100 * planned:.6g} {'point' if planned == _POINT else 'points'}"
    if metric.scale == "log":
        return f"a factor of {(float(axis.high) / float(axis.low)) ** planned:.3g}"
    return f"{planned * axis.reach:,.6g} {metric.unit}"
