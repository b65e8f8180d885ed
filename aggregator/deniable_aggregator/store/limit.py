"""Limits: counters in the store of how often, or how much of something, was done, in windows that begin with the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.store.script import Script

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis

__all__ = ["Excess", "Limit", "Limiter", "arguments"]


class Limit(NamedTuple):
    """How often, or how much of something, may be done.

    Parameters
    ----------
    key
        Of the counter, in the store.
    amount
        What is let through in a window, at least 1.
    seconds
        Length of a window.
    cost
        What is counted, at least 1.
    """

    key: str
    amount: int
    seconds: int
    cost: int = 1


class Excess(NamedTuple):
    """A limit that is used up.

    Parameters
    ----------
    place
        Which one of those that were asked for, from 0.
    ms
        Milliseconds until it is open again, at least 1.
    """

    place: int
    ms: int


class Limiter:
    """Counts what does nothing else in the store.

    Parameters
    ----------
    client
        A redis client.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._count = Script(client, "limit", "count")

    def take(self, limits: Sequence[Limit]) -> Excess | None:
        """Count against some limits, in their order, up to the first that is used up, and return that.

        Raises
        ------
        StoreError
            If the store cannot be used.
        """
        found = self._count([limit.key for limit in limits], arguments(limits))
        return Excess(*found) if found else None


def arguments(limits: Iterable[Limit]) -> list[int]:
    """Return what ``limit.lua`` is told of limits beside the keys of their counters."""
    return [number for limit in limits for number in limit[1:]]
