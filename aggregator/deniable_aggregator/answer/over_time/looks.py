"""Experiments over time: the difference of each arm as reports came in.

The intervals hold together over all looks, so looking back costs nothing.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from deniable.forecast.precision import people_needed
from deniable.messages.lookalike import did_you_mean
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference import compare, differences_of
from deniable_aggregator.answer.difference.sentence import clearness, of_segments
from deniable_aggregator.answer.model.experiment import ArmCourse, ArmOrder, ExperimentAnswer, Look
from deniable_aggregator.answer.model.fields import LEVEL, Days, so_far
from deniable_aggregator.answer.over_time.arm_order import arm_order
from deniable_aggregator.answer.over_time.verdict import verdict
from deniable_aggregator.answer.readings import read, together
from deniable_aggregator.answer.refusal import Incomparable, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.answer.select import Published

_MOST_ARMS = 8  # of a metric
_MOST_LOOKS = 24
_LONGEST = 40  # characters of a value that a refusal repeats


def arm_pairs(version: Published) -> Iterator[tuple[str, str]]:
    """Name the base and an arm, as segments: each arm of each experiment of a metric."""
    for name in experiments_of(version):
        yield from _pairs(version, name)


def experiments_of(version: Published) -> list[str]:
    """Name the segments of a metric whose values are arms."""
    return [name for name in version.declared.metric.segments if name in version.app.registry.experiments]


def experiment(
    published: Sequence[Published],  # the versions to try, the highest first
    segment: str | None = None,  # whose values are the arms; None for the metric's first experiment
    value: str | None = None,  # label of the answer to follow; None for the one whose difference is clearest
    level: float = LEVEL,  # of the intervals
) -> ExperimentAnswer:
    """Compare the arms of an experiment with its base, at each look; raise `Incomparable` if there is no such experiment."""
    version = published[0]
    names = experiments_of(version)
    if not names or segment not in (None, *names):
        rule = f"its experiments are on {', '.join(names)}" if names else "it has no segment that [experiments] declares"
        raise Incomparable(
            f"the metric {version.declared.metric.id} has no experiment{f' on {segment}' if segment else ''}: {rule}"
        )
    name = segment or names[0]
    declared = version.app.registry.experiments[name]
    comparisons = list(arm_comparisons(published, _pairs(version, name), level))
    labels = {row.label for comparison in comparisons for row in comparison.differences if row.value is not False}
    if value is not None and labels and value not in labels:
        known = ", ".join(sorted(labels))
        raise Incomparable(f"arms are compared by {known}, and not by {value[:_LONGEST]!r}{did_you_mean(value, labels)}")
    arms = [course for each in comparisons if (course := _course(published, each, value))]
    sizes = next((comparison.experiment.sizes for comparison in comparisons if comparison.experiment), None)
    return ExperimentAnswer(
        trial=version.app.trial,
        simulated=version.app.simulated,
        id=version.declared.metric.id,
        segment=name,
        base=declared.base,
        planned=float(declared.planned),
        people=people_needed(version.declared.metric, version.declared.mechanism, declared, version.app.registry.segments[name]),
        level=level,
        sizes=sizes,
        scope=scope_of(comparisons),
        arms=arms,
        order=_order(published, name, arms, level),
    )


def scope_of(comparisons: Iterable[Comparison]) -> str:
    """Say that something is of all reports of an experiment, and of which days these are; empty without reports."""
    sides = [side for comparison in comparisons for side in (comparison.a, comparison.b)]
    days = [covered for side in sides if (covered := so_far(side.days, side.updated))]
    if not days:
        return ""
    first = None if any(each.first is None for each in days) else min(each.first for each in days if each.first)
    covered = Days(first, max(each.last for each in days))
    text = figures.days(covered)
    return f"Over the whole experiment, {text[0].lower()}{text[1:]}"


class Clearest(NamedTuple):
    """The clearest difference of an experiment."""

    p_value: float  # of all its arms and values together and at all looks
    says: str  # in which arm what is more or less than in the base, and by how much


def clearest(published: Sequence[Published]) -> dict[str, Clearest]:
    """Return the clearest difference of each experiment of a metric."""
    differences = {}
    for name in experiments_of(published[0]):
        comparisons = arm_comparisons(published, _pairs(published[0], name), LEVEL)
        pairs = [(row, comparison) for comparison in comparisons for row in comparison.differences if row.value is not False]
        if pairs:
            row, comparison = min(pairs, key=lambda pair: clearness(pair[0], pair[1].scale))
            differences[name] = Clearest(row.p_holm, of_segments(row, comparison))
    return differences


def _order(published: Sequence[Published], segment: str, arms: Sequence[ArmCourse], level: float) -> ArmOrder | None:
    """Put arms into order by the value that is followed; by the clearest, if each arm has its own."""
    rows = [row for arm in arms for row in arm.comparison.differences if row.label == arm.label]
    if not rows:
        return None
    label = min(rows, key=lambda row: row.p_value).label
    return arm_order(published, segment, [arm.comparison for arm in arms], label, level)


def _pairs(version: Published, name: str) -> Iterator[tuple[str, str]]:
    base = version.app.registry.experiments[name].base
    for value in version.app.registry.segments.get(name, ()):
        if value != base:
            yield f"{name}={base}", f"{name}={value}"


def arm_comparisons(
    published: Sequence[Published],
    pairs: Iterable[tuple[str, str]],  # a base and an arm each, as segments
    level: float,  # of the intervals
    period: str | None = None,  # None: all
) -> Iterator[Comparison]:
    """Compare arms with their base, as far as they are published."""
    for a, b in islice(pairs, _MOST_ARMS):
        try:
            comparison = compare(published, a, b, period=period, level=level)
        except Refusal:  # an arm that is not published hides no other one
            continue
        if comparison.differences:
            yield comparison


def _course(published: Sequence[Published], comparison: Comparison, value: str | None) -> ArmCourse | None:
    """Follow one difference of a comparison; None if it has no such value."""
    rows = [row for row in comparison.differences if row.value is not False]  # the share of no mirrors that of yes
    followed = min(
        (row for row in rows if value in (None, row.label)), key=partial(clearness, scale=comparison.scale), default=None
    )
    if followed is None:
        return None
    version = next(each for each in published if each.declared.metric.version == comparison.version)
    *earlier, (last, _) = _looks(version, comparison)
    looks = []
    for name, sides in earlier:
        differences = differences_of(*sides, comparison.level, comparison.experiment).rows
        row = next((row for row in differences if row.label == followed.label), None)
        if row is not None:
            looks.append(_look(name, sides[0].n, sides[1].n, row))
    looks.append(_look(last, comparison.a.n, comparison.b.n, followed))
    return ArmCourse(comparison, followed.label, looks, verdict(comparison, followed, version.declared.metric))


def _looks(version: Published, comparison: Comparison) -> list[tuple[str, tuple[Reading, Reading]]]:
    """Return what the base and the arm say up to the last period of each look. Each release is read once."""
    cells = [version.cell(side.name) for side in (comparison.a, comparison.b)]
    names = sorted(version.cells.get(cells[0], {}).keys() & version.cells.get(cells[1], {}).keys())
    every = -(-len(names) // _MOST_LOOKS)
    ends = names[::-1][::every][::-1]
    between = [[name for name in names if first < name <= last] for first, last in pairwise(["", *ends])]
    selections = [version.covering(cell).within(part) for part in between for cell in cells]
    readings = read(selections)
    sides = [list(accumulate(readings[at::2], _added)) for at in (0, 1)]
    return list(zip(ends, zip(*sides, strict=True), strict=True))


def _added(before: Reading, new: Reading) -> Reading:
    return together([before, new])


def _look(last: str, first_n: int, second_n: int, row: ValueDiffering) -> Look:
    return Look(last, first_n, second_n, row.difference, row.simultaneous)
