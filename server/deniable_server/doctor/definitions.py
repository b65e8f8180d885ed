"""The doctor's checks of what a registry declares, whatever was published of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable_server.doctor.finding import Finding

if TYPE_CHECKING:
    from deniable.registry import Registry


def expired(registry: Registry) -> Finding:
    """Check for metrics whose last day of collection is over."""
    today = datetime.now(UTC).date()
    over = [f"{metric.id} on {metric.expires}" for metric in registry.metrics.values() if metric.expired(today)]
    if not over:
        return Finding("expired", "ok", "nothing that is declared", app=registry.app)
    meaning = "devices do not answer it any more, and its reports of later days are refused (metric_expired)"
    remedy = "remove it from the registry, or write a later day after `expires`; then have servers read the registry"
    return Finding("expired", "warning", ", ".join(sorted(over)), meaning, remedy, registry.app)
