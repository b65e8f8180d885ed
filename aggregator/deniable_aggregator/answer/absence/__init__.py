"""Why nothing is published of what was asked for, and what is nearest to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.registry.period import bounds
from deniable_aggregator.answer.figures import listed, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.fields import Span


def nearest(period: str, spans: Sequence[Span]) -> list[Span]:
    """Return what is published last before a period, and first after it; each if there is any."""
    return [*[span for span in spans if span.last < period][-1:], *[span for span in spans if span.last > period][:1]]


def unpublished(
    metric: str,  # its id
    part: str = "this segment",  # of which there is nothing
) -> str:
    """Say that something of a metric is published, but not this part."""
    return f"nothing of {metric} is published of {part}"


def why_absent(
    metric: str,  # its id
    period: str | None,  # that was asked for
    spans: Sequence[Span],  # what is published of other periods, in order
    length: str,  # of a period
    awaited: str,  # when the first release is due, in words; empty if something else of the metric is published
) -> str:
    """Say why nothing is published of a period, or of all; and where something is."""
    if not spans and awaited:
        return f"nothing of {metric} is published yet: {awaited}"
    if period is None or not spans:
        return unpublished(metric)
    begins, ends = bounds(period, length)
    now, name = datetime.now(UTC), moment(period, length)
    if begins > now:
        return f"{name} lies ahead, so nobody can have answered in it; last published is {moment(spans[-1].last, length)}"
    if period < spans[0].last:
        return f"{name} lies before the first {length} published, {moment(spans[0].last, length)}"
    near = [moment(span.last, length) for span in nearest(period, spans)]
    still = f"; the {length} is not over" if ends > now else ""
    return f"{unpublished(metric, name)}; nearest {'is' if len(near) == 1 else 'are'} {listed(near)}{still}"
