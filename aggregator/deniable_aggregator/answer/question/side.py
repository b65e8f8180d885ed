"""A side of a comparison over time: one period, or the whole periods within a longer time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from deniable.registry import period
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.question.date_range import JOINT, advice
from deniable_aggregator.answer.refusal import UnknownPeriod

_SHOWN = 40  # characters of what was asked for
_RANGE = "2026-10-01..2026-10-31"


class Side(NamedTuple):
    """The periods of a side, from the first to the last. Of one period both are the same."""

    first: str
    last: str
    words: str  # as people write it
    brief: str  # the same in few letters
    is_cut: bool = False  # whether other periods lie in it partly

    @property
    def span(self) -> tuple[str, str]:
        """The first and the last."""
        return self.first, self.last

    @property
    def is_one(self) -> bool:
        """Whether it is a single period."""
        return self.first == self.last


def side_of(
    text: str,  # a period of any length, or two joined by `..`
    length: str,  # of the metric's periods
    metric: str = "the metric",  # its id
) -> Side:
    """Read a side; raise `UnknownPeriod` if it is none, or has no whole period of the metric."""
    ends = text.split(JOINT)
    lengths = [period.length_of(end) for end in ends]
    too_many = len(ends) > 2  # noqa: PLR2004
    if not too_many and "" in lengths and (instead := advice(ends)):
        raise UnknownPeriod(f"{text[:_SHOWN]!r} is no time: {instead}")
    if too_many or "" in lengths:
        example = period.of(datetime.now(UTC), length)
        rule = f"write a side like {example}, of length {length}, or as a longer time, such as {_RANGE}"
        raise UnknownPeriod(f"{rule}; this is {text[:_SHOWN]!r}")
    begins, ends_at = period.bounds(ends[0], lengths[0])[0], period.bounds(ends[-1], lengths[-1])[1]
    if begins >= ends_at:
        raise UnknownPeriod(f"{ends[0]} is after {ends[-1]}: write the earlier one first")
    first, last = _whole_periods(begins, ends_at, length)
    if first > last:
        raise UnknownPeriod(f"no whole {length} lies in {text[:_SHOWN]}: {metric} is by {length}")
    is_cut = (period.bounds(first, length)[0], period.bounds(last, length)[1]) != (begins, ends_at)
    if len(ends) == 1:
        return Side(first, last, figures.moment(text, lengths[0]), figures.brief(text, lengths[0]), is_cut)
    if first == last:
        return Side(first, last, figures.moment(first, length), figures.brief(first, length), is_cut)
    words = figures.brief_range(first, last, length)
    return Side(first, last, words, words, is_cut)


def _whole_periods(begins: datetime, ends: datetime, length: str) -> tuple[str, str]:
    """Return the first and the last period that lie within some time as a whole."""
    first = period.of(begins, length)
    if period.bounds(first, length)[0] < begins:
        first = period.of(period.bounds(first, length)[1], length)
    last = period.of(ends - timedelta(microseconds=1), length)
    if period.bounds(last, length)[1] > ends:
        last = period.of(period.bounds(last, length)[0] - timedelta(microseconds=1), length)
    return first, last
