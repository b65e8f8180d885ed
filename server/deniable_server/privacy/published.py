"""What was published of each metric so far, read from its releases alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable_aggregator.publish import release

if TYPE_CHECKING:
    from deniable_aggregator.store import Store
    from deniable_server.privacy.facts import MetricFacts


@dataclass(frozen=True, slots=True)
class Published:
    """The releases of one metric, as the registry defines it now."""

    metric: str  # its id
    periods: tuple[str, ...]  # the last period of each release, ascending
    closed: int  # how many of them are closed
    releases: int  # how often something was published, including early releases
    cells: int  # published cells beside all reports
    reports: int  # Reports in the releases. For a metric with kept responses, a device counts once in each period.
    latest: datetime | None  # the hour of the last release; None without releases
    former: int  # releases of other versions and definitions of the metric


def read_published(store: Store, facts: MetricFacts) -> Published:
    """Read what was published of a metric."""
    metric, layout = facts.metric, facts.mechanism.layout
    definition = Declared.of(metric).definition
    listed = release.listed(store, metric.id)
    current = {stratum: each for stratum, each in listed.items() if stratum[:3] == definition}
    totals = {stratum: each for stratum, each in current.items() if not stratum.segment}
    return Published(
        metric=metric.id,
        periods=tuple(sorted(stratum.period for stratum in totals)),
        closed=sum(each.closed for each in totals.values()),
        releases=sum(each.number for each in totals.values()),
        cells=len(current) - len(totals),
        reports=store.releases.read(layout, list(totals)).n,
        latest=datetime.fromtimestamp(max(each.published for each in totals.values()), UTC) if totals else None,
        former=len(listed) - len(current),
    )
