"""The store: all that is shared, in Redis (7.0 command set), behind names that say what is meant.

Keys of one app share a hash tag, so that one script may touch them all on a Redis Cluster too:

``{app}:reports``
    stream of validated batches not counted yet; an entry vanishes with the commit that counts it;
``{app}:idem:<digest>``
    the answer given to an upload, kept as long as a device may retry it;
``{app}:tally:<stratum>``
    string of big-endian int64 cells, so that BITFIELD adds to it in place and a read is one GET;
``{app}:tallies:<metric>``
    hash from each stratum of a metric to the second of its last commit;
``{app}:dead``
    capped stream of entries that could not be counted, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import redis

from deniable.report import Stratum
from deniable_aggregator import tally as tallies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.layout import Layout
    from deniable_aggregator.tally import Tally

__all__ = ["GROUP", "Appended", "Entry", "Store", "connect"]

GROUP = "agg"
_SEPARATOR = "|"
_DEAD_LETTERS = 10_000


def connect(url: str) -> redis.Redis:
    """Open a connection pool.

    Parameters
    ----------
    url
        ``redis://``, ``rediss://`` or ``unix://``.
    """
    # The socket timeout must exceed the longest blocking read, or redis-py retries it ten times over.
    return redis.Redis.from_url(url, socket_timeout=10, socket_connect_timeout=5)


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of an upload.

    Parameters
    ----------
    outcome
        ``"appended"``; ``"duplicate"``, the key was seen before; or ``"full"``, the backlog is at its cap.
    previous
        For a duplicate, what was remembered of the first one.
    """

    outcome: str
    previous: bytes = b""


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch read from the stream.

    Parameters
    ----------
    id
        Its stream id.
    body
        Its bytes; None where it was deleted while it was pending.
    """

    id: bytes
    body: bytes | None


class Store:
    """The shared state of one app.

    Parameters
    ----------
    client
        A redis client.
    app
        The app's name.
    """

    def __init__(self, client: redis.Redis, app: str) -> None:
        self.redis = client
        self.app = app
        self.stream = f"{{{app}}}:reports"
        self.dead = f"{{{app}}}:dead"
        self._append = _script(client, "append")
        self._commit = _script(client, "commit")
        self._bury = _script(client, "bury")
        self._leave = _script(client, "leave")

    # Ingest

    def append(self, entry: bytes, *, key: str, remember: bytes, cap: int, ttl: int) -> Appended:
        """Append a batch once, whatever is retried.

        Parameters
        ----------
        entry
            The batch.
        key
            The upload's idempotency key.
        remember
            Kept for duplicates of the upload.
        cap
            Entries the backlog may hold.
        ttl
            Seconds to remember the key.
        """
        outcome, previous = cast(
            "tuple[bytes, bytes]",
            self._append(keys=[self.stream, self._idem(key)], args=[entry, remember, cap, ttl]),
        )
        return Appended(outcome.decode(), previous)

    def recall(self, key: str) -> bytes | None:
        """Return what was remembered of an upload, or None."""
        return cast("bytes | None", self.redis.get(self._idem(key)))

    def backlog(self) -> int:
        """Count the batches that are not counted yet."""
        return self.redis.xlen(self.stream)

    def _idem(self, key: str) -> str:
        return f"{{{self.app}}}:idem:{sha256(key.encode()).hexdigest()[:32]}"

    # Worker

    def join(self) -> None:
        """Make sure that the consumer group exists, reading from the very first entry."""
        try:
            self.redis.xgroup_create(self.stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def commit(self, consumer: str, ids: Sequence[bytes], deltas: Mapping[Stratum, NDArray[np.int64]], now: int) -> list[bytes]:
        """Add deltas and remove the entries they came from, all or nothing.

        Parameters
        ----------
        consumer
            Who read the entries.
        ids
            The entries, all of them counted in the deltas.
        deltas
            Cells to add, by stratum.
        now
            Unix time in seconds.

        Returns
        -------
        list of bytes
            Entries that this consumer no longer owns. If there is one, nothing was written.
        """
        keys = [self.stream]
        args: list[Any] = [GROUP, consumer, now, len(ids), *ids]
        for stratum, cells in deltas.items():
            name = _name(stratum)
            keys += [self._tally(name), self._index(stratum.metric)]
            changed = np.flatnonzero(cells)
            pairs = np.column_stack([changed, cells[changed]]).ravel().tolist()
            args += [name, " ".join(map(str, pairs))]
        return cast("list[bytes]", self._commit(keys=keys, args=args))

    def bury(self, consumer: str, id_: bytes, reason: str) -> bool:
        """Move an entry that cannot be counted to the dead letters; False when this consumer no longer owns it."""
        return bool(self._bury(keys=[self.stream, self.dead], args=[GROUP, consumer, id_, reason, _DEAD_LETTERS]))

    def leave(self, consumer: str) -> bool:
        """Forget a consumer, unless it has entries pending (deleting it would lose them)."""
        return bool(self._leave(keys=[self.stream], args=[GROUP, consumer]))

    # Query

    def strata(self, metric: str) -> dict[Stratum, int]:
        """List every stratum counted for a metric, with the Unix second of its last commit."""
        found = cast("dict[bytes, bytes]", self.redis.hgetall(self._index(metric)))
        return {_stratum(name.decode()): int(updated) for name, updated in found.items()}

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the tallies of some strata of one layout."""
        values = cast("list[bytes | None]", self.redis.mget([self._tally(_name(s)) for s in strata])) if strata else []
        read = [tallies.from_cells(layout, np.frombuffer(value, ">i8").astype(np.int64)) for value in values if value]
        return tallies.merge(tallies.empty(layout), *read)

    def _tally(self, name: str) -> str:
        return f"{{{self.app}}}:tally:{name}"

    def _index(self, metric: str) -> str:
        return f"{{{self.app}}}:tallies:{metric}"


def _name(stratum: Stratum) -> str:
    return _SEPARATOR.join(map(str, stratum))


def _stratum(name: str) -> Stratum:
    metric, version, fingerprint, period, segment = name.split(_SEPARATOR)
    return Stratum(metric, int(version), fingerprint, period, segment)


def _script(client: redis.Redis, name: str) -> Any:
    return client.register_script(files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8"))
