"""How two sides differ: two periods, two segments, or two arms of an experiment."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable.registry.metric import Value
from deniable_aggregator.answer.model.fields import (
    Count,
    Days,
    EarlierNotes,
    Interval,
    Moment,
    Number,
    Possible,
    Simulated,
    Span,
    Trial,
)


class Differing(Struct, frozen=True, forbid_unknown_fields=True):
    """How far two sides differ in one value, or in the mean."""

    first: Annotated[
        Number,
        Meta(description="Unbiased estimate of the first side: side a of a comparison, or the period `since` of a change"),
    ]
    second: Annotated[
        Number,
        Meta(description="Unbiased estimate of the second side: side b of a comparison, or the period `last` of a change"),
    ]
    difference: Annotated[
        Number,
        Meta(description="Second less first. Of a number on a logarithmic scale it is the ratio, second over first."),
    ]
    interval: Annotated[Interval, Meta(description="Pointwise interval of the difference")]
    simultaneous: Annotated[
        Interval,
        Meta(description="Interval of the difference that holds together with those of all other values shown"),
    ]
    p_value: Annotated[
        Number,
        Meta(description="Chance of error at which the pointwise interval would just include no difference"),
    ]
    p_holm: Annotated[
        Number,
        Meta(
            description="Chance of error at which `differs` would just be true: the p-value for all values shown together (Holm)"
        ),
    ]
    differs: Annotated[bool, Meta(description="Whether the sides differ, at the level for all values shown together (Holm)")]


class ValueDiffering(Differing, frozen=True, forbid_unknown_fields=True):
    """How far two sides differ in a value, or in the mean."""

    first_interval: Annotated[Interval, Meta(description="Pointwise interval of the first side alone, at a single look")]
    second_interval: Annotated[Interval, Meta(description="Pointwise interval of the second side alone, at a single look")]
    value: Annotated[Value | None, Meta(description="The answer exactly; null for a mean")]
    label: Annotated[str, Meta(description="The answer as it is shown")]


class Compared(Struct, frozen=True, forbid_unknown_fields=True):
    """A side of a comparison."""

    name: Annotated[str, Meta(description="The period or segment, as it was asked for")]
    n: Annotated[Count, Meta(description="Reports of this side")]
    included: Annotated[list[Span], Meta(description="The releases used")]
    days: Annotated[Days | None, Meta(description="The days that these releases cover; null without releases")]
    closed: Annotated[bool, Meta(description="Whether nothing more will be published for these releases")]
    updated: Annotated[Moment | None, Meta(description="The hour of the last of these releases; null without releases")]


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


class ArmSize(Struct, frozen=True, forbid_unknown_fields=True):
    """An arm."""

    arm: Annotated[str, Meta(description="Name of the arm")]
    n: Annotated[Count, Meta(description="Reports of the arm, over the periods in which all arms are published")]
    share: Annotated[float, Meta(description="The arm's share of all reports")]
    declared: Annotated[float, Meta(description="The share that the registry declares")]


class ArmSizes(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the arms have as many reports as declared. The test holds however often anybody looks."""

    arms: Annotated[list[ArmSize], Meta(description="Each arm")]
    p_value: Annotated[
        float,
        Meta(description="Chance of sizes at least as far from the declared ones at any look, if devices are drawn as declared"),
    ]
    differ: Annotated[bool, Meta(description="Whether the sizes differ from the declared ones, at 1%")]
    says: Annotated[str, Meta(description="What this means, in words; empty if the sizes do not differ")]


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """An experiment, as the registry declares it."""

    segment: Annotated[str, Meta(description="Whose values are the arms")]
    base: Annotated[str, Meta(description="The arm that each other arm is compared with")]
    planned: Annotated[
        float,
        Meta(description="The difference for which the experiment was planned; of a number, as a share of its range"),
    ]


class Arms(Experiment, frozen=True, forbid_unknown_fields=True):
    """That the two sides are arms of an experiment."""

    comparisons: Annotated[
        Count,
        Meta(
            description="How many comparisons `simultaneous`, `differs` and `overall` hold for together: of each arm with the "
            "base, or of any two arms"
        ),
    ]
    says: Annotated[str, Meta(description="What this means for the intervals and p-values, in words")]
    sizes: Annotated[
        ArmSizes | None,
        Meta(description="Whether all arms have as many reports as declared; null if in no period all arms are published"),
    ]


class Comparison(Struct, frozen=True, forbid_unknown_fields=True):
    """Two periods or two segments of a metric."""

    trial: Trial
    simulated: Simulated
    earlier: EarlierNotes
    id: Annotated[str, Meta(description="Id of the metric")]
    version: Annotated[Count, Meta(description="Version of the metric")]
    level: Annotated[float, Meta(description="Confidence of the intervals and of the test")]
    target: Annotated[
        Literal["population"],
        Meta(description="Whose shares are estimated: those of the population that the respondents were drawn from"),
    ]
    unit: Annotated[str, Meta(description="Unit of a number; else empty")]
    scale: Annotated[Literal["linear", "log"], Meta(description="Scale of a number's axis; of other metrics `linear`")]
    range: Possible
    kind: Annotated[Literal["periods", "segments"], Meta(description="What is compared")]
    period: Annotated[str | None, Meta(description="The period that both sides have in common; null: all")]
    segment: Annotated[str | None, Meta(description="The cell that both sides have in common; null: all reports")]
    a: Annotated[Compared, Meta(description="The first side")]
    b: Annotated[Compared, Meta(description="The second side")]
    differences: Annotated[
        list[ValueDiffering],
        Meta(
            description="Differences of values, or of a number's mean. Empty if answers are searched for, or if a side has no "
            "reports: `reason` says which."
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
            description="The experiment of which the sides are arms, if they are. Then all intervals and p-values of differences "
            "hold however often anybody looks."
        ),
    ] = None
    reason: Annotated[
        str | None,
        Meta(description="Why there are no differences, in words; null if there are any"),
    ] = None
    says: Annotated[
        str,
        Meta(description="What differs most, if anything differs beyond chance, as pages print it; or that nothing is compared"),
    ] = ""
    times: Annotated[
        str,
        Meta(
            description="Which whole periods and days two times have, in words; empty of segments, and if the times name all of "
            "them"
        ),
    ] = ""
