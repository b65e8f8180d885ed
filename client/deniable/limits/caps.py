"""Which caps and which budget bound a device, and what of a metric exceeds the caps."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil, inf, log, nextafter
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.errors import ParameterError
from deniable.exact.epsilon import exact
from deniable.frozen import dataclass, replace
from deniable.messages.plural import plural
from deniable.registry.tables import Budget, Caps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

_HUNDREDTHS = 100


def caps_of(
    registry: Registry,
    in_code: Caps | None = None,  # the caps that the app's code gives; None if it gives none
) -> Caps:
    """Return the caps that hold: those of the app's code, else those of the registry, else the defaults."""
    return in_code or registry.caps or Caps()


def budget_of(
    registry: Registry,
    in_code: Caps | None = None,  # as for `caps_of`
) -> Budget:
    """Return what a device may spend: the registry's budget, and no more than the app's code allows."""
    own, most = registry.budget, caps_of(registry, in_code).budget
    if own is None or most is None:
        return own or most or Budget()
    return own.tightened(most)


def exceeding(
    metrics: Sequence[Declared],
    caps: Caps,
    place: str,  # where these caps stand, in words
) -> Iterator[tuple[str, str]]:
    """Find what of each metric exceeds caps, with the line to change. Losses are those of the mechanism's integers."""
    # A line to change in the caps is the same for all metrics: when it is written, none exceeds them.
    losses = {each.metric.id: list(_losses(each, caps)) for each in metrics}
    most = {loss.key: 0.0 for each in losses.values() for loss in each}
    for loss in (loss for each in losses.values() for loss in each if loss.exceeds):
        most[loss.key] = max(most[loss.key], loss.enough)
    largest = max((len(each.metric.values) for each in metrics), default=0)
    for declared in metrics:
        metric, name = declared.metric, declared.mechanism.name
        if caps.mechanisms is not None and name not in caps.mechanisms:
            allowed = ", ".join(f'"{each}"' for each in sorted(caps.mechanisms)) or "none"
            yield metric.id, f'its mechanism is "{name}", and the app allows {allowed}: add "{name}" to mechanisms in {place}'
        if caps.domain_size is not None and len(metric.values) > caps.domain_size:
            listed = f"it lists {len(metric.values)} answers, and the app allows {caps.domain_size}"
            yield metric.id, f"{listed}: list {caps.domain_size} or fewer, or write domain_size = {largest} in {place}"
        for loss in losses[metric.id]:
            if loss.ratio is None:
                unbounded = f"{loss.of} may give away any number of nats, and the app allows {loss.bound:g}"
                yield metric.id, f"{unbounded}: choose another mechanism"
            elif loss.exceeds:
                lower = f'{loss.declared} = {loss.bound:g} in [metrics."{metric.id}"]' if _is_lowered(metric, loss) else ""
                nats = f"{loss.of} may give away {plural(loss.nats, 'nat', '.6g')}, and the app allows {loss.bound:g}"
                yield metric.id, f"{nats}: write {lower or f'{loss.key} = {most[loss.key]:g} in {place}'}"


def mended(declared: Declared, caps: Caps) -> Declared:
    """Return a metric as it is once it has the lower epsilons that `exceeding` tells."""
    metric = declared.metric
    lower = {loss.declared: f"{loss.bound:g}" for loss in _losses(declared, caps) if loss.exceeds and _is_lowered(metric, loss)}
    return Declared.of(replace(metric, **lower)) if lower else declared  # type: ignore[arg-type]


def _is_lowered(metric: Metric, loss: _Loss) -> bool:
    return _can_be(metric, loss.declared, loss.bound)


def _can_be(metric: Metric, key: str, nats: float) -> bool:
    """Return whether a metric may declare another epsilon. What the parameters of a mechanism spend, only they change."""
    try:
        changed = replace(metric, **{key: f"{nats:g}"})  # type: ignore[arg-type]
        Declared.of(changed)
    except ParameterError:
        return False
    return changed.epsilon_permanent is None or exact(changed.epsilon) <= exact(changed.epsilon_permanent)


@dataclass(frozen=True, slots=True)
class _Loss:
    """A loss of a metric, and the cap of it."""

    of: str  # a report or a kept answer
    declared: str  # the key of the metric that declares it
    key: str  # the key of its cap
    bound: float  # the cap
    ratio: Fraction | None  # the likelihood ratio; None for one without a bound

    @property
    def exceeds(self) -> bool:
        """Whether it is above the cap, compared exactly."""
        power = Context(prec=60, rounding=ROUND_FLOOR).exp(Decimal(str(self.bound)))
        return self.ratio is not None and self.ratio > Fraction(power)

    @property
    def nats(self) -> float:
        return inf if self.ratio is None else log(self.ratio.numerator) - log(self.ratio.denominator)

    @property
    def enough(self) -> float:
        """A cap that allows it, in hundredths."""
        return ceil(nextafter(self.nats, inf) * _HUNDREDTHS) / _HUNDREDTHS


def _losses(declared: Declared, caps: Caps) -> Iterator[_Loss]:
    metric = declared.metric
    own = caps.metrics.get(metric.id, inf)
    key, bound = (f'metrics["{metric.id}"]', own) if own < caps.epsilon else ("epsilon", caps.epsilon)
    yield _Loss("a report", "epsilon", key, bound, _worst(declared.mechanism))
    if metric.permanent:
        ratio = declared.permanent.permanent_ratio if declared.permanent else None
        yield _Loss("a kept answer", "epsilon_permanent", "permanent", caps.permanent, ratio)


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
