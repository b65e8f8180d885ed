"""The guard of public methods: none of our errors reaches the host app, unless the client is strict."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from deniable.errors import without_locals

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class Guarded(Protocol):
    """A class with guarded methods."""

    strict: bool

    def count_error(self, error: Exception, where: str) -> None:
        """Count an error that the app does not see."""


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
                client.count_error(error, method.__name__)
                result: T = otherwise()
                return result

        return guarded_method

    return decorate
