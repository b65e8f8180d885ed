"""A query: what can be asked of several metrics at once."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.fields import LEVEL

MOST_ROWS = 100_000
"""Most rows of an answer, over all its pages."""
_PAGE = 10_000
_MOST_METRICS, _MOST_DIMENSIONS = 10, 20
LEVELS = (0.5, 0.999999)
"""The least and the greatest confidence."""
RULES = {
    "metrics": f'a list of 1 to {_MOST_METRICS} ids, such as ["ui.theme"]',
    "date_range": 'a range such as "30d" or "2026-W47", or a list of two, such as ["2026-10-01", "2026-11-20"]',
    "dimensions": f'a list of at most {_MOST_DIMENSIONS} names, such as ["time", "value"]',
    "filters": 'a list of filters, such as [["is", "platform", ["linux"]]] or [["is_not", "value", ["dark"]]]',
    "compare": 'an object, such as {"dimension": "platform", "base": "linux"} or {"date_range": "previous"}',
    "pool": "true or false",
    "target": '"population" or "respondents"',
    "view": '"raw" or "consistent"',
    "level": f"a confidence between {LEVELS[0]:g} and {LEVELS[1]}",
    "include": 'a list, such as ["trend"]',
    "pagination": 'an object, such as {"limit": 1000, "offset": 0}',
    "limit": f"a whole number from 1 to {MOST_ROWS:,}",
    "offset": f"a whole number from 0 to {MOST_ROWS:,}",
}
"""What each member of a query is, in words, and each of its pagination."""


def meant_level(text: str) -> str:
    """Ask whether a level that is none was meant in percent; empty if it was not."""
    try:
        level = float(text.removesuffix("%")) / 100
    except ValueError:
        return ""
    return f"; did you mean {level:.12g}?" if LEVELS[0] <= level <= LEVELS[1] else ""


_Text = Annotated[str, Meta(max_length=1000)]


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
    base: Annotated[_Text | None, Meta(description="The value of the segment that each other value is compared with")] = None
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
            description="The last days or weeks, such as `30d` or `12w`; or a day, a week or a month in UTC, such as `2026-W47`; "
            "or two of them, such as `2026-10-01..2026-11-20` or a list of both; or two RFC 3339 times. "
            "Periods that overlap it are in it. Null: all."
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
