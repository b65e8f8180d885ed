"""What a client counts, and the parts of `Client.stats`."""

from __future__ import annotations

from collections import Counter
from math import isinf
from typing import TYPE_CHECKING, Any

from deniable.errors import StateError
from deniable.limits.allowance import MICRO
from deniable.messages.notice import listed, warn_once
from deniable.messages.reasons import ANSWERS, OF_PEOPLE, ONE_PERSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deniable.device.ledger import Ledger
    from deniable.device.prepared import Prepared
    from deniable.errors import DeniableError
    from deniable.limits.allowance import Allowance
    from deniable.transport import Sender

_ELSEWHERE = ("disabled", "off", "unknown_metric")  # told by the client, which knows more
_FACTS: dict[str, Callable[[Prepared], str]] = {
    "expired": lambda prepared: f"on {prepared.metric.expires}",
    "unit": lambda prepared: f"it is {prepared.metric.unit}" if prepared.metric.unit else "it has none",
    "not_sampled": lambda prepared: f"it is {prepared.metric.sample}",
    "this_period": lambda prepared: f"{prepared.metric.per_period} in each {prepared.metric.period}",
    "budget": lambda prepared: _allowed(prepared.allowance),
}
"""What the registry says of a reason."""

FAULTS = ("spool_damaged", "delivered_error", "chore_error")
"""What is counted with reports and costs none."""


_MANY = 100
"""Answers of one process that a person would hardly give in vain, and the visitors of a web server soon do."""


class Counts:
    """Counts of what one process has recorded and dropped. What is dropped is said once for each metric and reason."""

    __slots__ = ("_told", "clipped", "developed", "dropped", "of_people", "recorded", "trouble", "undeclared")

    def __init__(
        self,
        *,
        developed: bool = False,  # whether the app is developed, with a state that the next start finds again
    ) -> None:
        self.recorded = 0  # reports that were queued
        self.undeclared = 0  # answers that their metric does not declare
        self.clipped = 0  # numbers beyond the range of their metric
        # All reasons exist from the start. The first `dropped[reason] += 1` of a missing one would run Python code between
        # reading and writing, and two threads could lose a count there.
        self.dropped: Counter[str] = Counter(dict.fromkeys(ANSWERS, 0))  # answers that were not reported, by reason
        self.trouble: Callable[[], str | None] = lambda: None  # what is wrong with the state
        self.of_people = False  # whether answers are those of several people, each of whom is a device
        self.developed = developed
        self._told: set[tuple[str, str]] = set()  # reasons and metrics

    def drop(
        self,
        reason: str,
        prepared: Prepared | None = None,
        error: DeniableError | None = None,
        facts: str = "",
        alike: Callable[[], Iterable[Prepared]] = tuple,  # other metrics whose answers would be dropped now for the same reason
    ) -> bool:
        """Count an answer to a metric that is not reported, and say why; return False, or raise the error of a strict client."""
        self.dropped[reason] += 1
        if error is not None:
            raise error
        if reason == "this_period" and self.dropped[reason] == _MANY and not self.of_people:
            warn_once("all metrics", "this_period", ONE_PERSON.words(f"{_MANY} in this process"))
        about = (reason, "" if prepared is None else prepared.metric.id)
        if about not in self._told and reason not in _ELSEWHERE:
            together = (prepared, *(each for each in alike() if (reason, each.metric.id) not in self._told))
            concerned = {each.metric.id: each for each in together if each is not None}
            self._told |= {about, *((reason, id_) for id_ in concerned)}
            known = dict.fromkeys(filter(None, (self._facts(reason, each) for each in concerned.values() or (None,))))
            self.tell(reason, listed([*concerned]), facts or ", ".join(known))
        return False

    def swallow(self, error: Exception, where: str) -> None:
        """Count an error that the app does not see. Only its type is logged: the message might contain an answer."""
        self.dropped["error"] += 1
        warn_once(where, "error", ANSWERS["error"].words(type(error).__name__))

    def tell(self, reason: str, metric: str = "", facts: str = "") -> None:
        """Say once why answers to a metric, or to all of them, are not reported."""
        about = OF_PEOPLE.get(reason, ANSWERS[reason]) if self.of_people else ANSWERS[reason]
        warn_once("all metrics" if about.alike or not metric else metric, reason, about.words(facts))
        if about.developing and self.developed:
            warn_once("while developing", reason, about.developing)

    def words(self, reason: str, prepared: Prepared) -> str:
        """Say why answers to a metric are not reported."""
        return ANSWERS[reason].words(self._facts(reason, prepared))

    def _facts(self, reason: str, prepared: Prepared | None) -> str:
        """Return what the registry, or the device, knows of a reason. No part depends on an answer."""
        if reason == "state":
            return self.trouble() or ""
        return "" if prepared is None or reason not in _FACTS else _FACTS[reason](prepared)


def _allowed(allowance: Allowance) -> str:
    """Say what a metric may spend."""
    ever = "" if allowance.lifetime is None else f", and {allowance.lifetime / MICRO:.4g} ever"
    return f"it may spend {allowance.month / MICRO:.4g} nats a month{ever}"


def delivery(counts: Counts, sender: Sender | None) -> dict[str, Any]:
    """Return what became of reports: sent, rejected, spooled, waiting, dropped by reason, and faults that cost no report."""
    counted = Counter(sender.counts if sender else {})
    sent, rejected, spooled = (counted.pop(name, 0) for name in ("sent", "rejected", "spooled"))
    faults = {name: counted.pop(name) for name in FAULTS if counted[name]}
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
