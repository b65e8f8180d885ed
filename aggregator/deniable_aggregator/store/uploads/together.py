"""Uploads that arrived together are appended together: in one round trip, if there is one server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis

from deniable_aggregator.store.errors import Redivided, transient
from deniable_aggregator.store.script import Call
from deniable_aggregator.store.uploads.partition import Appended, appended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.partition import Upload


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
    begun: list[Call | Appended | redis.RedisError] = []
    failed: redis.RedisError | None = None  # an error of the server: each other upload would wait for the same
    for store, upload in batches:
        begun.append(_again(failed) if failed else _begun(store, upload))
        failed = failed or _of_server(begun[-1])
    calls = [answer for answer in begun if isinstance(answer, Call)]
    first = batches[begun.index(calls[0])] if calls else None
    answers = iter(first[0].partition(first[1].key).append_together(calls) if first else ())
    outcomes = [_outcome(next(answers)) if isinstance(answer, Call) else answer for answer in begun]
    failed = None
    for index, (store, upload) in enumerate(batches):
        if outcomes[index] is None:
            outcomes[index] = _again(failed) if failed else _alone(store, upload)
            failed = failed or _of_server(outcomes[index])
    return [outcome for outcome in outcomes if outcome is not None]


def _begun(store: Store, upload: Upload) -> Call | Appended | redis.RedisError:
    try:
        return store.partition(upload.key).begin_append(upload) or Appended("no room")
    except redis.OutOfMemoryError:
        return Appended("no room")
    except redis.RedisError as error:
        return error


def _alone(store: Store, upload: Upload) -> Appended | redis.RedisError:
    try:
        return store.append(upload)
    except redis.RedisError as error:
        return error


def _outcome(answer: Any) -> Appended | redis.RedisError | None:
    """Read what a call answered; None if another try by itself may succeed."""
    if isinstance(answer, redis.OutOfMemoryError):
        return Appended("no room")
    if isinstance(answer, (redis.ConnectionError, redis.exceptions.NoScriptError)):
        return None
    return _again(answer) if isinstance(answer, redis.RedisError) else appended(answer)


def _of_server(answer: Call | Appended | redis.RedisError | None) -> redis.RedisError | None:
    """Return an error that is one of the server, and not of an app."""
    return answer if isinstance(answer, redis.RedisError) and not isinstance(answer, Redivided) and transient(answer) else None


def _again(error: redis.RedisError) -> redis.RedisError:
    """Return the same error for another upload: each is raised in a thread of its own."""
    return type(error)(*error.args)
