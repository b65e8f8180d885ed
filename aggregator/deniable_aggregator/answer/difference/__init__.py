"""Comparisons of two periods, or of two segments. Nothing here reads what is not published."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference.sentence import planned_in_words, sentence, times_in_words
from deniable_aggregator.answer.model.comparison import (
    Arms,
    ArmSize,
    ArmSizes,
    Compared,
    Comparison,
    Differing,
    Overall,
    ValueDiffering,
)
from deniable_aggregator.answer.model.fields import LEVEL
from deniable_aggregator.answer.question.side import side_of
from deniable_aggregator.answer.readings import NumberReading, ShareReading, read, together
from deniable_aggregator.answer.readings.differing import NOT_PLANNED, Planned, between, differing, incomparable
from deniable_aggregator.answer.readings.number import moved, range_of, to_number
from deniable_aggregator.answer.readings.numbers_differing import interval_of, of_mean_and_median
from deniable_aggregator.answer.refusal import Incomparable, overlap, same
from deniable_aggregator.answer.select import earlier_in_words
from deniable_aggregator.answer.versions import answers
from deniable_aggregator.decode.panel import repeats_of
from deniable_aggregator.decode.some_values import some_values
from deniable_aggregator.inference import arm_sizes
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.overall import chi_square

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Declared
    from deniable.registry import Registry
    from deniable.registry.metric import Value
    from deniable.wire.report import Stratum
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.answer.select import Published, Selection
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.tables.independence import Chi2
    from deniable_aggregator.publish.release import Release


DIFFER = 0.01
"""Chance of error at which arms are said to have other sizes than declared."""
_DIGITS = 16
_SHOWN = 40  # characters of a side
_SAYS = (
    "These are arms of an experiment on {}. Intervals and tests of differences hold however often anybody looks, and "
    "whenever it is stopped{}. They are narrowest for the planned difference of {}."
)


class _Sides(NamedTuple):
    """What two sides of one version rest on."""

    version: Published
    cells: tuple[str, str]  # of each side
    # a, b: the releases of each side
    a: Selection
    b: Selection


def compare(
    published: Sequence[Published],  # the versions to try, the highest first: the first answers of which both sides have reports
    # a, b: two periods, or longer times as of `side_of`; or two cells of which none has people of the other
    a: str,
    b: str,
    *,
    # period, segment: what both sides have in common: of two periods only a segment, of two segments only a period
    period: str | None = None,
    segment: str | None = None,
    level: float = LEVEL,  # of the intervals and of the test
) -> Comparison:
    """Compare two periods, or two segments; raise the first `Refusal` if one refuses and of none both sides have reports."""
    kinds = {"=" in each for each in (a, b)}
    if len(kinds) > 1 or (period if kinds == {False} else segment) is not None:
        rule = "a and b are two periods, of one segment if it is named, or two segments, of one period if it is named"
        both = " and ".join(repr(each[:_SHOWN]) for each in (a, b))
        named = f", with {'a period' if period is not None else 'a segment'} named" if len(kinds) == 1 else ""
        raise Incomparable(f"{rule}; these are {both}{named}")
    of_cells = kinds == {True}

    def ask(version: Published) -> _Sides:
        return _cells(version, a, b, period) if of_cells else _periods(version, a, b, segment)

    sides = answers(published, ask, lambda sides: sides.a.n and sides.b.n)[0]
    metric, app = sides.version.declared.metric, sides.version.app
    arms = _arms(sides) if of_cells else None
    first, second = read(sides[-2:])
    why = incomparable(metric) or _unpublished(sides, metric.version, a, b)
    differences = ReadingDifferences([], 0, None) if why else differences_of(first, second, level, arms)
    answer = Comparison(
        trial=app.trial,
        simulated=app.simulated,
        earlier=earlier_in_words(published),
        id=metric.id,
        version=metric.version,
        level=level,
        target="population",
        unit=metric.unit,
        scale=metric.scale,
        range=range_of(metric),
        kind="segments" if of_cells else "periods",
        period=period,
        segment=None if of_cells else sides.cells[0] or None,
        a=Compared(a, first.n, sides.a.spans, sides.a.days, sides.a.closed, sides.a.updated),
        b=Compared(b, second.n, sides.b.spans, sides.b.days, sides.b.closed, sides.b.updated),
        differences=differences.rows,
        left_out=differences.left_out,
        overall=differences.overall,
        experiment=arms,
        reason=why or None,
    )
    times = "" if of_cells else times_in_words(answer.a, answer.b, metric.period)
    return replace(answer, says=sentence(answer, metric.period), times=times)


def _unpublished(sides: _Sides, version: int, a: str, b: str) -> str:
    """Say which sides have no reports; empty if both have."""
    names = [name for name, side in ((a, sides.a), (b, sides.b)) if not side.n]
    verb = "has" if len(names) == 1 else "have"
    return f"{figures.listed(names)} {verb} no published reports of version {version}" if names else ""


def _cells(version: Published, a: str, b: str, period: str | None) -> _Sides:
    cells = version.cell(a), version.cell(b)
    if cells[0] == cells[1]:
        raise Incomparable(same(cells[0]))
    if all(set(one) & set(other) for one, other in zip(*map(version.breakdown.box, cells), strict=True)):
        raise Incomparable(overlap(*cells))
    first, second = (version.covering(cell, period) for cell in cells)
    if period is None:  # compare the same periods, so that only the segment differs
        both = first.by_last.keys() & second.by_last.keys()
        first, second = first.within(both), second.within(both)
    return _Sides(version, cells, first, second)


def _periods(version: Published, a: str, b: str, segment: str | None) -> _Sides:
    cell, sides = version.cell(segment), [side_of(text, version.length, version.declared.metric.id) for text in (a, b)]
    if sides[0].span == sides[1].span:
        raise Incomparable(same(a))
    first, second = (version.covering(cell, each.first) if each.is_one else version.within(cell, *each.span) for each in sides)
    if first.releases.keys() & second.releases.keys():
        raise Incomparable(f"one release is part of both sides, {a} and {b}: choose two further apart")
    return _Sides(version, (cell, cell), first, second)


def _arms(sides: _Sides) -> Arms | None:
    """Return the experiment of which two cells are arms; None if they differ in anything else."""
    registry = sides.version.app.registry
    one, other = (dict(part.split("=", 1) for part in cell.split(",")) for cell in sides.cells)
    different = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    if len(different) != 1 or one.keys() != other.keys():
        return None
    (segment,) = different
    planned = Planned.of(registry, segment, {one[segment], other[segment]})
    if planned.difference is None:
        return None
    releases = dict(pair for each in sides.version.cells.values() for pair in each.values())
    sizes = arm_sizes_of(registry, sides.version.declared, releases, segment)
    together = f", for all {planned.comparisons} comparisons of arms together" if planned.comparisons > 1 else ""
    says = _SAYS.format(segment, together, planned_in_words(planned.difference, sides.version.declared.metric))
    return Arms(segment, registry.experiments[segment].base, planned.difference, planned.comparisons, says, sizes)


class ReadingDifferences(NamedTuple):
    """How two readings differ."""

    rows: list[ValueDiffering]
    left_out: int  # values without a row
    overall: Overall | None


def differences_of(
    first: Reading,
    second: Reading,
    level: float,  # of the intervals and of the tests
    arms: Arms | None,  # the experiment of which the sides are arms
) -> ReadingDifferences:
    """Say how two readings differ in each of the most frequent values, or in the mean and the median."""
    planned = Planned(arms.planned, arms.comparisons) if arms else NOT_PLANNED
    match first, second:
        case NumberReading(), NumberReading():
            metric = first.declared.metric
            names, difference = of_mean_and_median(first, second, planned.difference)
            rows = differing(difference, level, to_number(metric), moved(metric), planned)
            intervals = [[interval_of(reading, name, level) for name in names] for reading in (first, second)]
            named = [(None, name) for name in names]
            return ReadingDifferences(_rows(named, rows, intervals), 0, None)
        case ShareReading(), ShareReading():
            return _shares(first, second, level, planned)
    return ReadingDifferences([], 0, None)


def _shares(first: ShareReading, second: ShareReading, level: float, planned: Planned) -> ReadingDifferences:
    metric, both = first.declared.metric, together([first, second])
    places = both.most_frequent()
    estimates = [first.shares, second.shares]
    listed = [some_values(each, places) for each in estimates]
    sides = [Side.of(each) for each in listed]
    difference = between(sides[0], sides[1], planned.difference)
    intervals = [list(zip(*(end.tolist() for end in side.interval(level)), strict=True)) for side in sides]
    named = [(metric.value(both.values[place]), metric.label(both.values[place])) for place in places]
    rows = _rows(named, differing(difference, level, planned=planned), intervals)
    repeats = [first.repeats, second.repeats]
    # The chi-square test holds for one look. In an experiment, which is looked at often, the smallest p-value is told instead.
    test = None if planned.difference else _chi_square(first.declared, estimates, both.shares, repeats)
    overall = _overall(rows, planned.comparisons * listed[0].hypotheses, test, level)
    return ReadingDifferences(rows, len(both.values) - len(rows), overall)


def _chi_square(declared: Declared, sides: list[Estimate], both: Estimate, repeats: list[float]) -> Chi2 | None:
    metric, mechanism = declared.metric, declared.mechanism
    if metric.open:
        return None
    return chi_square(mechanism, sides, both, repeats, permanent=metric.permanent)


def _overall(rows: list[ValueDiffering], hypotheses: int, test: Chi2 | None, level: float) -> Overall | None:
    if test is not None:
        return Overall("chi_square", test.statistic, test.degrees, test.p_value, test.p_value <= 1 - level)
    if not rows:
        return None
    smallest = min(1.0, min(each.p_value for each in rows) * hypotheses)
    return Overall("smallest", None, None, smallest, smallest <= 1 - level)


def _rows(
    named: Sequence[tuple[Value | None, str]],  # each value with its label
    differences: list[Differing],  # of each
    intervals: list[list[tuple[float, float]]],  # of both sides, of each value
) -> list[ValueDiffering]:
    return [
        ValueDiffering(
            **{name: getattr(difference, name) for name in Differing.__struct_fields__},
            first_interval=first,
            second_interval=second,
            value=value,
            label=label,
        )
        for (value, label), difference, first, second in zip(named, differences, *intervals, strict=True)
    ]


def arm_sizes_of(
    registry: Registry,  # declares the experiment
    declared: Declared,  # a metric with the segment
    released: Mapping[Stratum, Release],  # what was published of it
    segment: str,  # whose values are the arms
) -> ArmSizes | None:
    """Compare the reports of the arms with their split; None if in no period all arms are published."""
    arms = registry.segments[segment]
    split = registry.experiments[segment].shares(arms)
    by_period: dict[str, dict[str, int]] = {}
    for stratum, note in released.items():
        name, _, arm = stratum.segment.partition("=")
        if name == segment and arm in split:
            by_period.setdefault(stratum.period, {})[arm] = note.n
    complete = {period: sizes for period, sizes in sorted(by_period.items()) if len(sizes) == len(arms)}
    if not complete:
        return None
    counts = np.cumsum([[sizes[arm] for arm in arms] for sizes in complete.values()], axis=0).astype(np.float64)
    # A device may report in each period, and others may answer as it does. So several reports tell of one draw.
    totals = {period: float(sum(sizes.values())) for period, sizes in complete.items()}
    periods = list(totals)
    draws = [1 + repeats_of(declared.metric, {each: totals[each] for each in periods[: at + 1]}) for at in range(len(periods))]
    p_value = arm_sizes.p_value(counts / np.array(draws)[:, None], np.array([split[arm] for arm in arms]))
    total = counts[-1].sum()
    sizes = [ArmSize(arm, int(n), float(n / total), split[arm]) for arm, n in zip(arms, counts[-1], strict=True)]
    return ArmSizes(sizes, p_value, p_value < DIFFER, _says(sizes) if p_value < DIFFER else "")


def _says(sizes: list[ArmSize]) -> str:
    digits = next(few for few in range(3, 17) if f"{sizes[0].share:.{few}g}" != f"{sizes[0].declared:.{few}g}" or few == _DIGITS)
    has = figures.listed([f"{100 * size.share:.{digits}g}%" for size in sizes])
    wants = figures.listed([f"{100 * size.declared:.{digits}g}%" for size in sizes])
    names = figures.listed([size.arm for size in sizes])
    return (
        f"The arms {names} have {has} of the reports, declared were {wants}. So fewer devices of one arm report, or the draw is "
        "not as declared. The comparison may mislead."
    )
