"""Dead letters: batches that could not be counted, with the reason. They contain randomised reports, which nobody is shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from deniable.errors import PayloadError
from deniable_aggregator.store.uploads import batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.store.uploads.batch import Group

_PAGE = 100
_SEPARATOR = "/"  # in an id, after the place of the partition if there are several


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A batch that could not be counted."""

    id: str  # its place among the dead letters
    reason: str  # why it could not be counted
    size: int | None  # bytes of the batch; None without a batch
    groups: tuple[Group, ...] = ()  # empty if they cannot be read
    body: bytes = field(default=b"", repr=False)  # the batch

    @property
    def reports(self) -> int:
        """Number of reports in it, as far as it can be read."""
        return sum(group.reports for group in self.groups)

    def names(self, metric: str) -> bool:
        """Return whether a metric's name occurs anywhere in it."""
        return metric.encode() in self.body


class DeadLetters:
    """The dead letters of one app."""

    def __init__(
        self,
        store: Store,  # the app's
    ) -> None:
        self._store = store
        self._requeue = store.script("enter", "requeue")
        self._rewrite = store.script("always", "rewrite")

    def __len__(self) -> int:
        """Return their number."""
        return sum(each._client.xlen(each.dead) for each in self._store.partitions)

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield them, partition by partition, the oldest first."""
        for place, partition in enumerate(self._store.partitions):
            start = "-"
            while True:
                page = cast("list[Any]", partition._client.xrange(partition.dead, start, "+", _PAGE))
                yield from (self._named(place, _letter(entry)) for entry in page)
                if len(page) < _PAGE:
                    break
                start = f"({page[-1][0].decode()}"

    def get(self, id_: str) -> DeadLetter | None:
        """Return a dead letter, or None."""
        for partition, own in self._own([id_]):
            entries = cast("list[Any]", partition._client.xrange(partition.dead, own[id_], own[id_]))
            return replace(_letter(entries[0]), id=id_) if entries else None
        return None

    def requeue(
        self,
        id_: str,
        cap: int,  # most entries in the backlog of its partition
    ) -> str:
        """Put a dead letter back into the stream, once; return ``requeued``, ``missing``, ``full`` or ``empty`` (no batch)."""
        for partition, own in self._own([id_]):
            return cast("bytes", self._requeue([partition.dead, partition.stream], [own[id_], cap])).decode()
        return "missing"

    def purge(self, ids: Sequence[str]) -> int:
        """Delete some, by their ids; return how many there were."""
        return sum(partition._client.xdel(partition.dead, *own.values()) for partition, own in self._own(ids))

    def rewrite(self, bodies: Mapping[str, bytes]) -> int:
        """Replace the batches of some, by id, or delete those whose new batch is empty; return how many there were."""
        written = 0
        for partition, own in self._own(bodies):
            changes = [each for id_ in own for each in (own[id_], bodies[id_])]
            written += int(self._rewrite([partition.dead], changes))
        return written

    def forget(self, before: int) -> None:
        """Delete those from before a Unix time."""
        for partition in self._store.partitions:
            partition._client.xtrim(partition.dead, minid=f"{1000 * before}-0", approximate=False)

    def _named(self, place: int, letter: DeadLetter) -> DeadLetter:
        """Return a letter of a partition with its id among the letters of all partitions."""
        return letter if len(self._store.partitions) == 1 else replace(letter, id=f"{place}{_SEPARATOR}{letter.id}")

    def _own(self, ids: Iterable[str]) -> list[tuple[Partition, dict[str, str]]]:
        """Return the partitions that have letters with some ids: for each its ids, and what they are within the partition."""
        parts = self._store.partitions
        by_place: dict[int, dict[str, str]] = {}
        for id_ in ids:
            before, separator, own = id_.rpartition(_SEPARATOR)
            place = int(before or 0)
            if bool(separator) == (len(parts) > 1) and place < len(parts):
                by_place.setdefault(place, {})[id_] = own
        return [(parts[place], own) for place, own in by_place.items()]


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
