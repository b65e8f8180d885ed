"""Generalised randomized response in two steps, for metrics that are recorded again and again."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.direct import Grr, shifts
from deniable.mechanisms.permanent import Permanent

if TYPE_CHECKING:
    from deniable.source import Source

__all__ = ["LGrr", "Shifted"]


class Shifted(Permanent):
    """A permanent mechanism whose permanent response shifts one of k cells around, and whose reports shift that again.

    With a = e^permanent and b = e^epsilon, the permanent response is the truth with p1 = a / (a + k - 1) and any other cell with
    q1 = (1 - p1) / (k - 1). A report keeps that with p2 = (ps - q1) / (p1 - q1), ps = b / (b + k - 1), and names any other cell
    with (1 - p2) / (k - 1). Both steps together are GRR of epsilon, exactly, for every k.
    """

    options = ("permanent",)

    _kept_permanent: int
    _again: tuple[int, int]  # weights of a report that is the permanent response, and that is a given other cell

    def _steps(self, cells: int, once: Fraction) -> dict[str, Any]:
        """Compute the parameters of both steps, of which together a report names the true cell with probability `once`."""
        kept = weight(self._read_permanent())
        total = kept + (cells - 1) * UNIT
        true, other = Fraction(kept, total), Fraction(UNIT, total)
        again = (once - other) / (true - other)
        return {
            "permanent_ratio": Fraction(kept, UNIT),
            "_kept_permanent": kept,
            "_again": (again.numerator * (cells - 1), again.denominator - again.numerator),
        }

    @property
    def _keeps(self) -> dict[str, Any]:
        """The probabilities that the first step and the second keep the cell."""
        cells, (again, other) = self.layout.width, self._again
        return {
            "keep_permanent": Fraction(self._kept_permanent, self._kept_permanent + (cells - 1) * UNIT),
            "keep_again": Fraction(again, again + (cells - 1) * other),
        }

    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the cell that is kept for a value."""
        cells = self.layout.width
        (shift,) = shifts(source, self._kept_permanent, cells, 1)
        return (self.response_key(row, value) + shift) % cells

    def respond_instantly(self, row: int, kept: int, source: Source) -> bytes:
        """Shift the cell kept."""
        cells = self.layout.width
        weight_kept, weight_other = self._again
        (shift,) = shifts(source, weight_kept, cells, 1, weight_other)
        return self.layout.pack(row, (kept + shift) % cells)


class LGrr(Grr, Shifted):
    """L-GRR: the permanent response is GRR's, and each report is GRR of it. Best for small domains, as GRR is.

    A device keeps a response for each value that its user ever holds. That the value changed shows, and so does a return to an
    earlier one.

    References
    ----------
    H. H. Arcolezi, J.-F. Couchot, B. Al Bouna, X. Xiao: Improving the utility of locally differentially private protocols for
    longitudinal and multidimensional frequency estimates. Digital Communications and Networks, 2022. (Their p2 gives less than
    epsilon, and so more noise than need be, for more than two values; ours gives epsilon.)
    """

    name = "l_grr"
    summary = "keep the truth with the larger of two odds, else another value, and report that with noise anew each time"

    def _parameters(self) -> dict[str, Any]:
        claims = super()._parameters()
        return claims | self._steps(self.domain_size, claims["p"])

    @property
    def constants(self) -> dict[str, Any]:
        """The probabilities of the truth: of a report at once, of the permanent response, and of a report from that."""
        return super().constants | self._keeps
