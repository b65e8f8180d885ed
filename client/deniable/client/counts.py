"""What a client counts, and the parts of `Client.stats`."""

from __future__ import annotations

from collections import Counter
from math import isinf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from deniable.errors import StateError
from deniable.limits.allowance import MICRO
from deniable.messages import notice
from deniable.messages.notice import warn_once
from deniable.messages.plural import few, plural
from deniable.messages.reasons import ANSWERS, INSTEAD, OF_PEOPLE, ONE_PERSON
from deniable.registry.period import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.device.ledger import Ledger
    from deniable.device.prepared import Prepared
    from deniable.errors import DeniableError
    from deniable.messages.reasons import Reason
    from deniable.transport import Sender

T = TypeVar("T")

_ELSEWHERE = ("disabled", "off", "unknown_metric")  # told by the client, which knows more
_FACTS: dict[str, Callable[[Prepared], str]] = {
    "expired": lambda prepared: f"on {prepared.metric.expires}",
    "unit": lambda prepared: f"it is {prepared.metric.unit}" if prepared.metric.unit else "it has none",
    "not_sampled": lambda prepared: f"it is {prepared.metric.sample}",
    "this_period": lambda prepared: f"{prepared.metric.per_period} in each {prepared.metric.period}",
}
"""What the registry says of a reason."""

FAULTS = ("spool_damaged", "delivered_error", "chore_error")
"""What is counted with reports and costs none."""


_MANY = 100
"""Answers of one process that a person would hardly give in vain, and the visitors of a web server soon do."""


class Drops(NamedTuple):
    """What became of answers."""

    dropped: Counter[str]  # those that were not reported, by reason
    by_metric: Counter[tuple[str, str]]  # the same by reason and metric, but those of no metric
    undeclared: Counter[str]  # those that were reported as another answer, by metric; none unless the app is developed
    clipped: Counter[str]  # the same of those that were clipped

    def since(self, before: Drops) -> Drops:
        """Return what came after an earlier look."""
        return Drops(
            self.dropped - before.dropped,
            self.by_metric - before.by_metric,
            self.undeclared - before.undeclared,
            self.clipped - before.clipped,
        )


NO_DROPS = Drops(Counter(), Counter(), Counter(), Counter())


class Counts:
    """Counts of what one process has recorded and dropped. What is dropped is said once for each metric and reason."""

    __slots__ = (
        "_by_metric",
        "_clipped",
        "_facts",
        "_how",
        "_last",
        "_undeclared",
        "clipped",
        "developed",
        "dropped",
        "of_people",
        "recorded",
        "trouble",
        "undeclared",
    )

    def __init__(
        self,
        *,
        developed: bool = False,  # whether the app is developed, with a state that the next start finds again
    ) -> None:
        notice.begin()
        self.recorded = 0  # reports that were queued
        self.undeclared = 0  # answers that their metric does not declare
        self.clipped = 0  # answers that were reported as other ones that are allowed; see `Metric.clips`
        # All reasons exist from the start. The first `dropped[reason] += 1` of a missing one would run Python code between
        # reading and writing, and two threads could lose a count there.
        self.dropped: Counter[str] = Counter(dict.fromkeys(ANSWERS, 0))  # answers that were not reported, by reason
        self.trouble: Callable[[], str | None] = lambda: None  # what is wrong with the state
        self.of_people = False  # whether answers are those of several people, each of whom is a device
        self.developed = developed
        self._by_metric: dict[tuple[str, str], int] = {}  # as `dropped`, by reason and metric
        self._last = NO_DROPS
        self._facts: dict[tuple[str, str], str] = {}  # what was told of reasons and metrics
        self._undeclared: dict[str, int] = {}  # as `undeclared`, by metric, while the app is developed
        self._clipped: dict[str, int] = {}  # the same of `clipped`
        self._how: dict[str, str] = {}  # how they are clipped, as in `INSTEAD`

    def drop(
        self,
        reason: str,
        prepared: Prepared | None = None,
        error: DeniableError | None = None,
        facts: str | Callable[[], str] = "",  # a function is called for the first answer only
        metric: str = "",  # of one that is not prepared. Never an answer.
        *,
        quiet: bool = False,  # whether the log has said why
    ) -> bool:
        """Count an answer to a metric that is not reported, and say why; return False, or raise the error of a strict client."""
        about = (reason, metric if prepared is None else prepared.metric.id)
        self.dropped[reason] += 1
        _count(self._by_metric, about)
        if error is not None:
            raise error
        if reason == "this_period" and self.dropped[reason] == _MANY and not self.of_people:
            warn_once("all metrics", "this_period", ONE_PERSON.words(f"{_MANY} in this process"))
        if about not in self._facts:
            known = self._facts[about] = (facts() if callable(facts) else facts) or self._facts_of(reason, prepared)
            if reason not in _ELSEWHERE and not quiet:
                self.tell(reason, [*filter(None, about[1:])], known)
        return False

    def mistake(
        self,
        metric: str,
        *,
        named: bool,  # whether the app is developed: elsewhere no text may say that an answer was undeclared
        reported: bool,  # whether a report was made
    ) -> None:
        """Count an undeclared answer. Of its metric those alone are counted that were reported as another one."""
        self.undeclared += 1
        if named and reported:
            _count(self._undeclared, metric)

    def clip(
        self,
        metric: str,
        *,
        named: bool,  # as for `mistake`
        reported: bool,
        how: str,  # as `Type.clipped`
    ) -> None:
        """Count an answer that was reported as another one that is allowed."""
        self.clipped += 1
        if named and reported:
            _count(self._clipped, metric)
            self._how[metric] = how

    def drops(self) -> Drops:
        """Return what became of answers so far."""
        by_metric = Counter({about: number for about, number in self._by_metric.copy().items() if about[1]})
        return Drops(Counter(self.dropped), by_metric, Counter(self._undeclared.copy()), Counter(self._clipped.copy()))

    def news(self) -> Drops:
        """Return what became of answers since the last call."""
        now, before = self.drops(), self._last
        self._last = now
        return now.since(before)

    def why(self, drops: Drops) -> list[str]:
        """Say why answers were dropped, or others were reported: of each reason the metrics concerned, and what is known."""
        lines: dict[tuple[str, str], list[str]] = {}
        for reason in drops.dropped:
            metrics = [metric for each, metric in drops.by_metric if each == reason]
            for metric in metrics or [""]:
                lines.setdefault((reason, self._facts.get((reason, metric), "")), []).append(metric)
        words = [self._why(*about, few(metrics)) for about, metrics in lines.items()]
        instead: dict[str, list[str]] = {"undeclared": [*drops.undeclared]}
        for metric in drops.clipped:
            instead.setdefault(self._how[metric], []).append(metric)
        return [*words, *(f"{few(metrics)}: {INSTEAD[name].words()}" for name, metrics in instead.items() if metrics)]

    def _why(self, reason: str, facts: str, metrics: str) -> str:
        about = self._about(reason)
        named = f"{metrics}: " if metrics and not about.alike else ""
        return f"{named}{about.words(facts)}"

    def swallow(self, error: Exception, where: str) -> None:
        """Count an error that the app does not see. Only its type is logged: the message might contain an answer."""
        self.dropped["error"] += 1
        warn_once(where, "error", ANSWERS["error"].words(type(error).__name__))

    def tell(self, reason: str, metrics: Sequence[str] = (), facts: str = "") -> None:
        """Say once why answers to some metrics, or to all of them, are not reported."""
        about = self._about(reason)
        warn_once(["all metrics"] if about.alike or not metrics else metrics, reason, about.words(facts))
        if about.developing and self.developed:
            warn_once("while developing", reason, about.developing)

    def words(self, reason: str, prepared: Prepared) -> str:
        """Say why answers to a metric are not reported."""
        return ANSWERS[reason].words(self._facts_of(reason, prepared))

    def _about(self, reason: str) -> Reason:
        return OF_PEOPLE.get(reason, ANSWERS[reason]) if self.of_people else ANSWERS[reason]

    def _facts_of(self, reason: str, prepared: Prepared | None) -> str:
        """Return what the registry, or the device, knows of a reason. No part depends on an answer."""
        if reason == "state":
            return self.trouble() or ""
        return "" if prepared is None or reason not in _FACTS else _FACTS[reason](prepared)


def _count(counts: dict[T, int], about: T) -> None:
    counts.setdefault(about, 0)  # as for `Counts.dropped`: nothing is called between reading and writing
    counts[about] += 1


def of_budget(
    prepared: Prepared,
    *,
    ever: bool,  # whether what it may spend ever is spent, and not only that of this month
) -> str:
    """Say what a metric has spent, and what to do."""
    allowance = prepared.allowance
    if not ever or allowance.lifetime is None:
        return f"{_nats(allowance.month)} in this month; it goes on next month"
    longer = "" if prepared.metric.period == LENGTHS[-1] else ", or declare a longer `period`, so that its part lasts"
    return f"{_nats(allowance.lifetime)} ever; raise `lifetime` of the budget{longer}"


def _nats(micro: int) -> str:
    return plural(micro / MICRO, "nat", ".4g")


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
        "pending": sender.pending if sender else 0,
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
