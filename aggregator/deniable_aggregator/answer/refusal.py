"""Why a metric is not measured: unknown period or cell, or a withheld cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from deniable.errors import ParameterError
from deniable.registry.period import bounds

if TYPE_CHECKING:
    from collections.abc import Collection as Some

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_aggregator.publish.breakdown import Breakdown


_SHOWN = 40  # characters of what was asked for


class Refusal(Exception):  # noqa: N818 - it is an answer
    """Base class of refusals. Each has a stable `code`."""

    code: ClassVar[str]

    def __init__(
        self,
        detail: str,  # the rule, and what to ask for instead
    ) -> None:
        super().__init__(detail)
        self.detail = detail

    @property
    def on_page(self) -> str:
        """The same for a reader of a page, who asks by links."""
        return self.detail


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
        rule: str,  # the rule alone
    ) -> None:
        super().__init__(detail)
        self.instead = instead
        self._rule = rule

    @property
    def on_page(self) -> str:
        """The rule alone."""
        return self._rule


class UnknownDimension(Refusal):
    """A metric has no such dimension."""

    code = "dimension"


class UnknownValue(Refusal):
    """A filter or a base names a value that a metric or a segment does not have."""

    code = "value"


class Summed(Refusal):
    """A filter asks for the sum of several cells."""

    code = "filter"


class IncompatibleMembers(Refusal):
    """Two members of the query exclude each other."""

    code = "query_conflict"


class QueryTooLarge(Refusal):
    """The query asks for more than is computed at once."""

    code = "query_too_large"


def check_period(metric: Metric, period: str) -> None:
    """Raise `UnknownPeriod` for a period that the metric does not have."""
    try:
        bounds(period, metric.period)
    except ParameterError as error:
        raise UnknownPeriod(f"{error.rule}; this is {period[:_SHOWN]!r}") from None


def read_cell(breakdown: Breakdown, cell: str) -> str:
    """Return a cell with its segments in the metric's order; raise `UnknownCell` if the metric has no such cell."""
    try:
        return breakdown.canonical(cell)
    except ParameterError as error:
        raise UnknownCell(error.rule) from None


def same(one: str) -> str:
    """Say that both sides of a comparison are one."""
    return f"both sides are the same, {one or 'all segments'}: choose two"


def overlap(one: str, other: str) -> str:
    """Say that two segments share people."""
    rule = "segments are compared if nobody can be in both at the same time"
    return f"{rule}, and people of {one or 'all segments'} may be in {other or 'all segments'}: choose two values of one segment"


def withheld(declared: Declared, breakdown: Breakdown, cell: str, published: Some[str]) -> WithheldCell:
    """Explain why a cell is withheld. The words are the same for few reports and for none."""
    instead = next((each for each in breakdown.coarser(cell) if each in published), "")
    detail = f"this segment is withheld: {why_withheld(declared)}; or ask for {instead or 'all segments'}"
    return WithheldCell(detail, instead or None, f"this segment is withheld: {withholding(declared)}")


def why_withheld(declared: Declared) -> str:
    """Say which rule withholds a cell, and how to ask about it all the same."""
    return f"{withholding(declared)}; how many it has, POST /api/v1/metrics/{declared.metric.id}/withheld tells with noise"


def withholding(declared: Declared) -> str:
    """Say which rule withholds a cell."""
    part = declared.mechanism.part
    rests = f"each {part} that is published rests" if part else "what is published rests"
    return f"{rests} on {declared.metric.min_reports} reports (min_reports), and nothing computed from it on fewer"
