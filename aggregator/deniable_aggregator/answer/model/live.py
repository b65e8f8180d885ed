"""What is counted, published or not."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.fields import Count, Moment, Trial
from deniable_aggregator.answer.model.metric import Description, Estimates

_AsOf = Annotated[
    Moment | None,
    Meta(description="When the copies were made that this shows; null: none was made yet, or a trial, which needs none"),
]
_NextCopy = Annotated[Moment | None, Meta(description="When the next copies are due; null: as above")]
_Refused = dict[str, Count]  # reports by the code for which they were refused


class Alarm(Struct, frozen=True, forbid_unknown_fields=True):
    """An alarm: reports of a metric that look made up."""

    metric: Annotated[str, Meta(description="Id of the metric")]
    version: Annotated[Count, Meta(description="Version of the metric")]
    test: Annotated[
        str,
        Meta(
            extra_json_schema={"enum": ["weight", "row", "cell", "set", "value", "volume", "share"]},
            description="The test that the reports fail",
        ),
    ]
    p_value: Annotated[
        float | None,
        Meta(description="Greatest probability of such an alarm among honest reports; null if no distribution gives it"),
    ]
    period: Annotated[str, Meta(description="Period of the reports that it is about")]
    segment: Annotated[str | None, Meta(description="Segment of the reports that it is about; null: all together")]
    n: Annotated[Count, Meta(description="Reports that were tested")]
    what: Annotated[str, Meta(description="What was found, in words")]
    values: Annotated[list[str], Meta(description="Some of the values that it is about")]
    influence: Annotated[float, Meta(description="By how many reports one made-up report can raise the count of a value")]
    since: Annotated[Moment, Meta(description="The hour in which it was first raised")]


class StratumCount(Struct, frozen=True, forbid_unknown_fields=True):
    """How many reports are counted."""

    period: Annotated[str, Meta(description="Period of the reports")]
    segment: Annotated[str | None, Meta(description="Segment of the reports; null: the metric has none")]
    n: Annotated[Count, Meta(description="Reports that are counted")]


class RefusedDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """Reports that were refused, and made for a version or a definition that the registry does not have."""

    metric: Annotated[str, Meta(description="Id of the metric")]
    version: Annotated[int | None, Meta(description="Version that they were made for; null: of all others together")]
    definition: Annotated[str | None, Meta(description="Fingerprint of the definition that they were made for; null: as above")]
    code: Annotated[str, Meta(description="Why they were refused")]
    n: Annotated[Count, Meta(description="Reports refused in the last days")]
    until: Annotated[str | None, Meta(description="Last period that was published of this definition; null: none was")]


class LiveMetric(Description, frozen=True, forbid_unknown_fields=True):
    """A metric's `Description`, and what is counted of it, published or not."""

    live: Annotated[Literal[True], Meta(description="Always true: this is no release")]
    n: Annotated[
        Count | None,
        Meta(description="Reports that are counted, and no fewer than are published; null: no copy was made yet"),
    ]
    unpublished: Annotated[Count, Meta(description="Reports that are counted and in no release yet")]
    refused: Annotated[_Refused, Meta(description="Reports refused in the last days, by reason")]


class LiveMeasurement(Estimates, frozen=True, forbid_unknown_fields=True):
    """`Estimates` from what is counted, published or not."""

    live: Annotated[Literal[True], Meta(description="Always true: this is no release")]
    as_of: _AsOf
    next_copy: _NextCopy
    unpublished: Annotated[Count, Meta(description="Reports that are counted and in no release yet")]
    refused: Annotated[_Refused, Meta(description="Reports refused in the last days, by reason")]
    level: Annotated[float, Meta(description="Confidence of the intervals, and of detection")]
    period: Annotated[str | None, Meta(description="The period asked for; null: all")]
    periods: Annotated[list[str], Meta(description="Periods with reports that are counted")]
    counts: Annotated[list[StratumCount], Meta(description="Reports by period and segment")]
    alarms: Annotated[list[Alarm], Meta(description="Alarms: reports that look made up")]


class Live(Struct, frozen=True, forbid_unknown_fields=True):
    """What is counted of an app, published or not."""

    app: Annotated[str, Meta(description="Name of the app")]
    trial: Trial
    live: Annotated[Literal[True], Meta(description="Always true: this is no release")]
    as_of: _AsOf
    next_copy: _NextCopy
    backlog: Annotated[Count, Meta(description="Batches that are not counted yet")]
    refused: Annotated[
        _Refused,
        Meta(description="Refused reports of metrics that are not declared, in the last days, by reason"),
    ]
    made_for: Annotated[
        list[RefusedDefinition],
        Meta(description="Reports refused for the version or the definition that they were made for, the most first"),
    ]
    metrics: Annotated[
        list[LiveMetric],
        Meta(description="The highest version of each metric, and others with reports that are counted"),
    ]
    alarms: Annotated[list[Alarm], Meta(description="Alarms: reports that look made up")]
    faults: Annotated[dict[str, str], Meta(description="Tasks that fail in workers, with the kind of error")]
