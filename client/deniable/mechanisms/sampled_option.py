"""Sets: a report is about one option, or about one pair of options, drawn at random.

An answer is a set of options. It is written as a whole number: bit i is 1 if option i is chosen. The whole epsilon goes to the
option that is drawn. A part of it for each option would cost far more than a part of the devices.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import Scored
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.direct import shifts
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.source import Source


class Sampled(Scored):
    """A report names a row, drawn at random, and what the answer has there, by generalised randomised response."""

    groups: tuple[tuple[int, ...], ...]  # the options of each row
    keep: Fraction  # probability that a report names what the answer has in its row
    other: Fraction  # probability that it names any one other thing
    _true_weight: int

    @abstractmethod
    def _groups(self, options: int) -> tuple[tuple[int, ...], ...]:
        """Return the options of each row."""

    def _parameters(self) -> dict[str, Any]:
        options = self.domain_size.bit_length() - 1
        if self.domain_size != 1 << options:
            raise ParameterError("domain_size: write 2^m for a set of m options", self.domain_size)
        groups = self._groups(options)
        if not groups:
            raise ParameterError("pairs: write false, or list 2 options or more", options)
        true_weight, width = weight(self.requested), 1 << len(groups[0])
        total = true_weight + (width - 1) * UNIT
        return {
            "ratio": Fraction(true_weight, UNIT),
            "layout": Layout(len(groups), width, "index"),
            "groups": groups,
            "keep": Fraction(true_weight, total),
            "other": Fraction(UNIT, total),
            "_true_weight": true_weight,
        }

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Each row: its reports alone tell of its options, or of its pair."""
        return tuple((row,) for row in range(self.layout.rows))

    @property
    def constants(self) -> dict[str, Any]:
        """The probability of the truth about the row."""
        return {"keep": self.keep}

    @property
    def _agreed(self) -> str:
        return f"{self.keep} {self.other}"

    @property
    def answers(self) -> str:
        """The domain, in words."""
        return f"{self.domain_size} sets of {self.domain_size.bit_length() - 1} options"

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

    @property
    def influence(self) -> Fraction:
        """The score of the cell that a report names."""
        return self.layout.rows * (1 - self.other) / (self.keep - self.other)

    @property
    def worst_variance(self) -> Fraction:
        """The largest variance of one report's estimate: half of the reports of its row name the cell, and most are of others."""
        return Fraction(self.layout.rows, 4) / (self.keep - self.other) ** 2


class SampledOption(Sampled):
    """One option, drawn at random, and whether it is chosen, by randomised response with the whole epsilon.

    Reports of a set have the same privacy loss as those of a yes or no. With m options, each is told by one in m reports.
    """

    name = "sampled_option"
    part = "option"
    summary = "draw one of the options, and tell whether you chose it by randomised response"

    def _groups(self, options: int) -> tuple[tuple[int, ...], ...]:
        return tuple((option,) for option in range(options))

    @property
    def says(self) -> str:
        """What one report says, in words."""
        return (
            f"A report is about one of {self.layout.rows} options, drawn at random. It says truly whether you chose it with "
            f"probability {float(self.keep):.3f}."
        )


class SampledPair(Sampled):
    """Two options, drawn at random, and which of them are chosen, by generalised randomised response over the four cases."""

    name = "sampled_pair"
    part = "pair of options"
    summary = "draw two of the options, and tell which of them you chose by generalised randomised response"

    def _groups(self, options: int) -> tuple[tuple[int, ...], ...]:
        return tuple(combinations(range(options), 2))

    @property
    def says(self) -> str:
        """What one report says, in words."""
        return (
            f"A report is about two options, one of {self.layout.rows} pairs, drawn at random. It says truly which of both you "
            f"chose with probability {float(self.keep):.3f}."
        )
