"""The tables of a registry that say what holds for all of its metrics: publication, retention, analysts, budget."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass, fields
from datetime import timedelta
from math import isfinite

from deniable.errors import ParameterError

__all__ = ["GRACE", "MIN_REPORTS", "Analysts", "Budget", "Publication", "Retention", "delay"]

GRACE = "48h"
"""How long a period takes reports after its end, where the registry says nothing else.

For so long a device keeps what it could not send; a longer grace would wait for nobody.
"""

MIN_REPORTS = 100
"""Reports that anything published rests on, where the registry says nothing else."""

_LONGEST_GRACE = timedelta(days=30)
_MOST_DAYS = 36_500
_MOST_NATS_OF_ANALYSTS = 20.0
_LARGEST = 1e6  # nats, or days: far beyond use, and small enough that millionths of it are exact integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What holds for the releases of all metrics of an app. Devices have no part in it.

    Parameters
    ----------
    min_reports
        Reports that anything published rests on, and that any two things published differ by at least, for metrics that do not
        say otherwise; 1 or more.
    grace
        How long a period takes reports after its end, such as ``12h`` or ``2d``, for metrics that do not say otherwise.
    early
        Whether a period is also published before it closes, whenever enough new reports came.
    trial
        Whether everything is published at once instead, segments and all, however few reports there are: to try things out.
        What people answered is protected by their devices alone then.

    Raises
    ------
    ParameterError
        If a value is out of range.
    """

    min_reports: int = MIN_REPORTS
    grace: str = GRACE
    early: bool = True
    trial: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.min_reports, bool) or not isinstance(self.min_reports, int) or self.min_reports < 1:
            raise ParameterError("min_reports is a whole number of at least 1", self.min_reports)
        delay(self.grace)
        for name in ("early", "trial"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} is true or false", getattr(self, name))


def delay(grace: object) -> timedelta:
    """Read a grace.

    Raises
    ------
    ParameterError
        If it is none.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,2})([hd])", grace) if isinstance(grace, str) else None
    read = timedelta(**{"hours" if found[2] == "h" else "days": int(found[1])}) if found else _LONGEST_GRACE * 2
    if read > _LONGEST_GRACE:
        raise ParameterError("grace is a number of hours or days such as 12h or 2d, 30 days at most", grace)
    return read


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysts:
    """The budget that all keys of an app share, for the reports of each month. Devices have no part in it.

    Parameters
    ----------
    epsilon
        Nats that all answers about a month's reports may cost together; at most 20, and 0 where no such question is answered.
    per_key
        How much of that one key may spend.

    Raises
    ------
    ParameterError
        If a number is out of range.
    """

    epsilon: float = 1.0
    per_key: float = 0.5

    def __post_init__(self) -> None:
        for name, nats in zip(("epsilon", "per_key"), astuple(self), strict=True):
            if isinstance(nats, bool) or not isinstance(nats, int | float) or not 0 <= nats <= _MOST_NATS_OF_ANALYSTS:
                raise ParameterError(f"{name} is a number of nats from 0 to {_MOST_NATS_OF_ANALYSTS:g}", nats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A plain sum over all metrics of a device: nothing is recorded that would exceed it.

    The window slides: whatever stretch of its length one looks at, the reports made in it spend at most `per_window`.

    Parameters
    ----------
    window
        Days, above 0.
    per_window
        Nats that may be spent in any window; None for no bound.
    lifetime
        Nats that may be spent ever; None for no bound. Not below `per_window`, of which each metric has its part in the same
        proportion.

    Raises
    ------
    ParameterError
        If a number is out of range, or there is a lifetime and no window's bound.
    """

    window: float = 30
    per_window: float | None = 32
    lifetime: float | None = 320

    def __post_init__(self) -> None:
        for name in self.__slots__:
            number = getattr(self, name)
            if number is None and name != "window":
                continue
            wrong = isinstance(number, bool) or not isinstance(number, int | float)
            if wrong or not isfinite(number) or not 0 < number <= _LARGEST:
                unit = "days" if name == "window" else "nats"
                raise ParameterError(f"{name} is a number of {unit} above 0 and at most {_LARGEST:.0f}", number)
        if self.lifetime is not None and (self.per_window is None or self.lifetime < self.per_window):
            raise ParameterError(f"lifetime goes with per_window, and is not below it: {self.per_window}", self.lifetime)

    def tightened(self, other: Budget) -> Budget:
        """Return the strictest of two in every respect. A longer window with the same sum is stricter."""
        return Budget(
            window=max(self.window, other.window),
            per_window=_least(self.per_window, other.per_window),
            lifetime=_least(self.lifetime, other.lifetime),
        )


def _least(one: float | None, other: float | None) -> float | None:
    bounds = [bound for bound in (one, other) if bound is not None]
    return min(bounds) if bounds else None
