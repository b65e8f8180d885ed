"""An app as the server sees it: its registry, the mechanism behind each metric, and its store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from flask import current_app

from deniable import mechanisms
from deniable.report import fingerprint
from deniable_aggregator.audit import AuditLog
from deniable_aggregator.budgets import Budgets
from deniable_aggregator.store import Store

if TYPE_CHECKING:
    from datetime import datetime

    import redis

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable.report import Stratum
    from deniable.signature import Envelope
    from deniable_aggregator.durability import Durability
    from deniable_server.limits import Limits
    from deniable_server.ring import Ring
    from deniable_server.settings import Settings

__all__ = ["App", "Collected", "Question", "Service", "service"]


class Collected(NamedTuple):
    """A period and segment that reports of a metric may have.

    Parameters
    ----------
    stratum
        What they are counted with.
    opens, closes
        Between which moments they are taken.
    """

    stratum: Stratum
    opens: datetime
    closes: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """A metric with its mechanism and fingerprint.

    Parameters
    ----------
    metric
        What the registry declares.
    mechanism
        What it resolves to.
    fingerprint
        What a report's group must carry.
    candidates
        The answers to look for, as places in the domain, where the domain is too large for all of them.
    collected
        What uploads were found to be rightly counted with, by period and segment.
    """

    metric: Metric
    mechanism: Mechanism
    fingerprint: str
    candidates: tuple[int, ...] = ()
    collected: dict[tuple[str, str], Collected] = field(default_factory=dict, compare=False, repr=False)

    @property
    def definition(self) -> tuple[str, int, str]:
        """What it is counted under: metric, version and fingerprint."""
        return self.metric.id, self.metric.version, self.fingerprint


@dataclass(frozen=True, slots=True)
class App:
    """One app of the service.

    Parameters
    ----------
    name
        As in the registry.
    registry
        What it may ask.
    questions
        By metric id.
    store
        Its part of the store.
    envelope
        The registry as devices are handed it, signed; None where they bring their own.

    Attributes
    ----------
    audit
        Its audit log.
    budgets
        What its analysts may spend.
    """

    name: str
    registry: Registry
    questions: dict[str, Question]
    store: Store
    envelope: Envelope | None = None
    audit: AuditLog = field(init=False, compare=False, repr=False)
    budgets: Budgets = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "audit", AuditLog(self.store.redis, self.name))
        object.__setattr__(self, "budgets", Budgets(self.store, self.registry.analysts))

    @property
    def trial(self) -> bool:
        """Whether everything is published at once, however few reports."""
        return self.registry.publication.trial

    @classmethod
    def of(
        cls, registry: Registry, client: redis.Redis, envelope: Envelope | None = None, durability: Durability | None = None
    ) -> App:
        """Resolve every metric of a registry."""
        questions = {}
        for metric in registry.metrics.values():
            mechanism = mechanisms.of(metric)
            tag = fingerprint(metric, mechanism.canonical)
            questions[metric.id] = Question(metric, mechanism, tag, registry.candidates(metric))
        return cls(registry.app, registry, questions, Store(client, registry.app, durability), envelope)


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that a request may need.

    Parameters
    ----------
    settings
        As read at the start.
    apps
        By name.
    ring
        Which app a key opens.
    limits
        How often keys and sources may ask.
    """

    settings: Settings
    apps: dict[str, App]
    ring: Ring
    limits: Limits


def service() -> Service:
    """Return the service of the current Flask app."""
    return cast("Service", current_app.extensions["deniable"])
