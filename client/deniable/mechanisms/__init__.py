"""The mechanisms by name. Each mechanism is one class: its parameters, noise, response and claims."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from math import log
from typing import TYPE_CHECKING, Any, cast

from deniable.errors import ParameterError
from deniable.mechanisms.base import Mechanism
from deniable.wire.layout import MAX_REPORT_BYTES

if TYPE_CHECKING:
    from fractions import Fraction

    from deniable.mechanisms.auto import Choice
    from deniable.registry import Metric

__all__ = ["MAX_REPORT_BYTES", "Mechanism", "any_size", "choose", "make", "names", "of", "provable"]

# The module and class of each mechanism. A device imports only the mechanisms that its registry names.
_CLOSED = {
    "coin": ("listed.coin", "Coin"),
    "binary": ("listed.direct", "Binary"),
    "grr": ("listed.direct", "Grr"),
    "sue": ("listed.unary", "Sue"),
    "oue": ("listed.unary", "Oue"),
    "subset": ("listed.subset", "Subset"),
    "local_hash": ("listed.local_hash", "LocalHash"),
    "hadamard": ("listed.hadamard", "Hadamard"),
    "general_hadamard": ("listed.general_hadamard", "GeneralHadamard"),
    "pgr": ("listed.projective", "Projective"),
    "l_grr": ("permanent.l_grr", "LGrr"),
    "l_osue": ("permanent.l_osue", "LOsue"),
    "loloha": ("permanent.loloha", "Loloha"),
    "dbitflip": ("permanent.dbitflip", "DBitFlip"),
}
"""Mechanisms for listed answers."""
_OPEN = {
    "rappor": ("texts.rappor", "Rappor"),
    "google_rappor": ("texts.rappor", "GoogleRappor"),
    "cms": ("texts.sketch", "Cms"),
    "hcms": ("texts.sketch", "Hcms"),
    "fast_local_hash": ("texts.sketch", "FastLocalHash"),
}
"""Mechanisms for listed answers, and for texts and keys with candidates."""
_SEARCH = {"pem": ("texts.prefix", "Pem"), "tree_hist": ("texts.prefix", "TreeHist")}
"""Mechanisms for texts and keys to be discovered."""
_NUMBERS = {"window": ("window", "Window")}
"""Mechanisms for numbers, and for means of ordered answers."""
_SETS = {
    "sampled_options": ("sets.sampled_options", "SampledOptions"),
    "sampled_pair": ("sets.sampled_options", "SampledPair"),
    "padded_subset": ("sets.padded_subset", "PaddedSubset"),
}
"""Mechanisms for sets of listed options."""
_ALL = _CLOSED | _OPEN | _SEARCH | _NUMBERS | _SETS
_SOME_SIZES = ("coin", "binary", *_SETS)
"""Mechanisms that exist for some domains only: for two values, or for the sets of some options."""
_PERMANENT = ("l_grr", "l_osue", "loloha", "dbitflip", "rappor", "google_rappor")
"""Mechanisms with permanent responses."""

_AUTO = {True: "pem", False: "fast_local_hash"}
"""The choice of ``auto`` for texts and keys: to be discovered (True) or with candidates (False).

With candidates and permanent responses it is ``rappor``. These choices are part of registry format 1.
"""


def every() -> tuple[str, ...]:
    """Return the name of every mechanism, in the order of the reference."""
    return tuple(_ALL)


def names() -> tuple[str, ...]:
    """Return the name of every mechanism that needs only a domain and an epsilon, and that estimates each value.

    Not among them are ``google_rappor``, which needs the parameters of a deployment, and those that search for common values.
    """
    return tuple(name for name in _CLOSED | _OPEN if name != "google_rappor")


def provable() -> tuple[str, ...]:
    """Return the name of every mechanism that needs only a domain and an epsilon, and that does not search."""
    return (*names(), *_NUMBERS, *_SETS)


def any_size(name: str) -> bool:
    """Return whether a mechanism exists for every number of values from 2 on."""
    return name not in _SOME_SIZES


def choose(
    *,
    domain_size: int,
    epsilon: float | str | Fraction,
    max_bytes: int = MAX_REPORT_BYTES,
    permanent: float | str | Fraction | None = None,
) -> Choice:
    """Choose the mechanism of the smallest reports among those of nearly the least exact variance."""
    from deniable.mechanisms import auto  # noqa: PLC0415 - it imports all its candidates

    return auto.choose(domain_size=domain_size, epsilon=epsilon, max_bytes=max_bytes, permanent=permanent)


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
        The mechanism's name, or ``"auto"`` as in `choose`.
    domain_size
        Number of values, at least 2; values are 0 to ``domain_size - 1``.
    epsilon
        Privacy loss of a report in nats, in (0, 16]. The exact loss is this or lower, by less than 2^-32. Only ``"coin"`` needs
        none: it always spends ln 3.
    max_bytes
        With ``"auto"``, the largest payload allowed.
    **options
        Options of the mechanism; its class describes them.

    Raises
    ------
    ParameterError
        If a rule is broken. The error has the rule and the value.
    """
    if epsilon is None:
        if name != "coin":
            raise ParameterError("epsilon: write a number of nats; only the coin mechanism does without", epsilon)
        epsilon = log(3)
    if name == "auto":
        if options:
            raise ParameterError(f"auto has no options: name a mechanism, or remove {', '.join(sorted(options))}", ...)
        obvious = _one_byte(domain_size, epsilon)
        return obvious or choose(domain_size=domain_size, epsilon=epsilon, max_bytes=max_bytes).mechanism
    if name not in _ALL:
        from deniable.messages.lookalike import did_you_mean  # noqa: PLC0415 - only a mistake needs it

        raise ParameterError(f"mechanism: write one of auto, {', '.join(_ALL)}{did_you_mean(name, ['auto', *_ALL])}", name)
    module, class_name = _ALL[name]
    cls = cast("type[Mechanism]", getattr(import_module(f"{__name__}.{module}"), class_name))
    unknown = set(options) - set(cls.options)
    if unknown:
        raise ParameterError(
            f"{name} has no option {', '.join(sorted(unknown))}: its options are {', '.join(cls.options) or 'none'}", ...
        )
    return cls(domain_size=domain_size, epsilon=epsilon, **options)  # type: ignore[arg-type]


def _one_byte(domain_size: int, epsilon: float | str | Fraction) -> Mechanism | None:
    """Return the choice of ``auto`` if the most exact of its candidates has a report of one byte; None if it has a larger one."""
    # Then the other candidates need not be imported and compared, which would take most of the time of `init`. No mechanism is
    # more exact than `subset`. Where its sets have one value, `grr` is the same, and `binary` for two; `auto` prefers these.
    from deniable.mechanisms.listed.subset import Subset  # noqa: PLC0415 - few devices need it

    try:
        subset = Subset(domain_size=domain_size, epsilon=epsilon)  # type: ignore[arg-type] # read exactly, then a float
        direct = "grr" if domain_size > 2 else "binary"  # noqa: PLR2004
        best = subset if subset.size > 1 else make(direct, domain_size=domain_size, epsilon=epsilon)
    except ParameterError:  # `choose` says it of all candidates
        return None
    return best if best.layout.payload_size == 1 else None


@lru_cache(maxsize=1024)
def of(metric: Metric) -> Mechanism:
    """Make the mechanism that a metric of the registry declares.

    Raises
    ------
    ParameterError
        If there is none, or it does not fit this type of answer.
    """
    only = metric.kind.mechanism(metric)
    if only:
        return _make_scored(metric, only)
    name = _AUTO[metric.discover] if metric.open and metric.mechanism == "auto" else metric.mechanism
    fitting = _SEARCH if metric.discover else _OPEN if metric.open else _CLOSED | _OPEN
    if name in _ALL and name not in fitting:
        what = "to be discovered" if metric.discover else "that are not listed" if metric.open else "that are listed"
        raise ParameterError(f"mechanism: write one of {', '.join(fitting)} for answers {what}", name)
    options = dict(metric.parameters)
    if "permanent" in options:
        raise ParameterError("permanent: write it as epsilon_permanent, beside epsilon", options["permanent"])
    if metric.permanent:
        return _make_permanent(metric, name, options, [each for each in _PERMANENT if each in fitting])
    return make(
        name,
        domain_size=metric.domain_size,
        epsilon=metric.epsilon,
        max_bytes=metric.max_report_bytes,
        **options,
    )


def _make_scored(metric: Metric, fitting: str) -> Mechanism:
    """Make the mechanism of a number, of a set, or of the mean of an ordinal."""
    options: dict[str, Any] = dict(metric.parameters)
    size = metric.domain_size
    if metric.permanent:
        if not metric.can_keep:
            raise ParameterError(
                "epsilon_permanent: remove it; a set, or the mean of an ordinal, keeps no answers",
                float(metric.epsilon_permanent or 0),
            )
        size = 2 if metric.rounded else size
        options["permanent"] = metric.epsilon_permanent
    elif fitting == "window":
        from deniable.mechanisms import window  # noqa: PLC0415 - only devices with such metrics need it

        preset = window.for_distribution if metric.estimate == "distribution" else window.for_mean
        options = preset(metric.epsilon) | options
    elif metric.most:
        options["most"] = metric.most
    if metric.mechanism not in ("auto", fitting):
        raise ParameterError(f"mechanism: write auto or {fitting} for this metric", metric.mechanism)
    return make(fitting, domain_size=size, epsilon=metric.epsilon, **options)


def _make_permanent(metric: Metric, name: str, options: dict[str, Any], fitting: list[str]) -> Mechanism:
    """Make the mechanism of a metric whose permanent responses are kept."""
    if metric.discover:
        raise ParameterError(
            "epsilon_permanent: remove it; answers to be discovered are not kept", float(metric.epsilon_permanent or 0)
        )
    if metric.open and metric.mechanism == "auto":
        name = "rappor"
    if name == "auto":
        return choose(
            domain_size=metric.domain_size,
            epsilon=metric.epsilon,
            max_bytes=metric.max_report_bytes,
            permanent=metric.epsilon_permanent,
        ).mechanism
    if name in _ALL and name not in fitting:
        raise ParameterError(f"mechanism: write auto, or one of {', '.join(fitting)}, with epsilon_permanent", name)
    return make(name, domain_size=metric.domain_size, epsilon=metric.epsilon, permanent=metric.epsilon_permanent, **options)
