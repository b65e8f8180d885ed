"""What a registry says of each metric, with what the libraries make of it: numbers, and no words yet."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from deniable import mechanisms
from deniable.explanation import Explanation
from deniable.lint import lint
from deniable.registry.published import newest
from deniable_aggregator.accounting.plan import Plan, plan
from deniable_aggregator.accounting.statement import Statement, statement
from deniable_server.privacy.guess import Guess, guesses

if TYPE_CHECKING:
    from deniable.limits.allowance import Allowance
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

__all__ = ["DELTA", "DEVICES", "SPANS", "Doubt", "Facts", "MetricFacts", "gather"]

DELTA = 1e-6
"""With which totals hold that are below the plain sum, unless another one is asked for."""
DEVICES = 4
"""Of a person or a household, unless another number is asked for."""
SPANS = (1, 30, 365)
"""Days over which totals are told."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the registry's checker finds worth a second look.

    Parameters
    ----------
    rule
        In words.
    found
        Where, each a metric with the value that it has.
    """

    rule: str
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """One metric.

    Parameters
    ----------
    metric, mechanism
        As declared, and as it resolves.
    explanation
        What a device tells of it; the losses are those of the mechanism's integers.
    allowance
        What is reserved for it on a device.
    candidates
        Answers that are looked for, with the SHA-256 of their file; 0 and nothing where no file is named.
    guesses
        How often the best guesser is right.
    totals
        The plan of this metric alone over each of `SPANS`.
    """

    metric: Metric
    mechanism: Mechanism
    explanation: Explanation
    allowance: Allowance
    candidates: tuple[int, str]
    guesses: tuple[Guess, ...]
    totals: tuple[Plan, ...]

    @property
    def one(self) -> Guess:
        """The guess from one report."""
        return self.guesses[1]

    @property
    def lasting(self) -> Guess:
        """The guess from all reports that a device makes of one answer in a year."""
        return self.guesses[-1]


@dataclass(frozen=True, slots=True)
class Facts:
    """A registry.

    Parameters
    ----------
    registry
        As loaded.
    digest
        SHA-256 of the file, as the audit log has it.
    metrics
        In their order.
    statements
        Of all metrics together, over each of `SPANS`.
    doubts
        Of the checker, each rule once.
    """

    registry: Registry
    digest: str
    metrics: tuple[MetricFacts, ...]
    statements: tuple[Statement, ...]
    doubts: tuple[Doubt, ...]

    @property
    def worst(self) -> list[MetricFacts]:
        """The metrics, first those whose reports of one answer tell most in a year."""
        return sorted(self.metrics, key=lambda each: (each.lasting.epsilon, each.one.epsilon), reverse=True)

    @property
    def plan(self) -> Plan:
        """Of all metrics, over the longest of `SPANS`."""
        found = self.statements[-1].plan
        assert found is not None  # noqa: S101 - these statements are made of plans
        return found


def gather(path: Path, *, delta: float = DELTA, devices: int = DEVICES) -> Facts:
    """Read a registry file and work out all figures.

    Parameters
    ----------
    path
        The file.
    delta
        With which totals hold.
    devices
        Of a person or a household, at least 2.

    Raises
    ------
    RegistryError
        With every fault of the file, or of a file of candidates.
    ParameterError
        If a metric's mechanism does not exist, or a number is out of range.
    """
    loaded = newest(path)
    found: dict[str, list[str]] = {}
    for warning in lint(loaded.file).warnings:
        place = "" if warning.metric == "-" else warning.metric
        value = "" if warning.value is None else str(warning.value)
        found.setdefault(warning.rule, []).append(f"{place} ({value})" if place and value else place or value)
    statements = []
    for days in SPANS:
        planned = plan(loaded, days=days)
        statements.append(statement(planned.spends, [delta], devices=devices, plan=planned))
    return Facts(
        registry=loaded,
        digest=loaded.digest,
        metrics=tuple(_metric(loaded, metric) for metric in loaded.metrics.values()),
        statements=tuple(statements),
        doubts=tuple(Doubt(rule, tuple(filter(None, where))) for rule, where in found.items()),
    )


def _metric(loaded: Registry, metric: Metric) -> MetricFacts:
    mechanism = mechanisms.of(metric)
    file = Path(loaded.file).parent / metric.candidates if metric.candidates else None
    totals = tuple(plan(loaded, metrics=[metric.id], days=days) for days in SPANS)
    planned = totals[-1]
    return MetricFacts(
        metric=metric,
        mechanism=mechanism,
        explanation=Explanation.of(loaded, metric.id, planned.budget),
        allowance=planned.uses[0].allowance,
        candidates=(len(loaded.candidates(metric)), sha256(file.read_bytes()).hexdigest() if file else ""),
        guesses=guesses(metric, mechanism),
        totals=totals,
    )
