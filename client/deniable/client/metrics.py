"""The metrics that a client records: those of the app's registry, or of a served one that restricts it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.device.prepared import prepare
from deniable.errors import ConfigurationError, ParameterError, RegistryError
from deniable.limits.admission import admit
from deniable.limits.allowance import MICRO
from deniable.limits.caps import budget_of
from deniable.messages.notice import warn_once
from deniable.messages.reasons import ANSWERS
from deniable.registry import period
from deniable.registry.metric import PER_SECOND
from deniable.wire.sealing import lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.client.counts import Counts
    from deniable.device.prepared import Prepared
    from deniable.explanation import Explanation
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget, Caps

_LONGEST_NAME = 100  # characters that are looked at of a name that is not declared
_UNNAMED = "; the name itself is told where the DSN leads to localhost, and with strict=True"
_UNEXPLAINED = f"explain was given a metric that the registry does not declare{_UNNAMED}"
_LEFT_OUT = "the served registry leaves it out"
_MOST_UNKNOWN = 100  # the nearest declared name is searched for this many unknown names


class Metrics:
    """The declared metrics, ready to be recorded. There are none before `open`."""

    registry: Registry
    budget: Budget  # of the device

    def __init__(
        self,
        segments: Mapping[str, str],  # the device's value of each segment
        caps: Caps | None,  # those that the app's code gives
        clock: Callable[[], float],  # seconds since the epoch
        counts: Counts,
        *,
        strict: bool,  # whether a metric that is off is an error
    ) -> None:
        self.prepared: dict[str, Prepared] = {}  # those that are on
        self.off: dict[str, str] = {}  # why each other metric is off, with the line to change
        self._segments = segments
        self._caps = caps
        self._clock = clock
        self._counts = counts
        self._strict = strict

    def open(self, registry: Registry) -> None:
        """Use the app's registry, and warn about segments that it does not declare, and about metrics that are off."""
        self.budget = budget_of(registry, self._caps)
        for name in self._segments if isinstance(self._segments, dict) else ():  # other mappings may be endless
            if type(name) is str and name not in registry.segments:
                from deniable.messages.lookalike import did_you_mean  # noqa: PLC0415 - only a mistake needs it

                words = f"the registry declares no such segment, so it is not sent{did_you_mean(name, registry.segments)}"
                warn_once(f"segment {name}", "unknown_segment", words)
        self.use(registry)

    def use(self, registry: Registry) -> None:
        """Use a registry from now on. The sending thread calls this with a served one."""
        admission = admit(registry, self._caps, datetime.fromtimestamp(self._clock(), UTC).date())
        if self._strict and admission.faults:
            raise RegistryError(admission.faults)
        prepared, missing = prepare(registry, admission, self._segments)
        off = {id_: str(error) for id_, error in missing.items()}
        for fault in admission.faults:
            off.setdefault(fault.metric, fault.words)
        for id_ in self._declared:
            if id_ not in registry.metrics:
                off[id_] = _LEFT_OUT
        lack = _cannot_seal(registry) if prepared else ""
        if lack:
            off |= dict.fromkeys(prepared, lack)
            prepared = {}
        # Replaced in one step: a thread that records meanwhile sees the metrics of one registry.
        self.prepared, self.off = prepared, off
        self.registry = registry
        if self._strict and missing:
            raise next(iter(missing.values()))
        if self._strict and lack:
            raise ConfigurationError(lack)
        for why, metrics in self.off_by_reason.items():  # now: it may take long until the first answer
            self._counts.tell("off", metrics, why)

    @property
    def off_by_reason(self) -> dict[str, list[str]]:
        """The metrics that are off, by what is to be changed."""
        metrics: dict[str, list[str]] = {}
        for id_, why in self.off.items():
            metrics.setdefault(why, []).append(id_)
        return metrics

    def find(self, metric: object) -> Prepared | None:
        """Return a metric that is on; None for any other object, such as an answer that was given in its place."""
        return self.prepared.get(metric) if isinstance(metric, str) else None

    def explain(
        self,
        metric: str,
        value: object,
        *,
        named: bool,  # whether the DSN leads to this machine: elsewhere the log says nothing of an answer, nor of what may be one
        strict: bool,  # whether the app wants errors
    ) -> Explanation | None:
        """Explain what a metric sends. What is wrong with the metric or the answer is logged, and raised if strict."""
        if self.find(metric) is None:
            error = self.unknown(metric, value)
            if strict:
                raise error
            known = named or (isinstance(metric, str) and metric in self.off)
            words = _UNEXPLAINED if self._declared and not known else str(error)
            subject = repr(metric) if known else "unknown_metric"  # it stands before the words
            warn_once("explain", subject, words.removeprefix(f"{subject} is "))
            return None
        from deniable.explanation import Explanation  # noqa: PLC0415 - few programs explain

        _, fault = (None, None) if value is None else self.prepared[metric].position(value)
        if isinstance(fault, ParameterError) and (strict or named):
            from deniable.client.undeclared import undeclared  # noqa: PLC0415 - only a mistake needs it

            fault = undeclared(self.prepared[metric].metric, value, fault)
            if not strict:
                end = "" if str(fault).endswith("?") else "."
                warn_once(metric, "explain", f"{fault}{end} The example is one of what is reported instead")
        if fault is not None and (strict or not isinstance(fault, ParameterError)):
            raise fault
        return Explanation.of(self.registry, metric, self.budget, value, instead=True)

    @property
    def month(self) -> str:
        """The calendar month that it is now."""
        return period.of(datetime.fromtimestamp(self._clock(), UTC), "month")

    def reserved(self) -> dict[str, dict[str, float | None]]:
        """Return the part of the budget reserved for each metric, in nats."""
        parts: dict[str, dict[str, float | None]] = {}
        for id_, prepared in self.prepared.items():
            lifetime = prepared.allowance.lifetime
            parts[id_] = {
                "month": prepared.allowance.month / MICRO,
                "lifetime": None if lifetime is None else lifetime / MICRO,
            }
        return parts

    def unknown(self, metric: object, value: object) -> ParameterError:
        """Return the error of a metric that is off or undeclared, which only a strict client raises."""
        from deniable.messages.lookalike import did_you_mean  # noqa: PLC0415 - only a mistake needs it

        if not self._declared:
            return ParameterError('no metric is declared, since no registry is in use; the line "deniable is off" says why')
        if type(metric) is str and metric in self.off:
            return ParameterError(f"{metric} is off: {self.off[metric]}")
        if self._is_swapped(value):
            return ParameterError(ANSWERS["swapped"].words())
        # What is no declared name may be an answer of any length.
        name = metric[:_LONGEST_NAME] if type(metric) is str else metric
        return ParameterError(f"{name!r} is not declared in the registry{did_you_mean(metric, self._declared)}")

    def drop(
        self,
        metric: object,
        value: object,
        error: ParameterError | None,  # what a strict client raises for a metric that is not declared
        *,
        named: bool,  # Whether its name is told, as while the app is developed. If the arguments were swapped, it is the answer.
    ) -> bool:
        """Count an answer to a metric that is not prepared, and say why; return False."""
        if isinstance(metric, str) and metric in self.off:
            return self._counts.drop("off", error=error, metric=metric, facts=self.off[metric])  # `use` has told it
        if self._is_swapped(value):
            return self._counts.drop("swapped", error=error, metric=str(value))
        name, earlier = "", self._counts.dropped["unknown_metric"]
        if error is None:
            self._warn_of_unknown(metric, earlier, named=named)
            if named and type(metric) is str and earlier < _MOST_UNKNOWN:
                name = metric[:_LONGEST_NAME]
        return self._counts.drop("unknown_metric", error=error, metric=name)

    def _warn_of_unknown(self, metric: object, earlier: int, *, named: bool) -> None:
        from deniable.messages.lookalike import nearest  # noqa: PLC0415 - only a mistake needs it

        about = ANSWERS["unknown_metric"]
        if type(metric) is not str:
            warn_once(
                "record", "unknown_metric", f"the metric is no text but of type {type(metric).__name__}; write its id first"
            )
        elif earlier < _MOST_UNKNOWN:  # searching for the nearest name is slow
            near = nearest(metric, self._declared)
            if named:
                like = f"; did you mean {near!r}?" if near else ""
                warn_once(repr(metric[:_LONGEST_NAME]), "unknown_metric", f"{about.words()}{like}")
            elif near:
                warn_once(near, "unknown_metric", f"record was given a similar name, and {about.words()}{_UNNAMED}")
            else:
                warn_once("record", "unknown_metric", f"{about.words()}{_UNNAMED}")

    @property
    def _declared(self) -> list[str]:
        return [*self.prepared, *self.off]

    def _is_swapped(self, value: object) -> bool:
        """Return whether the answer is the id of a metric, and so the metric the answer."""
        return type(value) is str and len(value) <= _LONGEST_NAME and value in self.prepared


def _cannot_seal(registry: Registry) -> str:
    """Say why reports that must be sealed cannot be; empty if they can, or need not be."""
    if registry.relay:
        return lacking()
    mixed = any(metric.shuffled for metric in registry.metrics.values())
    return "a relay mixes its reports, and the registry declares no [relay]" if mixed else ""


def no_time(metric: Metric) -> ParameterError:
    """Return the error of a time that is recorded for a metric of another unit."""
    unit = f"its unit is {metric.unit}" if metric.unit else "it has no unit"
    return ParameterError(f"{metric.id} counts no time, since {unit}: declare one of {', '.join(PER_SECOND)}, or use `record`")
