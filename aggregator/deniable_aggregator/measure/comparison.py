"""Comparisons of two periods, or of two segments. Nothing here reads what is not published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from deniable_aggregator import tally
from deniable_aggregator.decode.panel import repeats_of
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.overall import chi_square
from deniable_aggregator.inference.some_values import some_values
from deniable_aggregator.measure.arms import ArmSizes, arm_sizes_of
from deniable_aggregator.measure.differing import Differing, ValueDiffering, differing, differing_means
from deniable_aggregator.measure.estimates import LEVEL, decoded
from deniable_aggregator.measure.measurement import Count, Span
from deniable_aggregator.measure.numbers import centre_of
from deniable_aggregator.measure.published import by_period, releases_of, spans_of
from deniable_aggregator.measure.refusal import Refusal, check_period, read_cell, withheld
from deniable_aggregator.measure.series.shares import listed_values
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable.registry.metric import Value
    from deniable.wire.report import Stratum
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.independence import Chi2
    from deniable_aggregator.measure.collection import Collection
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.tally import Tally


_SAYS = (
    "These are arms of an experiment on {}. Its intervals and p-values hold however often anybody looks, and whenever it is "
    "stopped. They are narrowest for the planned difference of {:g}."
)


class Incomparable(Refusal):
    """The two sides cannot be compared."""

    code = "incomparable"


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


class _Part(NamedTuple):
    """A side: its releases, and what they have together."""

    chosen: Mapping[Stratum, Release]
    counted: Tally
    periods: Mapping[str, float]

    def repeats(self, metric: Metric) -> float:
        return repeats_of(metric, self.periods)


def compare(
    app: Collection,
    asked: Sequence[Declared],
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
    app
        Whose metric it is.
    asked
        The versions to try, the highest first. The answer is of the first one of which both sides are published.
    a, b
        Two periods, or two cells of which none has people of the other.
    period, segment
        What both sides have in common. Of two periods only a segment, of two segments only a period.
    level
        Of the intervals and of the test.

    Raises
    ------
    Refusal
        For the first version, if no other has an answer.
    """
    kinds = {"=" in each for each in (a, b)}
    if len(kinds) > 1 or (period if kinds == {False} else segment) is not None:
        raise Incomparable(
            "a and b are two periods, of one segment if it is named, or two segments, of one period if it is named"
        )
    refusal: Refusal | None = None
    empty: Comparison | None = None
    for declared in asked:
        try:
            found = _compared(app, declared, (a, b), period, segment, level)
        except Refusal as each:
            refusal = refusal or each
            continue
        if found.a.n and found.b.n:
            return found
        empty = empty or found
    if empty is None:
        assert refusal is not None  # noqa: S101 - a metric has a version
        raise refusal
    return empty


def _compared(
    app: Collection, declared: Declared, names: tuple[str, str], period: str | None, segment: str | None, level: float
) -> Comparison:
    metric = declared.metric
    cells = "=" in names[0]
    breakdown, published = Breakdown.of(app.registry, metric), releases_of(app, declared)
    if cells:
        boxes = [breakdown.box(read_cell(breakdown, name)) for name in names]
        if all(set(one) & set(other) for one, other in zip(*boxes, strict=True)):
            raise Incomparable("segments are compared if nobody can be in both at the same time")
        if period is not None:
            check_period(metric, period)
        asked = [(period, read_cell(breakdown, name)) for name in names]
    else:
        for name in names:
            check_period(metric, name)
        asked = [(name, read_cell(breakdown, segment or "")) for name in names]
    chosen = [_chosen(declared, breakdown, published, *each) for each in asked]
    if cells and period is None:  # of both the same periods, so that only the segment differs
        both = {stratum.period for stratum in chosen[0]} & {stratum.period for stratum in chosen[1]}
        chosen = [{stratum: note for stratum, note in side.items() if stratum.period in both} for side in chosen]
    elif not cells and chosen[0] and chosen[0] == chosen[1]:
        raise Incomparable("one release covers both periods")
    parts = [_Part(side, app.store.releases.read(declared.layout, list(side)), by_period(app, declared, side)) for side in chosen]
    arms = _arms(app, declared, published, *(cell for _, cell in asked)) if cells else None
    differences, left_out, overall = _differences(declared, parts[0], parts[1], level, arms.planned if arms else None)
    a, b = (Compared(name, each.counted.n, spans_of(each.chosen)) for name, each in zip(names, parts, strict=True))
    return Comparison(
        trial=app.trial,
        id=metric.id,
        version=metric.version,
        level=level,
        target="population",
        unit=metric.unit,
        scale=metric.scale,
        kind="segments" if cells else "periods",
        period=period,
        segment=asked[0][1] or None if not cells else None,
        a=a,
        b=b,
        differences=differences,
        left_out=left_out,
        overall=overall,
        experiment=arms,
    )


def _arms(app: Collection, declared: Declared, published: Mapping[Stratum, Release], first: str, second: str) -> Arms | None:
    """Return the experiment of which two cells are arms, and differ in nothing else."""
    one, other = (dict(part.split("=", 1) for part in cell.split(",")) for cell in (first, second))
    apart = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    experiment = app.registry.experiments.get(apart[0]) if len(apart) == 1 and one.keys() == other.keys() else None
    if experiment is None or not {one[apart[0]], other[apart[0]]} <= set(app.registry.segments[apart[0]]):
        return None
    sizes = arm_sizes_of(app.registry, declared, published, apart[0])
    return Arms(apart[0], experiment.base, experiment.planned, _SAYS.format(apart[0], experiment.planned), sizes)


def _chosen(
    declared: Declared, breakdown: Breakdown, published: Mapping[Stratum, Release], period: str | None, cell: str
) -> dict[Stratum, Release]:
    """Return the releases of a cell over a period, or over all.

    Raises
    ------
    WithheldCell
        If others are published there, and this one is not.
    """
    within = {stratum: note for stratum, note in published.items() if period is None or note.covers(stratum.period, period)}
    chosen = {stratum: note for stratum, note in within.items() if stratum.segment == cell}
    if within and not chosen:
        raise withheld(declared, breakdown, cell, {stratum.segment for stratum in within})
    return chosen


def _differences(
    declared: Declared, first: _Part, second: _Part, level: float, planned: float | None
) -> tuple[list[ValueDiffering], int, Overall | None]:
    metric = declared.metric
    if metric.discover or not first.counted.n or not second.counted.n:
        return [], 0, None
    if metric.estimate:
        one, other = (centre_of(declared, each.counted, each.repeats(metric)) for each in (first, second))
        return [_told(None, "mean", each) for each in differing_means(metric, one, other, level, planned)], 0, None
    values, together = decoded(declared, tally.merge(first.counted, second.counted), {**first.periods, **second.periods})
    assert together is not None  # noqa: S101 - it is no number
    places = listed_values(values, together)
    estimates = []
    for part in (first, second):
        _, estimate = decoded(declared, part.counted, part.periods)
        assert estimate is not None  # noqa: S101 - likewise
        estimates.append(estimate)
    shown = [some_values(each, places) for each in estimates]
    sides = [Side.of(each) for each in shown]
    rows = zip(places, differing(sides[0], sides[1], level, planned), strict=True)
    found = [_told(metric.value(values[place]), metric.label(values[place]), each) for place, each in rows]
    more = [each.repeats(metric) for each in (first, second)]
    whole = None if planned else _chi_square(declared, estimates, together, more)
    return found, len(values) - len(found), _overall(found, shown[0].hypotheses, whole, level)


def _chi_square(declared: Declared, sides: list[Estimate], together: Estimate, repeats: list[float]) -> Chi2 | None:
    metric, mechanism = declared.metric, declared.mechanism
    if metric.open:
        return None
    return chi_square(mechanism, sides, together, repeats, kept=metric.kept)


def _overall(found: list[ValueDiffering], hypotheses: int, whole: Chi2 | None, level: float) -> Overall | None:
    if whole is not None:
        return Overall("chi_square", whole.statistic, whole.degrees, whole.p_value, whole.p_value <= 1 - level)
    if not found:
        return None
    smallest = min(1.0, min(each.p_value for each in found) * hypotheses)
    return Overall("smallest", None, None, smallest, smallest <= 1 - level)


def _told(value: Value | None, label: str, found: Differing) -> ValueDiffering:
    return ValueDiffering(**{name: getattr(found, name) for name in Differing.__struct_fields__}, value=value, label=label)
