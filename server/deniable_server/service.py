"""An app as the server sees it: its registry, the mechanism behind each metric, and its store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from flask import current_app

from deniable.declared import Declared
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.questions.budgets import Budgets
from deniable_aggregator.store import Store

if TYPE_CHECKING:
    import redis

    from deniable.registry import Registry
    from deniable.served_registry.signature import Envelope
    from deniable.wire.layout import Layout
    from deniable_aggregator.store.durability import Durability
    from deniable_aggregator.store.room import Room
    from deniable_server.access.key_ring import Ring
    from deniable_server.access.rate_limits import Limits
    from deniable_server.access.sessions import Sessions
    from deniable_server.settings import Settings

__all__ = ["App", "Collected", "Question", "Service", "service"]


class Collected(NamedTuple):
    """What groups of one metric, version, definition, period and segment share.

    Parameters
    ----------
    layout
        Shape of their reports.
    kind
        What their groups begin with in the stream.
    size
        Bytes of a report.
    plain
        Bytes by which it is plain that a report is valid, as `tally.plain` tells them.
    opens, closes
        Between which moments they are taken, in Unix time.
    """

    layout: Layout
    kind: bytes
    size: int
    plain: tuple[tuple[int, bytes], ...]
    opens: float
    closes: float


@dataclass(frozen=True, slots=True)
class Question(Declared):
    """One version of a metric, and what the server needs of it.

    Parameters
    ----------
    candidates
        The answers to look for, as places in the domain, where the domain is too large for all of them.
    """

    candidates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class App:
    """One app of the service.

    Parameters
    ----------
    name
        As in the registry.
    registry
        What it may ask.
    versions
        All that reports may be of, by metric id and version.
    store
        Its part of the store.
    envelope
        The registry as devices are handed it, signed; None where they bring their own.

    Attributes
    ----------
    questions
        The highest version of each metric, by its id.
    audit
        Its audit log.
    budgets
        What its analysts may spend.
    collected
        What groups were found to be rightly counted with, by what they say of themselves.
    """

    name: str
    registry: Registry
    versions: dict[tuple[str, int], Question]
    store: Store
    envelope: Envelope | None = None
    questions: dict[str, Question] = field(init=False, compare=False, repr=False)
    _by_metric: dict[str, list[Question]] = field(init=False, default_factory=dict, compare=False, repr=False)
    audit: AuditLog = field(init=False, compare=False, repr=False)
    budgets: Budgets = field(init=False, compare=False, repr=False)
    collected: dict[tuple[str, int, str, str, str], Collected] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        for metric, version in sorted(self.versions, reverse=True):
            self._by_metric.setdefault(metric, []).append(self.versions[metric, version])
        object.__setattr__(self, "questions", {metric: self._by_metric[metric][0] for metric in self.registry.metrics})
        object.__setattr__(self, "audit", AuditLog(self.store.redis, self.name))
        object.__setattr__(self, "budgets", Budgets(self.store, self.registry.analysts))

    @property
    def trial(self) -> bool:
        """Whether everything is published at once, however few reports."""
        return self.registry.publication.trial

    @classmethod
    def of(
        cls,
        registry: Registry,
        client: redis.Redis,
        envelope: Envelope | None = None,
        durability: Durability | None = None,
        room: Room | None = None,
    ) -> App:
        """Resolve every version of every metric of a registry."""
        versions = {}
        for metric in registry.definitions:
            declared = Declared.of(metric)
            candidates = registry.candidates(metric)
            versions[metric.id, metric.version] = Question(metric, declared.mechanism, declared.fingerprint, candidates)
        return cls(registry.app, registry, versions, Store(client, registry.app, durability, room), envelope)

    def versions_of(self, metric: str) -> list[Question]:
        """List the versions of a metric, the highest first."""
        return self._by_metric.get(metric, [])

    def find(self, name: str) -> Question | None:
        """Return what is named ``metric@version``, or the highest version of what is named ``metric``; None if unknown."""
        id_, at, version = name.partition("@")
        if not at:
            return self.questions.get(id_)
        return next((each for each in self.versions_of(id_) if str(each.metric.version) == version), None)


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
    sessions
        Who is signed in.
    """

    settings: Settings
    apps: dict[str, App]
    ring: Ring
    limits: Limits
    sessions: Sessions


def service() -> Service:
    """Return the service of the current Flask app."""
    return cast("Service", current_app.extensions["deniable"])
