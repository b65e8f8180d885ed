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
    found: dict[Stratum, list[Stratum]] = {}
    for stratum in sorted(store.strata(definition[0])):
        if stratum[:3] == definition:
            found.setdefault(stratum._replace(segment=""), []).append(stratum)
    return found


def unpublished(store: Store, declared: Declared, of: Hourly | None = None) -> int:
    """Count the reports of a definition that are in no release yet; of hourly copies, if any are given.

    Metrics with kept responses are published by single periods, which are not sealed. Reports that came too late are not counted.
    """
    source = of or store
    counted, closed = strata_by_period(source, declared.definition), release.summary(store, declared.definition).closed
    wholes = [whole for whole in counted if declared.metric.kept or whole.period > closed]
    came = source.read(declared.layout, [stratum for whole in wholes for stratum in counted[whole]]).n
    return max(0, came - store.releases.read(declared.layout, wholes).n)  # or the store lost some, or a release came meanwhile
