"""Staging: what is too large to be sent with the script that makes it count lies in the store beforehand, in pieces.

Under `schema.STAGED` lies a string, or a list of pieces; it expires unless it is made to count.

While a script runs the store answers nobody, so none may take long. Sums are staged, and *decided* in one script together with
the removal of the batches they are of. From then on they count, and are added piece by piece, each exactly once, by whichever
worker comes: additions do not depend on their order, nor on what else is added meanwhile. Whoever reads tallies of a metric and
must not see a part of a commit asks `Staging.settled` before and after.

Under `schema.REDO` a hash tells how many such commits were ``decided`` and how many are ``done``, of those in between the token
by number, and the number of the last one of each metric, by its digest.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import uuid4

import redis

from deniable_aggregator.store import schema
from deniable_aggregator.store.script import Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CHUNK", "Piece", "Staging", "digest"]

_LIFE = 3600  # seconds for which what is staged may wait to be made to count
CHUNK = 1 << 20
"""Bytes of a string that are staged at once."""


class Piece(NamedTuple):
    """A part of what a commit adds.

    Parameters
    ----------
    word
        Whether it is of the ``tally`` or the ``weights``.
    name
        The stratum's.
    now
        Unix time of the commit's hour.
    first, deltas
        As ``add.lua`` reads them.
    """

    word: str
    name: str
    now: int
    first: int | str
    deltas: bytes | str


class Staging:
    """What is staged of one app.

    Parameters
    ----------
    client
        A redis client.
    app
        The app's name.
    """

    def __init__(self, client: redis.Redis, app: str) -> None:
        self._redis = client
        self._app = app
        self._redo = schema.REDO.of(app)
        self._stage = Script(client, "stage")
        self._put = Script(client, "place", "put")
        self._decide = Script(client, "own", "decide")
        self._apply = Script(client, "filed", "gone", "add", "apply")

    @contextmanager
    def strings(self, values: Sequence[bytes]) -> Iterator[list[str]]:
        """Stage some strings, none of them empty, for as long as the context lasts; yield their keys.

        One that is as long as it should be is whole. One that was lost meanwhile, by a failover for instance, is shorter.

        Parameters
        ----------
        values
            What they hold.
        """
        keys = [self._key(uuid4().hex) for _ in values]
        try:
            for key, value in zip(keys, values, strict=True):
                for at in range(0, len(value), CHUNK):
                    self._stage([key], [_LIFE, "SETRANGE", at, value[at : at + CHUNK]])
            yield keys
        finally:
            if keys:
                self._redis.delete(*keys)

    def replace(self, key: str, value: bytes) -> None:
        """Set a key of the app to a string that is not empty, at one moment; not if a part of it was lost meanwhile."""
        with self.strings([value]) as (staged,):
            self._put([staged, key], [len(value)])

    def commit(self, stream: str, group: str, consumer: str, ids: Sequence[bytes], pieces: Sequence[Piece]) -> list[bytes]:
        """Count entries by pieces, all or nothing.

        Parameters
        ----------
        stream, group, consumer
            Who read the entries, and where.
        ids
            The entries, all of them counted in the pieces.
        pieces
            What is to be added.

        Returns
        -------
        list of bytes
            Entries that this consumer no longer owns. If there is one, nothing counts.
        """
        outcome: int | list[bytes] = 0
        metrics = sorted({digest(piece.name.partition("|")[0]) for piece in pieces})
        while outcome == 0:  # what was staged is not all there: the store was emptied, or an hour has passed
            token = uuid4().hex
            staged = self._key(token)
            for piece in pieces:
                header = f"{piece.word}|{piece.now}|{piece.first}|{piece.name}"
                self._stage([staged], [_LIFE, "RPUSH", header, piece.deltas])
            args = [group, consumer, token, 2 * len(pieces), len(ids), *ids, *metrics]
            outcome = self._decide([stream, self._redo, staged], args)
            if outcome != 1:
                self._redis.delete(staged)
        if isinstance(outcome, list):
            return outcome
        with suppress(redis.RedisError):  # it counts; workers go on with it as soon as they can
            self.apply()
        return []

    def settled(self, metric: str | None = None) -> int | None:
        """Return the number of the last such commit, or None while it is being added.

        What was read between two calls that return the same number has no part of a commit.

        Parameters
        ----------
        metric
            Whose tallies are read; None for those of all.
        """
        field = "decided" if metric is None else digest(metric)
        last, done = self._numbers(field, "done")
        return last if last <= done else None

    def apply(self) -> None:
        """Add whatever was decided and is not added yet, whoever decided it."""
        while True:
            decided, done = self._numbers("decided", "done")
            if decided == done:
                return
            token = cast("bytes | None", self._redis.hget(self._redo, str(done + 1)))
            if token is not None:  # else another worker was quicker
                self._add(done + 1, token.decode())

    def _add(self, number: int, token: str) -> None:
        staged = self._key(token)
        header = (cast("bytes | None", self._redis.lindex(staged, 0)) or b"").decode()
        word, now, first, name = header.split("|", 3) if header else ("tally", "", "", "")
        keys = [
            self._redo,
            staged,
            schema.EXPIRED.of(self._app),
            schema.ERASED.of(self._app),
            (schema.WEIGHTS if word == "weights" else schema.TALLY).of(self._app, name),
            schema.TALLIES.of(self._app, name.partition("|")[0]),
            schema.PUBLISHED.of(self._app),
        ]
        self._apply(keys, [number, header, name, now, first])

    def _numbers(self, *fields: str) -> list[int]:
        return [int(value or 0) for value in cast("list[bytes | None]", self._redis.hmget(self._redo, fields))]

    def _key(self, token: str) -> str:
        return schema.STAGED.of(self._app, token)


def digest(metric: str) -> str:
    """Digest a name, so that it does not stay once the metric is erased."""
    return sha1(metric.encode(), usedforsecurity=False).hexdigest()
