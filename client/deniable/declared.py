"""A declared metric with the mechanism that it resolves to, and the fingerprint that its reports carry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from deniable import mechanisms

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric
    from deniable.wire.layout import Layout

__all__ = ["Declared", "Definition", "fingerprint"]

Definition = tuple[str, int, str]
"""What reports are counted under: metric, version and fingerprint."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One version of a metric, ready to be counted and decoded.

    Parameters
    ----------
    metric
        What the registry declares.
    mechanism
        What it resolves to.
    fingerprint
        What a report's group must carry.
    candidates
        The answers to look for, as places in the domain, where the domain is too large for all of them; for who decodes.
    """

    metric: Metric
    mechanism: Mechanism
    fingerprint: str
    candidates: tuple[int, ...] = ()

    @classmethod
    def of(cls, metric: Metric, candidates: tuple[int, ...] = ()) -> Declared:
        """Resolve a metric.

        Raises
        ------
        ParameterError
            If no mechanism serves it.
        """
        mechanism = mechanisms.of(metric)
        return cls(metric, mechanism, fingerprint(metric, mechanism.canonical), candidates)

    @property
    def layout(self) -> Layout:
        """What its payloads look like."""
        return self.mechanism.layout

    @property
    def name(self) -> str:
        """What people call it, such as ``ui.theme@2``."""
        return f"{self.metric.id}@{self.metric.version}"

    @property
    def definition(self) -> Definition:
        """What it is counted under: metric, version and fingerprint."""
        return self.metric.id, self.metric.version, self.fingerprint


def fingerprint(metric: Metric, mechanism: str) -> str:
    """Digest what a metric means: its answers in order, and the integers of its mechanism.

    A device and a server whose registries differ for the same id and version would count each other's reports wrongly, and
    nothing in the sums would show it. Their fingerprints differ, so the reports are refused instead.

    Parameters
    ----------
    metric
        The declared metric.
    mechanism
        The canonical text of the mechanism it resolves to, ``Mechanism.canonical``.

    Returns
    -------
    str
        Sixteen hexadecimal digits.
    """
    meaning = json.dumps([metric.id, metric.version, metric.type, metric.values, metric.period, metric.segments, mechanism])
    return sha256(meaning.encode()).hexdigest()[:16]
