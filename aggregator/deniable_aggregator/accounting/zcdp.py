"""Zero-concentrated differential privacy: rho adds up; it suits the budget of central noise."""

from __future__ import annotations

from math import fsum, log, sqrt, tanh
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable_aggregator import checks
from deniable_aggregator.accounting import renyi

if TYPE_CHECKING:
    from collections.abc import Iterable

_UP = 1 + 1e-12
_STEPS = 200


def of_pure(
    epsilon: float,  # in nats, at least 0
) -> float:
    """Return the least rho of any epsilon-private mechanism: epsilon tanh(epsilon / 2), rounded up."""
    # The worst mechanism is binary randomized response. Let w = (order - 1/2)^2 and g(w) = ln cosh(sqrt(w) epsilon). The Renyi
    # divergence divided by the order is the slope of the chord of g from 1/4 to w. There g is concave, because tanh(x) / x falls.
    # So the largest slope is that at w = 1/4. It is below epsilon^2 / 2, and near epsilon if epsilon is large.
    # M. Bun, T. Steinke: Concentrated differential privacy. TCC 2016, proposition 3.3, which has epsilon^2 / 2.
    checks.nonnegative("epsilon", epsilon)
    return epsilon * tanh(epsilon / 2) * _UP


def of_gaussian(
    sensitivity: float,  # largest change of the answer by one person, in the Euclidean norm
    scale: float,  # sigma, in the same unit
) -> float:
    """Return the rho of Gaussian noise, discrete or continuous."""
    # C. L. Canonne and others: The discrete Gaussian for differential privacy. NeurIPS 2020, theorem 4.
    checks.nonnegative("sensitivity", sensitivity)
    return (sensitivity / checks.positive("scale", scale)) ** 2 / 2 * _UP


def of_laplace(
    sensitivity: float,  # largest change of the answer by one person, in the sum of absolute differences
    scale: float,  # of the noise, in the same unit
) -> float:
    """Return a rho of Laplace noise, discrete or continuous: that of its epsilon, sensitivity / scale."""
    checks.nonnegative("sensitivity", sensitivity)
    return of_pure(sensitivity / checks.positive("scale", scale))


def compose(
    # Of each answer, at least 0. They depend on the data only through earlier answers, and their sum has a limit fixed
    # beforehand.
    rhos: Iterable[float],
) -> float:
    """Add up the rhos of answers to adaptively chosen questions."""
    # M. Bun, T. Steinke: Concentrated differential privacy. TCC 2016, lemma 2.3.
    return fsum(checks.nonnegative("rho", rho) for rho in rhos) * _UP


def epsilon(
    rho: float,  # at least 0, as `compose` returns it
    delta: float,  # a probability
) -> float:
    """Return the epsilon at which rho is (epsilon, delta)-private, in nats, by the tighter conversion."""
    # C. L. Canonne and others: The discrete Gaussian for differential privacy. NeurIPS 2020, corollary 13.
    return _sharp(checks.nonnegative("rho", rho), delta)


def textbook(
    rho: float,  # at least 0, as `compose` returns it
    delta: float,  # a probability
) -> float:
    """Return the epsilon by the conversion that textbooks print, in nats: rho + 2 sqrt(rho ln(1 / delta)). `epsilon` is less."""
    # M. Bun, T. Steinke: Concentrated differential privacy. TCC 2016, proposition 1.3.
    return (checks.nonnegative("rho", rho) + 2 * sqrt(-rho * log(checks.delta(delta)))) * _UP


def _sharp(rho: float, delta: float) -> float:
    return renyi.epsilon(lambda orders: rho * orders, delta) if rho else 0.0


def within(
    epsilon: float,  # in nats, above 0
    delta: float,  # a probability
) -> float:
    """Return the largest rho that is (epsilon, delta)-private, rounded down."""
    checks.positive("epsilon", epsilon)
    low, high = 0.0, epsilon
    if _sharp(high, delta) <= epsilon:  # the divergence at order 1 alone reaches epsilon there
        raise ParameterError("delta: write less; a bound by rho exists below 1", delta)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _sharp(middle, delta) <= epsilon else (low, middle)
    return low
