"""Generalised randomised response with permanent responses, for metrics that are recorded repeatedly."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.listed.direct import Grr, shifts
from deniable.mechanisms.permanent import Permanent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.source import Source


class Shifted(Permanent):
    """A permanent mechanism whose permanent response is a shifted cell, and whose reports shift it again.

    Let a = e^permanent and b = e^epsilon. The permanent response is the true cell with probability p1 = a / (a + k - 1), and any
    other of the k cells with q1 = (1 - p1) / (k - 1). A report is the kept cell with p2 = (ps - q1) / (p1 - q1), where
    ps = b / (b + k - 1), and any other cell with (1 - p2) / (k - 1). Both steps together are exactly GRR of epsilon, for every k.
    """

    options = ("permanent",)

    _permanent_weight: int
    _again: tuple[int, int]  # weights of the second step: of the kept cell, and of each other cell

    def _steps(self, cells: int, once: Fraction) -> dict[str, Any]:
        """Compute the parameters of both steps. Together they report the true cell with probability `once`."""
        permanent_weight = weight(self._read_permanent())
        total = permanent_weight + (cells - 1) * UNIT
        true, other = Fraction(permanent_weight, total), Fraction(UNIT, total)
        again = (once - other) / (true - other)
        return {
            "permanent_ratio": Fraction(permanent_weight, UNIT),
            "_permanent_weight": permanent_weight,
            "_again": (again.numerator * (cells - 1), again.denominator - again.numerator),
        }

    @property
    def permanent_support(self) -> tuple[Fraction, Fraction]:
        """Probability that the cell kept is the true value's, and another value's."""
        keep = self._keeps["keep_permanent"]
        return keep, (1 - keep) / (self.layout.width - 1)

    @property
    def _keeps(self) -> dict[str, Any]:
        """The probabilities that the first and the second step keep the cell."""
        cells, (again, other) = self.layout.width, self._again
        return {
            "keep_permanent": Fraction(self._permanent_weight, self._permanent_weight + (cells - 1) * UNIT),
            "keep_again": Fraction(again, again + (cells - 1) * other),
        }

    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the cell that is kept for a value."""
        cells = self.layout.width
        (shift,) = shifts(source, self._permanent_weight, cells, 1)
        return (self.response_key(row, value) + shift) % cells

    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:
        """Shift the kept cell."""
        (report,) = self.respond_to_all([(row, response)], source)
        return report

    def respond_to_all(self, responses: Sequence[tuple[int, int]], source: Source) -> Iterable[bytes]:
        """Shift each kept cell."""
        cells, pack = self.layout.width, self.layout.pack
        true_weight, other_weight = self._again
        noise = shifts(source, true_weight, cells, len(responses), other_weight)
        return [pack(row, (response + shift) % cells) for (row, response), shift in zip(responses, noise, strict=True)]


class LGrr(Grr, Shifted):
    """L-GRR: the permanent response is GRR of the value, and each report is GRR of the response. Best for small domains.

    A device keeps a response for each value that its user ever holds. Reports show that the value changed, and that it returned
    to an earlier one. For more than two values the p2 of the paper spends less than epsilon, with more noise than necessary. Ours
    spends epsilon.

    References
    ----------
    H. H. Arcolezi and others: Improving the utility of locally differentially private protocols. Digit. Commun. Netw., 2022.
    """

    name = "l_grr"
    summary = "keep one noisy answer, mostly the truth; each report is a noisy copy of it"

    def _parameters(self) -> dict[str, Any]:
        claims = super()._parameters()
        return claims | self._steps(self.domain_size, claims["p"])

    @property
    def constants(self) -> dict[str, Any]:
        """The probabilities of the truth: in one step, in the first of two steps, and in the second."""
        return super().constants | self._keeps
