"""How what was counted is published: when, and how many reports it takes."""

from __future__ import annotations

from dataclasses import dataclass

from deniable.errors import ParameterError

__all__ = ["MIN_REPORTS", "Publication"]

MIN_REPORTS = 100
"""Reports that anything published rests on, where the registry says nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What holds for the releases of all metrics of an app. Devices have no part in it.

    Parameters
    ----------
    min_reports
        Reports that anything published rests on, and that any two things published differ by at least, for metrics that do not
        say otherwise; 1 or more.
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
    early: bool = True
    trial: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.min_reports, bool) or not isinstance(self.min_reports, int) or self.min_reports < 1:
            raise ParameterError("min_reports is a whole number of at least 1", self.min_reports)
        for name in ("early", "trial"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} is true or false", getattr(self, name))
