"""The wait: how long after the first report the first release comes."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING

from deniable.registry.tables import duration

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric
    from deniable.registry.tables import Publication

LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=365.25 / 12)}
"""How long each period is; of months, the average."""

_SNAPSHOTS = 2  # times min_reports: the publisher holds back one, which is published once another one came


def first_release(
    metric: Metric,  # as declared
    mechanism: Mechanism | None,  # its mechanism; None: one whose estimates rest on all reports
    publication: Publication,  # how its app publishes
    per_day: float,  # reports of the cell a day
) -> timedelta | None:
    """Compute how long after the beginning of a period the first release of a cell comes, if reports come evenly; None: never."""
    # It never comes of too few reports of permanent responses, which are not joined over periods.
    if publication.trial:
        return timedelta(0)
    length = LENGTHS[metric.period]
    needed = mechanism.needed(metric.min_reports) if mechanism else metric.min_reports
    share = per_day * (length / timedelta(days=1)) / needed  # of what a release needs, in a period
    if share >= _SNAPSHOTS and publication.early and not metric.segments:
        return length * (_SNAPSHOTS / share)
    if share < 1 and metric.permanent:
        return None
    return length * ceil(1 / share) + duration("grace", metric.grace)
