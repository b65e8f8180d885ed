"""What is collected for an app: every version of its metrics, and the store of their reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.registry.period import bounds
from deniable_aggregator.answer.model.metric import Description

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable.registry import Registry
    from deniable_aggregator.store import Store


@dataclass(frozen=True, slots=True)
class AppMetrics:
    """The metrics of an app."""

    registry: Registry  # the app's registry
    versions: dict[tuple[str, int], Declared]  # all versions that are accepted, by metric id and version
    store: Store  # the store of the app
    # The highest version of each metric that the registry declares, by its id.
    highest: dict[str, Declared] = field(init=False, compare=False, repr=False)
    _by_metric: dict[str, list[Declared]] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for metric, version in sorted(self.versions, reverse=True):
            self._by_metric.setdefault(metric, []).append(self.versions[metric, version])
        object.__setattr__(self, "highest", {metric: self._by_metric[metric][0] for metric in self.registry.metrics})

    @property
    def name(self) -> str:
        """The app's name."""
        return self.registry.app

    @property
    def trial(self) -> bool:
        """Whether everything is published at once, however few reports there are."""
        return self.registry.publication.trial

    def versions_of(self, metric: str) -> list[Declared]:
        """Return the versions of a metric, the highest first."""
        return self._by_metric.get(metric, [])

    def find(self, name: str) -> Declared | None:
        """Return the metric of a name ``metric@version``, or the highest version for a name ``metric``; None if unknown."""
        id_, at, version = name.partition("@")
        if not at:
            return self.highest.get(id_)
        return next((each for each in self.versions_of(id_) if str(each.metric.version) == version), None)

    def describe(self, declared: Declared) -> Description:
        """Describe a metric, independently of its reports."""
        metric, mechanism = declared.metric, declared.mechanism
        return Description(
            trial=self.trial,
            id=metric.id,
            type=metric.type,
            version=metric.version,
            description=metric.description,
            owner=metric.owner,
            expires=metric.expires,
            period_length=metric.period,
            domain_size=len(metric.values) or None,
            candidates=len(declared.candidates) if metric.candidates else None,
            discover=metric.discover,
            mechanism=mechanism.name,
            epsilon=float(metric.epsilon),
            epsilon_permanent=None if metric.epsilon_permanent is None else float(metric.epsilon_permanent),
            sample=float(metric.sample),
            min_reports=metric.min_reports,
            next_release=self.next_release(declared),
            report_bytes=mechanism.layout.payload_size,
        )

    def next_release(self, declared: Declared) -> datetime | None:
        """Return when the next period closes; None if no release depends on it: in a trial, or once collection has ended."""
        metric = declared.metric
        name = metric.next_to_close(datetime.now(UTC))
        begins, _ = bounds(name, metric.period)
        return None if self.trial or metric.expired(begins.date()) else metric.closes(name)

    def awaited(self, declared: Declared) -> str:
        """Say how many reports the next release needs, and when it is due. The words do not depend on how many came."""
        least, due = declared.metric.min_reports, self.next_release(declared)
        if due is None:
            return "everything is published at once" if self.trial else "collection has ended"
        steps = self.registry.publication.early and not declared.metric.segments
        before = f", or earlier once there are some {2 * declared.mechanism.needed(least):,}" if steps else ""
        needed = f"{declared.needed} {'are' if least > 1 else 'is'} needed"
        wait = "" if declared.metric.permanent else f"; fewer wait for those of the next {declared.metric.period}"
        return f"{needed}, and the next release is due {due:%Y-%m-%d %H:%M} UTC{before}{wait}"
