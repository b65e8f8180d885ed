"""What a change to a published registry would break."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from deniable.errors import Fault
from deniable.frozen import dataclass, fields
from deniable.registry.published import MEANING
from deniable.registry.relay import Relay, Shuffled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Experiment

_REMOVED = "removed; its reports are refused at once, unless the server has a folder of published registries with it"


@dataclass(frozen=True, slots=True)
class RegistryChange:
    """One difference between two registries."""

    metric: str  # the metric concerned, or "-" for the file as a whole
    what: str  # the difference, in words
    breaking: bool  # whether it changes the meaning of reports without a new version

    def __str__(self) -> str:
        return f"{'BREAKING' if self.breaking else 'ok':8} {'' if self.metric == '-' else f'{self.metric}: '}{self.what}"


def diff(published: Registry, proposed: Registry) -> list[RegistryChange]:
    """Compare a published registry with a proposed one."""
    # A metric's meaning (`published.MEANING`) may change only with a new version. Descriptions, owners, expiry, min_reports,
    # grace, delay, step, together, least_shift and public may change freely. So may the values of segments, what they generalise
    # to, and experiments.
    changes = []
    if published.app != proposed.app:
        changes.append(RegistryChange("-", f"app was {published.app}, is {proposed.app}: another app's counts", breaking=True))
    for name, values in published.segments.items():
        lost = [value for value in values if value not in proposed.segments.get(name, ())]
        if lost and any(name in metric.segments for metric in proposed.metrics.values()):
            what = f"segments.{name} no longer has {', '.join(lost)}; reports of it will count as (other)"
            changes.append(RegistryChange("-", what, breaking=False))
    for name in sorted({*published.generalize, *proposed.generalize}):
        was, is_ = (_levels(registry.generalize.get(name, {})) for registry in (published, proposed))
        if was != is_:
            changes.append(RegistryChange("-", f"generalize.{name} was {_short(was)}, is {_short(is_)}", breaking=False))
    changes += _experiment_changes(published.experiments, proposed.experiments)
    changes += _relay_changes(published.relay, proposed.relay)
    for id_, old in published.metrics.items():
        new = proposed.metrics.get(id_)
        if new is None:
            changes.append(RegistryChange(id_, _REMOVED, breaking=False))
        elif new.version < old.version:
            back = f"version went back from {old.version} to {new.version}"
            changes.append(RegistryChange(id_, f"{back}; write {old.version + 1}, also for what it meant before", breaking=True))
        else:
            changes += metric_changes(old, new)
    changes += [RegistryChange(id_, "added", breaking=False) for id_ in proposed.metrics if id_ not in published.metrics]
    return changes


def _relay_changes(was: Relay | None, is_: Relay | None) -> Iterator[RegistryChange]:
    if was is None or is_ is None:
        if was != is_:
            yield RegistryChange("-", f"relay was {_relay(was)}, is {_relay(is_)}", breaking=False)
        return
    if was.operator != is_.operator:
        what = f"relay.operator was {was.operator!r}, is {is_.operator!r}: people agreed to the first, so ask them again"
        yield RegistryChange("-", what, breaking=False)
    if was.key != is_.key:
        same = was.number == is_.number
        then = f"write it as number {was.number + 1}" if same else f"keep private key {was.number} while apps in use seal to it"
        what = f"another public key has number {is_.number}" if same else f"relay.key was number {was.number}, is {is_.number}"
        yield RegistryChange("-", f"{what}: {then}", breaking=same)


def _relay(relay: Relay | None) -> str:
    return f"run by {relay.operator!r}" if relay else "not declared"


def _experiment_changes(published: Mapping[str, Experiment], proposed: Mapping[str, Experiment]) -> Iterator[RegistryChange]:
    for name in sorted({*published, *proposed}):
        was, is_ = published.get(name), proposed.get(name)
        if was != is_:
            looked = "; if anybody has looked at it, give the new one a segment of its own" if was and is_ else ""
            yield RegistryChange("-", f"experiments.{name} was {_plan(was)}, is {_plan(is_)}{looked}", breaking=False)


def _plan(experiment: Experiment | None) -> str:
    return f"planned for {experiment.planned:g} against {experiment.base}" if experiment else "not declared"


def _levels(above: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{word} -> {more}" for word, more in sorted(above.items()))


def faults(changes: Iterable[RegistryChange], file: str) -> list[Fault]:
    """Return what changes break, as faults of the proposed file."""
    return [Fault(file, change.metric, f"{change.what}, or write it as it was") for change in changes if change.breaking]


def metric_changes(old: Metric, new: Metric) -> Iterator[RegistryChange]:
    """Compare a metric with one that takes its place, of the same version or a higher one."""
    raised = new.version > old.version
    if raised:
        late = f"reports of version {old.version} are counted until the grace of its period is over, or while a folder has it"
        yield RegistryChange(new.id, f"version {old.version} -> {new.version}: a new count begins; {late}", breaking=False)
    for name in (f.name for f in fields(old) if f.init and f.name != "version"):
        was, is_ = getattr(old, name), getattr(new, name)
        if was != is_:
            breaking = name in MEANING and not raised
            advice = f"; raise version to {old.version + 1}" if breaking else ""
            if name == "delay" and new.delay_seconds < old.delay_seconds:
                advice = "; the time of a report tells more of the moment of the answer, so ask people again"
            both = (f"{_short(value)}{' (whole = true)' if (name, value) == ('step', '1') else ''}" for value in (was, is_))
            yield RegistryChange(new.id, f"{name} was {', is '.join(both)}{advice}", breaking=breaking)


def _short(value: Any) -> str:
    plain = str(value) if isinstance(value, date | Shuffled) else repr(value)
    text = f"[{', '.join(map(str, value))}]" if type(value) is tuple else plain
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004
