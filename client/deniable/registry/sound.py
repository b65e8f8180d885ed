"""What is sound of a registry with faults. Lint checks it as well, so that it says everything at once.

What a fault is about is left out: its key, if the mechanism does not depend on it, else the metric.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from deniable import registry
from deniable.errors import RegistryError
from deniable.frozen import NamedTuple
from deniable.registry import rules
from deniable.registry.keys import meant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.errors import Fault
    from deniable.registry import Registry

_TEXTS = ("description", "owner")
_SPENDING = ("period", "segments", "expires", "per_period", "answers_per_month")
_OPTIONAL = (*_SPENDING, "version", "min_reports", "grace", "delay", "sample", "public", "together", "least_shift")
"""Keys of a metric that its mechanism does not depend on; with the first ones, what it spends does."""
_FIRST_WORD = re.compile(r"[a-zA-Z_][\w-]*")


class Sound(NamedTuple):
    """A registry file."""

    faults: tuple[Fault, ...]  # all faults of its form
    registry: Registry | None  # what is sound of it; None if nothing is
    left_out: Mapping[str, frozenset[str]]  # the keys that are left out, by metric; those of the file under "-"
    spends: bool  # whether what it spends is known all the same

    def knows(self, metric: str, rule: str) -> bool:
        """Return whether a finding about the sound part is one about the file: it names nothing that is left out."""
        words = set(_FIRST_WORD.findall(rule))
        left_out = self.left_out.get(metric, frozenset()) if metric != "-" else frozenset().union(*self.left_out.values())
        return words.isdisjoint(left_out)


def read_sound(
    text: str,  # TOML
    file: str,  # its name in faults
) -> Sound:
    """Read what is sound of a registry."""
    try:
        return Sound((), registry.parse(text, file), {}, spends=True)
    except RegistryError as error:
        faults = error.faults
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return Sound(faults, None, {}, spends=False)
    left_out: dict[str, set[str]] = {}
    broken = [(fault.metric, fault.rule) for fault in faults]
    while broken:
        if not all(_leave_out(document, metric, rule, left_out) for metric, rule in broken):
            return Sound(faults, None, {}, spends=False)
        broken = [(metric, rule) for metric, rule, _ in registry.document_faults(document)]
    spends = not any(keys & {*_SPENDING, *rules.TABLES, "metrics"} for keys in left_out.values())
    return Sound(faults, registry.made_of(document, text, file), {id_: frozenset(keys) for id_, keys in left_out.items()}, spends)


def _leave_out(document: dict[str, Any], metric: str, rule: str, left_out: dict[str, set[str]]) -> bool:
    """Leave out what a fault is about; return whether anything is left."""
    word = _FIRST_WORD.search(rule)
    key = word[0] if word else ""
    if metric == "-":
        return _leave_out_table(document, key, left_out.setdefault("-", set()))
    metrics = document["metrics"]
    table = metrics.get(metric)
    known = isinstance(table, dict) and (key in _OPTIONAL or key not in registry.KEYS)
    if known and key in table:
        right = None if key in registry.KEYS else meant(key, registry.KEYS)
        value = table.pop(key)
        if right is not None:
            table.setdefault(right, value)
        else:
            left_out.setdefault(metric, set()).add(key)
    elif isinstance(table, dict) and key in _TEXTS:
        table[key] = key
    elif metric in metrics:
        del metrics[metric]
        left_out.setdefault("-", set()).add("metrics")
    return bool(metrics)


def _leave_out_table(document: dict[str, Any], key: str, left_out: set[str]) -> bool:
    if key not in document and key not in ("app", "format"):
        return key in left_out  # of another fault
    value = document.pop(key, None)
    right = None if key in rules.TOP else meant(key, rules.TOP)
    if key in ("app", "format"):
        document[key] = {"app": "app", "format": rules.FORMAT}[key]
    elif right is not None:
        document.setdefault(right, value)
    else:
        left_out.add(key)
    return key != "metrics"
