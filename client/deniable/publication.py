"""How what was counted is published: how many reports it takes, and how the numbers of reports are blurred."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from deniable.errors import ParameterError

__all__ = ["MIN_REPORTS", "Publication"]

MIN_REPORTS = 100
"""Reports that anything published rests on, where the registry says nothing else."""

_LARGEST_EPSILON = 20.0
_LARGEST_DELTA = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What holds for the releases of all metrics of an app. Devices have no part in it.

    What people answered is protected before it leaves their devices. This protects that they answered at all: whoever sees every
    number of reports that is published of a metric and period, and knows of all others whether they reported, learns of one
    report more no more than (epsilon, delta)-differential privacy allows.

    Parameters
    ----------
    epsilon
        Privacy loss in nats of one report more or less in the numbers of reports of a metric and period, all its breakdowns
        together; above 0 and at most 20.
    delta
        Probability that it is more; above 0 and at most 0.001.
    noise
        ``laplace``, or ``gaussian``: more noise in each number, but less privacy loss in all where people have a part in many
        metrics and periods.
    min_reports
        Reports that anything published rests on, and that any two things published differ by at least, for metrics that do not
        say otherwise; 1 or more.
    early
        Whether a period is also published before it closes, whenever enough new reports came.
    trial
        Whether everything is published at once instead, segments and exact numbers of reports and all, however often it changes:
        to try things out. Nobody's part in it is protected then; what they answered still is.

    Raises
    ------
    ParameterError
        If a number is out of range.
    """

    epsilon: float = 2.0
    delta: float = 1e-6
    noise: Literal["laplace", "gaussian"] = "laplace"
    min_reports: int = MIN_REPORTS
    early: bool = True
    trial: bool = False

    def __post_init__(self) -> None:
        for name, largest in (("epsilon", _LARGEST_EPSILON), ("delta", _LARGEST_DELTA)):
            number = getattr(self, name)
            wrong = isinstance(number, bool) or not isinstance(number, int | float)
            if wrong or not isfinite(number) or not 0 < number <= largest:
                raise ParameterError(f"{name} is a number above 0 and at most {largest:g}", number)
        if isinstance(self.min_reports, bool) or not isinstance(self.min_reports, int) or self.min_reports < 1:
            raise ParameterError("min_reports is a whole number of at least 1", self.min_reports)
        if self.noise not in ("laplace", "gaussian"):
            raise ParameterError("noise is laplace or gaussian", self.noise)
        for name in ("early", "trial"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} is true or false", getattr(self, name))
