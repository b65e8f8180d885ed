"""Caps: bounds in an app's code on what any registry may ask of a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import inf, isfinite, log
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError, ParameterError
from deniable.mechanisms.permanent import MAX_ROWS
from deniable.registry.tables import Budget

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deniable.declared import Declared
    from deniable.limits.exposure import Exposure
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric

__all__ = ["Caps"]

_LARGEST = 1e6  # nats; more than anybody needs, and `Decimal` can still compute e to this power
_MAX_SEGMENTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Bounds that no registry, from a file or from a server, can exceed.

    Parameters
    ----------
    epsilon
        Largest privacy loss of one report of any metric, in nats.
    permanent
        Largest privacy loss of all reports of one permanent response, in nats.
    metrics
        Stricter bounds than `epsilon` for single metrics, by id.
    mechanisms
        Names of allowed mechanisms; None for all.
    domain_size
        Largest number of listed answers; None for no bound. It does not bound texts and keys; use `mechanisms` for them.
    rows
        Largest number of groups into which the rows of all metrics with permanent responses together divide devices. A device
        keeps its rows, and each report shows one. With many groups, few devices share one.
    segments
        Largest number of combinations of the segments that reports carry. Segments are not randomised.
    budget
        What the device may spend over all metrics.

    Raises
    ------
    ParameterError
        If a bound is invalid.
    """

    epsilon: float = 4
    permanent: float = 4
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    mechanisms: Collection[str] | None = None
    domain_size: int | None = None
    rows: int = MAX_ROWS
    segments: int = _MAX_SEGMENTS
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        for name, nats in (("epsilon", self.epsilon), ("permanent", self.permanent), *self.metrics.items()):
            wrong = isinstance(nats, bool) or not isinstance(nats, int | float)
            if wrong or not isfinite(nats) or not 0 < nats <= _LARGEST:
                raise ParameterError(f"the cap of {name} is a number of nats above 0 and at most {_LARGEST:.0f}", nats)
        if isinstance(self.mechanisms, str):
            raise ParameterError("mechanisms is a set of names", self.mechanisms)
        object.__setattr__(self, "metrics", dict(self.metrics))  # a copy that nobody else can change
        if self.mechanisms is not None:
            object.__setattr__(self, "mechanisms", frozenset(self.mechanisms))
        sizes = (("domain_size", self.domain_size, 2), ("rows", self.rows, 1), ("segments", self.segments, 1))
        for name, size, least in sizes:
            if size is None and name == "domain_size":
                continue
            if isinstance(size, bool) or not isinstance(size, int) or size < least:
                raise ParameterError(f"{name} is a whole number of at least {least}", size)

    def tightened(self, budget: Budget | None) -> Budget:
        """Return what a device may spend: the stricter of the app's budget and a registry's, if it has one."""
        return self.budget if budget is None else self.budget.tightened(budget)

    def check(self, declared: Declared) -> None:
        """Refuse a metric that exceeds a bound. Its losses are computed from the mechanism's integers, not from the declaration.

        Raises
        ------
        ConfigurationError
            If it is refused. The message has the metric, the bound and what exceeds it.
        """
        metric, mechanism = declared.metric, declared.mechanism
        if self.mechanisms is not None and mechanism.name not in self.mechanisms:
            allowed = ", ".join(sorted(self.mechanisms)) or "none"
            raise ConfigurationError(f"{metric.id}: this app allows the mechanisms {allowed}; got {mechanism.name}")
        if self.domain_size is not None and len(metric.values) > self.domain_size:
            raise ConfigurationError(f"{metric.id}: this app allows {self.domain_size} answers; got {len(metric.values)}")
        self._check_loss(metric, "a report", _worst(mechanism), min(self.epsilon, self.metrics.get(metric.id, inf)))
        if metric.permanent:
            permanent = declared.permanent.permanent_ratio if declared.permanent else None
            self._check_loss(metric, "a kept answer", permanent, self.permanent)

    def check_exposure(self, exposure: Exposure) -> None:
        """Refuse a registry with a larger exposure than this app allows.

        Raises
        ------
        ConfigurationError
            If it is refused. The message has the bound and what exceeds it.
        """
        if exposure.rows > self.rows:
            got = f"{exposure.rows} in all metrics together ({exposure.row_bits:.1f} bits)"
            raise ConfigurationError(f"this app allows {self.rows} groups of devices by their rows; got {got}")
        if exposure.segments > self.segments:
            got = f"{exposure.segments} ({exposure.segment_bits:.1f} bits)"
            raise ConfigurationError(f"this app allows {self.segments} combinations of segments; got {got}")

    @staticmethod
    def _check_loss(metric: Metric, what: str, ratio: Fraction | None, most: float) -> None:
        """Refuse a likelihood ratio above e^most, compared exactly. None is a ratio without a bound."""
        power = Context(prec=60, rounding=ROUND_FLOOR).exp(Decimal(str(most)))
        if ratio is None or ratio > Fraction(power):
            loss = "more than any number" if ratio is None else f"{log(ratio.numerator) - log(ratio.denominator):.6g}"
            raise ConfigurationError(f"{metric.id}: this app allows {most:g} nats for {what}; the registry asks {loss}")


def _worst(mechanism: Mechanism) -> Fraction | None:
    """Return the declared likelihood ratio of a mechanism, or a larger one that its other claims tell; None for no bound."""
    # A payload supports a value or it does not. For two answers, the likelihoods of either event differ by at most the worst
    # ratio. So p / q and (1 - q) / (1 - p) are not above it. If p is not above q, the mechanism is wrong. The same holds for the
    # greatest and the least probability of a cell.
    if mechanism.odds is None:
        bounds = mechanism.bounds()
        return None if not 0 < bounds.low < bounds.high else max(mechanism.ratio, bounds.high / bounds.low)
    p, q = mechanism.odds
    if not q < p < 1:
        return None
    return max(mechanism.ratio, (1 - q) / (1 - p), p / q if q > 0 else mechanism.ratio)
