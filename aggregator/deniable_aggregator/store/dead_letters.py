"""Dead letters: batches that could not be counted, put aside with the reason.

Their number is limited, and the oldest are deleted first. They contain randomised reports; only their structure is ever shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from deniable.errors import PayloadError
from deniable_aggregator.store import batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.batch import Group

__all__ = ["DeadLetter", "DeadLetters"]

_PAGE = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A batch that could not be counted.

    Parameters
    ----------
    id
        Its place among the dead letters.
    reason
        Why it could not be counted.
    size
        Bytes of the batch; None without a batch.
    groups
        Its groups, as far as they can be read.
    body
        The batch itself.
    """

    id: str
    reason: str
    size: int | None
    groups: tuple[Group, ...] = ()
    body: bytes = field(default=b"", repr=False)

    @property
    def reports(self) -> int:
        """Number of reports in it, as far as it can be read."""
        return sum(group.reports for group in self.groups)

    def names(self, metric: str) -> bool:
        """Return whether a metric's name occurs anywhere in it."""
        return metric.encode() in self.body


class DeadLetters:
    """The dead letters of one app.

    Parameters
    ----------
    store
        The app's.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._requeue = store.script("requeue")
        self._rewrite = store.script("rewrite")

    def __len__(self) -> int:
        """Return their number."""
        return self._store._client.xlen(self._store.dead)

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield them, the oldest first."""
        start = "-"
        while True:
            page = cast("list[Any]", self._store._client.xrange(self._store.dead, start, "+", _PAGE))
            yield from map(_letter, page)
            if len(page) < _PAGE:
                return
            start = f"({page[-1][0].decode()}"

    def get(self, id_: str) -> DeadLetter | None:
        """Return a dead letter, or None."""
        found = cast("list[Any]", self._store._client.xrange(self._store.dead, id_, id_))
        return _letter(found[0]) if found else None

    def requeue(self, id_: str, cap: int) -> str:
        """Put a dead letter back into the stream, exactly once.

        Parameters
        ----------
        id_
            Its id.
        cap
            Most entries in the backlog.

        Returns
        -------
        str
            ``"requeued"``; ``"missing"``, there is none with this id; ``"full"``, the backlog is at its cap; ``"empty"``, it has
            no batch.
        """
        return cast("bytes", self._requeue([self._store.dead, self._store.stream], [id_, cap])).decode()

    def purge(self, ids: Sequence[str]) -> int:
        """Delete some; return how many existed."""
        return self._store._client.xdel(self._store.dead, *ids) if ids else 0

    def rewrite(self, bodies: Mapping[str, bytes]) -> int:
        """Replace the batches of some, by id, or delete those with an empty new batch; return how many existed."""
        changes = [each for change in bodies.items() for each in change]
        return int(self._rewrite([self._store.dead], changes)) if changes else 0

    def forget(self, before: int) -> None:
        """Delete those from before a Unix time."""
        self._store._client.xtrim(self._store.dead, minid=f"{1000 * before}-0", approximate=False)


def _letter(entry: tuple[bytes, dict[bytes, bytes]]) -> DeadLetter:
    id_, fields = entry
    body = fields.get(b"d")
    groups: tuple[Group, ...] = ()
    if body is not None:
        try:
            groups = tuple(batch.decode(body))
        except PayloadError:
            groups = ()
    return DeadLetter(id_.decode(), fields.get(b"reason", b"").decode(), None if body is None else len(body), groups, body or b"")
