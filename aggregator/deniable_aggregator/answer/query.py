"""A query: what can be asked of metrics at once, and the table that answers it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.estimates import LEVEL
from deniable_aggregator.answer.measurement import Count
from deniable_aggregator.answer.refusal import Refusal

MOST_ROWS = 100_000
"""Most rows of an answer, over all its pages."""
_PAGE = 10_000
_MOST_METRICS, _MOST_DIMENSIONS = 10, 20
LEVELS = (0.5, 0.999999)
"""The least and the greatest confidence."""
RULES = {
    "level": f"level is a confidence between {LEVELS[0]:g} and {LEVELS[1]}",
    "metrics": f"metrics names 1 to {_MOST_METRICS} metrics",
}
"""What members of a query are, in words."""

Kind = Literal["text", "integer", "number", "boolean", "time"]

COLUMNS: dict[str, tuple[Kind, str]] = {
    "metric": ("text", "id of the metric"),
    "version": ("integer", "the version that the row is of; null of several"),
    "period": ("text", "the last period of the release"),
    "time": ("time", "when the period begins, as in RFC 3339"),
    "value": ("text", "the answer, as pages show it; of a number mean, or a quantile such as p50"),
    "n": ("integer", "reports that the estimate rests on; of a set, those about the option"),
    "estimate": ("number", "unbiased estimate in the metric's unit; of the view consistent a possible share"),
    "lowered_by": (
        "number",
        "of the view consistent, the amount that was taken off each share above 0; null of sets and numbers",
    ),
    "stderr": ("number", "its standard error; null of quantiles, and on a logarithmic scale"),
    "low": ("number", "low end of its interval"),
    "high": ("number", "high end"),
    "low_all": ("number", "low end of the interval that holds together with those of all rows of all pages"),
    "high_all": ("number", "high end"),
    "detected": ("boolean", "whether the value is present, tested over all values of the metric, time and segment"),
    "closed": ("boolean", "whether nothing more will be published for the row"),
    "state": ("text", "published, joined with a later period, withheld, or missing"),
    "mechanism": ("text", "how answers are randomised"),
    "epsilon": ("number", "privacy loss of one report in nats"),
    "difference": ("number", "the estimate less that compared with; on a logarithmic scale their ratio"),
    "diff_low": ("number", "low end of its interval"),
    "diff_high": ("number", "high end"),
    "p": ("number", "chance of error at which the interval would just include no difference"),
    "p_holm": ("number", "the same for all differences of all pages together"),
    "trend": ("number", "rise in a period, of a line through the closed periods; on a logarithmic scale a factor"),
    "trend_low": ("number", "low end of its interval"),
    "trend_high": ("number", "high end"),
}
"""The columns besides those of segments: type and meaning."""

_Text = Annotated[str, Meta(max_length=1000)]
Cell = str | int | float | bool | None


class UnknownDimension(Refusal):
    """A metric has no such dimension, or the dimension has no such value."""

    code = "dimension"


class Summed(Refusal):
    """A filter asks for the sum of several cells."""

    code = "filter"


class IncompatibleMembers(Refusal):
    """Two members of the query exclude each other."""

    code = "query_conflict"


class QueryTooLarge(Refusal):
    """The query asks for more than is computed at once."""

    code = "query_too_large"


class Filter(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What rows are wanted, such as ``["is", "platform", ["linux"]]``."""

    op: Annotated[Literal["is", "is_not"], Meta(description="`is` one of the values, or `is_not` any of them")]
    dimension: Annotated[_Text, Meta(description="`value`, or a segment")]
    values: Annotated[
        tuple[_Text, ...],
        Meta(min_length=1, max_length=1000, description="As they stand in the dimension's column"),
    ]


class CompareWith(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What each row is compared with: the row of another value of a segment, or of an earlier time."""

    dimension: Annotated[_Text | None, Meta(description="A segment")] = None
    base: Annotated[_Text | None, Meta(description="The segment's value that the others are compared with")] = None
    date_range: Annotated[
        Literal["previous"] | None,
        Meta(description="`previous`: the range of the same length before this one"),
    ] = None
    match: Annotated[
        Literal["weekday"] | None,
        Meta(
            description="`weekday`: the range before is moved on by whole weeks, so that each day is compared with the same day "
            "of a week"
        ),
    ] = None


class Page(Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows of the answer are sent."""

    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="How many rows at most")] = _PAGE
    offset: Annotated[int, Meta(ge=0, le=MOST_ROWS, description="How many rows are passed over")] = 0


class Query(Struct, frozen=True, forbid_unknown_fields=True):
    """A query about metrics."""

    metrics: Annotated[
        tuple[_Text, ...],
        Meta(min_length=1, max_length=_MOST_METRICS, description="Ids of metrics, or `metric@version`"),
    ]
    # With tuple[_Text, _Text] in this union, msgspec 0.22 reads freed memory.
    date_range: Annotated[
        Annotated[tuple[_Text, ...], Meta(min_length=2, max_length=2)] | _Text | None,
        Meta(
            description="The first and the last day in UTC, or two RFC 3339 times; or the last days, such as `30d`. Periods "
            "that begin in it are in it. Null: all."
        ),
    ] = None
    dimensions: Annotated[
        tuple[_Text, ...],
        Meta(
            max_length=_MOST_DIMENSIONS, description="What rows are broken down by: `time`, `value`, and segments of the metrics"
        ),
    ] = ("value",)
    filters: Annotated[
        tuple[Filter, ...],
        Meta(max_length=_MOST_DIMENSIONS, description="Rows that are wanted; all of them hold"),
    ] = ()
    compare: Annotated[CompareWith | None, Meta(description="What rows are compared with")] = None
    pool: Annotated[
        bool,
        Meta(
            description="Whether a row is of all versions that have releases, instead of the highest: of the values that mean "
            "the same in all"
        ),
    ] = False
    target: Annotated[
        Literal["population", "respondents"],
        Meta(
            description="Whose shares and means are estimated: of the population that respondents were drawn from, or of the "
            "respondents"
        ),
    ] = "population"
    view: Annotated[
        Literal["raw", "consistent"],
        Meta(
            description="`raw`: unbiased estimates. `consistent`: possible shares, for people to look at, with the raw intervals."
        ),
    ] = "raw"
    level: Annotated[
        float,
        Meta(ge=LEVELS[0], le=LEVELS[1], description="Confidence of the intervals, and of what is detected"),
    ] = LEVEL
    include: Annotated[
        tuple[Literal["trend"], ...],
        Meta(max_length=1, description="`trend`: the slope of a line through the closed periods"),
    ] = ()
    pagination: Annotated[
        Page | None,
        Meta(description="Which rows are sent; null: the first 10,000 as JSON, and all of them in other formats"),
    ] = None


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of an answer."""

    name: Annotated[str, Meta(description="The column's name in each row")]
    type: Annotated[Kind, Meta(description="Type of the column's values, which may all be null")]
    meaning: Annotated[str, Meta(description="What the column's values say")]


class About(Struct, frozen=True, forbid_unknown_fields=True):
    """What is told of a metric beside its rows."""

    id: Annotated[str, Meta(description="Id of the metric")]
    type: Annotated[str, Meta(description="Type of the answers")]
    description: Annotated[str, Meta(description="What is asked and why, in words")]
    period_length: Annotated[str, Meta(description="Length of a period")]
    unit: Annotated[str, Meta(description="Unit of the estimates: `share`, or of a number its unit")]
    scale: Annotated[
        Literal["linear", "log"],
        Meta(description="`log`: means are geometric, differences are ratios, and slopes are factors"),
    ]


class Rows(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a query."""

    app: Annotated[str, Meta(description="The app's name")]
    trial: Annotated[bool, Meta(description="Whether everything is published at once, however few reports there are")]
    query: Annotated[Query, Meta(description="The query, with what was not given")]
    metrics: Annotated[list[About], Meta(description="What the metrics of the query are")]
    columns: Annotated[list[Column], Meta(description="The columns of the rows, in order")]
    total: Annotated[Count, Meta(description="Rows on all pages")]
    next: Annotated[Count | None, Meta(description="The offset of the next page; null: this is the last one")]
    releases: Annotated[
        str,
        Meta(
            description="A text that changes with the releases, and with the registry. Pages that have the same one belong "
            "together."
        ),
    ]
    rows: Annotated[list[dict[str, Cell]], Meta(description="The rows of the page")]
