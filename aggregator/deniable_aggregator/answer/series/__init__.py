"""The series of a metric: its estimates period by period, and what changed. Nothing here reads what is not published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.answer.estimates import LEVEL
from deniable_aggregator.answer.refusal import read_cell
from deniable_aggregator.answer.series.model import Series
from deniable_aggregator.answer.series.numbers import number_lines
from deniable_aggregator.answer.series.released import before, find, read, shown, told
from deniable_aggregator.answer.series.shares import share_lines
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.collection import Collection

__all__ = ["series"]


def series(app: Collection, asked: Sequence[Declared], segment: str | None = None, level: float = LEVEL) -> Series:
    """Estimate a metric in each of its last periods.

    Parameters
    ----------
    app
        Whose metric it is.
    asked
        Its versions, the highest first. Where several have a release of a period, the highest one counts.
    segment
        The cell; None: all reports.
    level
        Of the intervals.

    Raises
    ------
    Refusal
        If no version has such a cell, or if the cell is withheld in all periods.
    """
    found, others = find(app, asked, segment)
    current = found[max(found)].declared if found else asked[0]
    names = shown(current, found)
    estimated = read(app, [(at, found[name]) for at, name in enumerate(names) if name in found])
    metric = current.metric
    past = [] if metric.least_shift is None else read(app, before(current, found, names))
    lines, left_out = (number_lines if metric.estimate else share_lines)(current, past, estimated, names, level)
    return Series(
        trial=app.trial,
        id=metric.id,
        version=metric.version,
        period_length=metric.period,
        segment=read_cell(Breakdown.of(app.registry, metric), segment) if segment else None,
        level=level,
        target="population",
        unit=metric.unit,
        scale=metric.scale,
        periods=[told(name, found, others) for name in names],
        lines=lines,
        left_out=left_out,
        least_shift=None if metric.least_shift is None else float(metric.least_shift),
    )
