"""A declared metric with its mechanism and the fingerprint of its reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.errors import Fault, ParameterError, RegistryError
from deniable.exact.sha import sha256
from deniable.frozen import dataclass
from deniable.messages.plural import plural
from deniable.registry import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.mechanisms import Mechanism
    from deniable.mechanisms.permanent import Permanent
    from deniable.registry import Metric, Registry
    from deniable.wire.layout import Layout

Definition = tuple[str, int, str]
"""The metric, version and fingerprint under which reports are counted."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One version of a metric, ready to be counted and decoded."""

    metric: Metric  # as the registry declares it
    mechanism: Mechanism
    fingerprint: str  # the fingerprint that a group of reports must carry
    # The answers to look for, as positions in the domain, if the domain is too large to be listed. Only decoders need them.
    candidates: tuple[int, ...] = ()

    @classmethod
    def of(cls, metric: Metric, candidates: tuple[int, ...] = ()) -> Declared:
        """Make the mechanism and the fingerprint of a metric; raise `ParameterError` if no mechanism fits it."""
        mechanism = mechanisms.of(metric)
        return cls(metric, mechanism, fingerprint(metric, mechanism.canonical), candidates)

    @property
    def layout(self) -> Layout:
        """The layout of its payloads."""
        return self.mechanism.layout

    @property
    def permanent(self) -> Permanent | None:
        """Its mechanism, if devices keep permanent responses to it; else None."""
        return self.mechanism.in_two_steps if self.metric.permanent else None

    @property
    def name(self) -> str:
        """Its name for people, such as ``ui.theme@2``."""
        return f"{self.metric.id}@{self.metric.version}"

    @property
    def needed(self) -> str:
        """How many reports a release needs, in words.

        It is ``100 reports``, or of a set ``100 reports about each option, some 3,000 in all``.
        """
        least = self.metric.min_reports
        reports = plural(least, "report")
        part = self.mechanism.part
        return f"{reports} about each {part}, some {self.mechanism.needed(least):,} in all" if part else reports

    @property
    def definition(self) -> Definition:
        """The metric, version and fingerprint under which it is counted."""
        return self.metric.id, self.metric.version, self.fingerprint


def declare(
    registry: Registry,
    metric: Metric,  # one of it
    candidates: tuple[int, ...] = (),  # as of `Declared`
) -> Declared:
    """Make the mechanism and the fingerprint of a metric; raise `RegistryError`, which names it, if no mechanism fits it."""
    try:
        return Declared.of(metric, candidates)
    except ParameterError as error:
        raise refusal(registry.file, [Fault(registry.file, metric.id, error.rule, error.value)]) from None


def versions(registry: Registry) -> dict[tuple[str, int], Declared]:
    """Return each version of each metric, with its candidates; raise `RegistryError` if some cannot be counted or decoded."""
    return {(each.metric.id, each.metric.version): each for each in declare_all(registry, registry.definitions)}


def declare_all(
    registry: Registry,
    metrics: Iterable[Metric],  # of it
    *,
    decoded: bool = True,  # whether their candidates are needed, which devices do not have
) -> list[Declared]:
    """Declare several metrics; a `RegistryError` has the faults of all of them."""
    ready: list[Declared] = []
    faults: list[Fault] = []
    for metric in metrics:
        candidates: tuple[int, ...] = ()
        try:
            candidates = registry.candidates(metric) if decoded else ()
        except RegistryError as error:
            faults += error.faults
        try:
            ready.append(declare(registry, metric, candidates))
        except RegistryError as error:
            faults += error.faults
    if faults:
        raise RegistryError(faults)
    return ready


def fingerprint(
    metric: Metric,  # the declared metric
    mechanism: str,  # the canonical text of its mechanism, `Mechanism.canonical`
) -> str:
    """Compute a digest of a metric's meaning, 16 hexadecimal digits: its answers in order, and its mechanism's integers."""
    answers = metric.values or (*metric.range, metric.unit, metric.scale) * (metric.axis is not None)
    # A device and a server may declare one id and version differently. Without the fingerprint, the server would count these
    # reports wrongly, and nothing would show it. With it, the server refuses them.
    meaning = [metric.id, metric.version, metric.type, answers, metric.period, metric.segments, mechanism]
    # With it a report of a registry that claims another crowd, or none, is refused: nobody can claim one and mix another.
    meaning += [metric.shuffled.meaning] if metric.shuffled else []
    return sha256(json.dumps(meaning).encode()).hexdigest()[:16]
