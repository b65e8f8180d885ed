"""The devices of simulated people: each randomises its answers as the SDK does, by the mechanism of the metric.

Many reports are drawn at once, from the same source and by the same code (`Mechanism.noise`, `respond`), so each has exactly the
distribution that it has on a device. With permanent responses a device keeps its row, its responses, and the point where it
rounds a number.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from deniable.source import OS
from deniable_aggregator.people.crowd import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared

_AT_ONCE = 2048  # reports whose noise is drawn together


class Devices:
    """Devices that answer one metric."""

    def __init__(
        self,
        declared: Declared,  # the metric
        positions: Sequence[int],  # the answers that anybody gives, in the metric's domain
        segments: Sequence[str],  # the segments of their reports
        of: NDArray[np.int64],  # the place of each device's segment among them
    ) -> None:
        self._mechanism, self._permanent, self._metric = declared.mechanism, declared.permanent, declared.metric
        self._positions = positions
        self._members = {text: np.flatnonzero(of == place) for place, text in enumerate(segments)}
        if self._permanent:
            self._rows = OS.indices(self._permanent.layout.rows, len(of))
            axis = self._metric.axis
            self._points = OS.indices(axis.steps, len(of)) if axis and self._metric.rounded else []
            # Responses by device: by key, and by the place of the answer, which has them at once
            self._by_key: dict[int, dict[int, int]] = defaultdict(dict)
            self._responses: dict[int, dict[int, int]] = defaultdict(dict)

    def report(
        self,
        held: NDArray[np.int64],  # each device's answer, as a place among the positions; `NOTHING` for none
    ) -> dict[str, bytes]:
        """Return the payloads of a period's reports, joined, by segment."""
        payloads = {}
        for text, members in self._members.items():
            answering = members[held[members] != NOTHING]
            if len(answering):
                make = self._copies if self._permanent else self._fresh
                payloads[text] = b"".join(make(answering, held[answering].tolist()))
        return payloads

    def _fresh(self, devices: NDArray[np.int64], held: Sequence[int]) -> Iterable[bytes]:
        """Randomise each answer on its own."""
        positions, respond = self._positions, self._mechanism.respond
        for start in range(0, len(devices), _AT_ONCE):
            part = held[start : start + _AT_ONCE]
            noise = self._mechanism.noise(OS, len(part))
            yield from (respond(positions[place], each) for place, each in zip(part, noise, strict=True))

    def _copies(self, devices: NDArray[np.int64], held: Sequence[int]) -> Iterable[bytes]:
        """Make a noisy copy of the response that each device keeps for its answer, which is drawn the first time."""
        mechanism = self._permanent
        assert mechanism is not None  # noqa: S101 - the caller checks it
        responses = [
            (self._rows[device], self._response(device, place)) for device, place in zip(devices.tolist(), held, strict=True)
        ]
        for start in range(0, len(responses), _AT_ONCE):
            yield from mechanism.respond_to_all(responses[start : start + _AT_ONCE], OS)

    def _response(self, device: int, place: int) -> int:
        """Return the response that a device keeps for an answer."""
        responses = self._responses[device]
        if place not in responses:
            mechanism, metric, row, value = self._permanent, self._metric, self._rows[device], self._positions[place]
            assert mechanism is not None  # noqa: S101 - the caller checks it
            if metric.rounded:
                value = metric.round_at(value, self._points[device])
            key = mechanism.response_key(row, value)
            if key not in self._by_key[device]:
                self._by_key[device][key] = mechanism.respond_permanently(row, value, OS)
            responses[place] = self._by_key[device][key]
        return responses[place]
