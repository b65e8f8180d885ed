"""Readings: what the reports of one tally say. Whatever is answered of reports is a view of readings.

`deniable_aggregator.answer.readings` has a class for each kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.decode import panel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable_aggregator.answer.model.metric import Description, Estimates
    from deniable_aggregator.decode.estimate import Estimate, Target
    from deniable_aggregator.inference.difference import Ends
    from deniable_aggregator.tally import Tally


class Centre(NamedTuple):
    """A mean place on the axis."""

    # place, stderr: the mean, and its standard error
    place: float
    stderr: float
    spread: float  # greatest plausible variance that all reports of a person share
    # interval, respondents: compute the interval at a level: for the population, and for the answers that came
    interval: Callable[[float], tuple[float, float]]
    respondents: Callable[[float], tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Reading(ABC):
    """What one tally says. Each estimate is made once, when it is first asked for."""

    declared: Declared  # the metric
    counted: Tally  # its reports
    periods: Mapping[str, float]  # how many of them each period has

    @property
    def n(self) -> int:
        """Number of reports."""
        return self.counted.n

    @cached_property
    def repeats(self) -> float:
        """How many other reports in the tally the device of a report has made, on average, at most."""
        return panel.repeats_of(self.declared.metric, self.periods)

    @abstractmethod
    def estimates(
        self,
        about: Description,  # the metric, independently of its reports
        level: float,  # confidence of the intervals, and of what is detected
    ) -> Estimates:
        """Return the answer about the metric."""

    @abstractmethod
    def lines(self, wanted: Wanted) -> Lines:
        """Return the rows of a table."""


class Wanted(NamedTuple):
    """What is wanted of each tally."""

    kept: Callable[[str], bool]  # whether a value is wanted, by its label; of a number "mean", "p50" and so on
    # target, consistent, level: as of a `Query`
    target: Target
    consistent: bool
    level: float


@dataclass(frozen=True, eq=False)
class Lines:
    """What is estimated from one tally."""

    reading: Reading  # of the tally; of several versions that of the first
    n: int  # reports
    labels: Sequence[str]  # what each line is of
    # reports, estimates, stderr: (lines,). The first is how many reports each estimate rests on.
    reports: NDArray[np.int64]
    estimates: NDArray[np.float64]
    stderr: NDArray[np.float64]
    detected: Sequence[bool | None]  # whether each value is present; None of a number
    interval: Callable[[float], Ends]  # computes the intervals, (lines,) each, at a confidence level
    lowered_by: float  # the amount that consistent shares are lowered by; nan of others
    shares: Estimate | None  # what the estimates are made of; None of a number, and of several versions
    centre: Centre | None  # of a number; else None

    @property
    def hypotheses(self) -> int:
        """How many of the estimates are not told by another one."""
        return self.shares.hypotheses if self.shares else len(self.labels)

    @property
    def alike(self) -> tuple[object, ...]:
        """What lines of the same values have in common."""
        return self.reading.declared.definition, self.labels
