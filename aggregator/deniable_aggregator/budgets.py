"""Budgets of analysts: what each key may spend on a metric, and the answers that were paid for.

``{app}:answers:<metric>``
    hash from each question to its answer. The same question again has the same answer, whoever asks, and costs nothing;
``{app}:spent:<metric>``
    hash from a key's id and a period (a stratum) to what the key has spent on its reports: for each question the cell, the Unix
    time and the cost.

An answer is drawn before anything is spent. One script writes it down together with what it cost, if the key has not spent
meanwhile: so nothing is spent without an answer, and no two questions at a time spend the same.

The time is the store's, but never earlier than the last spend of the account: a clock set back brings nothing back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, cast

import redis

from deniable.allowance import MICRO
from deniable_aggregator import shelf
from deniable_aggregator.script import Script
from deniable_aggregator.spending import Spend, affordable, most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deniable.analysts import Analysts
    from deniable.report import Stratum
    from deniable_aggregator.breakdown import Breakdown
    from deniable_aggregator.store import Store

__all__ = ["Answer", "Asked", "BudgetSpent", "Budgets", "Left"]

_TRIES = 1000  # each that fails is one that another question of the key made good
_REMEMBERED = 400 * 86_400  # seconds, at least: a window that the registry makes longer finds what was spent before


@dataclass(frozen=True, slots=True)
class Asked:
    """A question.

    Parameters
    ----------
    stratum
        The cell that it touches.
    kind
        What is asked.
    among
        The segment whose values are compared; empty where none are.
    cost
        Millionths of a nat.
    """

    stratum: Stratum
    kind: Literal["participants", "popular"]
    among: str
    cost: int

    @property
    def field(self) -> str:
        """Its name among the answers."""
        return f"{self.kind}|{self.among}|{self.cost}|{shelf.name(self.stratum)}"


@dataclass(frozen=True, slots=True)
class Left:
    """What a key has left.

    Parameters
    ----------
    micro
        Millionths of a nat.
    refills
        Unix time from which on it has more; None where it has all.
    """

    micro: int
    refills: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question is answered.

    Parameters
    ----------
    told
        The answer, as it was drawn.
    spent
        What it has cost now: nothing, if it was there before. Millionths of a nat.
    left
        What the key has left for the reports that it touches.
    """

    told: dict[str, Any]
    spent: int
    left: Left


class BudgetSpent(Exception):  # noqa: N818 - nothing went wrong
    """A question costs more than its key has left.

    Parameters
    ----------
    left
        Millionths of a nat.
    seconds
        Until it can be asked; None where it costs more than the whole budget.
    """

    def __init__(self, left: int, seconds: int | None) -> None:
        super().__init__("budget_spent")
        self.left = left
        self.seconds = seconds


class Budgets:
    """The budgets of one app.

    Parameters
    ----------
    store
        Where they are kept.
    analysts
        What each key may spend on each metric.
    """

    def __init__(self, store: Store, analysts: Analysts) -> None:
        self._redis, self._app = store.redis, store.app
        self._window = analysts.seconds
        self._budget = int(Decimal(str(analysts.epsilon)) * MICRO)
        self._answer = Script(store.redis, "answer")

    def ask(self, key: str, asked: Asked, breakdown: Breakdown | None, draw: Callable[[], dict[str, Any]]) -> Answer:
        """Answer a question, from what was answered before or anew.

        Parameters
        ----------
        key
            The id of whose budget it is.
        asked
            The question.
        breakdown
            What its cells are of; None where they may have meant something else when the reports were counted.
        draw
            Makes the answer, which is shown to nobody unless it is paid for. What it raises leaves everything as it was.

        Raises
        ------
        BudgetSpent
            If the key has too little left.
        redis.RedisError
            If the store cannot be used. The question may have been paid for: asked again, it has its answer.
        """
        answers, spent = (f"{{{self._app}}}:{word}:{asked.stratum.metric}" for word in ("answers", "spent"))
        account, cell = _account(key, asked.stratum), asked.stratum.segment
        told: dict[str, Any] | None = None
        for _ in range(_TRIES):
            kept = cast("bytes | None", self._redis.hget(answers, asked.field))
            noted = cast("bytes | None", self._redis.hget(spent, account))
            spends = _read(noted)
            now = self._now(spends)
            if kept is not None:
                return Answer(json.loads(kept), 0, self._left(breakdown, spends, cell, now))
            left = self._left(breakdown, spends, cell, now).micro
            if asked.cost > left:
                at = affordable(breakdown, spends, cell, self._budget - asked.cost, now=now, window=self._window)
                raise BudgetSpent(left, None if at is None else at - now)
            told = told or draw()
            after = [*_recent(spends, now - max(self._window, _REMEMBERED)), Spend(cell, now, asked.cost)]
            done = self._answer([answers, spent], [asked.field, json.dumps(told), account, noted or "", json.dumps(after)])
            if done:
                found, ours = done
                cost = asked.cost if ours else 0
                return Answer(json.loads(found), cost, self._left(breakdown, after if ours else spends, cell, now))
        raise redis.ResponseError(f"a budget of {self._app} has changed under each of {_TRIES} tries")

    def left(
        self, key: str, metric: str, breakdowns: Callable[[list[Stratum]], Mapping[Stratum, Breakdown | None]]
    ) -> dict[Stratum, Left]:
        """Tell what a key has left for the report on which it has spent most, of periods on which it has spent.

        Parameters
        ----------
        key
            Its id.
        metric
            Of the reports.
        breakdowns
            Returns what the cells of each of these periods are of, as `ask` takes it; others are left out.

        Raises
        ------
        redis.RedisError
            If the store cannot be used.
        """
        found = self._redis.hscan_iter(f"{{{self._app}}}:spent:{metric}", match=f"{key} *", count=1000)
        accounts = {
            shelf.stratum(account.decode().partition(" ")[2]): _read(noted)
            for account, noted in cast("Iterator[tuple[bytes, bytes]]", found)
        }
        known = breakdowns(list(accounts)) if accounts else {}
        return {
            whole: self._left(known[whole], spends, "", self._now(spends)) for whole, spends in accounts.items() if whole in known
        }

    def accounts(self, metric: str) -> dict[tuple[str, Stratum], list[Spend]]:
        """List what every key has spent on a metric, by the key's id and the period; of long ago perhaps not all.

        Raises
        ------
        redis.RedisError
            If the store cannot be used.
        """
        scanned = self._redis.hscan_iter(f"{{{self._app}}}:spent:{metric}", count=1000)
        found = ((account.decode().partition(" "), noted) for account, noted in cast("Iterator[tuple[bytes, bytes]]", scanned))
        return {(key, shelf.stratum(name)): _read(noted) for (key, _, name), noted in found}

    def _left(self, breakdown: Breakdown | None, spends: Sequence[Spend], cell: str, now: int) -> Left:
        spent = most(breakdown, spends, cell, now - self._window)
        refills = affordable(breakdown, spends, cell, spent - 1, now=now, window=self._window) if spent else None
        return Left(max(0, self._budget - spent), refills)

    def _now(self, spends: Sequence[Spend]) -> int:
        seconds, _ = self._redis.time()
        return max(seconds, *(each.moment for each in spends)) if spends else seconds


def _account(key: str, stratum: Stratum) -> str:
    return f"{key} {shelf.name(stratum._replace(segment=''))}"


def _read(noted: bytes | None) -> list[Spend]:
    return [Spend(*each) for each in json.loads(noted)] if noted else []


def _recent(spends: Sequence[Spend], since: int) -> list[Spend]:
    return [each for each in spends if each.moment > since]
