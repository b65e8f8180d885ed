"""The answers about a metric, member by member. The API's JSON, its schema and the pages use them."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from deniable.registry.metric import Value
from deniable.registry.period import LENGTHS

Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]
# nan without reports; JSON writes it as null, so the schema says this.
if TYPE_CHECKING:
    Number = float
else:
    Number = float | None
_Interval = tuple[Number, Number]


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """The periods that a release covers."""

    first: Annotated[str | None, Meta(description="First period; null: from the beginning")]
    last: Annotated[str, Meta(description="Last period")]


class Version(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a version was published."""

    version: Annotated[Count, Meta(description="Number of the version")]
    expires: Annotated[date | None, Meta(description="Last day of collection, or null")]
    n: Annotated[Count, Meta(description="Reports in the version's releases")]
    updated: Annotated[Moment | None, Meta(description="The hour of the last release; null: nothing was published")]


class ValueShare(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of a value."""

    value: Annotated[Value, Meta(description="The answer exactly")]
    label: Annotated[str, Meta(description="The answer as it is shown")]
    n: Annotated[Count, Meta(description="Reports that the share rests on. Of a set these are the reports about the option.")]
    frequency: Annotated[Number, Meta(description="The unbiased share, which may be negative or above 1")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[
        _Interval,
        Meta(description="Interval of the share: the pointwise one, unless `interval_kind` names another"),
    ]
    simultaneous: Annotated[_Interval, Meta(description="The interval that holds together with those of all other values")]


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
    count: Annotated[Number, Meta(description="The unbiased number of respondents with the value")]
    detected: Annotated[bool, Meta(description="Whether the value is present, at the level for all values together")]


class Unallocated(Struct, frozen=True, forbid_unknown_fields=True):
    """The share that none of the candidates accounts for, or of what a search found; detected or not."""

    frequency: Annotated[Number, Meta(description="The unbiased share, which may be negative or above 1")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[_Interval, Meta(description="Pointwise interval of the share")]


class FactorShare(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of a factor's value, over all values of the other factors."""

    value: Annotated[str, Meta(description="The factor's value")]
    frequency: Annotated[Number, Meta(description="The unbiased share, which may be negative or above 1")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[_Interval, Meta(description="Pointwise interval of the share")]


class Association(Struct, frozen=True, forbid_unknown_fields=True):
    """The test that the factors of a product are independent."""

    factors: Annotated[dict[str, list[str]], Meta(description="The values of each factor")]
    margins: Annotated[dict[str, list[FactorShare]], Meta(description="The share of each value of a factor")]
    statistic: Annotated[float | None, Meta(description="Statistic of the chi-square test")]
    degrees: Annotated[Count, Meta(description="Degrees of freedom of the test")]
    p_value: Annotated[float | None, Meta(description="Chance of a statistic at least as large if the factors are independent")]


class QuantileEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """A quantile of a number."""

    share: Annotated[float, Meta(description="The share of answers below the quantile")]
    value: Annotated[float, Meta(description="The quantile, in the metric's unit")]
    interval: Annotated[tuple[float, float], Meta(description="Band of the quantile")]
    resolved: Annotated[
        bool,
        Meta(description="Whether there are enough reports to tell its share from 0 and from 1. If not, the band may miss it."),
    ]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a number's range."""

    low: Annotated[float, Meta(description="Low end of the part, in the metric's unit")]
    high: Annotated[float, Meta(description="High end of the part, in the metric's unit")]
    share: Annotated[float, Meta(description="The share of answers in the part, by the likeliest distribution")]
    below: Annotated[float, Meta(description="The share of answers below the part's high end")]


class NumberEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a number, in its unit; of an ordinal of which only the mean is asked, in positions from 1 on."""

    unit: Annotated[str, Meta(description="Unit as declared; empty for positions")]
    range: Annotated[
        tuple[float, float],
        Meta(description="The least and the greatest number. Answers beyond were reported as the nearer end."),
    ]
    scale: Annotated[Literal["linear", "log"], Meta(description="`log`: the mean is the geometric mean")]
    mean: Annotated[
        Number,
        Meta(description="The unbiased mean, which may lie out of range. On a logarithmic scale its logarithm is unbiased."),
    ]
    stderr: Annotated[
        Number,
        Meta(description="Standard error of the mean; null on a logarithmic scale, where the interval is not symmetric"),
    ]
    interval: Annotated[
        _Interval,
        Meta(description="Interval of the mean for the population that the respondents were drawn from"),
    ]
    respondents: Annotated[
        _Interval,
        Meta(
            description="Interval of the mean for the answers that came. Of a kept mean it is the same, because rounding is "
            "part of both. Of a kept distribution both are half a part wider on each side, because an answer may lie anywhere in "
            "its part."
        ),
    ]
    sum: Annotated[
        tuple[Number, _Interval] | None,
        Meta(
            description="The mean times the number of reports, with the interval for the answers that came; null on a "
            "logarithmic scale"
        ),
    ]
    quantiles: Annotated[
        list[QuantileEstimate],
        Meta(description="Quantiles of the distribution; empty if only the mean is estimated"),
    ]
    bands: Annotated[
        Literal["approximate", "strict"],
        Meta(
            description="What the bands of the quantiles promise. `approximate`: each holds as stated if the quantile is "
            "resolved. `strict`: all hold together, for every population and every number of reports."
        ),
    ]
    values: Annotated[
        list[ValueShare],
        Meta(
            description="Of a number with a step: the share of each value, or of a few neighbours together, without bias. Else "
            "empty."
        ),
    ]
    parts: Annotated[
        list[Part],
        Meta(description="Parts of the range, in order: a picture, without intervals. Empty if only the mean is estimated."),
    ]


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
    interval: Annotated[_Interval, Meta(description="Pointwise interval of the share")]
    p_value: Annotated[
        float | None,
        Meta(description="Chance of reports at least as far from what they are on average if the choices are independent"),
    ]


class Chosen(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a set besides the share of each option."""

    mean: Annotated[Number, Meta(description="The unbiased mean number of options that people chose")]
    stderr: Annotated[Number, Meta(description="Standard error of the mean")]
    interval: Annotated[_Interval, Meta(description="Interval of the mean")]
    pairs: Annotated[list[PairEstimate], Meta(description="Pairs of options; none unless the metric is `joint`")]


class MergedVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """A version's part in a merged estimate."""

    version: Annotated[Count, Meta(description="Number of the version")]
    n: Annotated[Count, Meta(description="Reports of the version")]
    weight: Annotated[float, Meta(ge=0, le=1, description="Weight of the version's estimates")]
    included: Annotated[list[Span], Meta(description="Releases of the version that are used")]


class Merged(Struct, frozen=True, forbid_unknown_fields=True):
    """One estimate of the values that versions have in common."""

    versions: Annotated[list[MergedVersion], Meta(description="The versions with their weights")]
    n: Annotated[Count, Meta(description="Reports of all these versions")]
    p_value: Annotated[
        float,
        Meta(description="Chance of versions that differ at least as much if people answer them in the same way"),
    ]
    estimates: Annotated[list[ValueShare], Meta(description="Estimates of the values")]


class Description(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric, independently of its reports."""

    trial: Annotated[bool, Meta(description="Whether everything is published at once, however few reports there are")]
    id: Annotated[str, Meta(description="Id of the metric")]
    type: Annotated[
        Literal["boolean", "categorical", "ordinal", "product", "string", "key", "number", "set"],
        Meta(description="Type of the answers"),
    ]
    version: Annotated[Count, Meta(description="Version of the metric")]
    description: Annotated[str, Meta(description="What is asked and why, in words")]
    owner: Annotated[str, Meta(description="Whom to ask about the metric")]
    expires: Annotated[date | None, Meta(description="Last day of collection, or null")]
    period_length: Annotated[str, Meta(extra_json_schema={"enum": [*LENGTHS]}, description="Length of a period")]
    domain_size: Annotated[int | None, Meta(description="Number of possible answers; null if they cannot be listed")]
    candidates: Annotated[int | None, Meta(description="Number of answers that are looked for; null if none are declared")]
    discover: Annotated[bool, Meta(description="Whether answers that nobody listed are searched for")]
    mechanism: Annotated[str, Meta(description="How answers are randomised")]
    epsilon: Annotated[float, Meta(description="Privacy loss of one report in nats")]
    epsilon_permanent: Annotated[
        float | None,
        Meta(description="Privacy loss of all reports of one answer; null for a metric whose reports are independent"),
    ]
    sample: Annotated[float, Meta(description="Share of the occasions on which a device reports")]
    min_reports: Annotated[Count, Meta(description="Fewest reports that a release rests on")]
    next_release: Annotated[Moment | None, Meta(description="When the next period closes; null if no release depends on it")]
    report_bytes: Annotated[Count, Meta(description="Bytes of a report")]


class Listed(Description, frozen=True, forbid_unknown_fields=True):
    """A metric in a list: its `Description`, and how much of it was published."""

    n: Annotated[Count, Meta(description="Reports in the releases of the version described")]
    updated: Annotated[Moment | None, Meta(description="The hour of the last release; null: nothing was published")]
    versions: Annotated[list[Version], Meta(description="Each version, the highest first")]


class Estimates(Description, frozen=True, forbid_unknown_fields=True):
    """A metric's `Description`, and what reports say of it."""

    n: Annotated[Count, Meta(description="Number of reports used")]
    target: Annotated[
        Literal["population"],
        Meta(
            description="Whose shares are estimated, with what error: those of the population that the respondents were drawn "
            "from. Over several periods it is the mean, each period weighted by its reports; the error holds also if the same "
            "people answered in all."
        ),
    ]
    detection_frequency: Annotated[
        Number,
        Meta(
            description="The share at which one more value would be detected half of the time; null if none would be, however "
            "many people hold it"
        ),
    ]
    unallocated: Annotated[
        Unallocated | None,
        Meta(
            description="The share that none of the candidates accounts for, or of what a search found; null if all answers are "
            "listed"
        ),
    ]
    association: Annotated[
        Association | None,
        Meta(description="For a product, whether its factors are associated; null if there are none, or if it cannot be tested"),
    ]
    lowered_by: Annotated[
        Number,
        Meta(
            description="The amount by which the consistent share of each value is below the unbiased one, as far as it is "
            "above 0; negative if it is above. Null for a set, whose shares need no whole, and where there are no shares."
        ),
    ]
    estimates: Annotated[
        list[ValueEstimate],
        Meta(
            description="Estimates of the values: of all of them, of the candidates, or of what was discovered; of a set of its "
            "options. Empty for a number."
        ),
    ]
    number: Annotated[
        NumberEstimate | None,
        Meta(description="What is estimated of a number, or of the mean of an ordinal; else null"),
    ]
    order: Annotated[
        OrderEstimate | None,
        Meta(
            description="What is estimated of an ordinal of which each value is estimated; else null. Null also without "
            "reports, or if its mechanism gives none."
        ),
    ]
    chosen: Annotated[Chosen | None, Meta(description="What is estimated of a set; else null")]


class Latest(Estimates, frozen=True, forbid_unknown_fields=True):
    """`Estimates` of what was published."""

    updated: Annotated[Moment | None, Meta(description="The hour of the last release; null: nothing was published")]
    included: Annotated[list[Span], Meta(description="The releases used")]
    versions: Annotated[list[Version], Meta(description="How much was published of each version, the highest first")]


class Measurement(Latest, frozen=True, forbid_unknown_fields=True):
    """The answer about one metric: `Latest`, and what else can be asked for."""

    level: Annotated[float, Meta(description="Confidence of the intervals, and of detection")]
    closed: Annotated[bool, Meta(description="Whether nothing more will be published for the periods included")]
    periods: Annotated[list[Span], Meta(description="All releases")]
    segments: Annotated[list[str], Meta(description="The cells that were published in the releases included")]
    period: Annotated[str | None, Meta(description="The period that was asked for; null: all")]
    segment: Annotated[str | None, Meta(description="The cell that was asked for; null: all reports")]
    warnings: Annotated[list[str], Meta(description="What to consider before passing this on")]
    merged: Annotated[
        Merged | None,
        Meta(description="One estimate of the values that versions have in common; null if fewer than two have any"),
    ]
