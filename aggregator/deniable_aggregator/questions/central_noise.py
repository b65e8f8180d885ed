"""Central noise: noisy answers about exact numbers of reports, which hide the cell of each report.

Two data sets are neighbours if one has a report in another cell, or one more report: each number changes by 1 at most. OpenDP
draws exact samples, without floats. Losses are pure epsilon, without delta, and OpenDP's own privacy map confirms them.

`count`
    Discrete Laplace noise: ``P(X = x)`` is proportional to ``exp(-epsilon |x|)`` (Ghosh, Roughgarden and Sundararajan 2009).
`total`
    The same for a sum of whole scores: noise of scale ``sensitivity / epsilon``, where no report adds more than the sensitivity.
`most`
    Report-noisy-max with exponential noise of mean ``2 / epsilon``. The number of all reports is published, so the cell of a
    report is hidden: a change raises one number and lowers another. The result has the same distribution as *permute-and-flip*:
    go through the cells in random order, and take one with probability ``exp(epsilon / 2 (count - largest))``, until one is taken
    (Ding et al. 2021). On average it is at least as near to the largest as the exponential mechanism (McKenna and Sheldon 2020,
    theorem 2).
`leading`
    The same for numbers that all change in one direction when a report comes or goes: with half of the noise.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from math import ceil, exp, inf, log, log1p, nextafter, sqrt
from typing import TYPE_CHECKING, Any, Literal

from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEPS = 64  # most floats above the computed scale that are tried, as the maps of OpenDP round


def available() -> bool:
    """Return whether OpenDP, which draws the noise, is installed."""
    return find_spec("opendp") is not None


def count(
    n: int,  # the true number
    cost: int,  # loss of privacy of one report, in millionths of a nat, above 0
) -> int:
    """Return the number of reports plus noise: unbiased, and perhaps negative."""
    return int(_measurement("laplace", cost)(n))


def most(
    counts: Sequence[int],  # reports of each cell, of one cell or more
    cost: int,  # as for `count`
) -> int:
    """Return the place of the largest number, or of a nearly largest one."""
    return int(_measurement("max", cost)(list(counts)))


def total(
    value: int,  # the true sum
    sensitivity: int,  # the most that one report adds or takes off
    cost: int,  # as for `count`
) -> int:
    """Return a sum plus noise: unbiased."""
    return int(_measurement("laplace", cost, sensitivity)(value))


def leading(
    counts: Sequence[int],  # numbers to each of which a report adds 1 or 0
    cost: int,  # as for `count`
) -> int:
    """Return the place of the largest number, or of a nearly largest one."""
    return int(_measurement("leading", cost)(list(counts)))


def stderr(cost: int) -> float:
    """Return the standard deviation of the noise of `count`, in reports."""
    ratio = exp(-cost / MICRO)
    return sqrt(2 * ratio) / (1 - ratio)


def reach(cost: int, level: float) -> int:
    """Return the least bound, in reports, on the error of `count` that holds with probability `level`."""
    epsilon = cost / MICRO  # P(|X| > t) = 2 e^(-epsilon (t + 1)) / (1 + e^-epsilon)
    return max(0, ceil((log(2) - log1p(exp(-epsilon)) - log(1 - level)) / epsilon - 1))


def margin(cells: int, cost: int, level: float) -> float:
    """Return a bound on how far the cell of `most` is behind the largest one, in reports, that holds with probability `level`."""
    return 2 * (log(cells) - log(1 - level)) * MICRO / cost


@lru_cache(maxsize=64)
def _measurement(kind: Literal["laplace", "max", "leading"], cost: int, sensitivity: int = 1) -> Any:
    """Return OpenDP's mechanism of at most this cost, confirmed by OpenDP's own map."""
    if cost < 1:
        raise ParameterError("cost: write 1 or more; an answer costs at least a millionth of a nat", cost)
    bound, scale = Fraction(cost, MICRO), (2 if kind == "max" else sensitivity) * MICRO / cost
    for _ in range(_STEPS):
        mechanism = _mechanism(kind, scale)
        if Fraction(mechanism.map(sensitivity)) <= bound:  # exact: a float comparison could accept a loss above the cost
            return mechanism
        scale = nextafter(scale, inf)
    raise ParameterError(
        "cost: write another; OpenDP has no scale for this loss", cost
    )  # pragma: no cover - its maps round by a place or two


def _mechanism(kind: str, scale: float) -> Any:
    import opendp.prelude as dp  # noqa: PLC0415 - it takes a second to load, and most servers are asked no questions

    dp.enable_features("contrib")
    number = dp.atom_domain(T="i64")
    if kind == "laplace":
        return dp.m.make_laplace(number, dp.absolute_distance(T="i64"), scale=scale)
    distance = dp.linf_distance(T="i64", monotonic=kind == "leading")
    return dp.m.make_noisy_max(dp.vector_domain(number), distance, dp.max_divergence(), scale=scale)
