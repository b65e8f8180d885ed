"""An app as the server sees it: its registry, the mechanism behind each metric, and its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from flask import current_app

from deniable import mechanisms
from deniable.report import fingerprint
from deniable_aggregator.store import Store

if TYPE_CHECKING:
    import redis

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry
    from deniable.signature import Envelope
    from deniable_aggregator.durability import Durability
    from deniable_server.limits import Limits
    from deniable_server.ring import Ring
    from deniable_server.settings import Settings

__all__ = ["App", "Question", "Service", "service"]


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
    """

    metric: Metric
    mechanism: Mechanism
    fingerprint: str
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
    questions
        By metric id.
    store
        Its part of the store.
    envelope
        The registry as devices are handed it, signed; None where they bring their own.
    """

    name: str
    registry: Registry
    questions: dict[str, Question]
    store: Store
    envelope: Envelope | None = None

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
