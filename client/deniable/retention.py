"""How long is kept what was counted and what was published."""

from __future__ import annotations

from dataclasses import dataclass, fields

from deniable.errors import ParameterError

__all__ = ["Retention"]

_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What holds for all metrics of an app. Devices have no part in it.

    All are whole days from 1 to 36500, after the close of a period: its end, and the grace in which its reports are still taken.

    Parameters
    ----------
    tallies
        How long the exact sums are kept once they are published, and batches that could not be counted, from the time when they
        were put aside.
    releases
        How long what was published is kept, and how long sums wait that are too few to be published; no less than the tallies.
    alarms
        How long alarms of made-up reports are kept, and the numbers of reports with which later periods are compared.

    Raises
    ------
    ParameterError
        If a number is out of range, or releases are to go before their tallies.
    """

    tallies: int = 30
    releases: int = 1095
    alarms: int = 90

    def __post_init__(self) -> None:
        for each in fields(self):
            days = getattr(self, each.name)
            if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _MOST_DAYS:
                raise ParameterError(f"{each.name} is a whole number of days from 1 to {_MOST_DAYS}", days)
        if self.releases < self.tallies:
            # Else a period could be published a second time.
            raise ParameterError(f"releases are kept no shorter than tallies, which are for {self.tallies} days", self.releases)
