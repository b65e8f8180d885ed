"""A crowd of simulated people: the segments that each belongs to, and what each answers in the course of the days."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

NOTHING = -1
"""The place of the answer of somebody who gives none."""


class Answers(ABC):
    """What people answer to one question. An answer is a place in the list of all that anybody gives."""

    def __init__(
        self,
        metric: Metric,
        values: Sequence[object],  # the answers that anybody gives, as an app records them
    ) -> None:
        self.metric = metric
        self.values = tuple(values)
        self.positions = tuple(map(metric.position, self.values))

    @abstractmethod
    def at(
        self,
        time: float,  # from 0, the first period, to 1, the last one
    ) -> Integers:
        """Draw each person's answer in a period. Periods are asked for in order, each once."""


class Told(Answers):
    """Each person's answer is known, and the same in all periods."""

    def __init__(self, metric: Metric, values: Sequence[object], held: Integers) -> None:
        super().__init__(metric, values)
        self._held = held

    def at(self, time: float) -> Integers:  # noqa: ARG002 - nothing changes
        """Return the answers."""
        return self._held


class Drawn(Answers):
    """Answers drawn from shares. Some people move to another answer: more of them later, and more in some segments."""

    def __init__(
        self,
        # metric, values: as for all
        metric: Metric,
        values: Sequence[object],
        shares: Floats,  # the share of people who give each answer, before anybody moves
        target: Integers,  # for each answer, the one that those move to who gave it
        moved: Floats,  # by person, the chance to have moved in the first period
        rise: float,  # how much higher it is in the last one
        rng: np.random.Generator,  # where chance comes from
    ) -> None:
        super().__init__(metric, values)
        self._shares, self._target, self._moved, self._rise, self._rng = shares / shares.sum(), target, moved, rise, rng
        # Whoever is asked the same for long mostly answers the same. Other questions are about what just happened.
        self._permanent = self._draw() if metric.permanent else None

    def at(self, time: float) -> Integers:
        """Draw the answers. To a question with permanent responses each person's changes once at most."""
        held, chance = self._permanent or self._draw()
        return np.asarray(np.where(chance < self._moved + self._rise * time, self._target[held], held))

    def _draw(self) -> tuple[Integers, Floats]:
        people = len(self._moved)
        return self._rng.choice(len(self._shares), people, p=self._shares), self._rng.random(people)


@dataclass(frozen=True)
class Crowd:
    """People."""

    size: int  # how many there are
    segments: Mapping[str, Integers]  # by segment, the place of each person's value in the registry's list
    answers: Mapping[str, Answers]  # by metric
    description: str  # what they answer, in a sentence for people

    def segment(self, registry: Registry, metric: Metric) -> tuple[list[str], Integers]:
        """Return the segments of a metric's reports that anybody has, and the place of each person's among them."""
        if not metric.segments:
            return [""], np.zeros(self.size, np.int64)
        codes = np.stack([self.segments[name] for name in metric.segments], axis=1)
        rows, of = np.unique(codes, axis=0, return_inverse=True)
        listed = [registry.segments[name] for name in metric.segments]
        texts = [
            registry.segment(metric, {name: values[at] for name, values, at in zip(metric.segments, listed, row, strict=True)})
            for row in rows.tolist()
        ]
        return texts, of.reshape(-1).astype(np.int64)
