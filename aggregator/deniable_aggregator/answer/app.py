"""What is collected for an app: every version of its metrics, and the store of their reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.registry.period import bounds
from deniable_aggregator.answer.model.metric import Description
from deniable_aggregator.publish import definitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Registry
    from deniable_aggregator.store import Store


@dataclass(frozen=True)
class AppMetrics:
    """The metrics of an app."""

    declared: Registry  # what its files say
    present: Mapping[tuple[str, int], Declared]  # all versions that they declare, by metric id and version
    store: Store  # the store of the app
    # The highest version of each metric that the files declare, by its id.
    highest: dict[str, Declared] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        highest = {id_: self.present[id_, metric.version] for id_, metric in self.declared.metrics.items()}
        object.__setattr__(self, "highest", highest)

    @cached_property
    def registry(self) -> Registry:
        """What the files say, with the former versions that the store remembers. StoreError while it cannot be read."""
        return definitions.completed(self.store, self.declared)

    @cached_property
    def versions(self) -> dict[tuple[str, int], Declared]:
        """All versions that are accepted, former ones too, by metric id and version."""
        former = {
            (metric.id, metric.version): Declared.of(metric, definitions.candidates(self.registry, metric))
            for metric in self.registry.older
            if (metric.id, metric.version) not in self.present
        }
        return former | dict(self.present)

    @cached_property
    def _by_metric(self) -> dict[str, list[Declared]]:
        listed: dict[str, list[Declared]] = {}
        for metric, version in sorted(self.versions, reverse=True):
            listed.setdefault(metric, []).append(self.versions[metric, version])
        return listed

    @cached_property
    def lookups(self) -> dict[str, Any]:
        """What was published of the metrics that were asked for last: for `select`, which alone knows what that is."""
        return {}

    @property
    def name(self) -> str:
        """The app's name."""
        return self.declared.app

    @property
    def trial(self) -> bool:
        """Whether everything is published at once, however few reports there are."""
        return self.declared.publication.trial

    @property
    def simulated(self) -> str | None:
        """The days for which the store has reports of simulated people; None if it has none."""
        return self.store.simulated or None

    @property
    def marks(self) -> list[str]:
        """Words for the names of files: what to know of their numbers."""
        return [word for word, holds in (("trial", self.trial), ("simulated", self.simulated)) if holds]

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

    def why_nothing_yet(self, declared: Declared) -> str:
        """Say what is awaited of a metric of which nothing is published."""
        if self.trial:
            return "no report has been counted yet; in a trial each shows at once"
        return self.awaited(declared)

    def awaited(self, declared: Declared) -> str:
        """Say how many reports the next release needs, and when it is due. The words do not depend on how many came."""
        least, due = declared.metric.min_reports, self.next_release(declared)
        if due is None:
            return "everything is published at once" if self.trial else "collection has ended"
        steps = self.declared.publication.early and not declared.metric.segments
        before = f", or earlier once there are some {2 * declared.mechanism.needed(least):,}" if steps else ""
        needed = f"{declared.needed} {'are' if least > 1 else 'is'} needed"
        wait = (
            "" if declared.metric.permanent else f"; if there are fewer, they wait for those of the next {declared.metric.period}"
        )
        return f"{needed}, and the next release is due {due:%Y-%m-%d %H:%M} UTC{before}{wait}"
