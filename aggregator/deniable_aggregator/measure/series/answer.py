"""What is answered of a metric over time: its periods, and a line of estimates for each value."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from deniable.registry.metric import Value
from deniable_aggregator.measure.differing import Differing
from deniable_aggregator.measure.measurement import Count, Number, Span

__all__ = ["Change", "Line", "Point", "Series", "Shift", "Told", "Trend"]


class Told(Struct, frozen=True, forbid_unknown_fields=True):
    """What is told of a period.

    Parameters
    ----------
    period
        Its name.
    state
        ``"published"``; ``"joined"`` with the next one published, because it had too few reports; ``"withheld"``, the cell that
        was asked for, while others are published; or ``"missing"``, nothing is published.
    released
        The periods that the release covers; None if it is not published.
    version
        The version that the estimates are of; likewise None.
    n
        Its reports.
    closed
        Whether nothing more will be published for it.
    """

    period: str
    state: Literal["published", "joined", "withheld", "missing"]
    released: Span | None
    version: Count | None
    n: Count
    closed: bool


class Point(Struct, frozen=True, forbid_unknown_fields=True):
    """An estimate of one period.

    Parameters
    ----------
    estimate
        Unbiased, but for a median.
    interval
        Its pointwise interval; of a median its band.
    simultaneous
        The interval that holds together with those of all other periods.
    n
        Reports that it rests on. Of a set these are the reports about the option.
    """

    estimate: Number
    interval: tuple[Number, Number]
    simultaneous: tuple[Number, Number]
    n: Count


class Change(Differing, frozen=True, forbid_unknown_fields=True):
    """What changed between the last closed period and one before.

    Parameters
    ----------
    since, last
        The two periods.
    first, second, difference, interval, simultaneous, p_value, differs
        As of `Differing`; the first is that of `since`.
    """

    since: str
    last: str


class Trend(Struct, frozen=True, forbid_unknown_fields=True):
    """The straight line through closed periods.

    Parameters
    ----------
    since, last
        The first and the last one.
    slope
        The rise in a period. Of a number on a logarithmic scale it is the factor.
    interval
        Its pointwise interval. It holds also if the same devices answered again.
    simultaneous
        The interval that holds together with those of all other values shown.
    """

    since: str
    last: str
    slope: Number
    interval: tuple[Number, Number]
    simultaneous: tuple[Number, Number]


class Shift(Struct, frozen=True, forbid_unknown_fields=True):
    """A shift: some closed periods whose mean lies beyond what those before and chance explain.

    Parameters
    ----------
    direction
        ``"rose"`` or ``"fell"``.
    single
        Whether it is of one period alone so far: an unusual one, such as a holiday, and perhaps no lasting change. It is no more
        once two periods or more after it lie beyond chance together.
    begins
        The period in which it is thought to have begun.
    seen
        The closed period with which it was seen. It is not taken back later.
    size
        By how much the mean of these periods differs from those before. Of a number on a logarithmic scale it is the factor.
    interval
        Its interval. Those of all shifts of a metric in 200 periods hold together with 95%, whichever level is asked for.
    """

    direction: Literal["rose", "fell"]
    single: bool
    begins: str
    seen: str
    size: Number
    interval: tuple[Number, Number]


class BetweenPeriods(Struct, frozen=True, forbid_unknown_fields=True):
    """By how much periods differ beyond chance, although nothing lasting happened.

    Parameters
    ----------
    sd
        Standard deviation of a period's difference from the usual; 0: chance explains all. Of a number on a logarithmic scale it
        is the factor.
    pairs
        How many pairs of periods tell it.
    """

    sd: Number
    pairs: Count


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A value, or a mean or median, over the periods.

    Parameters
    ----------
    kind
        ``"share"`` of a value, ``"mean"``, or ``"median"``.
    value
        The answer exactly; None of a mean or median.
    label
        As it is shown.
    points
        One for each period; None where there is no estimate.
    change
        Between two periods of the version described; None if fewer than two are closed, and of a median.
    trend
        Over all its closed periods; None if there are fewer than three, and of a median.
    shifts
        Of the version described, those seen in these periods; none of a median, and unless the metric declares `least_shift`.
    between
        By how much periods differ beyond chance; None where shifts are not looked for, and where too few periods tell it.
    """

    kind: Literal["share", "mean", "median"]
    value: Value | None
    label: str
    points: list[Point | None]
    change: Change | None
    trend: Trend | None
    shifts: list[Shift] = []
    between: BetweenPeriods | None = None


class Series(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric over time.

    Parameters
    ----------
    trial
        Whether everything is published at once, however few reports there are.
    id
        The metric.
    version
        The version that change and trend are of: that of the last period.
    period_length
        Its collection window.
    segment
        The cell asked for; None: all reports.
    level
        Confidence of the intervals.
    target
        As of `Estimates`.
    unit, scale
        Of a number; else an empty unit, and ``"linear"``.
    periods
        One after the other, to the last one published.
    lines
        Values, or of a number the mean, and the median if it is estimated. None if answers are searched for: what a search finds
        differs from one period to the next.
    left_out
        How many values are not among them.
    least_shift
        As declared: the smallest shift that counts; None if shifts are not looked for.
    """

    trial: bool
    id: str
    version: Count
    period_length: str
    segment: str | None
    level: float
    target: Literal["population"]
    unit: str
    scale: Literal["linear", "log"]
    periods: list[Told]
    lines: list[Line]
    left_out: Count
    least_shift: float | None = None
