"""What readers of published sums learn of one person, if the operator is trusted: what may be claimed, of which metrics.

Readers see releases: pages, results, answers to read keys. They do not see reports, what is counted so far, archives or the store,
nor a trial. Whoever does is the operator here, and only the local epsilon holds.

Every sum in releases consists of blocks that share no report, each of at least `min_reports`: a release, what an early release adds
to the one before, and with one segment what a cell has and no published cell within it (`deniable_aggregator.publish.suppression`).
So all sums of a metric follow from the sums of blocks, and a report is in one of them. With two segments or more, cells overlap. A
report is then in sums that do not follow from such blocks, and nothing is claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable_aggregator.accounting.crowd import Crowd

if TYPE_CHECKING:
    from deniable.registry import Metric, Registry
    from deniable_aggregator.accounting.plan import Use

DELTA = 1e-6
"""The delta of what is shown of one report."""

CONDITION = (
    "This holds for readers of published sums only, if the operator is trusted, if so many reports are honest, and if each period "
    "has so many. That somebody took part is not hidden."
)
"""What a central epsilon needs."""


def refusal(registry: Registry, metric: Metric) -> str | None:
    """Return why nothing is claimed of a metric, in words; None if something is."""
    if registry.publication.trial:
        return "a trial publishes everything at once"
    if Declared.of(metric).permanent:
        return "its reports share a permanent response, so they are no composition"
    if len(metric.segments) > 1:
        return "its segments overlap, so one report is in several sums"
    if metric.min_reports == 1:
        return "a release may have a single report"
    return None


def crowd(registry: Registry, metric: Metric, count: int = 1) -> Crowd | None:
    """Return the crowd of a device's reports of a metric, one on each of `count` occasions; None if nothing is claimed."""
    # Several reports of a device in one period are in one sum. The others are then divided among them.
    if refusal(registry, metric):
        return None
    reports = max(1, metric.min_reports // metric.per_period)
    return Crowd.of(Declared.of(metric).mechanism, reports, count, Declared.of(metric).sample)


def of_use(registry: Registry, use: Use) -> Crowd | None:
    """Return the crowd of all reports of a use; None if nothing is claimed."""
    return crowd(registry, use.metric, use.occasions)
