"""Which caps and which budget bound a device, and what of a metric exceeds the caps."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, inf, log, nextafter
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.errors import ParameterError
from deniable.exact.epsilon import exact
from deniable.frozen import dataclass, replace
from deniable.messages.plural import plural
from deniable.registry.tables import Budget, Caps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
    losses = {each.metric.id: list(_losses(each, caps)) for each in metrics}
    lower = {each.metric.id: _lower(each.metric, losses[each.metric.id]) for each in metrics}
    # A line to change in the caps is the same for all metrics that only this mends: when it is written, none exceeds them.
    most: dict[str, float] = {}
    for id_, loss in ((id_, loss) for id_, of in losses.items() for loss in of if loss.exceeds):
        if loss.declared not in lower[id_]:
            most[loss.key] = max(most.get(loss.key, 0.0), loss.enough)
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
                nats = f"{loss.of} may give away {plural(loss.nats, 'nat', '.6g')}, and the app allows {loss.bound:g}"
                yield metric.id, f"{nats}: {_mend(metric.id, loss, lower[metric.id], most.get(loss.key, 0.0), place)}"


def _mend(id_: str, loss: _Loss, lower: Mapping[str, str], enough: float, place: str) -> str:
    """Say what to write. No cap is advised above the default, of which lint would warn in a metric."""
    keys = ("epsilon", "epsilon_permanent") if loss.declared == "epsilon_permanent" else ("epsilon",)
    if loss.declared in lower:
        return f'write {" and ".join(f"{key} = {lower[key]}" for key in keys if key in lower)} in [metrics."{id_}"]'
    usual = Caps().permanent if loss.declared == "epsilon_permanent" else Caps().epsilon
    return (
        f"write {loss.key} = {enough:g} in {place}" if enough <= usual else "choose another mechanism, or other parameters of it"
    )


def mended(declared: Declared, caps: Caps) -> Declared:
    """Return a metric as it is once it has the lower epsilons that `exceeding` tells."""
    lower = _lower(declared.metric, list(_losses(declared, caps)))
    return Declared.of(replace(declared.metric, **lower)) if lower else declared  # type: ignore[arg-type]


def _lower(metric: Metric, losses: Iterable[_Loss]) -> dict[str, str]:
    """Return the lower epsilons with which a metric keeps to the caps, by key, as far as its mechanism can have them.

    With a lower `epsilon_permanent`, the epsilon of a report is no larger.
    """
    bounds = {loss.declared: f"{loss.bound:g}" for loss in losses if loss.exceeds}
    permanent = bounds.get("epsilon_permanent")
    if permanent is not None and exact(bounds.get("epsilon", metric.epsilon)) > exact(permanent):
        bounds["epsilon"] = permanent
    if not bounds or _can_be(metric, bounds):
        return bounds
    return {key: nats for key, nats in bounds.items() if _can_be(metric, {key: nats})}


def _can_be(metric: Metric, lower: Mapping[str, str]) -> bool:
    """Return whether a metric may declare other epsilons. What the parameters of a mechanism spend, only they change."""
    try:
        changed = replace(metric, **lower)  # type: ignore[arg-type]
        Declared.of(changed)
    except ParameterError:
        return False
    return changed.epsilon_permanent is None or exact(changed.epsilon) <= exact(changed.epsilon_permanent)


@lru_cache(maxsize=64)
def _power(bound: float) -> Fraction:
    """Return e^bound, rounded down after 60 digits."""
    return Fraction(Context(prec=60, rounding=ROUND_FLOOR).exp(Decimal(str(bound))))


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
        return self.ratio is not None and self.ratio > _power(self.bound)

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
    key, bound = "epsilon", caps.epsilon
    if metric.shuffled and caps.shuffled_epsilon is not None:
        key, bound = "shuffled_epsilon", caps.shuffled_epsilon
    if own < bound:
        key, bound = f'metrics["{metric.id}"]', own
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
