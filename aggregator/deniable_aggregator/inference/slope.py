"""Slopes: by how much a share or a mean rises in a period, over many periods, with an error that holds for panels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtr, stdtrit

from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.inference.between import correlations
from deniable_aggregator.inference.difference import SMALLEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

LEAST = 3
"""Fewest periods of a slope."""
_CYCLES = 3  # fewest cycles of a line with a level for each place in the cycle
TURNOVERS = (0.0, 0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
"""Rates at which devices may be replaced from one period to the next."""


@dataclass(frozen=True, eq=False)
class Course:
    """What was estimated in each of several periods."""

    times: Sequence[int]  # (periods,), rising whole numbers; periods without an estimate are left out
    reports: Sequence[float]  # (periods,), number of reports
    # (periods,), how many other reports in the period the device of a report has made, on average, at most.
    repeats: Sequence[float]
    # estimates, stderr: (periods, values)
    estimates: NDArray[np.float64]
    stderr: NDArray[np.float64]
    shared: NDArray[np.float64]  # (periods, values), the variance that all reports of a person share
    mirrored: bool = field(default=False, kw_only=True)  # whether these are two values whose estimates sum to 1

    @classmethod
    def of_shares(cls, times: Sequence[int], estimates: Sequence[Estimate], repeats: Sequence[float]) -> Course:
        """Return the course of shares."""
        # The error of each value is computed from its own share, cut at 0 and 1. `Estimate.plausible` shares are right over all
        # values, but a value that people hold may count as 0 there.
        own = [_with_own_errors(each) for each in estimates]
        columns = ([each.frequency for each in own], [each.stderr for each in own], [each.shared for each in own])
        mirrored = all(each.mirrored for each in own)
        return cls(times, [each.n for each in own], repeats, *map(np.array, columns), mirrored=mirrored)


def _with_own_errors(estimate: Estimate) -> Estimate:
    if isinstance(estimate, Panel):
        return replace(estimate, independent=_with_own_errors(estimate.independent))
    if isinstance(estimate, Supported):
        return replace(estimate, shares=np.clip(np.nan_to_num(estimate.frequency), 0.0, 1.0))
    return estimate


@dataclass(frozen=True, eq=False)
class Slope:
    """A straight line through a course."""

    estimate: NDArray[np.float64]  # (values,), the rise in a period
    stderr: NDArray[np.float64]  # (values,), its standard error
    degrees: float  # degrees of freedom of the standard error
    mirrored: bool = False  # whether these are two values whose estimates sum to 1

    @property
    def hypotheses(self) -> int:
        """How many slopes are tested: one of each value, but one of two that are mirrored."""
        return 1 if self.mirrored else len(self.estimate)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """The chance of error at which the interval of each value just includes 0; at least `SMALLEST`, nan where unknown."""
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.abs(self.estimate) / self.stderr
        return np.asarray(np.maximum(2 * stdtr(self.degrees, -distance), SMALLEST), np.float64)

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals: of each value alone, or such that all hold together (Bonferroni)."""
        reach = -stdtrit(self.degrees, tail(level, self.hypotheses if simultaneous else 1)) * self.stderr
        return self.estimate - reach, self.estimate + reach


def slope(
    course: Course,
    # periods so many apart are alike: 7 for days; from three cycles on, the line has a level for each day of the week
    cycle: int = 1,
) -> Slope | None:
    """Fit a line by weighted least squares; None through fewer than `LEAST` periods."""
    # The slope is `sum of c_t f_t`, with c from the times and the numbers of reports. If each period had other devices, the
    # errors of its estimates would be independent. They are not if the same devices answer again: what they share stays, and it
    # drifts as some leave and others come. How many leave is not known. So the error is the largest of all constant rates x at
    # which devices are replaced:
    #
    #     sum of c_t^2 fresh / n_t  +  max over x of  sum over s, t of c_s c_t (1 - x)^|s - t| shared / max(m_s, m_t)
    #
    # `m_t = n_t / (1 + repeats_t)` is the least number of devices of a period. Both parts of the variance are means over the
    # periods, because an error that comes from the estimate of one period is small where the estimate happens to be small.
    #
    # Periods also differ by more than chance. How much, the distances from the line tell, less what chance makes of them. It is
    # computed for differences that are correlated from one period to the next by 0, 1/4 and 1/2. The largest variance of the
    # slope counts, with Student's quantile at the fewest degrees of freedom (Satterthwaite).
    times, reports = np.array(course.times, np.float64), np.array(course.reports, np.float64)
    if len(times) < LEAST:
        return None
    people = reports / (1 + np.array(course.repeats, np.float64))
    weights = reports / reports.sum()
    design = _design(times, cycle)
    hat = np.linalg.solve((design.T * weights) @ design, design.T * weights)
    fit = hat[1]
    one = np.square(course.stderr)
    shared = np.minimum(course.shared, one * people[:, None])
    fresh = weights @ ((one - shared / people[:, None]) * reports[:, None])
    gaps = np.abs(times[:, None] - times)
    together = np.outer(fit, fit) / np.maximum(people[:, None], people)
    worst = max(float((together * (1 - turnover) ** gaps).sum()) for turnover in TURNOVERS)
    variance = fresh * (fit**2 / reports).sum() + (weights @ shared) * worst
    off = np.eye(len(times)) - design @ hat
    squares, noise = (off.T * weights) @ off, np.outer(1 / reports, weights @ (one * reports[:, None]))
    residual = weights @ np.square(off @ course.estimates)
    more, degrees = np.zeros(len(variance)), float(len(times) - design.shape[1])
    for correlation in correlations(times):
        spread = squares @ correlation
        differ = np.maximum(residual - np.diag(squares) @ noise, 0.0) / np.trace(spread)
        more = np.maximum(more, differ * float(fit @ correlation @ fit))
        degrees = min(degrees, float(np.trace(spread) ** 2 / np.trace(spread @ spread)))
    return Slope(fit @ course.estimates, np.sqrt(np.maximum(variance + more, 0.0)), degrees, course.mirrored)


def _design(times: NDArray[np.float64], cycle: int) -> NDArray[np.float64]:
    """Return the columns of a line: a level, the times, and from three cycles on a level of each place in the cycle but one."""
    centred = times - times.mean()
    columns = [np.ones(len(times)), centred]
    if cycle > 1 and times[-1] - times[0] + 1 >= _CYCLES * cycle:
        places = (times % cycle).astype(int)
        columns += [(places == place).astype(np.float64) for place in sorted(set(places.tolist()))[1:]]
    return np.stack(columns, axis=1) if len(columns) < len(times) else np.stack(columns[:2], axis=1)
