"""Definitions: how the registry declared each version of each metric, now and before.

A tally can be read only with the definition that its reports were made by. The registry has the present one. A worker notes each
definition that its registry has, and when it first had a registry without it. So former ones can be read here: those of a version
that was replaced by a higher one, and those that were changed in the same version.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.declared import Declared
from deniable.errors import DeniableError, RegistryError
from deniable.registry import Metric, comparison, period
from deniable.registry.published import in_a_line
from deniable.registry.relay import Shuffled
from deniable_aggregator.store.sums.tallies import name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from deniable.declared import Definition
    from deniable.errors import Fault
    from deniable.registry import Registry
    from deniable_aggregator.store import Store


class Record(NamedTuple):
    """A definition as it is stored."""

    metric: Metric
    segments: Mapping[str, tuple[str, ...]]  # the values of its segments
    generalize: Mapping[str, Mapping[str, str]]  # what they generalise to
    since: int  # Unix time at which it was first noted
    replaced: int  # Unix time at which a worker first had a registry without it; 0 while the registry has it

    @classmethod
    def of(
        cls,
        registry: Registry,
        metric: Metric,  # one that the registry declares
        since: int,  # Unix time
    ) -> Record:
        """Return the record of a metric."""
        segments = {each: registry.segments[each] for each in metric.segments}
        generalize = {each: registry.generalize[each] for each in segments if each in registry.generalize}
        return cls(metric, segments, generalize, since, 0)

    def written(self) -> str:
        """Write it, without fields of the metric that are the defaults."""
        values = {each.name: getattr(self.metric, each.name) for each in fields(Metric) if each.init}
        defaults = {each.name: each.default for each in fields(Metric) if each.default is not MISSING}
        metric = {key: value for key, value in values.items() if key not in defaults or value != defaults[key]}
        if self.metric.shuffled:
            metric["shuffled"] = asdict(self.metric.shuffled)
        return json.dumps(self._asdict() | {"metric": metric}, default=str)

    @classmethod
    def read(cls, text: bytes | str) -> Record:
        """Read what `written` wrote."""
        record = json.loads(text)
        members = {key: _fixed(value) for key, value in record["metric"].items()}
        if members.get("expires"):
            members["expires"] = date.fromisoformat(members["expires"])
        segments = {each: tuple(values) for each, values in record["segments"].items()}
        if "shuffled" in members:
            members["shuffled"] = Shuffled(**members["shuffled"])
        return cls(Metric(**members), segments, record["generalize"], record["since"], record["replaced"])

    def ended(self, now: float) -> Metric:
        """Return the metric with its last day, on which the grace of the period ends in which it was replaced."""
        last = self.metric.closes(period.of(datetime.fromtimestamp(self.replaced or now, UTC), self.metric.period)).date()
        return replace(self.metric, expires=min(last, self.metric.expires or last))


def note(store: Store, registry: Registry, declared: Declared) -> None:
    """Record how a metric is declared, unless that is known."""
    if store.definitions.get(name(declared.definition)) is None:
        record = Record.of(registry, declared.metric, int(store.now()))
        store.definitions.put({name(declared.definition): record.written()})


def noted(store: Store, registry: Registry, definitions: Iterable[Definition]) -> list[Declared]:
    """Read some definitions. Those that are not there, or cannot be read any more, are left out."""
    sought = sorted(definitions)
    texts = store.definitions.values([name(each) for each in sought])
    return [
        declared
        for definition, text in zip(sought, texts, strict=True)
        if text and (declared := _declared(registry, definition, text))
    ]


def _declared(registry: Registry, definition: Definition, text: bytes) -> Declared | None:
    declared = None
    with suppress(DeniableError, ValueError, TypeError, KeyError):  # an earlier version of the software wrote it
        declared = Declared.of(Record.read(text).metric)
    if declared is None or declared.definition != definition:
        return None
    return replace(declared, candidates=candidates(registry, declared.metric))


def candidates(registry: Registry, metric: Metric) -> tuple[int, ...]:
    """Read the answers to look for; none if the file that the metric named is no longer there."""
    try:
        return registry.candidates(metric)
    except RegistryError:
        return ()


def remember(
    store: Store,
    registry: Registry,  # what the files declare
    erased: Callable[[str, int], bool],  # whether a version of a metric was erased: it is not noted
) -> Registry:
    """Note what a worker's registry declares, and what it has no longer; return it as `completed` does."""
    now, known = int(store.now()), store.definitions.all()
    records = dict(_records(known))
    present: dict[str, str] = {}
    for metric in registry.definitions:
        if not erased(metric.id, metric.version):
            field = name(Declared.of(metric).definition)
            present[field] = Record.of(registry, metric, records[field].since if field in records else now).written()
    gone = {field: record._replace(replaced=now).written() for field, record in records.items() if not record.replaced}
    news = {field: text for field, text in (gone | present).items() if known.get(field.encode()) != text.encode()}
    store.definitions.put(news)
    return completed(store, registry)


def changes(store: Store, registry: Registry) -> dict[tuple[str, int], dict[str, Record]]:
    """Return what a registry changed without a new version: the former definitions of each, by metric and version.

    They are left out when nothing more can come for them. So are those that an earlier one took the place of again.
    """
    now = store.now()
    today = datetime.fromtimestamp(now, UTC).date()
    noted: dict[tuple[str, int], dict[str, Record]] = {}
    for _, record in _records(store.definitions.all()):
        id_, version, tag = Declared.of(record.metric).definition
        noted.setdefault((id_, version), {})[tag] = record
    former: dict[tuple[str, int], dict[str, Record]] = {}
    for metric in registry.definitions:
        every = noted.get((metric.id, metric.version), {})
        present = every.pop(Declared.of(metric).fingerprint, None)
        before = {
            tag: record
            for tag, record in every.items()
            if (present is None or 0 < record.replaced <= present.since) and not record.ended(now).expired(today)
        }
        if before:
            former[metric.id, metric.version] = before
    return former


def broken(
    registry: Registry,
    former: Mapping[tuple[str, int], Mapping[str, Record]],  # as of `changes`
) -> list[Fault]:
    """Return what a registry changed without a new version, in the words in which a reload refuses it."""
    present = {(metric.id, metric.version): metric for metric in registry.definitions}
    return [
        fault
        for of, records in sorted(former.items())
        for record in records.values()
        for fault in comparison.faults(comparison.metric_changes(record.metric, present[of]), registry.file)
    ]


def refusal(store: Store, registry: Registry) -> str:
    """Say that reports are refused because of such a change, and what to do; empty if none are."""
    faults = broken(registry, changes(store, registry))
    if not faults:
        return ""
    why = in_a_line(RegistryError(faults))
    return f"reports for {store.app} of devices with the earlier definition are refused (definition_mismatch): {why}"


def completed(store: Store, registry: Registry) -> Registry:
    """Return what files declare with the versions that a higher one replaced there, each with its last day."""
    now = store.now()
    former: dict[tuple[str, int], Record] = {}
    segments: dict[str, tuple[str, ...]] = {}
    generalize: dict[str, Mapping[str, str]] = {}
    present = {(metric.id, metric.version) for metric in registry.definitions}
    # Of definitions of one version, the last one counts.
    for _, record in sorted(_records(store.definitions.all()), key=lambda pair: pair[1].replaced or now + 1):
        metric = record.metric
        segments |= record.segments
        generalize |= record.generalize
        current = registry.metrics.get(metric.id)
        if current and metric.version < current.version and (metric.id, metric.version) not in present:
            former[metric.id, metric.version] = record
    return replace(
        registry,
        older=(*registry.older, *(record.ended(now) for _, record in sorted(former.items()))),
        segments={**segments, **registry.segments},
        generalize={each: above for each, above in generalize.items() if each not in registry.segments} | {**registry.generalize},
    )


def _records(texts: Mapping[bytes, bytes]) -> Iterator[tuple[str, Record]]:
    """Yield the records that can be read, by the name of their definition."""
    for field, text in texts.items():
        with suppress(DeniableError, ValueError, TypeError, KeyError):  # an earlier version of the software wrote it
            record = Record.read(text)
            if name(Declared.of(record.metric).definition) == field.decode():
                yield field.decode(), record


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list) else value
