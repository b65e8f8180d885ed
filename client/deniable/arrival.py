"""What `flush` and `close` return: what became of answers and reports since the last such call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.frozen import dataclass, field
from deniable.messages.plural import few, named, plural
from deniable.messages.reasons import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

__all__ = ["Arrival"]


@dataclass(frozen=True, slots=True, repr=False)
class Arrival:
    """What became of answers and reports since the last `flush`, or since the start.

    It is true if reports have arrived and nothing is missing: no report is kept, refused or lost, and no answer was dropped, but
    for reasons that are normal: ``this_period``, ``not_sampled``, ``no_consent``. What may not travel yet is not missing.

    Parameters
    ----------
    sent
        Reports that the server took.
    from_disk
        Those of them that had waited on disk after an earlier try, mostly of an earlier run.
    pending
        Reports that wait for another try now, also those of earlier runs.
    waiting
        Reports that may not travel yet.
    refused, lost
        Reports that the server refused for good; those that were lost otherwise.
    deleted
        Reports that were deleted unsent because consent was withdrawn. They are not missing.
    dropped
        Answers of which no report was made, by reason.
    metrics
        The same numbers of each metric, as far as they are known: those of ``sent``, ``pending``, ``waiting``, ``refused``,
        ``lost`` and ``deleted``, and those of each reason of `dropped`.
    undeclared
        Answers that their metric does not declare, by metric. They were reported, as the metric's `other` or as a random answer.
        It is empty unless the app is developed: anywhere else a log of this text would tell of an answer.
    clipped
        The same of numbers beyond the range of their metric, which are reported as its nearer end, and of sets with more options
        than an answer keeps, of which some are drawn.
    why
        Why reports are kept, refused, lost or deleted, why answers were dropped or others were reported, or why there is
        nothing; empty if there is nothing to explain.
    """

    sent: int = 0
    from_disk: int = 0
    pending: int = 0
    waiting: int = 0
    refused: int = 0
    lost: int = 0
    deleted: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict, hash=False)
    metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    undeclared: Mapping[str, int] = field(default_factory=dict, hash=False)
    clipped: Mapping[str, int] = field(default_factory=dict, hash=False)
    why: str = ""

    @property
    def status(self) -> Literal["arrived", "incomplete", "nothing to send", "not delivered"]:
        """What became of them, in short."""
        missing = self.pending or self.refused or self.lost
        if not self.sent:
            return "not delivered" if missing else "nothing to send"
        return "arrived" if not missing and all(ANSWERS[reason].normal for reason in self.dropped) else "incomplete"

    def __bool__(self) -> bool:
        return self.status == "arrived"

    def __str__(self) -> str:
        facts = "; ".join(self._facts())
        words = "; why: ".join(filter(None, (facts, self.why)))
        return f"{self.status}: {words}" if words else self.status

    def __repr__(self) -> str:
        return f"<deniable.Arrival {self}>"

    def _facts(self) -> Iterator[str]:
        if self.pending:
            yield f"{plural(self.pending, 'report')} kept for another try{self._named('pending', self.pending)}"
        if self.refused:
            yield f"{plural(self.refused, 'report')} refused{self._named('refused', self.refused)}"
        if self.lost:
            yield f"{plural(self.lost, 'report')} lost{self._named('lost', self.lost)}"
        if self.deleted:
            yield f"{plural(self.deleted, 'report')} deleted{self._named('deleted', self.deleted)}"
        if self.sent:
            arrived = "" if self.status == "arrived" else " arrived"
            earlier = f", {self.from_disk} left by an earlier run or try" if self.from_disk else ""
            yield f"{plural(self.sent, 'report')}{arrived}{self._named('sent', self.sent)}{earlier}"
        for reason, answers in self.dropped.items():
            yield f"{plural(answers, 'answer')} dropped as {reason}{self._named(reason, answers)}"
        if self.waiting:
            yield f"{plural(self.waiting, 'report')} may not travel yet{self._named('waiting', self.waiting)}"
        if self.undeclared:
            yield f"{plural(sum(self.undeclared.values()), 'undeclared answer')} ({few([*self.undeclared])})"
        if self.clipped:
            yield f"{plural(sum(self.clipped.values()), 'clipped answer')} ({few([*self.clipped])})"

    def _named(self, what: str, total: int) -> str:
        """Name the metrics of a number, as far as they are known."""
        numbers = {metric: number for metric, of in self.metrics.items() if (number := of.get(what, 0))}
        left = total - sum(numbers.values())
        if numbers and left > 0:
            numbers["others"] = left
        return named(numbers)


SWALLOWED = Arrival(why=ANSWERS["error"].words())
"""After an error that the app does not see."""
