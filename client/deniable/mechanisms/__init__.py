"""The mechanisms by name. Each is one class: parameters, noise, response, and what it claims."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.layout import MAX_REPORT_BYTES
from deniable.mechanisms.auto import Choice, choose
from deniable.mechanisms.base import Mechanism
from deniable.mechanisms.coin import Coin
from deniable.mechanisms.direct import Binary, Grr
from deniable.mechanisms.general_hadamard import GeneralHadamard
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.prefix import Pem, TreeHist
from deniable.mechanisms.projective import Projective
from deniable.mechanisms.rappor import GoogleRappor, Rappor
from deniable.mechanisms.sketch import Cms, FastLocalHash, Hcms
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.unary import Oue, Sue

if TYPE_CHECKING:
    from fractions import Fraction

    from deniable.registry import Metric

__all__ = ["MAX_REPORT_BYTES", "Choice", "Mechanism", "choose", "make", "names", "of"]

_BY_NAME: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        *(Coin, Binary, Grr, Sue, Oue, Subset, LocalHash, Hadamard, GeneralHadamard, Projective),
        *(Rappor, GoogleRappor, Cms, Hcms, FastLocalHash, Pem, TreeHist),
    )
}


def names() -> tuple[str, ...]:
    """Return the name of every mechanism that a domain and an epsilon make, and that estimates each of its values.

    Not among them are ``google_rappor``, which needs the parameters of a deployment, and those that search for common values.
    """
    return tuple(name for name, cls in _BY_NAME.items() if name != GoogleRappor.name and cls.role != "search")


def make(
    name: str,
    *,
    domain_size: int,
    epsilon: float | str | Fraction | None = None,
    max_bytes: int = MAX_REPORT_BYTES,
    **options: Any,
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
    **options
        What else the mechanism lets one choose; its class says what.

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
        if options:
            raise ParameterError("options go with a mechanism's name; auto has none", ", ".join(sorted(options)))
        return choose(domain_size=domain_size, epsilon=epsilon, max_bytes=max_bytes).mechanism
    if name not in _BY_NAME:
        raise ParameterError(f"a mechanism is one of auto, {', '.join(_BY_NAME)}", name)
    cls = _BY_NAME[name]
    unknown = set(options) - set(cls.options)
    if unknown:
        raise ParameterError(f"options of {name} are {', '.join(cls.options) or 'none'}", ", ".join(sorted(unknown)))
    return cls(domain_size=domain_size, epsilon=epsilon, **options)  # type: ignore[arg-type]


_OPEN = {True: Pem.name, False: FastLocalHash.name}
"""What ``auto`` takes for strings and keys, discovered or looked for: part of registry format 1, like its other choices."""


@lru_cache(maxsize=1024)
def of(metric: Metric) -> Mechanism:
    """Make the mechanism that a metric of the registry declares.

    Raises
    ------
    ParameterError
        If there is none, or it is not for this type of answer.
    """
    name = _OPEN[metric.discover] if metric.open and metric.mechanism == "auto" else metric.mechanism
    roles = ("search",) if metric.discover else ("open",) if metric.open else ("closed", "open")
    fitting = [each for each, cls in _BY_NAME.items() if cls.role in roles]
    if name in _BY_NAME and name not in fitting:
        what = "to be discovered" if metric.discover else "that are not listed" if metric.open else "that are listed"
        raise ParameterError(f"a mechanism for answers {what} is one of {', '.join(fitting)}", name)
    return make(
        name,
        domain_size=metric.domain_size,
        epsilon=metric.epsilon,
        max_bytes=metric.max_report_bytes,
        **dict(metric.parameters),
    )
