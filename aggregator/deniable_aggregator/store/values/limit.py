"""Limits: counters in the store with windows that begin at the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.store.script import Script

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis


class Limit(NamedTuple):
    """A number of requests, or an amount, that is allowed in a window."""

    key: str  # key of the counter in the store
    amount: int  # amount allowed in a window, at least 1
    seconds: int  # length of a window
    cost: int = 1  # amount to be counted, at least 1


class Excess(NamedTuple):
    """A limit that is used up."""

    place: int  # its place among the limits asked for, from 0
    ms: int  # milliseconds until the window ends, at least 1


class Limiter:
    """Counts requests that do nothing else in the store."""

    def __init__(self, client: redis.Redis) -> None:
        self._count = Script(client, "limit", "count")

    def take(self, limits: Sequence[Limit]) -> Excess | None:
        """Count for some limits, in their order. If one is used up, stop and return it.

        Raises
        ------
        StoreError
            If the store cannot be used.
        """
        found = self._count([limit.key for limit in limits], arguments(limits))
        return Excess(*found) if found else None


def arguments(limits: Iterable[Limit]) -> list[int]:
    """Return the arguments of ``limit.lua`` for limits, without the keys of their counters."""
    return [number for limit in limits for number in limit[1:]]
