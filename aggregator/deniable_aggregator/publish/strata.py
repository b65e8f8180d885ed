"""What is counted of a metric, published or not: for the publisher and for administrators only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.publish import release

if TYPE_CHECKING:
    from deniable.declared import Declared, Definition
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.hourly import Hourly
    from deniable_aggregator.store import Store


def strata_by_period(store: Store | Hourly, definition: Definition) -> dict[Stratum, list[Stratum]]:
    """Return the strata of each period of a definition (metric, version, fingerprint), in order."""
    by_period: dict[Stratum, list[Stratum]] = {}
    for stratum in sorted(store.strata(definition[0])):
        if stratum[:3] == definition:
            by_period.setdefault(stratum._replace(segment=""), []).append(stratum)
    return by_period


def unpublished(
    store: Store,
    declared: Declared,
    copies: Hourly | None = None,  # hourly copies to count in place of the sums
) -> int:
    """Count the reports of a definition that are in no release yet, without those that came too late for any."""
    source = copies or store
    counted, closed = strata_by_period(source, declared.definition), release.summary(store, declared.definition).closed
    # Metrics with permanent responses are published by single periods, which are not sealed: a closed one may get more reports.
    periods = [period for period in counted if declared.metric.kept or period.period > closed]
    came = source.read(declared.layout, [stratum for period in periods for stratum in counted[period]]).n
    # The difference is below 0 if the store lost some, or a release came between the two reads.
    return max(0, came - store.releases.read(declared.layout, periods).n)
