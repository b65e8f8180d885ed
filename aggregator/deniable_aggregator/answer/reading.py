"""Readings: what the reports of one tally say. Whatever is answered of reports is a view of readings.

`deniable_aggregator.answer.readings` has a class for each kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator.answer.model.number import mean_name
from deniable_aggregator.answer.question.number_range import is_range
from deniable_aggregator.decode import panel
from deniable_aggregator.inference.difference import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable.registry import Metric
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

    @property
    def side(self) -> Side:
        """The mean as a side of a comparison."""

        def interval(level: float) -> Ends:
            low, high = self.interval(level)
            return np.array([low]), np.array([high])

        return Side(np.array([self.place]), interval)


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
    def lines(self, options: LineOptions) -> Lines:
        """Return the rows of a table."""


class LineOptions(NamedTuple):
    """Which lines of each tally are answered, and how."""

    keeps: Callable[[str], bool]  # whether a line is answered, by its label; of a number "mean", "p50" and so on
    of_number: Callable[[Metric], Sequence[str]]  # the lines of a number among which it chooses
    target: Target  # whose shares and means are estimated
    consistent: bool  # whether shares are possible ones instead of unbiased ones
    level: float  # confidence of the intervals, and of what is detected


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
    detected: Sequence[bool | None]  # whether each value is present, or a quantile resolved; None of a mean
    interval: Callable[[float], Ends]  # computes the intervals, (lines,) each, at a confidence level
    lowered_by: float  # the amount that consistent shares are lowered by; nan of others
    shares: Estimate | None  # what the estimates are made of; None of a number, and of several versions
    centre: Centre | None  # of a number; else None
    nothing: str = "these reports tell no answer that the query asks for"  # why there are no lines

    @property
    def counts(self) -> NDArray[np.float64]:
        """(lines,), the reports of which an estimate is the share; nan of an estimate that is no share."""
        # Of a set an estimate rests on the reports about its option, and its count is of all.
        is_number = bool(self.reading.declared.metric.estimate)
        return np.array([float("nan") if is_number and not is_range(label) else self.n for label in self.labels], np.float64)

    @property
    def hypotheses(self) -> int:
        """How many estimates there are of which none follows from another one."""
        return self.shares.hypotheses if self.shares else len(self.labels)

    @property
    def side(self) -> Side | None:
        """The lines that can be compared: all shares, or the mean; None of quantiles, and of several versions."""
        if self.shares:
            return Side(self.shares.frequency, self.interval, self.shares.mirrored)
        return self.centre.side if self.centre and self.is_centred else None

    @property
    def is_centred(self) -> bool:
        """Whether the first line is the mean that is compared and followed over time."""
        return self.centre is not None and list(self.labels[:1]) == [mean_name(self.reading.declared.metric)]

    @property
    def alike(self) -> tuple[object, ...]:
        """What lines of the same values have in common."""
        return self.reading.declared.definition, self.labels
