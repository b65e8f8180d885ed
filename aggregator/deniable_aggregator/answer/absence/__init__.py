"""Why nothing is published of what was asked for, and what is nearest to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.registry.period import bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.fields import Span


def nearest(period: str, spans: Sequence[Span]) -> list[Span]:
    """Return what is published last before a period, and first after it; each if there is any."""
    return [*[span for span in spans if span.last < period][-1:], *[span for span in spans if span.last > period][:1]]


def why_absent(
    metric: str,  # its id
    period: str | None,  # that was asked for
    spans: Sequence[Span],  # what is published of other periods, in order
    length: str,  # of a period
    awaited: str,  # when the next release is due, in words
) -> str:
    """Say why nothing is published of a period, or of all; and where something is."""
    if not spans:
        return f"nothing of {metric} is published yet: {awaited}"
    if period is None:
        return f"nothing of {metric} is published of this segment"
    begins, ends = bounds(period, length)
    now = datetime.now(UTC)
    if begins > now:
        return f"{period} lies ahead, so nobody can have answered in it; the last {length} published is {spans[-1].last}"
    if period < spans[0].last:
        return f"{period} lies before the first {length} published, {spans[0].last}"
    still = f"; the {length} is not over" if ends > now else ""
    return f"nothing of {metric} is published of {period}; nearest {_named(nearest(period, spans))}{still}"


def _named(spans: Sequence[Span]) -> str:
    return f"{'is' if len(spans) == 1 else 'are'} {' and '.join(span.last for span in spans)}"
