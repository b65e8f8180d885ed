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
from typing import TYPE_CHECKING, NamedTuple

from deniable.limits.allowance import MICRO
from deniable_aggregator.store import schema
from deniable_aggregator.store.sums import tallies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    figure: str = "count"  # what is asked of them

    @property
    def field(self) -> str:
        """Name of the question in the table of answers."""
        question = json.dumps([self.figure, self.cells]).encode()
        return f"{self.cost}|{sha256(question).hexdigest()[:32]}|{tallies.name(self.release)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    numbers: tuple[int, ...]  # a number of reports, or the place of a cell; with a figure that and the figure
    spent: int  # cost of this answer, in millionths of a nat; 0 if it was known before
    left: int  # what the key may still spend on the month, in millionths of a nat


class Payer(NamedTuple):
    """The key that pays for a question."""

    key: str  # its id
    epsilon: float | None = None  # nats that it was made to spend on a month at most; None: what the registry gives each key


class Month(NamedTuple):
    """What was spent on the reports of a month, and what is left, in millionths of a nat."""

    name: str  # such as `2026-11`
    spent: int  # by the key
    left: int  # of what the key may spend, or of the app's budget if that is less
    app: int  # left of the app's budget


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
        self._app, self._per_key = _micro(analysts.epsilon), _micro(analysts.per_key)
        self._answer = store.script("answer")

    def limits(self, payer: Payer) -> tuple[int, int]:
        """Return what all keys together, and what this one, may spend on a month, in millionths of a nat."""
        # A key's own budget only lowers: neither the app's nor the registry's promise of each key depends on how a key was made.
        made_for = self._app if payer.epsilon is None else _micro(payer.epsilon)
        return self._app, min(self._app, self._per_key, made_for)

    def ask(self, payer: Payer, question: PaidQuestion, draw: Callable[[], Sequence[int]]) -> Answer:
        """Return the stored answer to a key's question, or pay for one that `draw` makes; BudgetSpent if too little is left."""
        answers = self._store.table(schema.ANSWERS, question.release.metric)
        stored, cost = answers.get(question.field), 0
        if stored is None:
            if question.cost > min(self.left(payer, question.month)):
                raise BudgetSpent
            limits = (
                word for pair in zip(_accounts(payer.key, question.month), self.limits(payer), strict=True) for word in pair
            )
            # One script spends and stores the answer. If two ask at once, both get the answer that is stored first. The random
            # word makes this answer unlike any other, so a call that is sent twice pays once. Nothing is used before it is paid.
            new = f"{' '.join(map(str, draw()))} {token_hex(8)}"
            reply = self._answer([answers.key, self._spent.key], [question.field, new, question.cost, *limits])
            if not reply:
                raise BudgetSpent
            stored, cost = reply[0], question.cost * reply[1]
        return Answer(tuple(map(int, stored.split()[:-1])), cost, min(self.left(payer, question.month)))

    def left(self, payer: Payer, month: str) -> tuple[int, int]:
        """Return what is left for a month of the app's budget and of a key's part of it, in millionths of a nat."""
        spent = [int(each or 0) for each in self._spent.values(_accounts(payer.key, month))]
        return self._left(payer, *spent)

    def _left(self, payer: Payer, by_all: int, by_key: int) -> tuple[int, int]:
        app, own = self.limits(payer)
        return max(0, app - by_all), max(0, own - by_key)

    def months(self, payer: Payer) -> list[Month]:
        """Return each month on whose reports any key has spent."""
        months = []
        for month, spent in self.spent().items():
            by_key = spent.get(payer.key, 0)
            app, own = self._left(payer, spent[""], by_key)
            months.append(Month(month, by_key, min(app, own), app))
        return months

    def spent(self) -> dict[str, dict[str, int]]:
        """Return what was spent, in millionths of a nat, by month and key id. The empty id stands for all keys together."""
        spent: dict[str, dict[str, int]] = {}
        for account, micro in sorted(self._spent.all().items()):
            month, _, key = account.decode().partition(" ")
            spent.setdefault(month, {})[key] = int(micro)
        return spent


def _micro(nats: float) -> int:
    """Write nats as they are written, not as a float has them, in millionths, rounded down."""
    return int(Decimal(str(nats)) * MICRO)


def _accounts(key: str, month: str) -> list[str]:
    return [month, f"{month} {key}"]
