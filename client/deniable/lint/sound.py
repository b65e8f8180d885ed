"""What is sound of a registry with faults. Lint checks it as well, so that it says everything at once.

What a fault is about is left out: its line if that is no TOML, its key if the metric can do without. Else the key has a stand-in:
the simplest sound value, of which nothing is said. A metric that is no table, or of no known type, is left out itself.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from deniable import registry
from deniable.errors import Fault
from deniable.frozen import NamedTuple
from deniable.registry import rules
from deniable.registry.answers.domain import type_meant
from deniable.registry.answers.types import TYPES
from deniable.registry.keys import lifted, meant
from deniable.registry.syntax import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Registry

_TEXTS = ("description", "owner")
_SPENDING = ("period", "segments", "expires", "per_period", "answers_per_month")
_OPTIONAL = (*_SPENDING, "version", "min_reports", "grace", "delay", "sample", "public", "together", "least_shift")
"""Keys of a metric that its mechanism does not depend on; with the first ones, what it spends does."""
_STAND_INS: Mapping[str, object] = {
    "epsilon": 1,
    "epsilon_permanent": 16,
    "values": ["a", "b"],
    "range": [1, 2],
    "unit": "s",
    "estimate": "mean",
    "factors": {"a": ["b", "c"], "d": ["e", "f"]},
}
"""Sound values of keys that a metric of some type needs."""
_DEPENDENT: Mapping[str, tuple[str, ...]] = {
    "range": ("step", "whole"),
    "most": ("mechanism", "parameters"),
    "joint": ("mechanism", "parameters"),
    "candidates": ("discover", "mechanism", "parameters"),
    "discover": ("mechanism", "parameters"),
}
"""Keys about which nothing is known without another one."""
_FIRST_WORD = re.compile(r"[a-zA-Z_][\w-]*")


class Sound(NamedTuple):
    """A registry file."""

    text: str  # the lines that are TOML, each with its number
    faults: tuple[Fault, ...]  # all faults of its form; those of lines that are no TOML say their line
    registry: Registry | None  # what is sound of it; None if nothing is
    left_out: Mapping[str, frozenset[str]]  # the keys that are left out or stood in for, by metric; those of the file under "-"
    spends: bool  # whether what it spends is known all the same
    whole_numbers: frozenset[str] = frozenset()  # the metrics whose step is written as `whole = true`

    def knows(self, metric: str, rule: str) -> bool:
        """Return whether a finding about the sound part is one about the file: it names nothing that is left out."""
        words = set(_FIRST_WORD.findall(rule))
        left_out = self.left_out.get(metric, frozenset()) if metric != "-" else frozenset().union(*self.left_out.values())
        return words.isdisjoint(left_out)

    def stands_in(self, metric: str) -> bool:
        """Return whether a metric has another mechanism here than in the file."""
        return not self.left_out.get(metric, frozenset()).issubset((*_OPTIONAL, *_TEXTS))


def read_sound(
    text: str,  # TOML
    file: str,  # its name in faults
) -> Sound:
    """Read what is sound of a registry."""
    legible = readable(text, file)
    left_out: dict[str, set[str]] = {}
    for path in legible.left_out:
        in_metric = path[0] == "metrics" and len(path) > 2  # noqa: PLR2004 - a metric and a key of it
        left_out.setdefault(path[1] if in_metric else "-", set()).add(path[2] if in_metric else path[0])
    if not legible.is_toml:
        return Sound(legible.text, legible.faults, None, {}, spends=False)
    document = tomllib.loads(legible.text)
    known = Sound(legible.text, (), None, {id_: frozenset(keys) for id_, keys in left_out.items()}, spends=False)
    all_faults = [Fault(file, *details) for details in registry.document_faults(document)]
    faults = (*legible.faults, *(fault for fault in all_faults if known.knows(fault.metric, fault.rule)))
    document, _ = lifted(document, registry.KEYS, rules.TOP)
    _quote(document)
    seen = set[tuple[str, str]]()
    while broken := {
        (metric, _key(rule)): rule for metric, rule, _ in registry.document_faults(document) if rule != rules.ID_RULE
    }:
        for (metric, key), rule in broken.items():
            if metric == "-":
                left = _leave_out_table(document, key, left_out.setdefault("-", set()))
            elif (metric, rule) in seen:  # what stands in is not sound either
                left = _leave_out_metric(document["metrics"], metric, left_out)
            else:
                left = _leave_out(document["metrics"], metric, key, left_out, remove=rule.startswith(f"{key}: remove it"))
            if not left:
                return Sound(legible.text, faults, None, {}, spends=False)
            seen.add((metric, rule))
    left_out = {id_: keys for id_, keys in left_out.items() if keys}
    sound = Sound(
        legible.text,
        faults,
        registry.made_of(document, legible.text, file),
        {id_: frozenset(keys) for id_, keys in left_out.items()},
        spends=not left_out.get("-", set()) & {*rules.TABLES, "metrics", "segments"},
        whole_numbers=frozenset(id_ for id_, table in document["metrics"].items() if table.get("whole")),
    )
    spends = sound.spends and not any(keys & {*_SPENDING} or sound.stands_in(id_) for id_, keys in left_out.items() if id_ != "-")
    return sound._replace(spends=spends)


def _quote(document: dict[str, Any]) -> None:
    """Give metrics whose ids lack their quotes the ids that were meant."""
    metrics: Any = document.get("metrics")
    for id_ in list(metrics) if isinstance(metrics, dict) else ():
        table = metrics[id_]
        inner = rules.unquoted(table, registry.KEYS) if isinstance(table, dict) else {}
        for key, value in inner.items():
            del table[key]
            metrics.setdefault(f"{id_}.{key}", value)
        if inner and not table:
            del metrics[id_]


def _key(rule: str) -> str:
    """Return the first word of a rule: the key that it is about, if it is about one."""
    word = _FIRST_WORD.search(rule)
    return word[0] if word else ""


def _leave_out(metrics: dict[str, Any], metric: str, key: str, left_out: dict[str, set[str]], *, remove: bool) -> bool:
    """Leave out what a fault of a metric is about, or stand in for it; return whether any metric is left."""
    table, gone = metrics.get(metric), left_out.setdefault(metric, set())
    kind = type_meant(table.get("type"), TYPES) if isinstance(table, dict) else None
    if not isinstance(table, dict) or kind is None or (key not in registry.KEYS and key not in table):
        return _leave_out_metric(metrics, metric, left_out)
    if key == "type":
        table[key] = kind
    elif key in _TEXTS:
        table[key] = key
    elif key in registry.KEYS:
        _stand_in(table, key, gone, remove=remove)
    else:
        value, right = table.pop(key), meant(key, registry.KEYS)
        if right is None:
            gone.add(key)
        else:
            table.setdefault(right, value)
    return True


def _stand_in(table: dict[str, Any], key: str, gone: set[str], *, remove: bool) -> None:
    names = {key} if remove else {key, *_DEPENDENT.get(key, ())}
    gone.update(names)
    for name in names:
        table.pop(name, None)
    if key in _STAND_INS and not remove:
        table[key] = _STAND_INS[key]
    if key == "candidates":
        table["discover"] = True
    if key not in _OPTIONAL and table.get("mechanism", "auto") == "auto":
        gone.add("mechanism")  # another may be chosen


def _leave_out_metric(metrics: dict[str, Any], metric: str, left_out: dict[str, set[str]]) -> bool:
    metrics.pop(metric, None)
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
