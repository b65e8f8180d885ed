"""The rehearsal of a metric: its tallies are drawn many times and decoded, and the errors are measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deniable.declared import declare_all
from deniable.errors import ConfigurationError
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.sets import OfSets
from deniable.mechanisms.window import Window
from deniable_aggregator import checks, decode
from deniable_aggregator.decode.numbers.mean import mean
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.sets.options import option_shares, options_of
from deniable_aggregator.planning.population import cut, falling, of_options, of_values
from deniable_aggregator.planning.precision import precision
from deniable_aggregator.planning.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

    Floats = NDArray[np.float64]

_NUMBERS = 101  # from end to end of a range, of which a population is made that nobody stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured over all values and runs."""

    # metric, mechanism: their names
    metric: str
    mechanism: str
    of: str  # which errors: of the `shares` of values, of the shares of `options`, or of a `mean`
    # n, runs: reports of a run, and runs
    n: int
    runs: int
    measured: float  # root of the mean squared error: of a share, or of a mean as a part of its range
    predicted: float | None  # the same by the mechanism's variance; None where it is not known before
    ratio_stderr: float  # standard error of the measured error, as a part of it
    # coverage, level: the share of intervals that held the truth, and the confidence that they state
    coverage: float
    level: float

    @property
    def ratio(self) -> float | None:
        """The measured error over the predicted one."""
        return self.measured / self.predicted if self.predicted else None

    def to_dict(self) -> dict[str, Any]:
        """Write it for programs."""
        return {
            "metric": self.metric,
            "mechanism": self.mechanism,
            "of": self.of,
            "reports": self.n,
            "runs": self.runs,
            "measured": self.measured,
            "predicted": self.predicted,
            "ratio": self.ratio,
            "ratio_stderr": self.ratio_stderr,
            "coverage": self.coverage,
            "level": self.level,
        }


@dataclass(frozen=True, kw_only=True)
class Rehearsal(ABC):
    """A metric, and the people who answer it."""

    of: ClassVar[str]

    # metric, mechanism: as declared
    metric: Metric
    mechanism: Mechanism
    shares: Floats  # the share of the population that holds each value, or chooses each option

    @property
    def truth(self) -> Floats:
        """What is to be estimated: the shares, or the mean."""
        return self.shares

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Tally:
        """Draw people from the population, and the tally of their reports."""

    def people(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw how many of n people hold each value; those who answer alike hold one."""
        size = self.metric.together
        groups = max(round(n / size), 1)
        held = np.round(rng.multinomial(groups, self.shares) * (n / groups)).astype(np.int64)
        held[held.argmax()] += n - held.sum()
        return held

    @abstractmethod
    def decode(self, tally: Tally, level: float) -> tuple[Floats, Floats, Floats]:
        """Estimate the truth; return estimates and the ends of their intervals."""

    def variance(self) -> Floats | None:
        """Compute the variance of each estimate from one report, as a plan does; None where it is not known before."""
        how = precision(self.metric, self.mechanism, len(self.shares))
        return None if how is None else np.array([how.variance(share) for share in self.truth.tolist()])

    def run(
        self,
        users: int,  # people; of some metrics only a sample of the answers is recorded
        runs: int,  # at least 2
        rng: np.random.Generator,  # where chance comes from
        *,
        level: float = 0.95,  # confidence of the intervals
        advance: Callable[[], None] = lambda: None,  # called after each run
    ) -> Result:
        """Draw people from the population and their reports, and decode these, `runs` times."""
        n = floor(checks.count("users", users) * Fraction(self.metric.sample))
        checks.count("reports", n)
        checks.count("runs", runs, 2)
        truth, variance = self.truth, self.variance()
        squares, covered = [], []
        for _ in range(runs):
            estimates, low, high = self.decode(self.draw(n, rng), level)
            squares.append(float(np.nanmean(np.square(estimates - truth))))  # nan: of an option that no report is about
            covered.append(float(((low <= truth) & (truth <= high)).mean()))
            advance()
        return Result(
            metric=self.metric.id,
            mechanism=self.mechanism.name,
            of=self.of,
            n=n,
            runs=runs,
            measured=sqrt(np.mean(squares)),
            predicted=None if variance is None else sqrt(variance.mean() / n),
            ratio_stderr=float(np.std(squares, ddof=1) / sqrt(runs) / np.mean(squares) / 2),
            coverage=float(np.mean(covered)),
            level=level,
        )


@dataclass(frozen=True, kw_only=True)
class OfShares(Rehearsal):
    """The shares of values, which sum to 1."""

    of = "shares"
    values: tuple[int, ...] | None = None  # candidates, as positions in the domain; None for the whole domain

    @cached_property
    def _simulation(self) -> Simulation:
        return Simulation(self.mechanism, self.values)

    def draw(self, n: int, rng: np.random.Generator) -> Tally:
        """Draw who holds what, and their reports."""
        return self._simulation.draw(self.people(n, rng), rng)

    def decode(self, tally: Tally, level: float) -> tuple[Floats, Floats, Floats]:
        """Estimate the share of each value."""
        estimate = decode.estimate(self.mechanism, tally, self.values, repeats=self.metric.together - 1)
        return estimate.frequency, *estimate.interval(level)


@dataclass(frozen=True, kw_only=True)
class OfOptions(Rehearsal):
    """The share of people who choose each option of a set. Whether they choose one says nothing of another."""

    of = "options"

    @cached_property
    def truth(self) -> Floats:
        """What is to be estimated: the share of answers that have each option, once they are cut."""
        return cut(self.shares, self.metric.most) if self.metric.most else self.shares

    def draw(self, n: int, rng: np.random.Generator) -> Tally:
        """Draw what people choose of the options that they report about."""
        shares, alike = self.truth, self.metric.together
        if alike > 1:  # each option is asked of a few of a group, who answer as the group does
            groups = max(round(n / alike), 1)
            shares = rng.binomial(groups, shares) / groups
        return options_of(self.mechanism).draw_sets(n, shares, rng)

    def decode(self, tally: Tally, level: float) -> tuple[Floats, Floats, Floats]:
        """Estimate the share of each option."""
        estimate: Estimate = option_shares(self.mechanism, tally)
        if self.metric.together > 1:
            estimate = Panel(tally.n, estimate, self.metric.together - 1)
        return estimate.frequency, *estimate.interval(level)


@dataclass(frozen=True, kw_only=True)
class OfMean(Rehearsal):
    """The mean place of numbers on their axis, from 0 to 1."""

    of = "mean"
    values: tuple[int, ...]  # the positions of the numbers that people hold

    @cached_property
    def _places(self) -> Floats:
        return np.array(self.values) / (self.metric.domain_size - 1)

    @property
    def truth(self) -> Floats:
        """The mean."""
        return np.array([self.shares @ self._places])

    @cached_property
    def _simulation(self) -> Simulation:
        return Simulation(self.mechanism, None if self.metric.rounded else self.values)

    def draw(self, n: int, rng: np.random.Generator) -> Tally:
        """Draw who holds what, and their reports. A kept number is reported as one end of its range."""
        held = self.people(n, rng)
        if self.metric.rounded:  # each device by its own chance
            high = int(rng.binomial(held, self._places).sum())
            held = np.array([n - high, high])
        return self._simulation.draw(held, rng)

    def decode(self, tally: Tally, level: float) -> tuple[Floats, Floats, Floats]:
        """Estimate the mean."""
        estimate = mean(self.mechanism, tally, repeats=self.metric.together - 1)
        low, high = estimate.interval(level)
        return np.array([estimate.place]), np.array([low]), np.array([high])

    def variance(self) -> Floats | None:
        """Add the variance of the numbers to that of their reports. The plan takes the greatest of both instead."""
        at = float(self.truth[0])
        if isinstance(self.mechanism, Window):
            noise = self.shares @ [self.mechanism.score_variance(place) for place in self._places.tolist()]
            return np.array([noise + (self.shares @ self._places**2 - at**2) * self.metric.together])
        assert isinstance(self.mechanism, FrequencyOracle)  # noqa: S101 - a rounded number has one
        return np.array([self.mechanism.variance(at, 1) + at * (1 - at)])


def rehearsals(
    registry: Registry,
    # by metric, the share of each value, or a number of people; others follow Zipf's law
    stated: Mapping[str, Mapping[str, float]],
) -> tuple[list[Rehearsal], list[str]]:
    """Make the rehearsals of metrics whose answers are known; return the ids of the others, too."""
    simulated: list[Rehearsal] = []
    left: list[str] = []
    for declared in declare_all(registry, registry.metrics.values()):
        metric = declared.metric
        if metric.open and not declared.candidates:
            left.append(metric.id)
        else:
            simulated.append(_rehearsal(declared, stated.get(metric.id)))
    refused = sorted(stated.keys() & set(left))
    if refused:
        raise ConfigurationError(f"shares are stated of {refused[0]}, which is not simulated: its answers are not listed")
    return simulated, left


def _rehearsal(declared: Declared, stated: Mapping[str, float] | None) -> Rehearsal:
    metric, mechanism, candidates = declared.metric, declared.mechanism, declared.candidates
    if isinstance(mechanism, OfSets):
        return OfOptions(metric=metric, mechanism=mechanism, shares=of_options(metric, stated))
    held = None if stated is None else of_values(metric, stated)
    if isinstance(mechanism, Window) or metric.rounded:
        values = tuple(_numbers(metric) if held is None else held)
        shares = falling(len(values)) if held is None else np.array([*held.values()])
        return OfMean(metric=metric, mechanism=mechanism, values=values, shares=shares)
    places = candidates or range(metric.domain_size)
    shares = falling(len(places)) if held is None else np.array([held.pop(place, 0.0) for place in places])
    if held:
        raise ConfigurationError(f"shares are stated of a value that {metric.id} does not have, or is no candidate")
    return OfShares(metric=metric, mechanism=mechanism, values=candidates or None, shares=shares)


def _numbers(metric: Metric) -> Sequence[int]:
    """Return the positions that people hold where nobody stated them: some evenly over the range, or all of an ordinal."""
    if metric.axis is None:
        return range(metric.domain_size)
    return [round(place * metric.axis.steps / (_NUMBERS - 1)) for place in range(_NUMBERS)]
