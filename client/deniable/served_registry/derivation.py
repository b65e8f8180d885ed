"""The restriction that an operator signs, from a metrics.toml in which something is turned down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.errors import Fault, RegistryError, ServedRegistryError
from deniable.frozen import fields, replace
from deniable.served_registry.restrictions import Restriction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.registry import Metric, Registry

_SHOWN = 60  # characters of a value


def derived(
    bundled: Registry,  # the registry in the app
    turned_down: Registry,  # the same with metrics left out, a lower sample or an earlier end
) -> Restriction:
    """Return the restriction that makes the one registry the other; raise `RegistryError` if none does."""
    # The error lists all that devices would keep as it is in the app.
    try:
        restriction = Restriction.read(Restriction.of(turned_down).write())  # as devices read it
        used = restriction.applied(bundled)
    except ServedRegistryError as error:
        raise RegistryError([replace(fault, file=turned_down.file) for fault in error.faults]) from None
    faults = [*_differences(turned_down.file, "-", used, turned_down)]
    for id_, metric in turned_down.metrics.items():
        if id_ in used.metrics:
            faults += _differences(turned_down.file, id_, used.metrics[id_], metric)
        else:
            faults.append(
                Fault(turned_down.file, id_, "the app has no such metric: remove it here, or add it in a release of the app")
            )
    if faults:
        raise RegistryError(faults)
    return restriction


def _differences(file: str, id_: str, used: Registry | Metric, proposed: Registry | Metric) -> Iterator[Fault]:
    for field in fields(used):
        if field.compare and field.name != "metrics":
            ours, theirs = getattr(used, field.name), getattr(proposed, field.name)
            if ours != theirs:
                change = "remove it" if ours is None else f"write {_short(ours)}"
                yield Fault(file, id_, f"{field.name}: {change}; devices keep what the app has", _short(theirs))


def _short(value: object) -> str | None:
    if value is None:
        return None
    written = str(list(value)) if isinstance(value, tuple) else str(value)
    return written if len(written) <= _SHOWN else f"{written[: _SHOWN - 3]}..."
