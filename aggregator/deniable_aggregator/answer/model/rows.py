"""The table that answers a query."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.fields import Count, EarlierNotes, Moment, Possible, Simulated, Trial
from deniable_aggregator.answer.model.query import Query

Kind = Literal["text", "integer", "number", "boolean", "date", "time"]

COLUMNS: dict[str, tuple[Kind, str]] = {
    "metric": ("text", "id of the metric"),
    "version": ("integer", "version of the metric; null if the row is about several versions"),
    "period": ("text", "the last period of the release, such as 2026-W47"),
    "time": ("time", "when the period begins, in UTC"),
    "from": ("date", "the first day, in UTC, of the reports that the row rests on; null: from the beginning"),
    "to": ("date", "the last of these days, which may be in the future while the last period is open"),
    "value": ("text", "the answer, as pages show it; for a number a figure such as mean or p50, or a range such as 200..500"),
    "n": ("integer", "number of reports behind the estimate; for a set, of the reports about the option"),
    "estimate": ("number", "unbiased estimate, in its unit; in the view consistent a possible share"),
    "unit": ("text", "unit of the estimate: share (1 is all), position, or what a number counts; null without an estimate"),
    "lowered_by": ("number", "what the view consistent subtracted from each share above 0; null for sets and numbers"),
    "stderr": ("number", "standard error of the estimate; null for quantiles and for a geometric mean"),
    "low": ("number", "low end of the interval of the estimate, which holds for a row chosen before looking"),
    "high": ("number", "high end of this interval"),
    "level": ("number", "confidence of the intervals, such as 0.95"),
    "low_all": ("number", "low end of the interval that holds for all rows of the answer together"),
    "high_all": ("number", "high end of this interval"),
    "count": ("number", "estimated number of reports with this answer; null for a number, except for a range of it"),
    "count_low": ("number", "low end of the interval of count, which is that of the estimate"),
    "count_high": ("number", "high end of this interval"),
    "detected": (
        "boolean",
        "whether anybody has the value, tested with all values of the metric, time and segment; whether a figure is resolved",
    ),
    "closed": ("boolean", "whether nothing more will be published for the row"),
    "state": ("text", "published; joined (with a later period); withheld; or missing"),
    "reason": ("text", "why there is no estimate, or no difference or trend although one is asked for; null otherwise"),
    "note": ("text", "what to consider when you read the estimate, such as how a range was rounded; null otherwise"),
    "mechanism": ("text", "how answers are randomised"),
    "epsilon": ("number", "privacy loss of one report, in nats"),
    "base_from": ("date", "the first day of what the row is compared with; null: from the beginning"),
    "base_to": ("date", "the last of these days"),
    "difference": ("number", "the estimate minus the estimate of the base; on a logarithmic scale, their ratio"),
    "diff_low": ("number", "low end of the interval of the difference, which holds for a row chosen before looking"),
    "diff_high": ("number", "high end of this interval"),
    "diff_low_all": ("number", "low end of the interval that holds for all tested differences together"),
    "diff_high_all": ("number", "high end of this interval, which belongs to p_holm"),
    "p_value": ("number", "p-value of the difference, for a row chosen before looking"),
    "p_holm": ("number", "p-value for all differences tested together (Holm): those of the answer, or of an experiment"),
    "differs": ("boolean", "whether there is a difference, by p_holm at the level"),
    "trend": (
        "number",
        "slope of a line through the closed periods: the rise in one period; on a logarithmic scale, a factor",
    ),
    "trend_low": ("number", "low end of the interval of the trend"),
    "trend_high": ("number", "high end of this interval"),
}
"""The columns besides those of segments: type and meaning."""

ASKED: dict[str, tuple[str, ...]] = {
    "time": ("period", "time"),
    "value": ("value",),
    "view": ("lowered_by",),
    "compare": (
        "base_from",
        "base_to",
        "difference",
        "diff_low",
        "diff_high",
        "diff_low_all",
        "diff_high_all",
        "p_value",
        "p_holm",
        "differs",
    ),
    "include": ("trend", "trend_low", "trend_high"),
}
"""Columns that an answer has only if they are asked for: by a dimension, or by a member of the query."""

Cell = str | int | float | bool | None
_SHARE, _POSITION = "share", "position"


def unit_of(unit: str, *, is_share: bool) -> str:
    """Return what stands in the column of units, of an estimate of a metric with a unit, or with none."""
    return _SHARE if is_share else unit or _POSITION


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
    range: Possible
    segments: Annotated[list[str], Meta(description="What rows can be broken down by, besides time and value")]
    updated: Annotated[
        Moment | None,
        Meta(description="The hour of the last release that its rows rest on; null: there is none"),
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
    together: Annotated[
        str | None,
        Meta(description="Which differences are tested together, in words; empty without any, and null if none are asked for"),
    ]
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
