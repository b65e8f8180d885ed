"""The uploads that were taken, by a digest of their Idempotency-Key: what is repeated is not counted again.

Keys of the kind `schema.SEEN` end with

``<day>:<bucket>``
    hash of uploads that came on a day (counted from 1970, in UTC by the store's clock): ten bytes of a keyed digest of the
    Idempotency-Key, and what is remembered of the upload, a few bytes;
``secret``
    the digest's key: 32 random bytes, drawn once;
``dropped``
    for a minute after a day was forgotten before its time: the next one is not, before what that gave is seen.

Small hashes are kept as plain lists of bytes, so an upload takes some 27 bytes and not the 300 of a key of its own. A day has as
many hashes as let eight million uploads a day stay such lists (`hash-max-listpack-entries` is 512), and at most 3 MB of names. A
hash goes as a whole, when the last of its uploads need be remembered no longer.

Where uploads have no room left, the oldest day goes before its time: else who sends many small ones would hold all room for days,
until periods take no more reports. An upload of that day that is sent again now is counted twice. Today's are never forgotten.

Nobody who sends uploads knows the secret. So nobody can make one whose digest is that of somebody else's, or find uploads that
all go into the same hash.
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

__all__ = ["Name", "Seen", "days"]

log = logging.getLogger("deniable.store")

_BUCKETS = 1 << 14
_DAY = 86_400
_BYTES = 10


class Name(NamedTuple):
    """Where an upload is found.

    Parameters
    ----------
    secret
        With which the rest was made.
    bucket
        Number of the hash among those of a day.
    field
        In that hash.
    """

    secret: bytes
    bucket: str
    field: bytes


class Seen:
    """What is remembered of the uploads of an app.

    Parameters
    ----------
    client
        A redis client.
    app
        The app's name.
    """

    def __init__(self, client: redis.Redis, app: str) -> None:
        self.base = schema.SEEN.of(app, "")
        self._secret = token_bytes(32)  # until the store says which one it has
        self._recall = Script(client, "seen", "recall")
        self._drop = Script(client, "drop")

    def recall(self, key: str, ttl: int) -> bytes | None:
        """Return what was remembered of an upload, or None.

        Parameters
        ----------
        key
            Its Idempotency-Key.
        ttl
            Seconds for which it is remembered.
        """
        _, found = self.ask(self._recall, key, lambda name: ([self.base], [*name, days(ttl)]))
        return found or None

    def make_room(self, ttl: int) -> None:
        """Forget the uploads of the oldest day before today, unless a day was forgotten a minute ago.

        Parameters
        ----------
        ttl
            Seconds for which uploads are remembered.
        """
        day = self._drop([self.base], [_BUCKETS, days(ttl)])
        if day is not None:
            told = datetime.fromtimestamp(day * _DAY, UTC).date()
            log.warning("the store has no room: uploads of %s are forgotten, and one that is sent again is counted twice", told)

    def ask(self, script: Script, key: str, told: Callable[[Name], tuple[Sequence[str], Sequence[Any]]]) -> tuple[bytes, Any]:
        """Run a script that goes by the store's secret, and answers with it where another one was used.

        Parameters
        ----------
        script
            It answers in two parts; the first is ``secret`` where the second is the store's secret.
        key
            An Idempotency-Key.
        told
            Makes keys and arguments of the script from the name of the upload.
        """
        while True:
            outcome, more = script(*told(self._name(key)))
            if outcome != b"secret":
                return outcome, more
            self._secret = more  # another process drew it, or this store was emptied or put back

    def _name(self, key: str) -> Name:
        secret = self._secret
        digest = blake2b(key.encode(), key=secret, digest_size=_BYTES + 2).digest()
        return Name(secret, f"{int.from_bytes(digest[_BYTES:]) % _BUCKETS:x}", digest[:_BYTES])


def days(ttl: int) -> int:
    """Return how many whole days before today hold uploads of so many seconds ago."""
    return -(-ttl // _DAY)
