"""The restriction that an operator signs, from a metrics.toml in which something is turned down."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING

from deniable.errors import Fault, RegistryError
from deniable.served_registry.restrictions import Restriction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.registry import Metric, Registry

_Rest = tuple[str, str, object]  # metric, rule, value: a Fault without its file
_Broken = tuple[str, object]  # rule, value

_WITH_RULES = ("revision", "metrics", "sample", "expires")
"""Fields that may differ. Each has its own rule."""
_SHOWN = 60  # characters of a value


def derived(
    bundled: Registry,  # the registry in the app
    turned_down: Registry,  # the same with metrics left out, a lower sample or an earlier end
) -> Restriction:
    """Return the restriction that makes the one registry the other.

    Raises
    ------
    RegistryError
        If they differ in more than a restriction can say. Devices would not learn of it. The error has all such differences.
    """
    faults = [Fault(turned_down.file, *rest) for rest in _faults(bundled, turned_down)]
    if faults:
        raise RegistryError(faults)
    return Restriction.read(Restriction.of(turned_down).write())  # as devices read it


def _faults(bundled: Registry, turned_down: Registry) -> Iterator[_Rest]:
    least = max(bundled.revision, 1)
    if turned_down.revision < least:
        yield "-", f"the revision is at least {least}, and raised with every publication", turned_down.revision or None
    for rule, value in _differences(bundled, turned_down):
        yield "-", rule, value
    for id_, metric in turned_down.metrics.items():
        if id_ not in bundled.metrics:
            yield id_, "a metric is one of those in the app", id_
            continue
        for rule, value in _metric_faults(bundled.metrics[id_], metric):
            yield id_, rule, value


def _metric_faults(old: Metric, new: Metric) -> Iterator[_Broken]:
    yield from _differences(old, new)
    if Fraction(new.sample) > Fraction(old.sample):
        yield f"sample is at most {old.sample}", new.sample
    if old.expires is not None and (new.expires is None or new.expires > old.expires):
        yield f"expires is {old.expires} or before", str(new.expires)


def _differences(ours: Registry | Metric, theirs: Registry | Metric) -> Iterator[_Broken]:
    for field in fields(ours):
        if field.compare and field.name not in _WITH_RULES:
            mine, other = getattr(ours, field.name), getattr(theirs, field.name)
            if mine != other:
                yield f"{field.name} is as in the app: {_short(mine)}", _short(other)


def _short(value: object) -> str:
    written = str(list(value)) if isinstance(value, tuple) else str(value)
    return written if len(written) <= _SHOWN else f"{written[: _SHOWN - 3]}..."
