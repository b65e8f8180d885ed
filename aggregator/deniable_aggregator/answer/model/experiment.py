"""An experiment: how each arm differs from the base, at each look since it began."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.comparison import ArmSizes, Comparison, Experiment
from deniable_aggregator.answer.model.fields import Count, Interval, Number, Simulated, Trial


class Look(Struct, frozen=True, forbid_unknown_fields=True):
    """What reports up to a period say of one difference."""

    last: Annotated[str, Meta(description="The last period that had come in")]
    first_n: Annotated[Count, Meta(description="Reports of the base")]
    second_n: Annotated[Count, Meta(description="Reports of the arm")]
    difference: Annotated[Number, Meta(description="Arm less base; on a logarithmic scale the ratio, arm over base")]
    simultaneous: Annotated[
        Interval,
        Meta(description="Interval that holds together with those of all other values, and however often anybody looks"),
    ]


class Verdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What an arm has shown of the value that is followed."""

    state: Annotated[
        Literal["found", "excluded", "undecided"],
        Meta(description="`found`: an effect; `excluded`: an effect as large as planned; `undecided`: neither of them"),
    ]
    more: Annotated[
        Count | None,
        Meta(
            description="About how many more reports of other people, in both arms, find the planned difference in 80% of cases, "
            "if there is one; of permanent responses how many more people. Null if it is decided, or not known."
        ),
    ]
    periods: Annotated[
        Count | None,
        Meta(description="How many more periods that takes at the rate so far; null if not known, and of permanent responses"),
    ]
    says: Annotated[str, Meta(description="The same in words")]


class ArmCourse(Struct, frozen=True, forbid_unknown_fields=True):
    """An arm against the base."""

    comparison: Annotated[Comparison, Meta(description="The comparison of all reports")]
    label: Annotated[str, Meta(description="The value whose difference `looks` follow: the one asked for, or the clearest")]
    looks: Annotated[list[Look], Meta(description="The differences as reports came in, the latest last")]
    verdict: Annotated[Verdict, Meta(description="Whether the experiment is decided, and what it takes if it is not")]


class ArmOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Which arms have the most and the least. It is false at any look with a probability of 1 less `level` at most."""

    label: Annotated[str, Meta(description="The value of which this is said")]
    may_be_most: Annotated[
        list[str],
        Meta(description="The arms of which no other arm is found to have more: the best one is among them"),
    ]
    most: Annotated[str | None, Meta(description="The arm found to have more of it than each other arm; null: none is found")]
    least: Annotated[str | None, Meta(description="The arm found to have less of it than each other arm; null: none is found")]
    says: Annotated[str, Meta(description="The same in a sentence")]


class Arm(Struct, frozen=True, forbid_unknown_fields=True):
    """What pages say of an arm of an experiment."""

    a: Annotated[str, Meta(description="The base, as a segment")]
    b: Annotated[str, Meta(description="The arm, as a segment")]
    says: Annotated[str, Meta(description="Whether the arm has an effect, which way, and by how much; it holds at every look")]
    sizes: Annotated[str, Meta(description="A warning if arms have other sizes than declared; else empty")]


class ExperimentAnswer(Experiment, frozen=True, forbid_unknown_fields=True):
    """An experiment on a metric."""

    trial: Trial
    simulated: Simulated
    id: Annotated[str, Meta(description="Id of the metric")]
    people: Annotated[
        int | None,
        Meta(
            description="How many people in each arm, with one report each, find the planned difference in 80% of cases at 95% "
            "confidence, however often anybody looks; null if it is not known"
        ),
    ]
    level: Annotated[float, Meta(description="Confidence of the intervals")]
    sizes: Annotated[
        ArmSizes | None, Meta(description="Whether all arms have as many reports as declared; null if that is not known")
    ]
    scope: Annotated[
        str,
        Meta(description="That all of this is of the whole experiment, and of which days, in words; empty without reports"),
    ]
    arms: Annotated[list[ArmCourse], Meta(description="Each arm that is published, against the base")]
    order: Annotated[
        ArmOrder | None,
        Meta(description="Which arms have the most and the least of one value; null if fewer than three arms are published"),
    ]
