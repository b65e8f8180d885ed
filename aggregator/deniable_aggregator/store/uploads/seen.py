"""Accepted uploads, by a digest of their Idempotency-Key, so that an upload that is sent again is not counted again.

Keys of the kind `schema.SEEN` end with

``<day>:<bucket>``
    hash of uploads of a day, counted from 1970, in UTC by the store's clock. For each it has ten bytes of a keyed digest of the
    Idempotency-Key, and a few bytes of record;
``secret``
    the digest's key: 32 random bytes, drawn once;
``hour``
    the last hour in which an upload was accepted;
``dropped``
    for a minute after a day was deleted early: the next day is deleted only once the effect shows.

Redis stores small hashes as lists of bytes, so an upload takes about 27 bytes, and not the 300 of a key of its own. The number of
hashes of a day keeps eight million uploads a day in such lists (`hash-max-listpack-entries` is 512), with at most 3 MB of names.
A hash is deleted as a whole, when the last of its uploads has expired.

If uploads have no room left, the oldest day is deleted early. Otherwise a sender of many small uploads could take all room for
days, until periods close. An upload of that day that is sent again now is counted twice. Today's are never deleted early.

Senders do not know the secret. So nobody can make an upload with the digest of another one, or many uploads in the same hash.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable_aggregator.store import schema
from deniable_aggregator.store.script import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from deniable_aggregator.store.server.replicas import Replicas

log = logging.getLogger("deniable.store")

_BUCKETS = 1 << 14
_DAY = 86_400
_BYTES = 10


class Name(NamedTuple):
    """The place of an upload's record."""

    secret: bytes  # with which it was made
    bucket: str  # number of the hash within a day
    field: bytes  # in the hash


class Seen:
    """The records of an app's uploads."""

    def __init__(
        self,
        client: redis.Redis,
        app: str,  # the app's name
    ) -> None:
        self._client, self.base = client, schema.SEEN.of(app, "")
        self._secret = b"-"  # until the store returns its own
        self._recall = Script(client, "seen", "recall")
        self._drop = Script(client, "drop")
        self._fix = Script(client, "fix")

    def hour(self) -> int | None:
        """Return the last hour in which an upload was accepted, in seconds since 1970; None if none was."""
        hour = self._client.hget(f"{self.base}hour", "last")
        return None if hour is None else int(hour)

    def begin(self) -> None:
        """Draw the store's secret, unless it has one."""
        self._secret = self._fix([f"{self.base}secret"], [token_bytes(32)])

    def recall(
        self,
        key: str,  # its Idempotency-Key
        ttl: int,  # seconds for which it is remembered
        *,
        replicas: Replicas | None = None,  # those that must have it
    ) -> bytes | None:
        """Return the record of an upload, or None."""
        _, record = self.ask(self._recall, key, lambda name: ([self.base], [*name, days(ttl)]), replicas=replicas)
        return record or None

    def make_room(
        self,
        ttl: int,  # seconds for which uploads are remembered
    ) -> None:
        """Delete the records of the oldest day before today, unless a day was deleted within the last minute."""
        day = self._drop([self.base], [_BUCKETS, days(ttl)])
        if day is not None:
            date = datetime.fromtimestamp(day * _DAY, UTC).date()
            log.warning("the store has no room: uploads of %s are forgotten, and one that is sent again is counted twice", date)

    def ask(
        self,
        script: Script,  # it answers in two parts: ``secret`` and the store's secret, or the outcome and what belongs to it
        key: str,  # the upload's Idempotency-Key
        call: Callable[[Name], tuple[Sequence[str], Sequence[Any]]],  # keys and arguments, from the upload's name
        *,
        replicas: Replicas | None = None,  # those that must have the outcome
    ) -> tuple[bytes, Any]:
        """Run a script that uses the store's secret, and again if the store has another secret."""
        while True:
            outcome, more = script(*call(self.name(key)), replicas=replicas)
            if outcome != b"secret":
                return outcome, more
            self._secret = more  # another process drew it, or the store was emptied or restored

    def name(self, key: str) -> Name:
        """Return the place of an upload's record, by its Idempotency-Key and the secret that is known."""
        known = self._secret
        digest = blake2b(key.encode(), key=known, digest_size=_BYTES + 2).digest()
        return Name(known, f"{int.from_bytes(digest[_BYTES:]) % _BUCKETS:x}", digest[:_BYTES])


def days(ttl: int) -> int:
    """Return how many days before today may have uploads that are remembered for `ttl` seconds."""
    return -(-ttl // _DAY)
