"""The series of a metric: its estimates period by period, and what changed. Nothing here reads what is not published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from deniable_aggregator.answer.model.fields import LEVEL
from deniable_aggregator.answer.model.series import Series
from deniable_aggregator.answer.over_time.numbers import number_lines
from deniable_aggregator.answer.over_time.periods import earlier_releases, estimate, is_over, join, last_periods, period_state
from deniable_aggregator.answer.over_time.sentence import change_in_words, trend_in_words
from deniable_aggregator.answer.over_time.shares import share_lines
from deniable_aggregator.answer.readings.number import range_of
from deniable_aggregator.answer.select import earlier_in_words
from deniable_aggregator.answer.versions import answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.over_time.changes import Look
    from deniable_aggregator.answer.question.date_range import DateRange
    from deniable_aggregator.answer.select import Published, Selection

__all__ = ["series"]


def series(
    published: Sequence[Published],  # its versions, the highest first; of a period the highest one with a release counts
    segment: str | None = None,  # the cell; None: all reports
    level: float = LEVEL,  # of the intervals
    *,
    dates: DateRange | None = None,  # which periods; None: all
    by: str = "",  # a longer period: all releases of one version in it are estimated together; empty: each alone
    look: Look = "all",  # for which changes is looked
) -> Series:
    """Estimate a metric in each of its last periods; raise the first `Refusal` if no version has a release of the cell."""
    # A metric's versions may have periods of other lengths, which are no part of one series.
    versions = [each for each in published if each.length == published[0].length]
    named: list[tuple[Published, str]] = []
    first, last = dates.names(published[0].length) if dates else ("", "~")

    def ask(version: Published) -> Selection:
        named.append((version, version.cell(segment)))
        return version.covering(named[-1][1])

    selections = answers(versions, ask, lambda selection: selection.releases)
    everything = {last: each for selection in reversed(selections) for last, each in selection.by_last.items()}
    by_last = {name: each for name, each in everything.items() if first <= name <= last}
    current, app = by_last[max(by_last)].declared if by_last else published[0].declared, published[0].app
    metric = current.metric
    length = metric.period
    ahead, partial = set[str](), set[str]()  # longer periods that go on, and those that the range cuts
    if by and by != length:
        everything, by_last = join(everything, length, by), join(by_last, length, by)
        ahead = {name for name in by_last if not is_over(name, everything, length, by)}
        partial = {name for name in by_last if dates and not dates.holds(name, by)}
        length, look = by, "none" if look == "none" else "unshifted"
    names = last_periods(current, by_last, length)
    unfinished = {at for at, name in enumerate(names) if name in ahead | partial}
    estimated = estimate([(at, by_last[name]) for at, name in enumerate(names) if name in by_last], unfinished)
    past = [] if metric.least_shift is None or look != "all" else estimate(earlier_releases(current, everything, names))
    lines_of = number_lines if metric.estimate else share_lines
    lines, left_out = lines_of(current, past, estimated, names, level, length=length, look=look)
    answer = Series(
        trial=app.trial,
        simulated=app.simulated,
        earlier=earlier_in_words(published),
        id=metric.id,
        version=metric.version,
        period_length=length,
        segment=next((cell for version, cell in named if version.declared is current), "") or None,
        level=level,
        target="population",
        unit=metric.unit,
        scale=metric.scale,
        range=range_of(metric),
        periods=[
            period_state(name, by_last, named if length == metric.period else [], is_over=name not in ahead) for name in names
        ],
        lines=lines,
        left_out=left_out,
        least_shift=None if metric.least_shift is None else float(metric.least_shift),
    )
    return replace(answer, says=change_in_words(answer), trend_says=trend_in_words(answer))
