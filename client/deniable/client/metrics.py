"""The metrics that a client records: those of the app's registry, or of a served one that restricts it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.device.prepared import prepare
from deniable.errors import ParameterError, RegistryError
from deniable.explanation import Explanation
from deniable.limits.admission import admit
from deniable.limits.allowance import MICRO
from deniable.limits.caps import budget_of
from deniable.process.notice import warn_once
from deniable.registry import period
from deniable.registry.metric import PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.device.prepared import Prepared
    from deniable.registry import Metric, Registry
    from deniable.registry.tables import Budget, Caps

_LONGEST_NAME = 100  # characters that are looked at of a name that is not declared
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
        *,
        strict: bool,  # whether a metric that is off is an error
    ) -> None:
        self.prepared: dict[str, Prepared] = {}  # those that are on
        self.off: dict[str, str] = {}  # why each other metric is off, with the line to change
        self._segments = segments
        self._caps = caps
        self._clock = clock
        self._strict = strict

    def open(self, registry: Registry) -> None:
        """Use the app's registry, and warn about metrics that are off, and about segments that it does not declare."""
        self.budget = budget_of(registry, self._caps)
        self.use(registry)
        for id_, why in self.off.items():
            warn_once(id_, "off", why)
        for name in self._segments if isinstance(self._segments, dict) else ():  # other mappings may be endless
            if type(name) is str and name not in registry.segments:
                warn_once(f"segment {name}", "unknown_segment", "the registry declares no such segment, so it is not sent")

    def use(self, registry: Registry) -> None:
        """Use a registry from now on. The sending thread calls this with a served one."""
        admission = admit(registry, self._caps, datetime.fromtimestamp(self._clock(), UTC).date())
        if self._strict and admission.faults:
            raise RegistryError(admission.faults)
        off: dict[str, str] = {}
        for fault in admission.faults:
            off.setdefault(fault.metric, fault.words)
        # Replaced in one step: a thread that records meanwhile sees the metrics of one registry.
        self.prepared, self.off = prepare(registry, admission, self._segments), off
        self.registry = registry

    def explain(self, metric: str, value: object) -> Explanation:
        """Explain what a metric sends; raise `ParameterError` if the metric or the answer is not declared."""
        if metric not in self.prepared:
            raise self.unknown(metric, None)
        return Explanation.of(self.registry, metric, self.budget, value)

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
        if type(metric) is str and metric in self.off:
            return ParameterError(f"{metric} is off: {self.off[metric]}", metric)
        if self._is_swapped(value):
            return ParameterError("the metric is the first argument of record, the answer the second", value)
        # What is no declared name may be an answer of any length.
        return ParameterError("a metric is declared in the registry", metric[:_LONGEST_NAME] if type(metric) is str else metric)

    def warn_of_unknown(
        self,
        metric: object,
        value: object,
        earlier: int,  # calls with an unknown metric before this one
    ) -> None:
        """Warn about an undeclared metric. Its name is not logged: if the arguments were swapped, it is the answer."""
        if self._is_swapped(value):
            warn_once(str(value), "unknown_metric", self.unknown(metric, value).rule)
        elif type(metric) is str and earlier < _MOST_UNKNOWN:  # searching for the nearest name is slow
            from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and only a mistake needs it

            near = get_close_matches(metric[:_LONGEST_NAME], self.prepared, 1)
            if near:
                warn_once(near[0], "unknown_metric", "record was given a similar name, which the registry does not declare")
            else:
                warn_once("record", "unknown_metric", "the registry does not declare the metric; strict=True shows which")

    def _is_swapped(self, value: object) -> bool:
        """Return whether the answer is the id of a metric, and so the metric the answer."""
        return type(value) is str and len(value) <= _LONGEST_NAME and value in self.prepared


def no_time(metric: Metric) -> ParameterError:
    """Return the error of a time that is recorded for a metric of another unit."""
    return ParameterError(f"the unit of {metric.id} is one of {', '.join(PER_SECOND)}", metric.unit)
