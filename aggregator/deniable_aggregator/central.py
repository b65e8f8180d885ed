"""Central noise: answers about exact numbers of reports, which an organisation holds, drawn so that they hide any one report.

Both answers are by OpenDP, whose samples are exact; no float is ever one. Of two neighbouring data sets one has a report more.
The losses are pure (epsilon, no delta), and OpenDP's own map from distance to loss is asked whether they are kept.

`participants`
    Discrete Laplace noise: the number changes by at most 1, its sensitivity, and ``P(X = x)`` is proportional to
    ``exp(-epsilon |x|)`` (Ghosh, Roughgarden and Sundararajan 2009).
`popular`
    Report-noisy-max with exponential noise: to each count noise of mean ``1 / epsilon`` is added, and the largest is named. One
    report more raises some counts by 1 and lowers none (sensitivity 1, monotonic), so that epsilon is not halved. It is the
    same law as *permute-and-flip*: go through the values in random order, and take one with probability
    ``exp(epsilon (count - largest))``, until one is taken. It is not the law of the *exponential mechanism*, by which a value has
    probability proportional to ``exp(epsilon count)``: that is report-noisy-max with Gumbel noise. Both have the same loss, and
    permute-and-flip is never farther from the largest on average, so it is the one used. Its utility: with probability
    ``1 - beta`` at least, the value named has at most `margin` reports fewer than the most popular one.

References
----------
F. McSherry, K. Talwar: Mechanism design via differential privacy. FOCS 2007, theorem 8 (utility of the exponential mechanism).
D. Durfee, R. Rogers: Practical differentially private top-k selection with pay-what-you-get composition. NeurIPS 2019, lemma 4.2
(the exponential mechanism is report-noisy-max with Gumbel noise).
R. McKenna, D. Sheldon: Permute-and-flip: a new mechanism for differentially private selection. NeurIPS 2020, theorem 2 (it is
never worse).
Z. Ding, D. Kifer, S. Steinke, Y. Wang, Y. Xiao, D. Zhang: The permute-and-flip mechanism is identical to report-noisy-max with
exponential noise. 2021.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, inf, log, log1p, nextafter, sqrt
from typing import TYPE_CHECKING, Any, Literal

from deniable.allowance import MICRO
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["margin", "participants", "popular", "reach", "stderr"]

_STEPS = 64  # of the scale, the last place each, within which rounding in a map is made up for


def participants(n: int, cost: int) -> int:
    """Tell how many reports there are, with noise. This method is run by the server.

    Parameters
    ----------
    n
        How many there are.
    cost
        Loss of privacy of one report, in millionths of a nat, above 0.

    Returns
    -------
    int
        An unbiased number, which may be negative.
    """
    return int(_measurement("laplace", cost)(n))


def popular(counts: Sequence[int], cost: int) -> int:
    """Name the value with the most reports, or one that has nearly as many. This method is run by the server.

    Parameters
    ----------
    counts
        How many reports each value has; one report more raises any of them by 1 at most.
    cost
        Loss of privacy of one report, in millionths of a nat, above 0.

    Returns
    -------
    int
        Its place among them.

    Raises
    ------
    ParameterError
        If there are no values.
    """
    if not counts:
        raise ParameterError("the most popular is one of one or more values", len(counts))
    return int(_measurement("max", cost)(list(counts)))


def stderr(cost: int) -> float:
    """Return the standard deviation of the noise of `participants`, in reports."""
    ratio = exp(-cost / MICRO)
    return sqrt(2 * ratio) / (1 - ratio)


def reach(cost: int, level: float) -> int:
    """Return the least number of reports within which `participants` is of the true number with probability `level` at least."""
    epsilon = cost / MICRO  # P(|X| > t) = 2 e^(-epsilon (t + 1)) / (1 + e^-epsilon)
    return max(0, ceil((log(2) - log1p(exp(-epsilon)) - log(1 - level)) / epsilon - 1))


def margin(values: int, cost: int, level: float) -> float:
    """Return by how many reports the value that `popular` names may be behind the first, with probability `level` at most not.

    Parameters
    ----------
    values
        How many there are to choose from.
    cost
        As for `popular`.
    level
        Probability of being within the margin, below 1.
    """
    return (log(values) - log(1 - level)) * MICRO / cost


@lru_cache(maxsize=64)
def _measurement(kind: Literal["laplace", "max"], cost: int) -> Any:
    """Make the mechanism of OpenDP that loses no more than the cost, by its own account."""
    if cost < 1:
        raise ParameterError("an answer costs at least a millionth of a nat", cost)
    bound, scale = Fraction(cost, MICRO), MICRO / cost
    for _ in range(_STEPS):
        made = _made(kind, scale)
        if Fraction(made.map(1)) <= bound:
            return made
        scale = nextafter(scale, inf)
    raise ParameterError("OpenDP has a scale for every loss", cost)  # pragma: no cover - its maps round by a place or two


def _made(kind: str, scale: float) -> Any:
    import opendp.prelude as dp  # noqa: PLC0415 - it takes a second to load; a server that is asked nothing does without

    dp.enable_features("contrib")
    number = dp.atom_domain(T="i64")
    if kind == "laplace":
        return dp.m.make_laplace(number, dp.absolute_distance(T="i64"), scale=scale)
    distance = dp.linf_distance(T="i64", monotonic=True)
    return dp.m.make_noisy_max(dp.vector_domain(number), distance, dp.max_divergence(), scale=scale)
