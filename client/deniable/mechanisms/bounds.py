"""The bounds of an honest report, which alarms test for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.frozen import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction


class Bounds(NamedTuple):
    """The bounds of every honest report, whatever its answer. Reports beyond these bounds were made up."""

    # low, high: least and greatest probability, given the row, that a cell is named or a bit is set
    low: Fraction
    high: Fraction
    # The possible distributions of the number of ones. The answer and the row decide which of them a report has. Each is a sum of
    # independent binomial counts, given as trials and probability. The trials add up to the width. Empty if a report names a
    # cell.
    ones: tuple[tuple[tuple[int, Fraction], ...], ...] = ()
    # The same where they are no such sums: the probabilities of 0, 1, ... ones. Of `ones` and `counts` one is empty.
    counts: tuple[tuple[Fraction, ...], ...] = ()
    direct: bool = False  # whether there is one row whose cell or bit i stands for value i

    @classmethod
    def of_bits(cls, low: Fraction, high: Fraction, width: int, own: Iterable[int] = (1,), *, direct: bool = False) -> Bounds:
        """Return the bounds of independent bits. For some answer, k of them have the high probability, for each k in `own`."""
        return cls(low, high, tuple(((k, high), (width - k, low)) for k in own), direct=direct)
