"""The figures of a registry: declarations, and what the libraries compute from them. No words yet."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.explanation import Explanation
from deniable.lint import lint
from deniable.registry.published import newest
from deniable_aggregator.accounting.crowds import relay
from deniable_aggregator.accounting.plan import Plan, plan
from deniable_aggregator.accounting.statement import Statement, statement
from deniable_server.privacy.guess import Guess, guesses

if TYPE_CHECKING:
    from deniable.limits.allowance import Allowance
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

SPANS = (1, 30, 365)
"""Days that totals cover."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A warning of the registry's checker."""

    rule: str  # in words
    metrics: tuple[str, ...]  # those it is about, each with its value


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """One metric."""

    # metric, mechanism: as declared, and as chosen from the declaration
    metric: Metric
    mechanism: Mechanism
    explanation: Explanation  # what a device reveals; the losses are those of the mechanism's integers
    allowance: Allowance  # what a device reserves for it
    # Number of answers that are looked for, and SHA-256 of their file; 0 and empty if there is no file.
    candidates: tuple[int, str]
    guesses: tuple[Guess, ...]  # how often the best guess is right
    totals: tuple[Plan, ...]  # the plan of this metric alone over each of `SPANS`
    mixed: str  # both epsilons of its reports if a relay mixes them, in words; empty if none does

    @property
    def support(self) -> tuple[float, float] | None:
        """Probability that a report supports the true answer, and another one; None if shares are not estimated."""
        odds = self.mechanism.odds
        return odds and (float(odds[0]), float(odds[1]))

    @property
    def one(self) -> Guess:
        """The guess from one report."""
        return self.guesses[1]

    @property
    def lasting(self) -> Guess:
        """The guess from all reports of one answer of a device in a year."""
        return self.guesses[-1]


@dataclass(frozen=True, slots=True)
class Facts:
    """A registry."""

    registry: Registry  # as loaded
    digest: str  # SHA-256 of the file, as in the audit log
    metrics: tuple[MetricFacts, ...]  # in their order
    statements: tuple[Statement, ...]  # of all metrics together, one for each of `SPANS`
    doubts: tuple[Doubt, ...]  # warnings of the checker, each rule once

    @property
    def worst(self) -> list[MetricFacts]:
        """The metrics, ordered by what their reports of one answer reveal in a year, most first."""
        return sorted(self.metrics, key=lambda metric: (metric.lasting.epsilon, metric.one.epsilon), reverse=True)

    @property
    def plan(self) -> Plan:
        """The plan of all metrics over the longest of `SPANS`."""
        planned = self.statements[-1].plan
        assert planned is not None  # noqa: S101 - these statements are made from plans
        return planned


def gather(
    path: Path,  # the file
    *,
    delta: float = 1e-6,  # the delta of totals
    devices: int = 4,  # devices of a person or a household, at least 2
) -> Facts:
    """Read a registry file, and compute all figures."""
    loaded = newest(path)
    places: dict[str, list[str]] = {}
    findings = lint(loaded.file)
    for warning in (*findings.faults, *findings.warnings):
        place = "" if warning.metric == "-" else warning.metric
        value = "" if warning.value in (None, ...) else str(warning.value)
        places.setdefault(warning.rule, []).append(f"{place} ({value})" if place and value else place or value)
    statements = []
    for days in SPANS:
        planned = plan(loaded, days=days)
        statements.append(statement(planned.spends, [delta], devices=devices, plan=planned))
    return Facts(
        registry=loaded,
        digest=loaded.digest,
        metrics=tuple(_metric(loaded, metric) for metric in loaded.metrics.values()),
        statements=tuple(statements),
        doubts=tuple(Doubt(rule, tuple(filter(None, where))) for rule, where in places.items()),
    )


def _metric(loaded: Registry, metric: Metric) -> MetricFacts:
    declared = Declared.of(metric)
    file = Path(loaded.file).parent / metric.candidates if metric.candidates else None
    totals = tuple(plan(loaded, metrics=[metric.id], days=days) for days in SPANS)
    planned = totals[-1]
    return MetricFacts(
        metric=metric,
        mechanism=declared.mechanism,
        explanation=Explanation.of(loaded, metric.id, planned.budget),
        allowance=planned.uses[0].allowance,
        candidates=(len(loaded.candidates(metric)), sha256(file.read_bytes()).hexdigest() if file else ""),
        guesses=guesses(declared),
        totals=totals,
        mixed=relay.sentence(loaded, metric, planned.uses[0].occasions),
    )
