"""The sheet of a registry: all that a client in another language needs to know of it, as docs/reference/wire explains.

Numbers that may exceed 2^53, which some languages cannot read from JSON, are texts; so are exact fractions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from math import isinf
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.limits.admission import admit
from deniable.limits.allowance import Allowance, micro
from deniable.registry.answers.axis import BINS

if TYPE_CHECKING:
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget

FORMAT = 1


def sheet(
    registry: Registry,  # as loaded
) -> dict[str, Any]:
    """Write down what a client needs to know of a registry; raise `ParameterError` if a metric has no mechanism."""
    admission = admit(registry, None, datetime.now(UTC).date())
    budget, relay = admission.budget, registry.relay
    off: dict[str, str] = {}
    for fault in admission.faults:
        off.setdefault(fault.metric, fault.words)
    return {
        "format": FORMAT,
        "app": registry.app,
        "revision": registry.revision,
        "segments": {name: list(values) for name, values in registry.segments.items()},
        "relay": {"operator": relay.operator, "key": relay.key} if relay else None,
        "budget": {"per_month": _micro(budget.per_month), "lifetime": _micro(budget.lifetime)},
        "metrics": {id_: _metric(metric, budget, off.get(id_)) for id_, metric in registry.metrics.items()},
    }


def _metric(metric: Metric, budget: Budget, off: str | None) -> dict[str, Any]:
    declared = Declared.of(metric)
    mechanism = declared.mechanism
    layout = mechanism.layout
    allowance = Allowance.of(declared, budget)
    return {
        "off": off,
        "description": metric.description,
        "version": metric.version,
        "type": metric.type,
        "values": [list(value) if isinstance(value, tuple) else value for value in metric.values] or None,
        "factors": [name for name, _ in metric.factors] or None,
        "max_length": metric.max_length or None,
        "range": list(metric.range) or None,
        "unit": metric.unit or None,
        "scale": metric.scale if metric.axis else None,
        "steps": metric.axis.steps if metric.axis else None,
        "bins": BINS if metric.binned else None,
        "rounded": metric.rounded,
        "none": metric.none,
        "other": metric.other,
        "period": metric.period,
        "grace": metric.grace,
        "delay": metric.delay,
        "expires": metric.expires.isoformat() if metric.expires else None,
        "segments": list(metric.segments),
        "sample": metric.sample,
        "epsilon": metric.epsilon,
        "epsilon_permanent": metric.epsilon_permanent,
        "shuffled": _shuffled(metric),
        "mechanism": mechanism.name,
        "canonical": mechanism.canonical,
        "fingerprint": allowance.tag,
        "layout": {
            "kind": layout.kind,
            "rows": layout.rows,
            "width": layout.width,
            "row_bytes": layout.row_size,
            "payload_bytes": layout.payload_size,
        },
        "constants": _written(mechanism.constants),
        "allowance": _allowance(declared, allowance),
    }


def _shuffled(metric: Metric) -> dict[str, Any] | None:
    shuffled = metric.shuffled
    return None if shuffled is None else {"min": shuffled.min, "delta": shuffled.delta, "central": shuffled.central}


def _allowance(declared: Declared, allowance: Allowance) -> dict[str, Any]:
    permanent = declared.permanent
    return {
        "cost": allowance.cost,
        "per_period": allowance.per_period,
        "month": allowance.month,
        "lifetime": allowance.lifetime,
        "answers": allowance.answers if permanent else None,
        "answers_ever": None if not permanent or isinf(allowance.answers_ever) else int(allowance.answers_ever),
    }


def _micro(nats: float | None) -> int | None:
    return None if nats is None else micro(nats)


def _written(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return list(value) if isinstance(value, tuple) else value
