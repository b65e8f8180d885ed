"""What is answered of a metric: a description, and what reports say of it."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable.registry.period import LENGTHS
from deniable_aggregator.answer.model.experiment import Arm
from deniable_aggregator.answer.model.fields import Count, Days, Moment, Number, Simulated, Span, Trial
from deniable_aggregator.answer.model.number import NumberEstimate
from deniable_aggregator.answer.model.shares import (
    Association,
    Chosen,
    Leading,
    OrderEstimate,
    Unallocated,
    ValueEstimate,
    ValueShare,
)


class Version(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a version was published."""

    version: Annotated[Count, Meta(description="Number of the version")]
    expires: Annotated[date | None, Meta(description="Last day of collection, or null")]
    n: Annotated[Count, Meta(description="Reports in the version's releases")]
    updated: Annotated[Moment | None, Meta(description="The hour of the last release; null: nothing was published")]
    former: Annotated[
        bool, Meta(description="Whether a higher version replaced it in the registry: its reports are taken until `expires`")
    ]
    earlier: Annotated[Count, Meta(description="Reports published under earlier definitions of the version; not in `n`")]


class Description(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric, independently of its reports."""

    trial: Trial
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
    leading: Annotated[
        Leading | None,
        Meta(description="Which value is the most frequent one, or which ones may be; null of a number, and without reports"),
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


class Latest(Estimates, frozen=True, forbid_unknown_fields=True):
    """`Estimates` of what was published."""

    updated: Annotated[Moment | None, Meta(description="The hour of the last release; null: nothing was published")]
    included: Annotated[list[Span], Meta(description="The releases used")]
    days: Annotated[Days | None, Meta(description="The days that these releases cover; null without releases")]
    closed: Annotated[bool, Meta(description="Whether nothing more will be published for the periods included")]
    versions: Annotated[list[Version], Meta(description="How much was published of each version, the highest first")]


class Earlier(Estimates, frozen=True, forbid_unknown_fields=True):
    """`Estimates` of what was published under an earlier definition of a version, as it was described then."""

    definition: Annotated[str, Meta(description="Fingerprint of the earlier definition")]
    until: Annotated[str, Meta(description="Last period that was published of it")]
    says: Annotated[str, Meta(description="What these estimates are, in words")]
    updated: Annotated[Moment | None, Meta(description="The hour of its last release")]
    included: Annotated[list[Span], Meta(description="The releases used")]
    days: Annotated[Days | None, Meta(description="The days that these releases cover; null without releases")]


class Measurement(Latest, frozen=True, forbid_unknown_fields=True):
    """The answer about one metric: `Latest`, and what else can be asked for."""

    simulated: Simulated
    level: Annotated[float, Meta(description="Confidence of the intervals, and of detection")]
    periods: Annotated[list[Span], Meta(description="All releases")]
    segments: Annotated[list[str], Meta(description="The cells that were published in the releases included")]
    period: Annotated[str | None, Meta(description="The period that was asked for; null: all")]
    segment: Annotated[str | None, Meta(description="The cell that was asked for; null: all reports")]
    warnings: Annotated[list[str], Meta(description="What to consider before passing this on")]
    merged: Annotated[
        Merged | None,
        Meta(description="One estimate of the values that versions have in common; null if fewer than two have any"),
    ]
    earlier: Annotated[
        list[Earlier],
        Meta(
            description="What was published under earlier definitions of these versions, of all reports; never mixed with the "
            "other estimates. Empty where a segment is asked for."
        ),
    ]
    says: Annotated[
        str,
        Meta(
            description="The sentence with which pages begin: of these days, which value leads, or of a number its median or "
            "mean. Empty without reports."
        ),
    ]
    arms: Annotated[
        list[Arm],
        Meta(
            description="What pages say of the arms of this metric's experiments, all published reports or one period. Empty for "
            "a segment."
        ),
    ]
    reason: Annotated[
        str | None, Meta(description="Why there are no reports, and where some are, in words; null if there are any")
    ]
