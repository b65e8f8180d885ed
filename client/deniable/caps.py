"""What an app allows any registry to ask of a device, compiled into the app: a registry can only stay below."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING

from deniable.budget import Budget
from deniable.errors import ConfigurationError
from deniable.mechanisms.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric

__all__ = ["Caps"]

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Bounds that no registry, from a file or from a server, can exceed.

    Parameters
    ----------
    epsilon
        Largest privacy loss of one report of any metric, in nats.
    permanent
        Largest privacy loss of all reports of one kept answer, in nats.
    metrics
        Of single metrics, by id: a largest privacy loss of one report that is stricter than `epsilon`.
    mechanisms
        Names of the mechanisms allowed; None for all.
    domain_size
        Largest number of listed answers; None for no bound. Texts and keys are bounded by `mechanisms` alone.
    budget
        What the device may spend in all.
    """

    epsilon: float = 8
    permanent: float = 16
    metrics: Mapping[str, float] = field(default=_NONE)
    mechanisms: frozenset[str] | None = None
    domain_size: int | None = None
    budget: Budget = field(default_factory=Budget)

    def check(self, metric: Metric, mechanism: Mechanism) -> None:
        """Refuse a metric that exceeds a bound. The losses are those of the mechanism's integers, not those declared.

        Raises
        ------
        ConfigurationError
            Naming the metric, the bound and what exceeds it.
        """
        if self.mechanisms is not None and mechanism.name not in self.mechanisms:
            allowed = ", ".join(sorted(self.mechanisms)) or "none"
            raise ConfigurationError(f"{metric.id}: this app allows the mechanisms {allowed}; got {mechanism.name}")
        if self.domain_size is not None and not metric.open and metric.domain_size > self.domain_size:
            raise ConfigurationError(f"{metric.id}: this app allows {self.domain_size} answers; got {metric.domain_size}")
        self._check_loss(metric, "a report", mechanism.epsilon, min(self.epsilon, self.metrics.get(metric.id, inf)))
        if metric.epsilon_permanent is not None:
            permanent = mechanism.epsilon_permanent if isinstance(mechanism, Chain) else inf
            self._check_loss(metric, "a kept answer", permanent, self.permanent)

    @staticmethod
    def _check_loss(metric: Metric, what: str, loss: float, most: float) -> None:
        if not loss <= most:  # a loss that is no number is no loss to allow
            raise ConfigurationError(f"{metric.id}: this app allows {most:g} nats for {what}; the registry asks {loss:.6g}")
