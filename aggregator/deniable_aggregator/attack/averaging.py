"""The averaging attack: one device answers the same question many times, and an observer combines all its reports.

The devices run the SDK's own mechanisms on the operating system's generator. The observer makes the best possible guess.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.errors import ParameterError
from deniable.source import OS
from deniable_aggregator.attack.devices import Forgetful, Losing, Remembering
from deniable_aggregator.attack.observer import Observer
from deniable_aggregator.decode.binomial import clopper_pearson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.attack.devices import Device

_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Way:
    """How devices answer repeatedly, with the likelihood that fits it."""

    name: str  # in a few words
    device: Callable[[Mechanism, int], Device]  # makes a device from a mechanism and a value
    # `Observer.fresh`, `Observer.permanent`, or a function like these.
    logs: Callable[[Observer, bytes, Sequence[int]], NDArray[np.float64]]


FRESH = Way("fresh", Forgetful, Observer.fresh)
"""Noise is drawn anew for each report."""

KEPT = Way("kept", Remembering, Observer.permanent)
"""A permanent response is drawn once and kept."""


def losing(every: int) -> Way:
    """Return the way of devices that lose their state after every `every` reports, at least 1."""
    if every < 1:
        raise ParameterError("every: write the reports before a device loses its state, 1 or more", every)

    def logs(observer: Observer, payloads: bytes, after: Sequence[int]) -> NDArray[np.float64]:
        total = np.zeros((len(after), observer.mechanism.domain_size))
        size = observer.mechanism.layout.payload_size
        for start in range(0, after[-1], every):
            ends, places = np.unique(np.clip(np.array(after) - start, 0, every), return_inverse=True)
            total += observer.permanent(payloads[size * start : size * (start + every)], ends.tolist())[places]
        return total

    return Way("lost", lambda mechanism, value: Losing(mechanism, value, every), logs)


@dataclass(frozen=True, slots=True)
class Curve:
    """How often the observer was right."""

    way: str  # `Way.name`
    reports: tuple[int, ...]  # numbers of reports of a device, ascending
    successes: tuple[int, ...]  # devices, of `devices`, whose answer was guessed correctly from that many reports
    devices: int  # at least 1
    # success, low, high: shares, and the ends of their 95% intervals (Clopper and Pearson)
    success: tuple[float, ...] = field(init=False)
    low: tuple[float, ...] = field(init=False)
    high: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        right = np.array(self.successes, np.int64)
        low, high = clopper_pearson(right, self.devices, (1 - _LEVEL) / 2)
        for name, values in (("success", right / self.devices), ("low", low), ("high", high)):
            object.__setattr__(self, name, tuple(values.tolist()))

    def needed(self, share: float) -> int | None:
        """Return the number of reports from which on the observer is right for this share of devices, or None."""
        short = [i for i, success in enumerate(self.success) if success < share]
        first = short[-1] + 1 if short else 0
        return self.reports[first] if first < len(self.reports) else None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an averaging attack on one mechanism."""

    observer: Observer  # the observer, with the mechanism
    # One for each way: `FRESH`; for a permanent mechanism also `KEPT`, and `losing` if it was asked for.
    curves: tuple[Curve, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the result as plain values, for JSON."""
        mechanism = self.observer.mechanism
        written: dict[str, Any] = {
            "mechanism": mechanism.name,
            "domain_size": mechanism.domain_size,
            "epsilon": mechanism.epsilon,
            "devices": self.curves[0].devices,
            "guess": float(self.observer.chances.max()),
        }
        if permanent := mechanism.in_two_steps:
            bound = self.observer.bound()
            written["epsilon_permanent"] = permanent.epsilon_permanent if permanent.permanent_ratio else None
            written["bound"] = {"success": bound.success, "exact": bound.exact}
        for curve in self.curves:
            columns = curve.reports, curve.successes, curve.success, curve.low, curve.high
            written[curve.way] = [
                {"reports": k, "successes": right, "success": share, "interval": [low, high]}
                for k, right, share, low, high in zip(*columns, strict=True)
            ]
        return written


def checkpoints(reports: int) -> tuple[int, ...]:
    """Choose after how many reports the observer guesses: 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, ... and all."""
    if reports < 1:
        raise ParameterError("reports: write 1 or more", reports)
    tens = [step * 10**power for power in range(len(str(reports))) for step in (10, 15, 20, 30, 50, 70)]
    return *(k for k in (1, 2, 3, 5, 7, *tens) if k < reports), reports


def simulate(
    observer: Observer,  # knows the mechanism; the values of devices are drawn from its prior
    way: Way,  # how they answer repeatedly
    *,
    devices: int,  # at least 1
    after: Sequence[int],  # numbers of reports after which a guess is made, each at least 1, ascending
    advance: Callable[[], object] | None = None,  # called after each device
) -> Curve:
    """Run devices, and let the observer guess their answers."""
    if devices < 1:
        raise ParameterError("devices: write 1 or more", devices)
    ends = list(accumulate(observer.prior))
    successes = np.zeros(len(after), np.int64)
    for _ in range(devices):
        value = bisect_right(ends, OS.below(ends[-1]))
        device = way.device(observer.mechanism, value)
        payloads = b"".join([device.report() for _ in range(after[-1])])
        successes += [observer.guess(logs, OS) == value for logs in way.logs(observer, payloads, after)]
        if advance:
            advance()
    return Curve(way.name, tuple(after), tuple(successes.tolist()), devices)


def averaging(
    observer: Observer,  # knows the mechanism and the prior
    *,
    devices: int,  # of each kind, at least 1
    reports: int,  # of each device, at least 1
    lose_every: int | None = None,  # reports after which a third kind of device loses what it keeps; None for no such devices
    advance: Callable[[], object] | None = None,  # called after each device
) -> Result:
    """Attack devices that randomise anew and, for a permanent mechanism, devices that keep a permanent response."""
    ways = [FRESH]
    if observer.mechanism.in_two_steps:
        ways += [KEPT] if lose_every is None else [KEPT, losing(lose_every)]
    after = checkpoints(reports)
    curves = [simulate(observer, way, devices=devices, after=after, advance=advance) for way in ways]
    return Result(observer, tuple(curves))
