"""The mechanisms by name. Each is one class: parameters, noise, response, and what it claims."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.layout import MAX_REPORT_BYTES
from deniable.mechanisms.auto import Choice, choose
from deniable.mechanisms.base import Mechanism
from deniable.mechanisms.coin import Coin
from deniable.mechanisms.direct import Binary, Grr
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.unary import Oue, Sue

if TYPE_CHECKING:
    from fractions import Fraction

    from deniable.registry import Metric

__all__ = ["MAX_REPORT_BYTES", "Choice", "Mechanism", "choose", "make", "names", "of"]

_BY_NAME: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism for mechanism in (Coin, Binary, Grr, Sue, Oue, Subset, LocalHash, Hadamard)
}


def names() -> tuple[str, ...]:
    """Return the name of every mechanism."""
    return tuple(_BY_NAME)


def make(
    name: str,
    *,
    domain_size: int,
    epsilon: float | str | Fraction | None = None,
    max_bytes: int = MAX_REPORT_BYTES,
) -> Mechanism:
    """Make a mechanism.

    Parameters
    ----------
    name
        One of `names`, or ``"auto"`` for the one of least exact variance.
    domain_size
        Number of values, at least 2; values are 0 to ``domain_size - 1``.
    epsilon
        Privacy loss of a report in nats, in (0, 16]; the mechanism spends that or, by less than 2^-32, a little less. Only
        ``"coin"``, which always spends ln 3, may do without.
    max_bytes
        With ``"auto"``, the largest payload allowed.

    Raises
    ------
    ParameterError
        With the rule that is broken and the value that breaks it.
    """
    if epsilon is None:
        if name != Coin.name:
            raise ParameterError("epsilon is a number of nats; only the coin mechanism does without", epsilon)
        epsilon = log(3)
    if name == "auto":
        return choose(domain_size=domain_size, epsilon=epsilon, max_bytes=max_bytes).mechanism
    if name not in _BY_NAME:
        raise ParameterError(f"a mechanism is one of auto, {', '.join(_BY_NAME)}", name)
    return _BY_NAME[name](domain_size=domain_size, epsilon=epsilon)  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def of(metric: Metric) -> Mechanism:
    """Make the mechanism that a metric of the registry declares."""
    return make(
        metric.mechanism,
        domain_size=metric.domain_size,
        epsilon=metric.epsilon,
        max_bytes=metric.max_report_bytes,
    )
