"""Staging: data that are too large for one script are stored in pieces first, and then counted or published by a script.

Under `schema.STAGED` is a string, or a list of pieces. It expires unless a script uses it.

While a script runs, the store answers nobody, so no script may take long. Sums are staged. One script *decides* that they count,
and removes their batches. Afterwards any worker adds them piece by piece, each exactly once. The order of additions does not
matter, nor do other additions meanwhile. A reader of a metric's tallies who must not see a part of a commit calls
`Staging.settled` before and after.

Under `schema.REDO` a hash has the numbers of such commits that were ``decided`` and that are ``done``. It has the token of each
commit in between, by number, and the number of the last commit of each metric, by its digest.
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

_LIFE = 3600  # seconds after which unused staged data expire
_PLACES = {"file": schema.ARCHIVED, "tally": schema.TALLY, "weights": schema.WEIGHTS}
CHUNK = 1 << 20
"""Bytes of a string that are staged at once."""


class Piece(NamedTuple):
    """A part of a commit."""

    word: str  # `tally`, `weights` or `file`
    name: str  # of the stratum
    now: int  # Unix time of the commit's hour
    first: int | str  # of `add.lua`; or `file`
    deltas: bytes | str  # of `add.lua`; or the name of a file of the archive


class Staging:
    """The staged data of one app."""

    def __init__(
        self,
        client: redis.Redis,
        app: str,  # the app's name
    ) -> None:
        self._client = client
        self._app = app
        self._redo = schema.REDO.of(app)
        self._stage = Script(client, "stage")
        self._put = Script(client, "place", "put")
        self._decide = Script(client, "own", "decide")
        self._apply = Script(client, "filed", "gone", "add", "note", "apply")

    @contextmanager
    def strings(
        self,
        values: Sequence[bytes],  # their contents
    ) -> Iterator[list[str]]:
        """Stage some strings, none of them empty, while the context lasts; yield their keys."""
        # Each part is written at its place, and the last part last. A string that lost a part, for instance by a failover, is
        # shorter, so scripts that use it compare its length.
        keys = [self._key(uuid4().hex) for _ in values]
        try:
            for key, value in zip(keys, values, strict=True):
                for at in range(0, len(value), CHUNK):
                    self._stage([key], [_LIFE, "SETRANGE", at, value[at : at + CHUNK]])
            yield keys
        finally:
            if keys:
                self._client.delete(*keys)

    def replace(self, key: str, value: bytes) -> None:
        """Set a key of the app to a string that is not empty, at one moment, unless a part of it was lost meanwhile."""
        with self.strings([value]) as (staged,):
            self._put([staged, key], [len(value)])

    def commit(
        self,
        stream: str,  # of the entries
        group: str,
        consumer: str,  # the reader of the entries
        ids: Sequence[bytes],  # the entries, all counted in the pieces
        pieces: Sequence[Piece],
    ) -> list[bytes]:
        """Count entries by pieces, all or nothing; return the entries that the consumer no longer owns: then it is nothing."""
        outcome: int | list[bytes] = 0
        metrics = sorted({digest(piece.name.partition("|")[0]) for piece in pieces})
        while outcome == 0:  # staged data are incomplete: the store was emptied, or an hour has passed
            token = uuid4().hex
            staged = self._key(token)
            for piece in pieces:
                header = f"{piece.word}|{piece.now}|{piece.first}|{piece.name}"
                self._stage([staged], [_LIFE, "RPUSH", header, piece.deltas])
            args = [group, consumer, token, 2 * len(pieces), len(ids), *ids, *metrics]
            outcome = self._decide([stream, self._redo, staged], args)
            if outcome != 1:
                self._client.delete(staged)
        if isinstance(outcome, list):
            return outcome
        with suppress(redis.RedisError):  # it is decided; workers continue with it as soon as they can
            self.apply()
        return []

    def settled(
        self,
        metric: str | None = None,  # metric whose tallies are read; None for all
    ) -> int | None:
        """Return the number of the last commit in pieces, or None while one is added."""
        # Data that are read between two calls with the same result contain no part of a commit.
        field = "decided" if metric is None else digest(metric)
        last, done = self._numbers(field, "done")
        return last if last <= done else None

    def apply(self) -> None:
        """Add everything that any worker decided and that is not added yet."""
        while True:
            decided, done = self._numbers("decided", "done")
            if decided == done:
                return
            token = cast("bytes | None", self._client.hget(self._redo, str(done + 1)))
            if token is not None:  # otherwise another worker was faster
                self._add(done + 1, token.decode())

    def _add(self, number: int, token: str) -> None:
        staged = self._key(token)
        header = (cast("bytes | None", self._client.lindex(staged, 0)) or b"").decode()
        word, now, first, name = header.split("|", 3) if header else ("tally", "", "", "")
        keys = [
            self._redo,
            staged,
            schema.EXPIRED.of(self._app),
            schema.ERASED.of(self._app),
            _PLACES[word].of(self._app, name),
            schema.TALLIES.of(self._app, name.partition("|")[0]),
            schema.PUBLISHED.of(self._app),
            schema.TALLY.of(self._app, name),
        ]
        self._apply(keys, [number, header, name, now, first])

    def _numbers(self, *fields: str) -> list[int]:
        return [int(value or 0) for value in cast("list[bytes | None]", self._client.hmget(self._redo, fields))]

    def _key(self, token: str) -> str:
        return schema.STAGED.of(self._app, token)


def digest(metric: str) -> str:
    """Return the digest of a metric's name, which may stay after the metric is erased: it does not show the name."""
    return sha1(metric.encode(), usedforsecurity=False).hexdigest()
