"""What is collected for an app: every version of its metrics, and the store of their reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable.registry import Registry
    from deniable_aggregator.store import Store


@dataclass(frozen=True, slots=True)
class Collection:
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
