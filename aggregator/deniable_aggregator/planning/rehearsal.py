"""The rehearsal of a metric: its tallies are drawn many times and decoded, and the errors are measured."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from math import floor, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable import mechanisms
from deniable.errors import ConfigurationError, ParameterError
from deniable.mechanisms.base import FrequencyOracle
from deniable_aggregator import decode
from deniable_aggregator.accounting import checks
from deniable_aggregator.planning.precision import precision
from deniable_aggregator.planning.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

__all__ = ["Rehearsal", "Result", "read_shares", "rehearsals"]

_EXPONENT = 1.1  # of Zipf's law, which shares follow that nobody stated
_COLUMNS = ["metric", "value", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured over all values and runs.

    Parameters
    ----------
    metric, mechanism
        Their names.
    n, runs
        Reports of a run, and runs.
    measured
        Root of the mean squared error of a share.
    predicted
        The same by the mechanism's variance; None where it is not known before.
    ratio_stderr
        Standard error of the measured error, as a part of it.
    coverage, level
        The share of intervals that held the truth, and the confidence that they state.
    """

    metric: str
    mechanism: str
    n: int
    runs: int
    measured: float
    predicted: float | None
    ratio_stderr: float
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
class Rehearsal:
    """A metric, and the people who answer it.

    Parameters
    ----------
    metric, mechanism
        As declared.
    values
        Candidates, as positions in the domain; None for the whole domain.
    shares
        float array: the share of the population that holds each value; they sum to 1.
    """

    metric: Metric
    mechanism: Mechanism
    values: tuple[int, ...] | None
    shares: NDArray[np.float64]

    def run(
        self, users: int, runs: int, rng: np.random.Generator, *, level: float = 0.95, advance: Callable[[], None] = lambda: None
    ) -> Result:
        """Draw people from the population and their reports, and decode these, `runs` times.

        Parameters
        ----------
        users
            People; of some metrics only a sample of the answers is recorded.
        runs
            At least 2.
        rng
            Where chance comes from.
        level
            Confidence of the intervals.
        advance
            Called after each run.
        """
        n = floor(checks.count("users", users) * Fraction(self.metric.sample))
        checks.count("reports", n)
        checks.count("runs", runs, 2)
        drawn, squares, covered = Simulation(self.mechanism, self.values), [], []
        for _ in range(runs):
            estimate = decode.estimate(self.mechanism, drawn.draw(rng.multinomial(n, self.shares), rng), self.values)
            low, high = estimate.interval(level)
            squares.append(float(np.square(estimate.frequency - self.shares).mean()))
            covered.append(float(((low <= self.shares) & (self.shares <= high)).mean()))
            advance()
        return Result(
            metric=self.metric.id,
            mechanism=self.mechanism.name,
            n=n,
            runs=runs,
            measured=sqrt(np.mean(squares)),
            predicted=self.predicted(n),
            ratio_stderr=float(np.std(squares, ddof=1) / sqrt(runs) / np.mean(squares) / 2),
            coverage=float(np.mean(covered)),
            level=level,
        )

    def predicted(self, n: int) -> float | None:
        """Compute the root of the mean variance of n reports over all values."""
        how = precision(self.metric, self.mechanism, len(self.shares))
        return None if how is None else sqrt(np.mean([how.variance(share) for share in self.shares.tolist()]) / n)


def rehearsals(registry: Registry, stated: Mapping[str, Mapping[str, float]]) -> tuple[list[Rehearsal], list[str]]:
    """Make the rehearsals of a registry.

    Parameters
    ----------
    registry
        As loaded.
    stated
        By metric, the share of each value, or a number of people; others follow Zipf's law.

    Returns
    -------
    made : list of Rehearsal
        Of each metric whose shares are estimated.
    left : list of str
        The other metrics: numbers, sets, means, and what is to be discovered.

    Raises
    ------
    ConfigurationError
        If shares are stated of what is not simulated, or of a value that a metric does not have.
    """
    unknown = sorted(stated.keys() - registry.metrics.keys())
    if unknown:
        raise ConfigurationError(f"shares are stated of {unknown[0]}, which {registry.file} does not declare")
    made: list[Rehearsal] = []
    left: list[str] = []
    for metric in registry.metrics.values():
        mechanism = mechanisms.of(metric)
        if not isinstance(mechanism, FrequencyOracle) or metric.axis or metric.discover:
            left.append(metric.id)
            continue
        values = registry.candidates(metric) if metric.open else None
        if metric.open and not values:
            left.append(metric.id)
            continue
        places = {position: place for place, position in enumerate(range(metric.domain_size) if values is None else values)}
        shares = _stated(metric, places, stated[metric.id]) if metric.id in stated else _zipf(len(places))
        made.append(Rehearsal(metric=metric, mechanism=mechanism, values=values, shares=shares))
    refused = sorted(stated.keys() & set(left))
    if refused:
        raise ConfigurationError(f"shares are stated of {refused[0]}, which is not simulated: no shares of given values")
    return made, left


def read_shares(path: Path) -> dict[str, dict[str, float]]:
    """Read the shares of values from a CSV file with the columns metric, value and share.

    Raises
    ------
    ConfigurationError
        If it cannot be read, or has a line that states no share.
    """
    found: dict[str, dict[str, float]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != _COLUMNS:
                raise ConfigurationError(f"{path} begins with the columns {','.join(_COLUMNS)}")
            for line in reader:
                share = _share(line["share"])
                of_metric = found.setdefault(line["metric"], {})
                if share is None or line["value"] is None or line["value"] in of_metric:
                    rule = "each line states a metric, one value of it, and a share or a number of people"
                    raise ConfigurationError(f"{path}, line {reader.line_num}: {rule}")
                of_metric[line["value"]] = share
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    return found


def _share(written: str | None) -> float | None:
    try:
        share = float(written or "")
    except ValueError:
        return None
    return share if 0 <= share < float("inf") else None


def _stated(metric: Metric, places: Mapping[int, int], stated: Mapping[str, float]) -> NDArray[np.float64]:
    """Return the stated shares in the order of the values; others are 0. Numbers of people are divided by their sum."""
    shares = np.zeros(len(places))
    for written, share in stated.items():
        try:
            place = places.get(metric.position(_answer(metric, written)), -1)
        except (ParameterError, ValueError):
            place = -1
        if place < 0:
            raise ConfigurationError(f"shares are stated of a value that {metric.id} does not have: {written}")
        shares[place] = share
    if not shares.sum():
        raise ConfigurationError(f"the shares of {metric.id} are all 0")
    return np.asarray(shares / shares.sum())


def _answer(metric: Metric, written: str) -> object:
    """Read an answer as `deniable explain` does."""
    if metric.type == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(written.lower(), written)
    if metric.type == "key":
        return int(written)
    return written.split(",") if metric.type == "product" else written


def _zipf(values: int) -> NDArray[np.float64]:
    weights = np.arange(1, values + 1) ** -_EXPONENT
    return np.asarray(weights / weights.sum())
