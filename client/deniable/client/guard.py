"""The guard of public methods: none of our errors reaches the host app, unless the client is strict."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from deniable.arrival import SWALLOWED
from deniable.errors import DeniableError, ParameterError, without_locals
from deniable.messages.notice import warn_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.arrival import Arrival
    from deniable.client.counts import Counts

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT = "write a number of seconds, such as 5.0"


class Guarded(Protocol):
    """A class with guarded methods."""

    strict: bool
    _counts: Counts


def guarded(
    otherwise: Callable[[], Any],  # returns the result of the method after an error
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method so that its errors are counted and not raised, unless its client is strict."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def guarded_method(*args: P.args, **kwargs: P.kwargs) -> T:
            client: Guarded = args[0]  # type: ignore[assignment]
            try:
                return method(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - counted; the host app must never notice
                args, kwargs = (), {}  # type: ignore[assignment] # one of them may be an answer
                if client.strict:
                    raise without_locals(error) from None
                client._counts.swallow(error, method.__name__)  # noqa: SLF001 - of our own client
                result: T = otherwise()
                return result

        return guarded_method

    return decorate


def settling(method: Callable[P, Arrival]) -> Callable[P, Arrival]:
    """Decorate `flush` or `close`: guarded, and with its own timeout in place of what is no number."""
    (seconds,) = method.__defaults__ or (0.0,)  # of `timeout`

    @wraps(method)
    def settling_method(*args: P.args, **kwargs: P.kwargs) -> Arrival:
        timeout: Any = kwargs.get("timeout", args[1] if len(args) > 1 else 0.0)
        try:
            timeout + 0.0
        except TypeError:
            client: Guarded = args[0]  # type: ignore[assignment]
            if client.strict:
                raise ParameterError(f"timeout: {_TIMEOUT}") from None
            warn_once(method.__name__, "timeout", f"{_TIMEOUT}; {seconds:g} seconds are used instead")
            args, kwargs = (client, seconds), {}  # type: ignore[assignment]
        return method(*args, **kwargs)

    return guarded(lambda: SWALLOWED)(settling_method)


def in_words(error: Exception) -> str:
    """Write an error as a line, without raising another one."""
    try:
        return str(error) if isinstance(error, DeniableError) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception of the host app whose own `__str__` fails
        return type(error).__name__
