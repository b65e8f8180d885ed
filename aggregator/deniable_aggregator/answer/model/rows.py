"""The table that answers a query."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.fields import Count, EarlierNotes, Simulated, Trial
from deniable_aggregator.answer.model.query import Query

Kind = Literal["text", "integer", "number", "boolean", "time"]

COLUMNS: dict[str, tuple[Kind, str]] = {
    "metric": ("text", "id of the metric"),
    "version": ("integer", "the version that the row is of; null of several"),
    "period": ("text", "the last period of the release"),
    "time": ("time", "when the period begins, as in RFC 3339"),
    "from": ("text", "the first day, in UTC, of what the row rests on; null: from the beginning"),
    "to": ("text", "the last day, which may lie ahead while the last period is open"),
    "value": (
        "text",
        "the answer, as pages show it; of a number mean, geometric_mean, a quantile such as p50, or a range such as 200..500",
    ),
    "n": ("integer", "reports that the estimate rests on; of a set, those about the option"),
    "estimate": (
        "number",
        "unbiased estimate in the metric's unit, of a range its share; of the view consistent a possible share",
    ),
    "lowered_by": (
        "number",
        "of the view consistent, the amount that was taken off each share above 0; null of sets and numbers",
    ),
    "stderr": ("number", "its standard error; null of quantiles, and of a geometric mean"),
    "low": ("number", "low end of its interval"),
    "high": ("number", "high end"),
    "low_all": ("number", "low end of the interval that holds together with those of all rows of all pages"),
    "high_all": ("number", "high end"),
    "count": (
        "number",
        "unbiased number of reports whose answer it is: the estimate of all reports; null of numbers, but of a range",
    ),
    "count_low": ("number", "low end of its interval, which is that of the estimate"),
    "count_high": ("number", "high end"),
    "detected": ("boolean", "whether the value is present, tested over all values of the metric, time and segment"),
    "closed": ("boolean", "whether nothing more will be published for the row"),
    "state": ("text", "published, joined with a later period, withheld, or missing"),
    "reason": ("text", "why there is no estimate, or no difference or trend although one is asked for; null otherwise"),
    "mechanism": ("text", "how answers are randomised"),
    "epsilon": ("number", "privacy loss of one report in nats"),
    "base_from": ("text", "the first day of what the row is compared with; null: from the beginning"),
    "base_to": ("text", "the last day of what the row is compared with"),
    "difference": ("number", "the estimate less that compared with; on a logarithmic scale their ratio"),
    "diff_low": ("number", "low end of its interval"),
    "diff_high": ("number", "high end"),
    "diff_low_all": ("number", "low end of the interval that holds together with those of all differences of all pages"),
    "diff_high_all": ("number", "high end; beside the verdict of p_holm this interval stands"),
    "p": ("number", "chance of error at which the interval would just include no difference"),
    "p_holm": ("number", "the same for all differences of all pages together"),
    "trend": ("number", "rise in a period, of a line through the closed periods; on a logarithmic scale a factor"),
    "trend_low": ("number", "low end of its interval"),
    "trend_high": ("number", "high end"),
}
"""The columns besides those of segments: type and meaning."""

Cell = str | int | float | bool | None


class RowColumn(Struct, frozen=True, forbid_unknown_fields=True):
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
    trial: Trial
    simulated: Simulated
    earlier: EarlierNotes
    query: Annotated[Query, Meta(description="The query, with what was not given")]
    metrics: Annotated[list[About], Meta(description="What the metrics of the query are")]
    columns: Annotated[list[RowColumn], Meta(description="The columns of the rows, in order")]
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
