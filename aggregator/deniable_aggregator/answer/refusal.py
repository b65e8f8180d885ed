"""Why a metric is not measured: unknown period or cell, or a withheld cell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from deniable.errors import ParameterError
from deniable.registry.period import bounds

if TYPE_CHECKING:
    from collections.abc import Collection as Some

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.publish.breakdown import Breakdown


class Refusal(Exception):  # noqa: N818 - it is an answer
    """Base class of refusals. Each has a stable `code`."""

    code: ClassVar[str]

    def __init__(
        self,
        detail: str,  # the rule, and what to ask for instead
    ) -> None:
        super().__init__(detail)
        self.detail = detail


class UnknownPeriod(Refusal):
    """The metric has no such period."""

    code = "period"


class UnknownCell(Refusal):
    """The metric has no such cell."""

    code = "segment"


class Incomparable(Refusal):
    """The two sides cannot be compared."""

    code = "incomparable"


class WithheldCell(Refusal):
    """The cell is withheld."""

    code = "withheld"

    def __init__(
        self,
        detail: str,  # the rule, and what to ask for instead
        instead: str | None,  # the nearest cell that is published; None: all reports
    ) -> None:
        super().__init__(detail)
        self.instead = instead


def check_period(metric: Metric, period: str) -> None:
    """Refuse a period that the metric does not have.

    Raises
    ------
    UnknownPeriod
        If the metric has no such period.
    """
    try:
        bounds(period, metric.period)
    except ParameterError as error:
        raise UnknownPeriod(error.rule) from None


def read_cell(breakdown: Breakdown, cell: str) -> str:
    """Return a cell with its segments in the metric's order.

    Raises
    ------
    UnknownCell
        If the metric has no such cell.
    """
    try:
        return breakdown.canonical(cell)
    except ParameterError as error:
        raise UnknownCell(error.rule) from None


def withheld(declared: Declared, breakdown: Breakdown, cell: str, published: Some[str]) -> WithheldCell:
    """Explain why a cell is withheld. The words are the same for few reports and for none."""
    instead = next((each for each in breakdown.coarser(cell) if each in published), "")
    least = declared.metric.min_reports
    part = declared.mechanism.part
    rests = f"each {part} that is published rests" if part else "what is published rests"
    rule = f"{rests} on {least} reports, and nothing computed from it on fewer: this segment is withheld"
    return WithheldCell(f"{rule}; ask for {instead or 'all segments'}", instead or None)


def next_release(app: Collection, declared: Declared) -> datetime | None:
    """Return when the next period closes; None if no release depends on it: in a trial, or once collection has ended."""
    metric = declared.metric
    name = metric.next_to_close(datetime.now(UTC))
    begins, _ = bounds(name, metric.period)
    return None if app.trial or metric.expired(begins.date()) else metric.closes(name)


def awaited(app: Collection, declared: Declared) -> str:
    """Say how many reports the next release needs, and when it is due. The words do not depend on how many came."""
    least, due = declared.metric.min_reports, next_release(app, declared)
    if due is None:
        return "everything is published at once" if app.trial else "collection has ended"
    steps = app.registry.publication.early and not declared.metric.segments
    before = f", or earlier once there are some {2 * declared.mechanism.needed(least):,}" if steps else ""
    needed = f"{declared.needed} {'are' if least > 1 else 'is'} needed"
    wait = "" if declared.metric.permanent else f"; fewer wait for those of the next {declared.metric.period}"
    return f"{needed}, and the next release is due {due:%Y-%m-%d %H:%M} UTC{before}{wait}"
