"""Comparisons of two periods, or of two segments. Nothing here reads what is not published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from deniable_aggregator.answer.arms import ArmSizes, arm_sizes_of
from deniable_aggregator.answer.differing import Differing, ValueDiffering, differing, differing_means
from deniable_aggregator.answer.estimates import LEVEL
from deniable_aggregator.answer.measurement import Count, Span
from deniable_aggregator.answer.readings import NumberReading, ShareReading, read, together
from deniable_aggregator.answer.refusal import Incomparable
from deniable_aggregator.answer.select import answers
from deniable_aggregator.answer.series.shares import listed_values
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.overall import chi_square
from deniable_aggregator.inference.some_values import some_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable.registry.metric import Value
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.answer.select import Published, Selection
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.independence import Chi2


_SAYS = (
    "These are arms of an experiment on {}. Its intervals and p-values hold however often anybody looks, and whenever it is "
    "stopped. They are narrowest for the planned difference of {:g}."
)


class Compared(Struct, frozen=True, forbid_unknown_fields=True):
    """A side of a comparison."""

    name: Annotated[str, Meta(description="The period or segment, as it was asked for")]
    n: Annotated[Count, Meta(description="Reports of this side")]
    included: Annotated[list[Span], Meta(description="The releases used")]


class Overall(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether two sides differ in any value."""

    test: Annotated[
        Literal["chi_square", "smallest"],
        Meta(
            description="`chi_square`: of all values at once. It also finds small changes of many values. `smallest`: the "
            "smallest p-value of the values shown, times the number of hypotheses; where a sum of squares would not be "
            "chi-square, as with few reports."
        ),
    ]
    statistic: Annotated[float | None, Meta(description="Statistic of the chi-square test; null for another test")]
    degrees: Annotated[int | None, Meta(description="Degrees of freedom of the chi-square test; null for another test")]
    p_value: Annotated[
        float,
        Meta(description="Chance of estimates that differ at least as much, if people answer alike on both sides"),
    ]
    differs: Annotated[bool, Meta(description="Whether the sides differ, at the level")]


class Arms(Struct, frozen=True, forbid_unknown_fields=True):
    """That the two sides are arms of an experiment."""

    segment: Annotated[str, Meta(description="Whose values are the arms")]
    base: Annotated[str, Meta(description="The arm that the others are compared with")]
    planned: Annotated[
        float,
        Meta(description="The difference for which the experiment was planned; of a number, as a share of its range"),
    ]
    says: Annotated[str, Meta(description="What this means for the intervals and p-values, in words")]
    sizes: Annotated[
        ArmSizes | None,
        Meta(description="Whether all arms have as many reports as declared; null if in no period all arms are published"),
    ]


class Comparison(Struct, frozen=True, forbid_unknown_fields=True):
    """Two periods or two segments of a metric."""

    trial: Annotated[bool, Meta(description="Whether everything is published at once, however few reports there are")]
    id: Annotated[str, Meta(description="Id of the metric")]
    version: Annotated[Count, Meta(description="Version of the metric")]
    level: Annotated[float, Meta(description="Confidence of the intervals and of the test")]
    target: Annotated[
        Literal["population"],
        Meta(description="Whose shares are estimated: those of the population that the respondents were drawn from"),
    ]
    unit: Annotated[str, Meta(description="Unit of a number; else empty")]
    scale: Annotated[Literal["linear", "log"], Meta(description="Scale of a number's axis; of other metrics `linear`")]
    kind: Annotated[Literal["periods", "segments"], Meta(description="What is compared")]
    period: Annotated[str | None, Meta(description="The period that both sides have in common; null: all")]
    segment: Annotated[str | None, Meta(description="The cell that both sides have in common; null: all reports")]
    a: Annotated[Compared, Meta(description="The first side")]
    b: Annotated[Compared, Meta(description="The second side")]
    differences: Annotated[
        list[ValueDiffering],
        Meta(
            description="Differences of values, or of a number's mean. Empty if answers are searched for, or if a side has no "
            "reports."
        ),
    ]
    left_out: Annotated[Count, Meta(description="How many values are not among the differences")]
    overall: Annotated[
        Overall | None,
        Meta(description="Whether the sides differ in any value; null if there are no differences, and for a mean"),
    ] = None
    experiment: Annotated[
        Arms | None,
        Meta(
            description="The experiment of which the sides are arms, if they are. Then all intervals and p-values hold however "
            "often anybody looks."
        ),
    ] = None


class _Sides(NamedTuple):
    """What two sides of one version rest on."""

    version: Published
    cells: tuple[str, str]
    a: Selection
    b: Selection


def compare(
    published: Sequence[Published],
    a: str,
    b: str,
    *,
    period: str | None = None,
    segment: str | None = None,
    level: float = LEVEL,
) -> Comparison:
    """Compare two periods, or two segments.

    Parameters
    ----------
    published
        The versions to try, the highest first. The answer is of the first one of which both sides have reports.
    a, b
        Two periods, or two cells of which none has people of the other.
    period, segment
        What both sides have in common. Of two periods only a segment, of two segments only a period.
    level
        Of the intervals and of the test.

    Raises
    ------
    Refusal
        The first one, if a version refuses and of none both sides have reports.
    """
    kinds = {"=" in each for each in (a, b)}
    if len(kinds) > 1 or (period if kinds == {False} else segment) is not None:
        raise Incomparable(
            "a and b are two periods, of one segment if it is named, or two segments, of one period if it is named"
        )
    of_cells = kinds == {True}

    def ask(version: Published) -> _Sides:
        return _cells(version, a, b, period) if of_cells else _periods(version, a, b, segment)

    sides = answers(published, ask, lambda sides: sides.a.n and sides.b.n)[0]
    metric, app = sides.version.declared.metric, sides.version.app
    arms = _arms(sides) if of_cells else None
    first, second = read(app, sides[-2:])
    differences, left_out, overall = _differences(first, second, level, arms.planned if arms else None)
    return Comparison(
        trial=app.trial,
        id=metric.id,
        version=metric.version,
        level=level,
        target="population",
        unit=metric.unit,
        scale=metric.scale,
        kind="segments" if of_cells else "periods",
        period=period,
        segment=None if of_cells else sides.cells[0] or None,
        a=Compared(a, first.n, sides.a.spans),
        b=Compared(b, second.n, sides.b.spans),
        differences=differences,
        left_out=left_out,
        overall=overall,
        experiment=arms,
    )


def _cells(version: Published, a: str, b: str, period: str | None) -> _Sides:
    cells = version.cell(a), version.cell(b)
    if all(set(one) & set(other) for one, other in zip(*map(version.breakdown.box, cells), strict=True)):
        raise Incomparable("segments are compared if nobody can be in both at the same time")
    first, second = (version.covering(cell, period) for cell in cells)
    if period is None:  # of both the same periods, so that only the segment differs
        both = first.by_last.keys() & second.by_last.keys()
        first, second = first.within(both), second.within(both)
    return _Sides(version, cells, first, second)


def _periods(version: Published, a: str, b: str, segment: str | None) -> _Sides:
    cell = version.cell(segment)
    first, second = (version.covering(cell, period) for period in (a, b))
    if first.releases and first.releases == second.releases:
        raise Incomparable("one release covers both periods")
    return _Sides(version, (cell, cell), first, second)


def _arms(sides: _Sides) -> Arms | None:
    """Return the experiment of which two cells are arms, and differ in nothing else."""
    registry = sides.version.app.registry
    one, other = (dict(part.split("=", 1) for part in cell.split(",")) for cell in sides.cells)
    apart = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    experiment = registry.experiments.get(apart[0]) if len(apart) == 1 and one.keys() == other.keys() else None
    if experiment is None or not {one[apart[0]], other[apart[0]]} <= set(registry.segments[apart[0]]):
        return None
    releases = dict(pair for each in sides.version.cells.values() for pair in each.values())
    sizes = arm_sizes_of(registry, sides.version.declared, releases, apart[0])
    return Arms(apart[0], experiment.base, experiment.planned, _SAYS.format(apart[0], experiment.planned), sizes)


def _differences(
    first: Reading, second: Reading, level: float, planned: float | None
) -> tuple[list[ValueDiffering], int, Overall | None]:
    if not first.n or not second.n:
        return [], 0, None
    match first, second:
        case NumberReading(), NumberReading():
            means = differing_means(first.declared.metric, first.centre, second.centre, level, planned)
            return [_told(None, "mean", each) for each in means], 0, None
        case ShareReading(), ShareReading() if not first.declared.metric.discover:
            return _shares(first, second, level, planned)
    return [], 0, None


def _shares(
    first: ShareReading, second: ShareReading, level: float, planned: float | None
) -> tuple[list[ValueDiffering], int, Overall | None]:
    metric, both = first.declared.metric, together([first, second])
    places = listed_values(both.values, both.shares)
    estimates = [first.shares, second.shares]
    shown = [some_values(each, places) for each in estimates]
    sides = [Side.of(each) for each in shown]
    rows = zip(places, differing(sides[0], sides[1], level, planned), strict=True)
    found = [_told(metric.value(both.values[place]), metric.label(both.values[place]), each) for place, each in rows]
    repeats = [first.repeats, second.repeats]
    whole = None if planned else _chi_square(first.declared, estimates, both.shares, repeats)
    return found, len(both.values) - len(found), _overall(found, shown[0].hypotheses, whole, level)


def _chi_square(declared: Declared, sides: list[Estimate], both: Estimate, repeats: list[float]) -> Chi2 | None:
    metric, mechanism = declared.metric, declared.mechanism
    if metric.open:
        return None
    return chi_square(mechanism, sides, both, repeats, kept=metric.permanent)


def _overall(found: list[ValueDiffering], hypotheses: int, whole: Chi2 | None, level: float) -> Overall | None:
    if whole is not None:
        return Overall("chi_square", whole.statistic, whole.degrees, whole.p_value, whole.p_value <= 1 - level)
    if not found:
        return None
    smallest = min(1.0, min(each.p_value for each in found) * hypotheses)
    return Overall("smallest", None, None, smallest, smallest <= 1 - level)


def _told(value: Value | None, label: str, found: Differing) -> ValueDiffering:
    return ValueDiffering(**{name: getattr(found, name) for name in Differing.__struct_fields__}, value=value, label=label)
