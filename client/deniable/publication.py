"""How what was counted is published: when, and how many reports it takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from deniable.errors import ParameterError

__all__ = ["GRACE", "MIN_REPORTS", "Publication", "delay"]

GRACE = "48h"
"""How long a period takes reports after its end, where the registry says nothing else.

For so long a device keeps what it could not send; a longer grace would wait for nobody.
"""

MIN_REPORTS = 100
"""Reports that anything published rests on, where the registry says nothing else."""

_LONGEST_GRACE = timedelta(days=30)


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
