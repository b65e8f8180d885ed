"""A clock that a test of an app sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from deniable.errors import ParameterError
from deniable.process import clock

if TYPE_CHECKING:
    from types import TracebackType


class Clock:
    """The time of day of all clients and stub servers of this process while it is open. It stands still until a test moves it.

    Only the time of day is set, which says in what period and month an answer is counted, and whether a metric has expired.
    Timeouts, and the times that `deniable.timed` measures, go on as always.

    Parameters
    ----------
    now
        Where it begins; the present time by default.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = datetime.now(UTC)
        self._before = clock.read
        if now is not None:
            self.set(now)

    @property
    def now(self) -> datetime:
        """The time that it shows, in UTC."""
        return self._now

    def set(self, now: datetime) -> None:
        """Set it to a time, which has a time zone.

        Raises
        ------
        ParameterError
            If it is no datetime, or has no time zone: periods are those of UTC, and nobody can tell which time is meant.
        """
        if not isinstance(now, datetime) or now.tzinfo is None:
            raise ParameterError("write a datetime with a time zone, such as datetime(2027, 3, 1, tzinfo=UTC)")
        self._now = now.astimezone(UTC)

    def advance(self, **parts: float) -> None:
        """Move it on: ``clock.advance(weeks=1)``. The parts are those of `datetime.timedelta`."""
        self._now += timedelta(**parts)

    def _read(self) -> float:
        return self._now.timestamp()

    def __enter__(self) -> Self:
        self._before = clock.read
        clock.read = self._read
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        clock.read = self._before
