"""The budget of an app's analysts: what its keys have spent on questions about withheld cells, and the answers that they got.

For each month the store has what all keys together, and each key, have spent on its reports. For each question it has the answer
and a random word. The same question gets the same answer, for every key, and costs nothing the second time.

All costs add up. What is spent on the reports of a month never becomes free again, so clocks do not matter.
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
class PaidQuestion:
    """A question about withheld cells, which a budget pays for."""

    release: Stratum  # all segments of a period
    month: str  # month whose budget pays, such as `2026-11`
    cells: tuple[Box, ...]  # the cells, in order
    cost: int  # millionths of a nat

    @property
    def field(self) -> str:
        """Name of the question in the table of answers."""
        return f"{self.cost}|{sha256(json.dumps(self.cells).encode()).hexdigest()[:32]}|{tallies.name(self.release)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    value: int  # a number of reports, or the place of a cell
    spent: int  # cost of this answer, in millionths of a nat; 0 if it was known before
    left: int  # what the key may still spend on the month, in millionths of a nat


class BudgetSpent(Exception):  # noqa: N818 - nothing went wrong
    """A question costs more than is left of the app's budget, or of the key's part of it."""


class Budgets:
    """The budget of one app."""

    def __init__(
        self,
        store: Store,  # of the app
        analysts: Analysts,  # how much the app, and each key, may spend on a month
    ) -> None:
        self._store, self._spent = store, store.table(schema.SPENT)
        self._limits = [int(Decimal(str(nats)) * MICRO) for nats in (analysts.epsilon, analysts.per_key)]
        self._answer = store.script("answer")

    def ask(self, key: str, question: PaidQuestion, draw: Callable[[], int]) -> Answer:
        """Return the stored answer to a key's question, or pay for one that `draw` makes; BudgetSpent if too little is left."""
        answers = self._store.table(schema.ANSWERS, question.release.metric)
        stored, cost = answers.get(question.field), 0
        if stored is None:
            if question.cost > min(self.left(key, question.month)):
                raise BudgetSpent
            limits = (word for pair in zip(_accounts(key, question.month), self._limits, strict=True) for word in pair)
            # One script spends and stores the answer. If two ask at once, both get the answer that is stored first. The random
            # word makes this answer unlike any other, so a call that is sent twice pays once. Nothing is used before it is paid.
            new = f"{draw()} {token_hex(8)}"
            reply = self._answer([answers.key, self._spent.key], [question.field, new, question.cost, *limits])
            if not reply:
                raise BudgetSpent
            stored, cost = reply[0], question.cost * reply[1]
        return Answer(int(stored.split()[0]), cost, min(self.left(key, question.month)))

    def left(self, key: str, month: str) -> tuple[int, int]:
        """Return what is left for a month of the app's budget and of a key's part of it, in millionths of a nat."""
        spent = self._spent.some(_accounts(key, month))
        app, own = (max(0, limit - int(each or 0)) for limit, each in zip(self._limits, spent, strict=True))
        return app, own

    def spent(self) -> dict[str, dict[str, int]]:
        """Return what was spent, in millionths of a nat, by month and key id. The empty id stands for all keys together."""
        spent: dict[str, dict[str, int]] = {}
        for account, micro in sorted(self._spent.all().items()):
            month, _, key = account.decode().partition(" ")
            spent.setdefault(month, {})[key] = int(micro)
        return spent


def _accounts(key: str, month: str) -> list[str]:
    return [month, f"{month} {key}"]
