"""A stopwatch that records how long a block or a function takes. A module of the app can make one while it is imported."""

from __future__ import annotations

from time import perf_counter

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would take longer than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Stopwatch", "Timing"]

_COROUTINE = 0x80  # the flag of code with `async def`; `inspect`, which names it, is slow to import


class Timing:
    """The time of one block, from when this is made until `stop`."""

    __slots__ = ("_begun", "_seconds")

    def __init__(self) -> None:
        self._begun = perf_counter()
        self._seconds: float | None = None

    def stop(self) -> None:
        """Note the time. A second call does nothing."""
        if self._seconds is None:
            self._seconds = perf_counter() - self._begun

    @property
    def ended(self) -> bool:
        """Whether the block has ended."""
        return self._seconds is not None

    @property
    def seconds(self) -> float:
        """The time; while the block runs, the time until now."""
        return perf_counter() - self._begun if self._seconds is None else self._seconds


class Stopwatch:
    """Records the time of a block, or of each call of a function, in the unit of a metric.

    It is a context manager and a decorator. The time is recorded also if the block raises. Of an ``async def`` function it is the
    time until the result is there, and of a generator only that of the call which makes it.

    Parameters
    ----------
    begin
        Called with the metric when a block begins; returns its timing, or None if it is not recorded.
    metric
        Id of a number metric whose unit is us, ms, s, min or h.

    Notes
    -----
    A decorated function may run in many threads and call itself. Of a context manager, make one for each block: threads that
    enter the same one would mix their times.

    The period is that in which the block begins. The report is made so long after this beginning as the longest time of the range
    is, some random time more, and a metric's delay. So the moment does not tell the time. A process that ends before has it made,
    and sent by a later run. A block that runs for longer has the longest time; at the end of its process, the time until then.
    """

    __slots__ = ("_begin", "_blocks", "_metric")

    def __init__(self, begin: Callable[[str], Timing | None], metric: str) -> None:
        self._begin = begin
        self._metric = metric
        self._blocks: list[Timing | Exception | None] = []

    def __enter__(self) -> Self:
        try:
            block: Timing | Exception | None = self._begin(self._metric)
        except Exception as error:  # noqa: BLE001 - raised at the end: what a strict client says must not stop the block
            block = error
        self._blocks.append(block)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        block = self._blocks.pop()
        if isinstance(block, Exception):
            if kind is None:  # else the error of the block matters more than ours
                raise block
        elif block is not None:
            try:
                block.stop()
            except Exception:
                if kind is None:
                    raise

    def __call__(self, function: F) -> F:
        """Decorate a function."""
        from functools import wraps  # noqa: PLC0415 - of two ways to use a stopwatch, only this one needs it

        begin, metric = self._begin, self._metric

        @wraps(function)
        async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
            with Stopwatch(begin, metric):
                return await function(*args, **kwargs)

        @wraps(function)
        def timed_function(*args: Any, **kwargs: Any) -> Any:
            with Stopwatch(begin, metric):
                return function(*args, **kwargs)

        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        return timed_coroutine if flags & _COROUTINE else timed_function  # type: ignore[return-value]
