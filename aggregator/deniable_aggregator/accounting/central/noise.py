"""Gaussian and Laplace noise: the epsilon of several queries together, by every method and exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import ceil, erfc, exp, floor, log10, sqrt, tanh
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable_aggregator import checks
from deniable_aggregator.accounting import renyi, sums, zcdp
from deniable_aggregator.accounting.losses import Losses
from deniable_aggregator.accounting.spend import Spend

if TYPE_CHECKING:
    from deniable_aggregator.accounting.renyi import Orders

MOST_QUERIES = 1_000_000
"""More queries are refused: their exact total would take long."""

_LARGEST = 20.0  # sensitivity / scale: the epsilon of a query is in the hundreds there, and e to its power still is a float
_ERROR = 1e-12  # a bound on the relative error of a tail
_STEPS = 200
_DIGITS, _NEAR = 6, 1e-7  # of a scale that is looked for
_GRID, _SPAN, _FINEST = 8192, 20, 200  # points of a grid, the standard deviations it covers, and its most points for one query


@dataclass(frozen=True, slots=True)
class Noise(ABC):
    """Noise that is added to the answer of each query, independently. Later queries may depend on earlier answers."""

    scale: float  # in the unit of the answers
    sensitivity: float = 1.0  # largest change of an answer by one person, in the same unit
    queries: int = 1

    name: ClassVar[str]
    """Of the noise."""
    parameter: ClassVar[str]
    """What its scale is called."""
    pure: ClassVar[bool]
    """Whether its plain sum needs no delta."""
    source: ClassVar[str]
    """Authors and year of the exact total."""

    def __post_init__(self) -> None:
        checks.positive(self.parameter, self.scale)
        checks.positive("sensitivity", self.sensitivity)
        checks.count("queries", self.queries)
        if self.queries > MOST_QUERIES:
            raise ParameterError(f"queries: write at most {MOST_QUERIES:,}", self.queries)
        if self.ratio > _LARGEST:
            rule = f"{self.parameter}: such noise hides nothing; write at least {self.sensitivity / _LARGEST:g}"
            raise ParameterError(f"{rule}, a {_LARGEST:g}th of the sensitivity", self.scale)

    @property
    def ratio(self) -> float:
        """Sensitivity divided by scale."""
        return self.sensitivity / self.scale

    def times(self, queries: int) -> Self:
        """Return the same noise for another number of queries."""
        return replace(self, queries=queries)

    def within(
        self,
        epsilon: float,  # in nats
        delta: float,  # a probability
    ) -> Self:
        """Return the least such noise, rounded up to six digits, whose exact total is at most an epsilon."""
        checks.positive("within", epsilon)
        low, high = self.sensitivity / _LARGEST, self.sensitivity / _LARGEST
        while replace(self, scale=high).exact(delta) > epsilon:
            low, high = high, high * 2
        while high / low > 1 + _NEAR:
            middle = sqrt(low * high)
            low, high = (low, middle) if replace(self, scale=middle).exact(delta) <= epsilon else (middle, high)
        digit = 10.0 ** (floor(log10(high)) - _DIGITS + 1)
        return replace(self, scale=float(f"{ceil(high / digit) * digit:.{_DIGITS}g}"))

    @property
    def rho(self) -> float:
        """The zero-concentrated total of all queries."""
        return self.rho_each * self.queries

    def divergence(self, orders: Orders) -> Orders:
        """Compute the Renyi divergence of all queries together, in nats; each order is above 1."""
        # I. Mironov: Renyi differential privacy. CSF 2017, proposition 1 (adaptive composition).
        return self.queries * self._divergence(orders)

    def totals(
        self,
        delta: float,  # a probability
        order: float | None = None,  # of the Renyi total, above 1; by default the best one
    ) -> dict[str, float]:
        """Return the epsilon of all queries together by each method, in nats, by key of `account.METHODS`."""
        checks.delta(delta)
        at = renyi.search(self.divergence, delta)[1] if order is None else order
        return {
            "basic": self.basic(delta),
            "advanced": self.advanced(delta),
            "zcdp": zcdp.epsilon(self.rho, delta),
            "renyi": renyi.epsilon_at(self.divergence, at, delta),
            "exact": self.exact(delta),
        }

    @property
    @abstractmethod
    def rho_each(self) -> float:
        """The rho of one query."""

    @abstractmethod
    def _divergence(self, orders: Orders) -> Orders: ...

    @abstractmethod
    def basic(self, delta: float) -> float:
        """Return the plain sum of the epsilons of the queries. Their deltas add up to at most `delta`."""

    @abstractmethod
    def advanced(self, delta: float) -> float:
        """Return the total of the advanced composition theorem."""
        # C. Dwork, A. Roth: The algorithmic foundations of differential privacy. 2014, theorem 3.20.

    @abstractmethod
    def exact(self, delta: float) -> float:
        """Return the least total, rounded up."""


class Gaussian(Noise):
    """Normal noise. The scale is its standard deviation, and the sensitivity is in the Euclidean norm."""

    __slots__ = ()
    name, parameter, pure, source = "Gaussian", "sigma", False, "Balle, Wang 2018; Dong, Roth, Su 2022"

    @property
    def rho_each(self) -> float:
        """The rho of one query."""
        return zcdp.of_gaussian(self.sensitivity, self.scale)

    def _divergence(self, orders: Orders) -> Orders:
        # I. Mironov: Renyi differential privacy. CSF 2017, corollary 3.
        return orders * self.rho_each

    def basic(self, delta: float) -> float:
        """Return the plain sum. The delta is divided among the queries."""
        return self.queries * self.times(1)._least(delta / self.queries) * (1 + _ERROR)  # noqa: SLF001 - of the same class

    def advanced(self, delta: float) -> float:
        """Return the total of the advanced composition theorem. Half of the delta is divided among the queries."""
        if delta < 2 * checks.LEAST_DELTA:
            raise ParameterError(f"delta: write at least {2 * checks.LEAST_DELTA:g}; advanced composition halves it", delta)
        epsilon = self.times(1)._least(delta / (2 * self.queries))  # noqa: SLF001 - of the same class
        return sums.advanced([_spend(epsilon, self.queries)], delta / 2)

    def exact(self, delta: float) -> float:
        """Return the least total: that of one query with a noise smaller by the root of the number of queries."""
        return self._least(checks.delta(delta))

    def delta(
        self,
        epsilon: float,  # in nats, at least 0
    ) -> float:
        """Return the least delta at which all queries are (epsilon, delta)-private, rounded up."""
        # B. Balle, Y.-X. Wang: Improving the Gaussian mechanism for differential privacy. ICML 2018, theorem 8.
        # J. Dong, A. Roth, W. Su: Gaussian differential privacy. JRSS B 84(1), 2022, corollary 3.3 (composition).
        from scipy.special import erfcx  # noqa: PLC0415 - slow to import, and accounts of reports do without

        mean = sqrt(self.queries) * self.ratio
        near, far = epsilon / mean - mean / 2, epsilon / mean + mean / 2
        # The second tail is e^epsilon Phi(-far). Here it is written so that no large numbers cancel.
        first = erfc((near - _ERROR * far) / sqrt(2)) / 2
        second = exp(-(near**2) / 2) * float(erfcx(far / sqrt(2))) / 2
        slack = _ERROR * (1 + abs(near) * far)  # the rounding of `near` is a part of `far`
        return min(1.0, max(0.0, first * (1 + _ERROR) - second * (1 - slack)))

    def _least(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, zcdp.textbook(self.rho, delta)
        while self.delta(high) > delta:
            high *= 2
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


class Laplace(Noise):
    """Laplace noise. Its variance is twice the square of the scale, and the sensitivity is the sum of absolute differences."""

    __slots__ = ()
    name, parameter, pure, source = "Laplace", "scale", True, "Sommer, Meiser, Mohammadi 2019"

    @property
    def rho_each(self) -> float:
        """The rho of one query: that of its epsilon."""
        return zcdp.of_laplace(self.sensitivity, self.scale)

    def _divergence(self, orders: Orders) -> Orders:
        # I. Mironov: Renyi differential privacy. CSF 2017, proposition 6. The last part is more than the rounding near order 1.
        rise = np.log(orders / (2 * orders - 1)) + (orders - 1) * self.ratio
        fall = np.log((orders - 1) / (2 * orders - 1)) - orders * self.ratio
        return np.asarray((np.logaddexp(rise, fall) + 2e-15) / (orders - 1))

    def basic(self, delta: float) -> float:  # noqa: ARG002 - it holds with a delta of 0
        """Return the plain sum. It needs no delta."""
        return self.queries * self.ratio * (1 + _ERROR)

    def advanced(self, delta: float) -> float:
        """Return the total of the advanced composition theorem."""
        return sums.advanced([_spend(self.ratio, self.queries)], delta)

    def exact(self, delta: float) -> float:
        """Return the total by the distribution of the privacy loss, on a grid that rounds up."""
        losses = self._losses()
        unit = int(losses.values[1] - losses.values[0])
        total = losses.power(self.queries, unit).epsilon(delta)
        return min(total, self.basic(delta), renyi.epsilon(self.divergence, delta))  # the grid can lose a little to a formula

    def _losses(self) -> Losses:
        """Return the loss of one query on a grid; it is an upper bound."""
        cost = max(1, ceil(self.ratio * MICRO))
        number = min(_FINEST, max(2, int(_GRID / (_SPAN * sqrt(self.queries)))))
        widest = max(1, cost // number)
        # The loss is bounded by the epsilon of the query, which is rounded up to whole steps. Of the steps near the wanted one,
        # this is the one with which that adds least.
        unit = min(range(widest // 2 + 1, widest + 1), key=lambda step: -cost % step)
        number = -(-cost // unit)
        epsilon, step = number * unit / MICRO, unit / MICRO
        # With probability 1/2 the loss is epsilon, and with e^-epsilon / 2 it is -epsilon. Between these its density is
        # e^((loss - epsilon) / 2) / 4. A loss between two points of the grid is divided between them, so that both its
        # probabilities stay what they are. This raises the delta at every epsilon.
        # V. Doroshenko and others: Connect the dots. PoPETs 2022(4), lemma 3.1.
        places = np.arange(-number, number + 1)
        low = np.exp((places[:-1] * step - epsilon) / 2) / 2 * tanh(step / 4)
        mass = np.zeros(len(places))
        mass[:-1] += low
        mass[1:] += low * exp(step / 2)
        mass[0] += exp(-epsilon) / 2
        mass[-1] += 0.5
        return Losses(places * unit, mass, slack=_ERROR)


def _spend(epsilon: float, count: int) -> Spend:
    return Spend(max(1, ceil(epsilon * MICRO)), count)
