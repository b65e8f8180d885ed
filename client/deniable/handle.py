"""A handle that records one metric. A module can make one while it is imported, because this imports almost nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would take longer than this module
if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.stopwatch import Stopwatch, Timing


class MetricHandle:
    """Records one metric."""

    __slots__ = ("_begin", "_id", "_record")

    def __init__(
        self,
        record: Callable[[str, object], bool],  # `Client.record`, or `deniable.record` for the current client
        begin: Callable[[str], Timing | None],  # what a stopwatch begins with, of a client or the current one
        id_: str,  # the metric's id
    ) -> None:
        self._record = record
        self._begin = begin
        self._id = id_

    def record(self, value: object) -> bool:
        """Randomise an answer and queue the report; see `Client.record`."""
        try:
            return self._record(self._id, value)
        except BaseException:
            value = None  # no answer stays in the frames of an error
            raise

    def timed(self) -> Stopwatch:
        """Return a stopwatch for a block or a function; see `Client.timed`."""
        from deniable.stopwatch import Stopwatch  # noqa: PLC0415 - most handles need none

        return Stopwatch(self._begin, self._id)
