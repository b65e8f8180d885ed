"""Definitions: how the registry declared each metric of which something was published.

A tally can be read only with the definition that its reports were made by. The registry has the present one. Where a definition
was changed in the same version, the one before is read here.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.errors import DeniableError, RegistryError
from deniable.registry import Metric
from deniable_aggregator.store.sums.tallies import name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.declared import Definition
    from deniable.registry import Registry
    from deniable_aggregator.store import Store


def note(store: Store, declared: Declared) -> None:
    """Record how a metric is declared."""
    store.definitions.put({name(declared.definition): written(declared.metric)})


def noted(store: Store, registry: Registry, definitions: Iterable[Definition]) -> list[Declared]:
    """Read some definitions. Those that are not there, or cannot be read any more, are left out."""
    sought = sorted(definitions)
    readable: list[Declared] = []
    for definition, text in zip(sought, store.definitions.values([name(each) for each in sought]), strict=True):
        with suppress(DeniableError, ValueError, TypeError, KeyError):  # an earlier version of the software wrote it
            declared = Declared.of(read(text)) if text else None
            if declared and declared.definition == definition:
                readable.append(replace(declared, candidates=_candidates(registry, declared.metric)))
    return readable


def _candidates(registry: Registry, metric: Metric) -> tuple[int, ...]:
    """Read the answers to look for; none if the file that the metric named is no longer there."""
    try:
        return registry.candidates(metric)
    except RegistryError:
        return ()


def written(metric: Metric) -> str:
    """Write the fields of a metric that are not the defaults."""
    values = {each.name: getattr(metric, each.name) for each in fields(metric) if each.init}
    defaults = {each.name: each.default for each in fields(metric) if each.default is not MISSING}
    return json.dumps({key: value for key, value in values.items() if key not in defaults or value != defaults[key]}, default=str)


def read(text: bytes | str) -> Metric:
    """Read what `written` wrote."""
    members = {key: _fixed(value) for key, value in json.loads(text).items()}
    if members.get("expires"):
        members["expires"] = date.fromisoformat(members["expires"])
    return Metric(**members)


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list) else value
