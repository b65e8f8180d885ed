"""Which versions of a metric answer a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deniable_aggregator.answer.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

V = TypeVar("V")
T = TypeVar("T")


def answers(versions: Iterable[V], ask: Callable[[V], T], has_reports: Callable[[T], object] = lambda _: True) -> list[T]:
    """Ask each version, the highest first, and return the answers with reports; if there are none, the first answer.

    Raises
    ------
    Refusal
        The first one, if a version refuses and none has reports.
    """
    found: list[T] = []
    refusal: Refusal | None = None
    for version in versions:
        try:
            found.append(ask(version))
        except Refusal as error:
            refusal = refusal or error
    answered = [each for each in found if has_reports(each)]
    if refusal and not answered:
        raise refusal
    return answered or found[:1]
