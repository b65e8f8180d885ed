"""Which answers one report names, for people who look at what was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.errors import DeniableError
from deniable.frozen import replace
from deniable.mechanisms.sets import OfSets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.device.journal import SentReport
    from deniable.registry import Registry

_MOST_NAMED = 5  # answers


def report_names(
    declared: Declared,
    payload: bytes,  # of one report
) -> str:
    """Write the answers that a report names, such as ``jpeg or png``; empty if it names none, or it is not known."""
    metric, mechanism = declared.metric, declared.mechanism
    window = None if metric.permanent else mechanism.window_of(payload)
    if metric.axis and window:
        ends = dict.fromkeys(f"{metric.axis.number(float(end)):.3g}" for end in window)
        return f"{' to '.join(ends)} {metric.unit}"
    everything = range(len(metric.values))
    if isinstance(mechanism, OfSets):
        says_yes = mechanism.options_of(payload)
        if mechanism.part:  # each of the few options of a row
            return ", ".join(f"{metric.label(option)}: {'yes' if is_chosen else 'no'}" for option, is_chosen in says_yes.items())
        supported = {option for option, is_chosen in says_yes.items() if is_chosen}
    else:
        supported = (mechanism.supporting(payload, everything) if metric.values else None) or set()
    names = [metric.label(position) for position in sorted(supported)]
    if len(names) in (0, len(everything)):
        return ""
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} more"]
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def with_names(
    entries: Iterable[SentReport],
    registry: Registry,
) -> list[SentReport]:
    """Add what each report names, where the registry still defines its metric as when it was made."""
    definitions: dict[str, Declared | None] = {}
    named = []
    for entry in entries:
        if entry.metric not in definitions:
            definitions[entry.metric] = _declared(registry, entry.metric)
        declared = definitions[entry.metric]
        known = declared is not None and declared.fingerprint == entry.fingerprint
        named.append(replace(entry, names=_names(declared, entry)) if known and declared else entry)
    return named


def _declared(registry: Registry, id_: str) -> Declared | None:
    try:
        return Declared.of(registry.metrics[id_]) if id_ in registry.metrics else None
    except DeniableError:
        return None


def _names(declared: Declared, entry: SentReport) -> str:
    try:
        return report_names(declared, bytes.fromhex(entry.payload))
    except DeniableError:  # somebody has written into the state
        return ""
