"""The section of questions about withheld cells: what analysts may spend on them, and what they spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.allowance import MICRO
from deniable_server.privacy.document import Note, Section, Table, Text
from deniable_server.privacy.words import count, nats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deniable.registry import Registry
    from deniable_server.privacy.document import Block

__all__ = ["section"]


def section(registry: Registry, spent: Mapping[str, Mapping[str, int]] | None) -> Section:
    """Write what analysts may ask, and what they have spent (see `Budgets.spent`); None where no store was looked at."""
    return Section("questions", "Questions of analysts, and their budget", tuple(_blocks(registry, spent)))


def _blocks(registry: Registry, spent: Mapping[str, Mapping[str, int]] | None) -> Iterator[Block]:
    analysts = registry.analysts
    if not min(analysts.epsilon, analysts.per_key):
        yield Text("This registry allows no questions about withheld segments.")
    else:
        yield Text(
            "A read key may ask how many reports a withheld segment of a closed release has, and which of several has most. "
            "Answers have central noise (discrete Laplace; report-noisy-max), and the same question has the same answer. Beyond "
            "what is published, all answers about the reports of a month are at most e^epsilon times as likely whichever segment "
            f"one report is in, with an epsilon of {nats(analysts.epsilon)} for all keys together, and {nats(analysts.per_key)} "
            "for each. Months add up."
        )
    if spent is None:
        yield Note("No store was looked at: nothing is said of what was spent.")
        return
    rows = tuple(
        (month, count(len(keys) - 1), nats(keys[""] / MICRO), nats(max(micro for key, micro in keys.items() if key) / MICRO))
        for month, keys in spent.items()
    )
    caption = "Spent on questions about the reports of each month (epsilon in nats)"
    yield Table(caption, ("Month", "keys", "all keys together", "most by one key"), rows, frozenset((1, 2, 3)))
