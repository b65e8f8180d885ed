"""What a client counts, and the parts of `Client.stats`."""

from __future__ import annotations

import logging
from collections import Counter
from math import isinf
from typing import TYPE_CHECKING, Any

from deniable.errors import StateError

if TYPE_CHECKING:
    from deniable.device.ledger import Ledger
    from deniable.errors import DeniableError
    from deniable.transport import Sender

log = logging.getLogger("deniable")

REASONS = (
    *("disabled", "no_consent", "expired", "unknown_metric", "off", "not_sampled", "this_period", "budget", "state"),
    "unit",
    *("queue_full", "closed", "refused_key", "no_thread", "interrupted", "error"),
)
"""Reasons why an answer is not reported."""

_FAULTS = ("spool_damaged", "delivered_error", "chore_error")


class Counts:
    """Counts of what one process has recorded and dropped."""

    __slots__ = ("clipped", "dropped", "recorded", "undeclared")

    def __init__(self) -> None:
        self.recorded = 0  # reports that were queued
        self.undeclared = 0  # answers that their metric does not declare
        self.clipped = 0  # numbers beyond the range of their metric
        # All reasons exist from the start. The first `dropped[reason] += 1` of a missing one would run Python code between
        # reading and writing, and two threads could lose a count there.
        self.dropped: Counter[str] = Counter(dict.fromkeys(REASONS, 0))  # answers that were not reported, by reason

    def drop(self, reason: str, error: DeniableError | None = None) -> bool:
        """Count an answer that is not reported; return False, or raise the error of a strict client."""
        self.dropped[reason] += 1
        if error is not None:
            raise error
        return False

    def swallow(self, error: Exception, where: str) -> None:
        """Count an error that the app does not see. Only its type is logged: the message might contain an answer."""
        self.dropped["error"] += 1
        log.debug("deniable: %s in %s was swallowed", type(error).__name__, where)


def delivery(counts: Counts, sender: Sender | None) -> dict[str, Any]:
    """Return what became of reports: sent, rejected, spooled, waiting, dropped by reason, and faults that cost no report."""
    counted = Counter(sender.counts if sender else {})
    sent, rejected, spooled = (counted.pop(name, 0) for name in ("sent", "rejected", "spooled"))
    faults = {name: counted.pop(name) for name in _FAULTS if counted[name]}
    return {
        "sent": sent,
        "rejected": rejected,
        "refusals": dict(sender.refusals) if sender else {},
        "spooled": spooled,
        "waiting": sender.waiting if sender else 0,
        "dropped": dict(counts.dropped + counted),
        "faults": faults,
    }


def spent(ledger: Ledger | None, month: str) -> dict[str, float | None]:
    """Return what the device has spent and has left, in nats. None means no bound, or that the state cannot be read."""
    try:
        totals = ledger.spent(month) if ledger else None
    except StateError:
        totals = None
    amounts = {name: getattr(totals, name, None) for name in ("month", "month_left", "lifetime", "lifetime_left")}
    return {name: None if amount is None or isinf(amount) else amount for name, amount in amounts.items()}
