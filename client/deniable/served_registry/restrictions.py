"""What a served registry says: which metrics stay on, each with the largest sample and the last day of its collection.

::

    {"app":"shop","metrics":{"ui.theme":{"sample":"0.5","until":"2027-12-31"}},"revision":6}

A device takes the lesser sample and the earlier end. A metric that is not listed is off, whatever its version, and what the app
does not declare stays unknown to it. Nothing else can be said. So the meaning of a report, its content and its cost stay the
same, and no permanent response is drawn again.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.frozen import NamedTuple, dataclass, replace
from deniable.registry.rules import ID_RULE, is_id, is_revision
from deniable.served_registry.signature import day, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from deniable.registry import Metric, Registry

_SAMPLE = re.compile(r"1|0\.[0-9]{0,29}[1-9]")
_JSON = "its text is no canonical JSON: write names in order and each once, no spaces and no escapes"


class Limit(NamedTuple):
    """The most that is asked of a metric which stays on."""

    sample: str  # share of answers, as a decimal
    until: date | None  # last day of collection; None for that of the app


@dataclass(frozen=True, slots=True)
class Restriction:
    """The text of a served registry."""

    app: str
    revision: int  # raised with every publication
    metrics: Mapping[str, Limit]  # those that stay on, by id

    @classmethod
    def of(cls, registry: Registry) -> Restriction:
        """Return what a registry says to devices whose app declares the same metrics."""
        limits = {id_: Limit(metric.sample, metric.expires) for id_, metric in registry.metrics.items()}
        return cls(registry.app, registry.revision, limits)

    @classmethod
    def read(cls, text: str) -> Restriction:
        """Read a text, of which each restriction has exactly one; raise `ServedRegistryError` for any other."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise refusal(_JSON, ...) from None
        app, listed, revision = _members(document, ("app", "metrics", "revision"), "-")
        if not is_id(app):
            raise refusal("app: write a lower-case name in quotes, such as 'shop'", app)
        if not is_revision(revision):
            raise refusal("revision: write a whole number above 0 and below 2^53", revision)
        if not isinstance(listed, dict):
            raise refusal("metrics: write an object", listed)
        restriction = cls(app, revision, {id_: _limit(id_, limit) for id_, limit in listed.items()})
        if restriction.write() != text:
            raise refusal(_JSON, ...)
        return restriction

    def write(self) -> str:
        """Write the text."""
        metrics = {
            id_: {"sample": limit.sample, "until": limit.until.isoformat() if limit.until else None}
            for id_, limit in self.metrics.items()
        }
        document = {"app": self.app, "metrics": metrics, "revision": self.revision}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    def applied(
        self,
        bundled: Registry,  # the app's own registry
    ) -> Registry:
        """Return the registry to use instead of the app's own; raise `ServedRegistryError` for another app, or an older one."""
        if self.app != bundled.app:
            raise refusal(f"app: write {bundled.app!r}, as in the app", self.app)
        if self.revision < bundled.revision:
            raise refusal(f"revision: write {bundled.revision} or more; the registry in the app has that", self.revision)
        return replace(bundled, revision=self.revision, metrics=self.limited(bundled.metrics))

    def limited(self, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
        """Return the metrics that stay on, each with the lesser sample and the earlier end."""
        return {id_: _lesser(metric, self.metrics[id_]) for id_, metric in metrics.items() if id_ in self.metrics}


def _lesser(metric: Metric, limit: Limit) -> Metric:
    return replace(
        metric,
        sample=min(metric.sample, limit.sample, key=Fraction),
        expires=min(filter(None, (metric.expires, limit.until)), default=None),
    )


def _limit(id_: str, document: object) -> Limit:
    if not is_id(id_):
        raise refusal(ID_RULE, id_)
    sample, until = _members(document, ("sample", "until"), id_)
    if not isinstance(sample, str) or not _SAMPLE.fullmatch(sample):
        raise refusal("sample: write 1, or a decimal below it of at most 30 places, such as 0.5, in quotes", sample, id_)
    return Limit(sample, None if until is None else day("until", until, id_))


def _members(document: object, names: tuple[str, ...], metric: str) -> list[Any]:
    """Return the members of an object that has exactly these."""
    if not isinstance(document, dict) or set(document) != set(names):
        listed = ", ".join(sorted(document)) if isinstance(document, dict) else "nothing" if document is None else document
        where = "a restriction" if metric == "-" else "a metric"
        raise refusal(f"the members of {where}: write {', '.join(names)}, and nothing else", listed, metric)
    return [document[name] for name in names]
