"""The budget of an app's analysts: what its keys have spent on questions about withheld cells, and the answers that they got.

For each month the store keeps what all keys have spent on its reports, and what each key has spent. For each question it keeps
the answer and a random word. The same question gets the same answer, for every key, and costs nothing the second time.

All costs add up. What is spent on the reports of a month never becomes free again, so clocks do not matter. One script both
spends and keeps the answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING

from deniable.limits.allowance import MICRO
from deniable_aggregator.store import schema
from deniable_aggregator.store.sums import tallies

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.registry.tables import Analysts
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.breakdown import Box
    from deniable_aggregator.store import Store


@dataclass(frozen=True, slots=True)
class Asked:
    """A question."""

    whole: Stratum  # the release that it is about
    month: str  # month whose budget pays, such as `2026-11`
    cells: tuple[Box, ...]  # the cells, in order
    cost: int  # millionths of a nat

    @property
    def field(self) -> str:
        """Name of the question in the table of answers."""
        return f"{self.cost}|{sha256(json.dumps(self.cells).encode()).hexdigest()[:32]}|{tallies.name(self.whole)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    told: int  # a number of reports, or the place of a cell
    spent: int  # cost of this answer, in millionths of a nat; 0 if it was known before
    left: int  # what the key may still spend on the month, in millionths of a nat


class BudgetSpent(Exception):  # noqa: N818 - nothing went wrong
    """A question costs more than is left of the key's part, or of the app's budget."""


class Budgets:
    """The budget of one app."""

    def __init__(
        self,
        store: Store,  # where it is kept
        analysts: Analysts,  # how large it is
    ) -> None:
        self._store, self._spent = store, store.table(schema.SPENT)
        self._limits = [int(Decimal(str(nats)) * MICRO) for nats in (analysts.epsilon, analysts.per_key)]
        self._answer = store.script("answer")

    def ask(self, key: str, asked: Asked, draw: Callable[[], int]) -> Answer:
        """Answer a question: with the earlier answer, or with a new one.

        Parameters
        ----------
        key
            The id of who asks.
        asked
            The question.
        draw
            Makes the answer. It is called only if the budget allows, and its result is used only once it is paid for.

        Raises
        ------
        BudgetSpent
            If too little is left of the budget.
        StoreError
            If the store cannot be used. The question may have been paid for; then it is answered when it is asked again.
        """
        answers = self._store.table(schema.ANSWERS, asked.whole.metric)
        kept, cost = answers.get(asked.field), 0
        if kept is None:
            if asked.cost > min(self.left(key, asked.month)):
                raise BudgetSpent
            limits = (word for pair in zip(_accounts(key, asked.month), self._limits, strict=True) for word in pair)
            drawn = f"{draw()} {token_hex(8)}"  # the random word shows the script that a call is a repetition
            found = self._answer([answers.key, self._spent.key], [asked.field, drawn, asked.cost, *limits])
            if not found:
                raise BudgetSpent
            kept, cost = found[0], asked.cost * found[1]
        return Answer(int(kept.split()[0]), cost, min(self.left(key, asked.month)))

    def left(self, key: str, month: str) -> tuple[int, int]:
        """Return what is left of the app's budget for a month, and of a key's part of it, in millionths of a nat."""
        spent = self._spent.values(_accounts(key, month))
        app, own = (max(0, limit - int(each or 0)) for limit, each in zip(self._limits, spent, strict=True))
        return app, own

    def spent(self) -> dict[str, dict[str, int]]:
        """Return what was spent, in millionths of a nat, by month and key id. The empty id stands for all keys together."""
        found: dict[str, dict[str, int]] = {}
        for account, micro in sorted(self._spent.all().items()):
            month, _, key = account.decode().partition(" ")
            found.setdefault(month, {})[key] = int(micro)
        return found


def _accounts(key: str, month: str) -> list[str]:
    return [month, f"{month} {key}"]
