"""The doctor's checks of what a registry declares: whether it still means the same, and is still asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.messages.finding import Finding
from deniable_aggregator.publish import release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.registry import Registry
    from deniable_aggregator.store import Store


def definitions(registry: Registry, store: Store) -> Finding:
    """Check for metrics that are defined differently now, in the same version."""
    from deniable_aggregator.publish.definitions import broken, changes  # noqa: PLC0415 - a server for uploads has no numpy

    former = changes(store, registry)
    published: dict[tuple[str, int], set[str]] = {}
    live = 0
    for metric in registry.definitions:
        tag, first = Declared.of(metric).fingerprint, dict[str, str]()  # the first period of each definition
        for stratum, note in release.listed(store, metric.id).items():
            if stratum.version == metric.version and note.n:  # a release without a report publishes nothing
                live += stratum.fingerprint == tag
                first[stratum.fingerprint] = min(stratum.period, first.get(stratum.fingerprint, stratum.period))
        # What came after the definition of today was given up: the definition is restored.
        earlier = {other for other, period in first.items() if other != tag and not (tag in first and first[tag] <= period)}
        if earlier:
            published[metric.id, metric.version] = earlier
    if not former and not published:
        seen = f"each version means what it meant before; releases of them: {live:,}"
        return Finding("definitions", "ok", seen, app=registry.app)
    named = [_also(of, "published", tags) for of, tags in sorted(published.items())]
    named += [
        _also(of, "declared", more) for of, tags in sorted(former.items()) if (more := set(tags) - published.get(of, set()))
    ]
    meaning = (
        "its definition was changed without a new version: what was counted before is shown apart from what comes now, and "
        "devices with the old registry are refused (definition_mismatch)"
    )
    remedy = "restore the definition, or raise the version: `deniable registry diff OLD NEW` names what changed"
    if faults := broken(registry, former):
        remedy = "; ".join(map(str, faults))
    # Once the last period of the former definition is over, no report of it comes.
    return Finding("definitions", "fault" if former else "warning", "; ".join(named), meaning, remedy, registry.app)


def _also(of: tuple[str, int], verb: str, tags: Iterable[str]) -> str:
    id_, version = of
    return f"{id_} version {version} was also {verb} as {', '.join(sorted(tags))}"


def expired(registry: Registry) -> Finding:
    """Check for metrics whose last day of collection is over."""
    today = datetime.now(UTC).date()
    over = [f"{metric.id} on {metric.expires}" for metric in registry.metrics.values() if metric.expired(today)]
    if not over:
        return Finding("expired", "ok", "nothing that is declared", app=registry.app)
    meaning = "devices do not answer it any more, and its reports of later days are refused (metric_expired)"
    remedy = "remove it from the registry, or write a later day after `expires`; then have servers read the registry"
    return Finding("expired", "warning", ", ".join(sorted(over)), meaning, remedy, registry.app)
