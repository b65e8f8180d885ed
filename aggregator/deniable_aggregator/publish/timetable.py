"""The timetable of hourly copies: when the last pass was, when the next is due, and how many reports there were in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.store import schema

if TYPE_CHECKING:
    from deniable_aggregator.store import Store

TRIAL_SECONDS = 2.0
"""Seconds between looks in a trial, which shows everything at once."""


class Pass(NamedTuple):
    """A pass in which all sums of an app were copied."""

    at: int  # Unix time of its minute; in a trial of its second
    next: int  # Unix time from which the next one is due; in a trial the same as `at`
    n: int  # reports of the sums

    @property
    def to_come(self) -> bool:
        """Whether nothing was counted yet when it was made, and another one comes."""
        return not self.n and not self.of_trial

    @property
    def of_trial(self) -> bool:
        """Whether it is of a trial, which waits for no full hour."""
        return self.next <= self.at

    @classmethod
    def last(cls, store: Store) -> Pass | None:
        """Return the last one of an app; None if there was none."""
        text = store.get(schema.COPIED_AT)
        return cls(*map(int, text.split())) if text else None

    def note(self, store: Store) -> None:
        """Record it as the last one."""
        store.put(schema.COPIED_AT, " ".join(map(str, self)))
