"""Optimised unary encoding with permanent responses, for metrics that are recorded repeatedly."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.listed.unary import Oue, draw, place
from deniable.mechanisms.permanent import Permanent, flips_of_all, second_flip

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.source import Source

_HALF = Fraction(1, 2)


class LOsue(Oue, Permanent):
    """L-OSUE: the permanent response is OUE of the value, and each report flips its bits with the same small probability.

    Let a = e^permanent and b = e^epsilon. A bit of the permanent response is 1 with probability 1/2 for the true value, and with
    1 / (a + 1) for any other. A report keeps a bit with probability (1 - ab) / (b - a - ab + 1). Both steps together are exactly
    OUE of epsilon. So one report is as exact as without a permanent response.

    A device keeps a response for each value that its user ever holds. Reports show that the value changed, and that it returned
    to an earlier one.

    References
    ----------
    H. H. Arcolezi and others: Improving the utility of locally differentially private protocols. Digit. Commun. Netw., 2022.
    """

    name = "l_osue"
    summary = "keep noisy bits, a fair coin for the true value and a rare 1 for all others, and flip some in each report"
    options = ("permanent",)

    _other: Fraction
    _flip: Fraction

    def _parameters(self) -> dict[str, Any]:
        permanent_weight = weight(self._read_permanent())
        claims = super()._parameters()
        other = Fraction(UNIT, permanent_weight + UNIT)
        # A flipped fair coin is still fair, so only the other bits decide the probability of a flip.
        flip = second_flip(other, claims["q"])
        return claims | {"permanent_ratio": Fraction(permanent_weight, UNIT), "_other": other, "_flip": flip}

    @property
    def constants(self) -> dict[str, Any]:
        """The constants of OUE, the probability of a kept 1 for another value, and that of a flip of a kept bit."""
        return super().constants | {"other_permanent": self._other, "flip_again": self._flip}

    @property
    def permanent_support(self) -> tuple[Fraction, Fraction]:
        """Probability that a bit kept is 1, for the true value and for another."""
        return _HALF, self._other

    def respond_permanently(self, row: int, value: int, source: Source) -> int:  # noqa: ARG002 - there is one row
        """Draw the bits that are kept for a value."""
        return place(value, draw(source, _HALF, self._other, self.domain_size, 1)[0])

    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:
        """Flip some of the kept bits."""
        (report,) = self.respond_to_all([(row, response)], source)
        return report

    def respond_to_all(self, responses: Sequence[tuple[int, int]], source: Source) -> Iterable[bytes]:
        """Flip some of the kept bits of each."""
        noise = flips_of_all(source, self._flip, self.domain_size, len(responses))
        return [self.layout.pack(row, response ^ flip) for (row, response), flip in zip(responses, noise, strict=True)]
