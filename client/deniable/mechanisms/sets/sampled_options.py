"""Sets: a report is about some of the options, drawn at random, and tells which of these are chosen.

The whole epsilon goes to the options that are drawn. A part of it for each option would cost far more than a part of the devices.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.listed.direct import shifts
from deniable.mechanisms.sets import OfSets
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.source import Source

_MOST_AT_ONCE = 8  # options of a report; a tally has 2^8 cells for each row then
_TYPICAL = Fraction(1, 10)  # share of an option, for which the number of options of a report is chosen


class Sampled(OfSets):
    """A report names a row, drawn at random, and what the answer has there, by generalised randomised response."""

    groups: tuple[tuple[int, ...], ...]  # the options of each row
    keep: Fraction  # probability that a report names what the answer has in its row
    other: Fraction  # probability that it names any one other thing
    _true_weight: int

    @abstractmethod
    def _groups(self, options: int, true_weight: int) -> tuple[tuple[int, ...], ...]:
        """Return the options of each row."""

    def _parameters(self) -> dict[str, Any]:
        options, true_weight = self._options_listed(), weight(self.requested)
        groups = self._groups(options, true_weight)
        if not groups:
            raise ParameterError("pairs: write false, or list 2 options or more", options)
        size = len(groups[0])
        keep, other = _probabilities(size, true_weight)
        # It names the true cell, or any cell at all. Of all cells half have an option, and a quarter have two.
        any_cell, yes = other * (1 << size), keep - other
        none = any_cell / 4
        return {
            "ratio": Fraction(true_weight, UNIT),
            "layout": Layout(len(groups), 1 << size, "index"),
            "options_listed": options,
            "about": Fraction(sum(0 in group for group in groups), len(groups)),
            "yes": (yes + any_cell / 2, any_cell / 2),
            "both": (none, none, none + yes) if size > 1 else (),
            "groups": groups,
            "keep": keep,
            "other": other,
            "_true_weight": true_weight,
        }

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Each row: its reports alone tell of its options."""
        return tuple((row,) for row in range(self.layout.rows))

    @property
    def constants(self) -> dict[str, Any]:
        """The probability of the truth about the row."""
        return {"keep": self.keep}

    @property
    def _agreed(self) -> str:
        return f"{self.keep} {self.other}"

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw the row of each report, and the shift of its index."""
        width = self.layout.width
        return list(zip(source.indices(self.layout.rows, count), shifts(source, self._true_weight, width, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Shift what the answer has in the row."""
        row, shift = noise
        return self.layout.pack(row, (self.index(value, row) + shift) % self.layout.width)

    def index(self, value: int, row: int) -> int:
        """Return what an answer has in a row: bit k is 1 if it has the row's option k."""
        return sum((value >> option & 1) << bit for bit, option in enumerate(self.groups[row]))

    def options_of(self, payload: bytes) -> dict[int, bool]:
        """Return the options of the row, each with its bit."""
        row, named = self.layout.unpack(payload)
        return {option: bool(named >> bit & 1) for bit, option in enumerate(self.groups[row])}

    def supporting(self, payload: bytes, values: Iterable[int]) -> set[int]:
        """Return which of some sets have in the row what a payload names."""
        row, named = self.layout.unpack(payload)
        return {value for value in values if self.index(value, row) == named}

    @property
    def telling(self) -> Fraction:
        """The probability that a report names what one of two answers has in its row. All rows of two answers may differ."""
        return self.keep + self.other

    def bounds(self) -> Bounds:
        """Return the probability of another index, and of the true one."""
        return Bounds(self.other, self.keep)

    def quantities(self, value: int) -> tuple[Fraction, ...]:
        """Return, for each cell, whether the answer has just this index in this row: 1 or 0."""
        rows, width = self.layout.rows, self.layout.width
        return tuple(Fraction(self.index(value, row) == index) for row in range(rows) for index in range(width))

    def scores(self, payload: bytes) -> tuple[Fraction, ...]:
        """Return the score of each cell: 0 in other rows."""
        row, named = self.layout.unpack(payload)
        rows, width, gain = self.layout.rows, self.layout.width, self.keep - self.other
        return tuple(
            # Times the rows, because a row is drawn for one in so many reports.
            rows * ((named == index) - self.other) / gain if row == each else Fraction(0)
            for each in range(rows)
            for index in range(width)
        )


class SampledOptions(Sampled):
    """Some options, drawn at random, and which of them are chosen, by generalised randomised response with the whole epsilon.

    Up to an epsilon of about 2 it is one option: a report has the same loss as a yes or no, and with m options, each is told by
    one in m reports. With a larger epsilon it is more options at once, neighbours in the order of the registry, the first after
    the last. Their number has the least exact variance for an option that a tenth of the people choose, and is 8 at most.
    """

    name = "sampled_options"
    part = "option"
    summary = "draw one or more of the options, and tell which of them you chose by generalised randomised response"

    def _groups(self, options: int, true_weight: int) -> tuple[tuple[int, ...], ...]:
        sizes = range(1, min(options, _MOST_AT_ONCE) + 1)
        size = min(sizes, key=lambda size: _typical_variance(size, true_weight))
        if size == options:
            return (tuple(range(options)),)
        return tuple(tuple((first + place) % options for place in range(size)) for first in range(options))

    @property
    def constants(self) -> dict[str, Any]:
        """The probability of the truth about the options of a row, and their number."""
        return super().constants | {"size": len(self.groups[0])}

    @property
    def says(self) -> str:
        """What one report says, in words."""
        size, of = len(self.groups[0]), self.options_listed
        if size == 1:
            return (
                f"A report is about one of {of} options, drawn at random. It says truly whether you chose it with "
                f"probability {float(self.keep):.3f}."
            )
        which = f"{size} of {of} options, drawn at random" if size < of else f"all {of} options"
        return f"A report is about {which}. It says truly which of these you chose with probability {float(self.keep):.3f}."


class SampledPair(Sampled):
    """Two options, drawn at random, and which of them are chosen, by generalised randomised response over the four cases."""

    name = "sampled_pair"
    part = "pair of options"
    summary = "draw two of the options, and tell which of them you chose by generalised randomised response"

    def _groups(self, options: int, true_weight: int) -> tuple[tuple[int, ...], ...]:  # noqa: ARG002 - always two
        return tuple(combinations(range(options), 2))

    @property
    def influence(self) -> Fraction:
        """The score of the case that a report names, by which pairs are estimated."""
        return self.layout.rows * (1 - self.other) / (self.keep - self.other)

    @property
    def worst_variance(self) -> Fraction:
        """The largest variance of one report's estimate of a case: half of the reports of its row name it; most are of others."""
        return Fraction(self.layout.rows, 4) / (self.keep - self.other) ** 2

    @property
    def says(self) -> str:
        """What one report says, in words."""
        return (
            f"A report is about two options, one of {self.layout.rows} pairs, drawn at random. It says truly which of both you "
            f"chose with probability {float(self.keep):.3f}."
        )


def _probabilities(size: int, true_weight: int) -> tuple[Fraction, Fraction]:
    """Return the probability of the truth about so many options, and that of any other case."""
    total = true_weight + ((1 << size) - 1) * UNIT
    return Fraction(true_weight, total), Fraction(UNIT, total)


def _typical_variance(size: int, true_weight: int) -> Fraction:
    """Compute the variance of a report's estimate of an option, times the options that are listed, for the typical share."""
    keep, other = _probabilities(size, true_weight)
    gain = keep - other
    says = other * (1 << size) / 2 + _TYPICAL * gain
    return says * (1 - says) / gain**2 / size
