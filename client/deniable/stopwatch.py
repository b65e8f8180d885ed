"""A stopwatch that records how long a block or a function takes. A module of the app can make one while it is imported."""

from __future__ import annotations

from time import perf_counter

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would take longer than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["PER_SECOND", "Stopwatch"]

PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600}
"""The units of time, and how many of them a second has."""

_COROUTINE = 0x80  # the flag of code with `async def`; `inspect`, which names it, is slow to import


class Stopwatch:
    """Records the time of a block, or of each call of a function, in the unit of a metric.

    It is a context manager and a decorator. The time is recorded also if the block raises. Of an ``async def`` function it is the
    time until the result is there, and of a generator only that of the call which makes it.

    Parameters
    ----------
    record_time
        `Client.record_time`, or that of the current client.
    metric
        Id of a number metric whose unit is us, ms, s, min or h.

    Notes
    -----
    A decorated function may run in many threads and call itself. Of a context manager, make one for each block: threads that
    enter the same one would mix their times.
    """

    __slots__ = ("_begun", "_metric", "_record_time")

    def __init__(self, record_time: Callable[[str, float], bool], metric: str) -> None:
        self._record_time = record_time
        self._metric = metric
        self._begun: list[float] = []

    def __enter__(self) -> Self:
        self._begun.append(perf_counter())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._record_time(self._metric, perf_counter() - self._begun.pop())
        except Exception:
            if kind is None:  # else the error of the block matters more than ours
                raise

    def __call__(self, function: F) -> F:
        """Decorate a function."""
        from functools import wraps  # noqa: PLC0415 - of two ways to use a stopwatch, only this one needs it

        record_time, metric = self._record_time, self._metric

        @wraps(function)
        async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
            with Stopwatch(record_time, metric):
                return await function(*args, **kwargs)

        @wraps(function)
        def timed_function(*args: Any, **kwargs: Any) -> Any:
            with Stopwatch(record_time, metric):
                return function(*args, **kwargs)

        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        return timed_coroutine if flags & _COROUTINE else timed_function  # type: ignore[return-value]
