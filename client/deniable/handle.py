"""A handle on one metric, light enough for a module to make while it is imported."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; `typing` takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MetricHandle"]


class MetricHandle:
    """Records one metric.

    Parameters
    ----------
    record
        `Client.record`, or `deniable.record` for whatever client is current.
    id_
        The metric's id.
    """

    __slots__ = ("_id", "_record")

    def __init__(self, record: Callable[[str, object], bool], id_: str) -> None:
        self._record = record
        self._id = id_

    def record(self, value: object) -> bool:
        """Randomise an answer and queue the result; see `Client.record`."""
        try:
            return self._record(self._id, value)
        except BaseException:
            value = None  # no answer stays in the frames of an error
            raise
