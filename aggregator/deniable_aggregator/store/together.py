"""Uploads that arrived together are appended together: in one round trip, if there is one server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from deniable_aggregator.store.errors import AWAY
from deniable_aggregator.store.partition import Appended, appended
from deniable_aggregator.store.script import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.partition import Partition, Upload


def append(batches: Sequence[tuple[Store, Upload]]) -> list[Appended | redis.RedisError]:
    """Append batches to the partitions of their keys, each once, even if it is sent several times.

    Parameters
    ----------
    batches
        Each with the store of its app. All apps are on one server, unless there is only one batch.

    Returns
    -------
    list
        For each what became of it, or the error that `Store.append` raises.
    """
    if len(batches) == 1:
        return [_alone(*batches[0])]
    begun = [_begun(store, upload) for store, upload in batches]
    calls = [answer for answer in begun if isinstance(answer, Call)]
    answers = iter(_partition(*batches[begun.index(calls[0])]).append_together(calls) if calls else ())
    outcomes = [_outcome(next(answers) if isinstance(answer, Call) else answer) for answer in begun]
    away: redis.RedisError | None = None
    for index, (store, upload) in enumerate(batches):
        if outcomes[index] is None:
            outcomes[index] = away or _alone(store, upload)
            away = away or _if_away(outcomes[index])
    return [outcome for outcome in outcomes if outcome is not None]


def _partition(store: Store, upload: Upload) -> Partition:
    return store.partition(upload.key)


def _begun(store: Store, upload: Upload) -> Call | Appended | redis.RedisError:
    try:
        return _partition(store, upload).begin_append(upload) or Appended("no room")
    except redis.RedisError as error:
        return error


def _alone(store: Store, upload: Upload) -> Appended | redis.RedisError:
    try:
        return store.append(**upload._asdict())
    except redis.RedisError as error:
        return error


def _outcome(answer: Any) -> Appended | redis.RedisError | None:
    """Read what became of an upload; None if another try by itself may succeed."""
    if isinstance(answer, redis.OutOfMemoryError):
        return Appended("no room")
    if isinstance(answer, (redis.ConnectionError, redis.exceptions.NoScriptError)):
        return None
    return answer if isinstance(answer, (Appended, redis.RedisError)) else appended(answer)


def _if_away(outcome: Appended | redis.RedisError | None) -> redis.RedisError | None:
    """Return an error after which no other upload is tried by itself, as each would wait as long."""
    return outcome if isinstance(outcome, AWAY) else None
