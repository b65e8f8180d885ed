"""What a served registry may change: nothing that makes it ask for more than the registry that the app brings along.

It may drop metrics, lower an epsilon, keep a response permanently, sample less, end a collection earlier, ask less often, narrow
the budget, and declare metrics that the app does not bring along, within its caps. All losses are those of the integers that the
mechanisms would really use.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from deniable import mechanisms, period
from deniable.budget import Budget
from deniable.errors import ConfigurationError, Fault, ParameterError, ServedRegistryError
from deniable.mechanisms.chain import Chain
from deniable.signature import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.caps import Caps
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric, Registry

__all__ = ["tightened"]

_Rest = tuple[str, str, object]  # metric, rule, value: a Fault without its file
_Broken = tuple[str, object]  # rule, value

_PINNED = ("type", "values", "factors", "none", "period", "segments", "discover", "max_length")
"""What an answer to one version of a metric means, which is fixed."""
_SHOWN = 60  # characters of a value


def tightened(bundled: Registry, served: Registry, caps: Caps) -> Registry:
    """Return the registry to use in place of the one that the app brings along.

    Parameters
    ----------
    bundled
        The registry that the app brings along.
    served
        A registry whose signature is right.
    caps
        What the app allows any registry.

    Returns
    -------
    Registry
        The served one, with the strictest budget of both.

    Raises
    ------
    ServedRegistryError
        With everything by which it asks for more than it may: then no part of it is to be used.
    """
    faults = [Fault(FILE, *rest) for rest in _faults(bundled, served, caps)]
    if faults:
        raise ServedRegistryError(faults)
    if bundled.budget is None or served.budget is None:
        return served
    return replace(served, budget=bundled.budget.tightened(served.budget))


def _faults(bundled: Registry, served: Registry, caps: Caps) -> Iterator[_Rest]:
    if served.app != bundled.app:
        yield "-", f"the app is {bundled.app}", served.app
        return
    if served.revision < max(bundled.revision, 1):
        yield "-", f"the revision is at least {max(bundled.revision, 1)}, that of the registry in the app", served.revision
    for rule, value in _budget_faults(bundled.budget, served.budget, caps):
        yield "-", rule, value
    for name in sorted({name for metric in bundled.metrics.values() for name in metric.segments}):
        known, given = bundled.segments[name], served.segments.get(name, ())
        if given[: len(known)] != known and any(name in metric.segments for metric in served.metrics.values()):
            yield "-", f"segments.{name} begins with {', '.join(known)}", _short(given)
    for metric in served.metrics.values():
        for rule, value in _metric_faults(bundled.metrics.get(metric.id), metric, caps):
            yield metric.id, rule, value


def _budget_faults(bundled: Budget | None, served: Budget | None, caps: Caps) -> Iterator[_Broken]:
    if served is None:
        if bundled is not None:
            yield "a budget that the app brings along is not taken away", None
        return
    bound = bundled or caps.budget
    result = bound.tightened(served)
    for name in Budget.__slots__:
        if getattr(result, name) != getattr(served, name):
            least = "least" if name == "window" else "most"
            yield f"the budget's {name} is at {least} {getattr(bound, name):g}", getattr(served, name)


def _metric_faults(old: Metric | None, new: Metric, caps: Caps) -> Iterator[_Broken]:
    try:
        mechanism = mechanisms.of(new)
        caps.check(new, mechanism)
    except ParameterError as error:
        yield error.rule, error.value
        return
    except ConfigurationError as error:
        yield "a metric stays within the caps of the app", str(error)
        return
    if old is None:
        return
    if new.version < old.version:
        yield f"the version is at least {old.version}", new.version
    elif new.version == old.version:
        for name in _PINNED:
            if getattr(new, name) != getattr(old, name):
                yield f"{name} of version {old.version} is {_short(getattr(old, name))}", _short(getattr(new, name))
    else:
        yield from _successor_faults(old, new)
    yield from _collection_faults(old, new)
    yield from _loss_faults(old, mechanisms.of(old), new, mechanism)


def _successor_faults(old: Metric, new: Metric) -> Iterator[_Broken]:
    """Compare a later version: its answers may be others, but not of another kind, more often, or told apart more finely."""
    if new.type != old.type:
        yield f"a later version is also of type {old.type}", new.type
    if new.discover > old.discover or new.max_length > old.max_length:
        what = f"discover = {str(old.discover).lower()}, max_length = {old.max_length}"
        yield f"a later version takes no other texts: {what}", f"{str(new.discover).lower()}, {new.max_length}"
    if period.LENGTHS.index(new.period) < period.LENGTHS.index(old.period):
        yield f"a later version's period is not shorter than a {old.period}", new.period
    if set(new.segments) - set(old.segments):
        yield f"a later version's segments are among {', '.join(old.segments) or 'none'}", _short(new.segments)


def _collection_faults(old: Metric, new: Metric) -> Iterator[_Broken]:
    if old.expires is not None and (new.expires is None or new.expires > old.expires):
        yield f"collection ends on {old.expires} or before", str(new.expires)
    if Fraction(new.sample) > Fraction(old.sample):
        yield f"sample is at most {old.sample}", new.sample
    if new.max_report_bytes > old.max_report_bytes:
        yield f"max_report_bytes is at most {old.max_report_bytes}", new.max_report_bytes


def _loss_faults(old: Metric, bound: Mechanism, new: Metric, mechanism: Mechanism) -> Iterator[_Broken]:
    if mechanism.ratio > bound.ratio:
        yield f"a report spends at most {bound.epsilon:.9g} nats", round(mechanism.epsilon, 9)
    if old.epsilon_permanent is None:
        return
    if new.epsilon_permanent is None:
        yield "answers have permanent responses, which are not given up", None
        return
    # `Caps.check` has seen that the new one is a chain whose loss has a bound; the one in the app may have none.
    if not isinstance(bound, Chain) or not isinstance(mechanism, Chain):
        yield "a metric with permanent responses has a mechanism in two steps", mechanism.name
        return
    if bound.permanent_ratio is not None and (mechanism.permanent_ratio or 0) > bound.permanent_ratio:
        yield f"a kept answer spends at most {bound.epsilon_permanent:.9g} nats", round(mechanism.epsilon_permanent, 9)
    if mechanism.layout.rows > bound.layout.rows:
        yield f"a device keeps one of at most {bound.layout.rows} rows", mechanism.layout.rows
    if new.version == old.version and mechanism.kept_responses > bound.kept_responses:
        yield f"a device comes to keep at most {bound.kept_responses} responses", mechanism.kept_responses


def _short(value: object) -> str:
    written = str(list(value)) if isinstance(value, tuple) else str(value)
    return written if len(written) <= _SHOWN else f"{written[: _SHOWN - 3]}..."
