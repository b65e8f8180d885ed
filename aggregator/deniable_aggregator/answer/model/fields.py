"""Kinds of fields that many answers have."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

LEVEL = 0.95
"""Default confidence level of intervals."""

Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]
# nan without reports; JSON writes it as null, so the schema says this.
if TYPE_CHECKING:
    Number = float
else:
    Number = float | None
Interval = tuple[Number, Number]


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """The periods that a release covers."""

    first: Annotated[str | None, Meta(description="First period; null: from the beginning")]
    last: Annotated[str, Meta(description="Last period")]


class Days(Struct, frozen=True, forbid_unknown_fields=True, rename={"first": "from", "last": "to"}):
    """The days, in UTC, on which periods began and ended."""

    first: Annotated[date | None, Meta(description="First day; null: from the beginning")]
    last: Annotated[date, Meta(description="Last day, which may lie ahead while the last period is open")]
