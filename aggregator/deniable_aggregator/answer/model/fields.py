"""Kinds of fields that many answers have."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from deniable.registry.period import bounds

LEVEL = 0.95
"""Default confidence level of intervals."""

Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]
# nan without reports; JSON writes it as null, so the schema says this.
if TYPE_CHECKING:
    from collections.abc import Sequence

    Number = float
else:
    Number = float | None
Interval = tuple[Number, Number]
Possible = Annotated[
    tuple[float, float],
    Meta(description="The least and the greatest answer that is possible: of shares 0 and 1, of positions 1 and their number"),
]
Trial = Annotated[bool, Meta(description="Whether everything is published at once, however few reports there are")]
Simulated = Annotated[
    str | None,
    Meta(description="The days for which reports of simulated people are among these (`deniable simulate --send`), or null"),
]
EarlierNotes = Annotated[
    list[str], Meta(description="What was published under earlier definitions of these versions, and is not in these numbers")
]


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """The periods that a release covers."""

    first: Annotated[str | None, Meta(description="First period; null: from the beginning")]
    last: Annotated[str, Meta(description="Last period")]


class Days(Struct, frozen=True, forbid_unknown_fields=True, rename={"first": "from", "last": "to"}):
    """The days, in UTC, on which periods began and ended."""

    first: Annotated[date | None, Meta(description="First day; null: from the beginning")]
    last: Annotated[date, Meta(description="Last day, which may lie ahead while the last period is open")]


def days_of(
    spans: Sequence[Span],
    length: str,  # of a period
) -> Days | None:
    """Return the days that some releases cover; None of none."""
    if not spans:
        return None
    first = None if any(span.first is None for span in spans) else min(str(span.first) for span in spans)
    _, end = bounds(max(span.last for span in spans), length)
    return Days(bounds(first, length)[0].date() if first else None, (end - timedelta(microseconds=1)).date())


def so_far(
    days: Days | None,
    at: datetime | None,  # when it was published; None without a release
) -> Days | None:
    """Return days without those of an open period that had not come when it was published: sentences name none of them."""
    if days is None or at is None or days.last <= at.date():
        return days
    return Days(days.first, max(at.date(), days.first or at.date()))


def in_words(days: Days | None) -> str:
    """Write between which days something is."""
    if days is None:
        return "at any time"
    if days.first == days.last:
        return f"on {days.last}"
    return f"{f'from {days.first}' if days.first else 'from the beginning'} to {days.last}"
