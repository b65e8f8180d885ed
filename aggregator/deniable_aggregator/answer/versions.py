"""Which versions of a metric answer a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deniable_aggregator.answer.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

V = TypeVar("V")
T = TypeVar("T")


def answers(versions: Iterable[V], ask: Callable[[V], T], has_reports: Callable[[T], object] = lambda _: True) -> list[T]:
    """Return the answers with reports, or else the first answer; raise the first `Refusal` if no version has reports."""
    all_answers: list[T] = []
    refusal: Refusal | None = None
    for version in versions:
        try:
            all_answers.append(ask(version))
        except Refusal as error:
            refusal = refusal or error
    answered = [each for each in all_answers if has_reports(each)]
    if refusal and not answered:
        raise refusal
    return answered or all_answers[:1]
