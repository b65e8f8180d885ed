"""What a served registry may change: it can leave out a metric, lower its sample, and end its collection earlier.

Everything else must be as in the app's own registry. So the meaning of a report, its content and its cost stay the same, and no
permanent response is drawn again.
"""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from deniable.errors import Fault, ServedRegistryError
from deniable.served_registry.signature import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.registry import Metric, Registry

_Rest = tuple[str, str, object]  # metric, rule, value: a Fault without its file
_Broken = tuple[str, object]  # rule, value

_WITH_RULES = ("revision", "metrics", "sample", "expires")
"""Fields that may differ. Each has its own rule."""
_SHOWN = 60  # characters of a value


def restricted(
    bundled: Registry,  # the app's own registry
    served: Registry,  # a registry whose signature is right
) -> Registry:
    """Return the registry to use instead of the app's own.

    Returns
    -------
    Registry
        The app's own registry with the metrics, samples and ends of the served one.

    Raises
    ------
    ServedRegistryError
        If it differs in anything else. The error has all such differences. No part of it must be used.
    """
    faults = [Fault(FILE, *rest) for rest in _faults(bundled, served)]
    if faults:
        raise ServedRegistryError(faults)
    # It is made from the app's own registry, so that nothing else of the served one can reach a report.
    metrics = {
        id_: replace(bundled.metrics[id_], sample=metric.sample, expires=metric.expires) for id_, metric in served.metrics.items()
    }
    return replace(bundled, revision=served.revision, metrics=metrics)


def _faults(bundled: Registry, served: Registry) -> Iterator[_Rest]:
    least = max(bundled.revision, 1)
    if served.revision < least:
        yield "-", f"the revision is at least {least}, that of the registry in the app", served.revision
    for rule, value in _differences(bundled, served):
        yield "-", rule, value
    for id_, metric in served.metrics.items():
        if id_ not in bundled.metrics:
            yield id_, "a served metric is one of those in the app", id_
            continue
        for rule, value in _metric_faults(bundled.metrics[id_], metric):
            yield id_, rule, value


def _metric_faults(old: Metric, new: Metric) -> Iterator[_Broken]:
    yield from _differences(old, new)
    if Fraction(new.sample) > Fraction(old.sample):
        yield f"sample is at most {old.sample}", new.sample
    if old.expires is not None and (new.expires is None or new.expires > old.expires):
        yield f"collection ends on {old.expires} or before", str(new.expires)


def _differences(ours: Registry | Metric, theirs: Registry | Metric) -> Iterator[_Broken]:
    for field in fields(ours):
        if field.compare and field.name not in _WITH_RULES:
            mine, other = getattr(ours, field.name), getattr(theirs, field.name)
            if mine != other:
                yield f"{field.name} is as in the app: {_short(mine)}", _short(other)


def _short(value: object) -> str:
    written = str(list(value)) if isinstance(value, tuple) else str(value)
    return written if len(written) <= _SHOWN else f"{written[: _SHOWN - 3]}..."
