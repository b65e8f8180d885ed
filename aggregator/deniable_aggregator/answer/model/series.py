"""What is answered of a metric over time: its periods, and a line of estimates for each value."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable.registry.metric import Value
from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.answer.model.fields import Count, Days, EarlierNotes, Interval, Number, Possible, Simulated, Span, Trial


class SeriesPeriod(Struct, frozen=True, forbid_unknown_fields=True):
    """What is told of a period."""

    period: Annotated[str, Meta(description="Name of the period")]
    state: Annotated[
        Literal["published", "joined", "withheld", "missing"],
        Meta(
            description="`published`; `joined` with the next one published, because it had too few reports; `withheld`, the "
            "cell that was asked for, while others are published; or `missing`, nothing is published"
        ),
    ]
    released: Annotated[Span | None, Meta(description="The periods that the release covers; null if nothing is published")]
    days: Annotated[Days | None, Meta(description="The days that the release covers; null if nothing is published")]
    version: Annotated[Count | None, Meta(description="The version that the estimates are of; null if nothing is published")]
    n: Annotated[Count, Meta(description="Reports of the period")]
    closed: Annotated[bool, Meta(description="Whether nothing more will be published for the period")]


class Point(Struct, frozen=True, forbid_unknown_fields=True):
    """An estimate of one period."""

    estimate: Annotated[Number, Meta(description="The estimate: unbiased, but for a median")]
    interval: Annotated[Interval, Meta(description="Pointwise interval; of a median its band")]
    simultaneous: Annotated[
        Interval,
        Meta(description="The interval that holds together with those of all other periods"),
    ]
    n: Annotated[Count, Meta(description="Reports that it rests on. Of a set these are the reports about the option.")]


class PeriodChange(Differing, frozen=True, forbid_unknown_fields=True):
    """What changed between the last closed period and one before."""

    since: Annotated[str, Meta(description="The period before")]
    last: Annotated[str, Meta(description="The last closed period")]


class Trend(Struct, frozen=True, forbid_unknown_fields=True):
    """The straight line through closed periods."""

    since: Annotated[str, Meta(description="The first of the closed periods")]
    last: Annotated[str, Meta(description="The last of the closed periods")]
    slope: Annotated[Number, Meta(description="The rise in a period. Of a number on a logarithmic scale it is the factor.")]
    interval: Annotated[
        Interval,
        Meta(description="Pointwise interval of the slope. It holds also if the same devices answered again."),
    ]
    simultaneous: Annotated[
        Interval,
        Meta(description="Interval of the slope that holds together with those of all other values shown"),
    ]
    p_value: Annotated[Number, Meta(description="Chance of error at which the pointwise interval would just include no rise")]
    differs: Annotated[bool, Meta(description="Whether it rises or falls, at the level for all values shown together (Holm)")]


class Shift(Struct, frozen=True, forbid_unknown_fields=True):
    """A shift: some closed periods whose mean lies beyond what those before and chance explain."""

    direction: Annotated[Literal["rose", "fell"], Meta(description="`rose` or `fell`")]
    single: Annotated[
        bool,
        Meta(
            description="Whether it is of one period alone so far: an unusual one, such as a holiday, and perhaps no lasting "
            "change. It is no more once two periods or more after it lie beyond chance together."
        ),
    ]
    begins: Annotated[str, Meta(description="The period in which it is thought to have begun")]
    seen: Annotated[str, Meta(description="The closed period with which it was seen. It is not taken back later.")]
    size: Annotated[
        Number,
        Meta(
            description="By how much the mean of the periods since differs from those before. Of a number on a logarithmic "
            "scale it is the factor."
        ),
    ]
    interval: Annotated[
        Interval,
        Meta(
            description="Interval of the size. Those of all shifts of a metric in 200 periods hold together with 95%, whichever "
            "level is asked for."
        ),
    ]


class BetweenPeriods(Struct, frozen=True, forbid_unknown_fields=True):
    """By how much periods differ beyond chance, although nothing lasting happened."""

    sd: Annotated[
        Number,
        Meta(
            description="Standard deviation of a period's difference from the usual; 0: chance explains all. Of a number on a "
            "logarithmic scale it is the factor."
        ),
    ]
    pairs: Annotated[Count, Meta(description="How many pairs of periods tell the deviation")]


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A value, or a mean or median, over the periods."""

    kind: Annotated[
        Literal["share", "mean", "geometric_mean", "median"],
        Meta(description="`share` of a value, `mean`, or `median`; `geometric_mean` on a logarithmic scale"),
    ]
    value: Annotated[Value | None, Meta(description="The answer exactly; null for a mean or a median")]
    label: Annotated[str, Meta(description="The line's name as it is shown")]
    points: Annotated[
        list[Point | None],
        Meta(description="One for each period; null where nothing is published, and where `left_out` says so"),
    ]
    change: Annotated[
        PeriodChange | None,
        Meta(
            description="Change between two periods of the version described; null if fewer than two are closed, "
            "and for a median of permanent responses"
        ),
    ]
    trend: Annotated[
        Trend | None,
        Meta(
            description="Trend over all closed periods of the version described; null if there are fewer than three, and for a "
            "median"
        ),
    ]
    shifts: Annotated[
        list[Shift],
        Meta(
            description="Shifts of the version described that were seen in these periods; empty for a median, and unless the "
            "metric declares `least_shift`"
        ),
    ] = []
    between: Annotated[
        BetweenPeriods | None,
        Meta(
            description="By how much periods differ beyond chance; null where shifts are not looked for, and where too few "
            "periods tell it"
        ),
    ] = None
    left_out: Annotated[
        str, Meta(description="Of which periods with reports the line has no points, and how to get them; empty where it has all")
    ] = ""


class Series(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric over time."""

    trial: Trial
    simulated: Simulated
    earlier: EarlierNotes
    id: Annotated[str, Meta(description="Id of the metric")]
    version: Annotated[Count, Meta(description="The version that change and trend are of: that of the last period")]
    period_length: Annotated[str, Meta(description="Length of a period")]
    segment: Annotated[str | None, Meta(description="The cell asked for; null: all reports")]
    level: Annotated[float, Meta(description="Confidence of the intervals")]
    target: Annotated[
        Literal["population"],
        Meta(description="Whose shares are estimated: those of the population that the respondents were drawn from"),
    ]
    unit: Annotated[str, Meta(description="Unit of a number; else empty")]
    scale: Annotated[Literal["linear", "log"], Meta(description="Scale of a number's axis; of other metrics `linear`")]
    range: Possible
    periods: Annotated[list[SeriesPeriod], Meta(description="The periods, one after the other, up to the last one published")]
    lines: Annotated[
        list[Line],
        Meta(
            description="Lines of values, or of a number the mean, and the median if it is estimated. Empty if answers are "
            "searched for: what a search finds differs from one period to the next."
        ),
    ]
    left_out: Annotated[Count, Meta(description="How many values have no line")]
    least_shift: Annotated[
        float | None,
        Meta(description="The smallest shift that counts, as declared; null if shifts are not looked for"),
    ] = None
    says: Annotated[
        str,
        Meta(
            description="What changed most between the last two closed periods that are alike, as pages print it: tested of all "
            "values together; a day is compared with that of the week before. Empty if fewer than two are published."
        ),
    ] = ""
    trend_says: Annotated[
        str,
        Meta(
            description="Which line rises or falls most, if any does beyond chance, as pages print it. Empty where too few "
            "periods are closed."
        ),
    ] = ""
