"""A declared metric with the mechanism that it resolves to, and the fingerprint that its reports carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.report import fingerprint

if TYPE_CHECKING:
    from deniable.layout import Layout
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric

__all__ = ["Declared", "Definition"]

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
    """

    metric: Metric
    mechanism: Mechanism
    fingerprint: str

    @classmethod
    def of(cls, metric: Metric) -> Declared:
        """Resolve a metric.

        Raises
        ------
        ParameterError
            If no mechanism serves it.
        """
        mechanism = mechanisms.of(metric)
        return cls(metric, mechanism, fingerprint(metric, mechanism.canonical))

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
