"""The breakdown of a metric's reports: its segments, and what their values generalise to.

A cell fixes some segments, each to a value or to a word that several values generalise to. It is written as
``platform=linux,version=2.4``, with the segments in the metric's order. The empty text is the cell of all reports. This module
does not know numbers of reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.messages.lookalike import did_you_mean
from deniable.registry import OTHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deniable.registry import Metric, Registry

Words = tuple[str | None, ...]
"""For each segment its value or more general word, or None if it is open."""

Box = tuple[tuple[str, ...], ...]
"""For each segment the values in a cell."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The segments of a metric."""

    values: Mapping[str, tuple[str, ...]]  # the declared values of each segment, in the metric's order
    parents: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # for a segment, what each word generalises to
    _lineages: dict[str, dict[str, tuple[str, ...]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in self.parents:
            if name not in self.values:
                raise ParameterError(f"a generalised segment: write one of {', '.join(self.values)}", name)
        lineages = {name: _lineages(values, self.parents.get(name, {})) for name, values in self.values.items()}
        object.__setattr__(self, "_lineages", lineages)

    @classmethod
    def of(cls, registry: Registry, metric: Metric) -> Breakdown:
        """Return the breakdown that a registry declares for one of its metrics."""
        above = {name: registry.generalize[name] for name in metric.segments if name in registry.generalize}
        return cls({name: (*registry.segments[name], OTHER) for name in metric.segments}, above)

    @property
    def names(self) -> tuple[str, ...]:
        """The segments, in the metric's order."""
        return tuple(self.values)

    def lineage(self, name: str, word: str) -> tuple[str, ...]:
        """Return a word of a segment with everything that it generalises to, step by step."""
        return self._lineages[name][word]

    def words_of(self, name: str) -> tuple[str, ...]:
        """Return the values of a segment, and everything that they generalise to."""
        return tuple(self._lineages[name])

    def words(self, cell: str) -> Words:
        """Read a cell, its segments in any order; raise ParameterError if it is not one of this breakdown."""
        chosen = dict[str, str]()
        for part in cell.split(",") if cell else ():
            name, equals, word = part.partition("=")
            if not equals:
                raise ParameterError(f"{part!r} is no segment: write name=value, several joined by commas")
            if name not in self.values:
                known = f"write one of {', '.join(self.values)}" if self.values else "this metric has none, so write none"
                raise ParameterError(f"the metric has no segment {name!r}: {known}{did_you_mean(name, self.values)}")
            if name in chosen:
                raise ParameterError(f"the segment {name} is named twice: write it once")
            if word not in self._lineages[name]:
                near = did_you_mean(word, self.words_of(name))
                known = f"write one of {', '.join(self.words_of(name))}{near}"
                raise ParameterError(f"segment {name} has no value {word[:40]!r}: {known}")
            chosen[name] = word
        return tuple(chosen.get(name) for name in self.values)

    def box(self, cell: str) -> Box:
        """Return the values in a cell, by segment. Two names of the same cell have the same box."""
        pairs = zip(self.values.items(), self.words(cell), strict=True)
        return tuple(
            tuple(value for value in values if word is None or word in self.lineage(name, value))
            for (name, values), word in pairs
        )

    def text(self, words: Words) -> str:
        """Write a cell."""
        return ",".join(f"{name}={word}" for name, word in zip(self.values, words, strict=True) if word is not None)

    def canonical(self, cell: str) -> str:
        """Return a cell with its segments in the metric's order."""
        return self.text(self.words(cell))

    def leaf(self, segment: str) -> Words:
        """Read the segment text of a stratum; raise ParameterError unless it has a declared value for every segment."""
        words = self.words(segment)
        for (name, values), word in zip(self.values.items(), words, strict=True):
            if word not in values:
                raise ParameterError(f"the {name} of a report: write one of its declared values", word)
        return words

    def filed(self, segment: str) -> str:
        """Return the leaf in which reports of a stratum count, by the values that are declared now."""
        # A missing value, or one that is no longer declared, counts as `OTHER`. Segments that the metric no longer has are left
        # out.
        chosen = dict(part.split("=", 1) for part in segment.split(",") if "=" in part)
        return self.text(tuple(word if (word := chosen.get(name)) in values else OTHER for name, values in self.values.items()))

    def coarser(self, cell: str) -> Iterator[str]:
        """Yield the cells that contain a cell, the nearest first."""
        # Nearest means: fewest open segments, then fewest steps, then changes in the last segments.
        words = self.words(cell)
        yield from map(self.text, sorted(self.above(words), key=lambda coarse: self._distance(words, coarse))[1:])

    def above(self, words: Words) -> Iterator[Words]:
        """Yield a cell and all cells that contain it."""
        pairs = zip(self.values, words, strict=True)
        yield from product(*((None,) if word is None else (*self.lineage(name, word), None) for name, word in pairs))

    def depth(self, words: Words) -> tuple[int, int]:
        """Return how fine a cell is: the number of segments it fixes, and the depth of their words."""
        fixed = [(name, word) for name, word in zip(self.values, words, strict=True) if word is not None]
        return len(fixed), sum(len(self.lineage(name, word)) for name, word in fixed)

    def ladder(self, words: Words) -> Iterator[Words]:
        """Yield cells from all reports down to a leaf, fixing one segment after the other, each from its most general word."""
        at: list[str | None] = [None] * len(words)
        yield tuple(at)
        for place, (name, word) in enumerate(zip(self.values, words, strict=True)):
            if word is None:
                return
            for step in reversed(self.lineage(name, word)):
                at[place] = step
                yield tuple(at)
            # Any two cells on the ladders of any leaves must be nested or disjoint. Other values generalise to this one, and have
            # ladders of their own from here on.
            if word in self.parents.get(name, {}).values():
                return

    def _distance(self, words: Words, container: Words) -> tuple[int, int, tuple[int, ...]]:
        fine, coarse = self.depth(words), self.depth(container)
        changed = tuple(int(old != new) for old, new in zip(words, container, strict=True))
        return fine[0] - coarse[0], fine[1] - coarse[1], changed


def _lineages(values: tuple[str, ...], above: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the lineage of each declared value, and then of each word that they generalise to."""
    lineages = dict[str, tuple[str, ...]]()
    for value in values:
        line = [value]
        while (word := above.get(line[-1])) is not None:
            line.append(word)
        lineages[value] = tuple(line)
    for lineage in list(lineages.values()):
        for step in range(1, len(lineage)):
            lineages.setdefault(lineage[step], lineage[step:])
    return lineages
