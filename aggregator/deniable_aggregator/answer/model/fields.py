"""Kinds of fields that many answers have."""

from __future__ import annotations

from datetime import datetime
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
