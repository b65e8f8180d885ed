"""The latest reports of an app in a trial, so that a developer sees each one come, what it says and what became of it.

Outside a trial nothing is kept here: who sees a single report arrive knows who sent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from deniable_aggregator.store import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Store

MOST = 10
"""Reports that are kept."""
_LIFE = 3600  # seconds after the last one


class LatestReport(NamedTuple):
    """A report that came."""

    came: int  # seconds since 1970
    metric: str
    version: int
    code: str  # why it was refused; empty if it was accepted
    payload: bytes  # randomised


def add(
    store: Store,  # the app's, in a trial
    reports: Sequence[LatestReport],  # in the order in which they came
) -> None:
    """Keep reports, and forget the oldest."""
    if not reports:
        return
    key = schema.LATEST.of(store.app)
    pipeline = store._client.pipeline(transaction=False)
    pipeline.lpush(key, *map(msgspec.msgpack.encode, reports[-MOST:]))
    pipeline.ltrim(key, 0, MOST - 1)
    pipeline.expire(key, _LIFE)
    pipeline.execute()


def read(store: Store) -> list[LatestReport]:
    """Return the reports, the latest first."""
    lines = cast("list[bytes]", store._client.lrange(schema.LATEST.of(store.app), 0, -1))
    return [msgspec.msgpack.decode(line, type=LatestReport) for line in lines]


def forget(store: Store) -> None:
    """Delete all of them."""
    store.delete([schema.LATEST.of(store.app)])
