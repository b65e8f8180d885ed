"""What is estimated of shares: of values, of combinations, in order, and of options."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable.registry.metric import Value
from deniable_aggregator.answer.model.fields import Count, Interval, Number

_WRITTEN = {"frequency": "estimate"}
"""As in rows, which have shares and numbers in one column."""


class ValueShare(Struct, frozen=True, forbid_unknown_fields=True, rename=_WRITTEN):
    """The share of a value."""

    value: Annotated[Value, Meta(description="The answer exactly")]
    label: Annotated[str, Meta(description="The answer as it is shown")]
    n: Annotated[Count, Meta(description="Reports that the share rests on. Of a set these are the reports about the option.")]
    frequency: Annotated[Number, Meta(description="The unbiased share, which may be negative or above 1")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[
        Interval,
        Meta(description="Interval of the share: the pointwise one, unless `interval_kind` names another"),
    ]
    simultaneous: Annotated[Interval, Meta(description="The interval that holds together with those of all other values")]


class ValueEstimate(ValueShare, frozen=True, forbid_unknown_fields=True):
    """All that is estimated of a value."""

    interval_kind: Annotated[
        Literal["pointwise", "selected"],
        Meta(
            description="`pointwise`: it holds for a value that was chosen before looking. `selected`: the value is one of "
            "those detected, which were selected by their estimates; of their intervals all but a share of 1 - level hold on "
            "average."
        ),
    ]
    consistent: Annotated[
        Number,
        Meta(
            description="A possible share, for people to look at: none is negative, and those of all possible values are 1 "
            "together. It is biased: rare values are shown too high on average, and frequent ones a little too low."
        ),
    ]
    count: Annotated[Number, Meta(description="The unbiased number of reports whose answer it is: the share of `n`")]
    detected: Annotated[bool, Meta(description="Whether the value is present, at the level for all values together")]


class Leading(Struct, frozen=True, forbid_unknown_fields=True):
    """Which value is the most frequent one, or which ones may be: at the level, of all values together."""

    says: Annotated[str, Meta(description="The finding in a sentence")]
    leaders: Annotated[
        list[Value],
        Meta(
            description="The values that may be the most frequent one, by falling estimate; one if it is found to be; none if no "
            "value is detected. Of a search only those detected."
        ),
    ]
    count: Annotated[Count, Meta(description="How many values may be the most frequent one")]
    of: Annotated[Count, Meta(description="Of how many values that have an estimate")]
    ahead: Annotated[bool, Meta(description="Whether each of them is found to be more frequent than every other value")]


class Unallocated(Struct, frozen=True, forbid_unknown_fields=True, rename=_WRITTEN):
    """The share that none of the candidates accounts for, or of what a search found; detected or not."""

    frequency: Annotated[Number, Meta(description="The unbiased share, which may be negative or above 1")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[Interval, Meta(description="Pointwise interval of the share")]


class FactorShare(Struct, frozen=True, forbid_unknown_fields=True, rename=_WRITTEN):
    """The share of a factor's value, over all values of the other factors."""

    value: Annotated[str, Meta(description="The factor's value")]
    frequency: Annotated[Number, Meta(description="The unbiased share, which may be negative or above 1")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[Interval, Meta(description="Pointwise interval of the share")]


class Association(Struct, frozen=True, forbid_unknown_fields=True):
    """The test that the factors of a product are independent."""

    factors: Annotated[dict[str, list[str]], Meta(description="The values of each factor")]
    margins: Annotated[dict[str, list[FactorShare]], Meta(description="The share of each value of a factor")]
    statistic: Annotated[float | None, Meta(description="Statistic of the chi-square test")]
    degrees: Annotated[Count, Meta(description="Degrees of freedom of the test")]
    p_value: Annotated[float | None, Meta(description="Chance of a statistic at least as large if the factors are independent")]


class ValuesBelow(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of answers that are a value or an earlier one."""

    value: Annotated[str, Meta(description="The value, as it is shown")]
    share: Annotated[float, Meta(description="Unbiased share of answers that are this value or an earlier one")]
    stderr: Annotated[float, Meta(description="Standard error of the share")]


class OrderEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of an ordinal besides the share of each value."""

    mean: Annotated[float, Meta(description="The unbiased mean position; the first value has position 1")]
    stderr: Annotated[float, Meta(description="Standard error of the mean")]
    interval: Annotated[tuple[float, float], Meta(description="Interval of the mean")]
    median: Annotated[str, Meta(description="The median value")]
    median_between: Annotated[tuple[str, str], Meta(description="The first and the last value that the median may be")]
    below: Annotated[list[ValuesBelow], Meta(description="Cumulative share of each value")]


class PairEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """Two options of a set."""

    options: Annotated[tuple[str, str], Meta(description="The two options")]
    n: Annotated[Count, Meta(description="Reports about the two options")]
    both: Annotated[Number, Meta(description="The unbiased share of people who chose both")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[Interval, Meta(description="Pointwise interval of the share")]
    p_value: Annotated[
        float | None,
        Meta(description="Chance of reports at least as far from what they are on average if the choices are independent"),
    ]


class Chosen(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a set besides the share of each option."""

    mean: Annotated[Number, Meta(description="The unbiased mean number of options that people chose")]
    stderr: Annotated[Number, Meta(description="Standard error of the mean")]
    interval: Annotated[Interval, Meta(description="Interval of the mean")]
    pairs: Annotated[list[PairEstimate], Meta(description="Pairs of options; none unless the metric is `joint`")]
