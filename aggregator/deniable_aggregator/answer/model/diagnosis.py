"""Why nothing is published of a metric."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

State = Literal["holds", "fails", "waits", "unknown"]


class Condition(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that must hold before anything is published of a metric."""

    name: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["collected", "uploads", "accepted", "counted", "enough", "due"]},
            description="Which condition it is",
        ),
    ]
    state: Annotated[State, Meta(description="Whether it holds; `unknown` where the answer would itself tell of people")]
    says: Annotated[str, Meta(description="What is known of it, in a sentence")]
    remedy: Annotated[str, Meta(description="What to do, if it fails; else empty")]


class Diagnosis(Struct, frozen=True, forbid_unknown_fields=True):
    """Why nothing is published of a metric."""

    says: Annotated[str, Meta(description="The cause, in a sentence")]
    cause: Annotated[str, Meta(description="The first condition that fails; `due` if none does; empty if something is published")]
    conditions: Annotated[list[Condition], Meta(description="What must hold, in order")]
