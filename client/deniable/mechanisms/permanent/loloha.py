"""Local hashing with permanent responses: a device keeps few responses, however often its answer changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.mechanisms.listed.local_hash import LocalHash, best_family
from deniable.mechanisms.permanent.l_grr import Shifted
from deniable.wire.layout import MAX_ROWS

if TYPE_CHECKING:
    from fractions import Fraction

    from deniable.exact.hashing import LinearFamily


class Loloha(LocalHash, Shifted):
    """LOLOHA: a device hashes its answers to g cells, always by the same function, and keeps a response for each cell.

    Answers of one cell share a response. So a device spends `epsilon_permanent` at most g times, not once for each value. Reports
    do not show a change within a cell. They show a change to another cell, and a return to an earlier one. Both steps together
    are exactly local hashing of epsilon over a complete family of functions. The estimates are unbiased, and their error
    vanishes with many reports.

    g is the prime of least exact variance whose family has at most 4,096 functions. The function is drawn once, and each report
    shows it. So a device hides only among those that share it. A family has at least as many functions as the domain has values,
    so larger domains are refused.

    References
    ----------
    H. H. Arcolezi and others: Frequency estimation of evolving data. EDBT 2023, whose second step spends less than epsilon.
    """

    name = "loloha"
    summary = (
        "hash the value into a few cells by the device's function, keep a noisy cell, and report that with noise anew each time"
    )

    def _parameters(self) -> dict[str, Any]:
        claims = super()._parameters()
        return claims | self._steps(claims["family"].range_size, claims["p"])

    def _family(self, true_weight: int) -> LinearFamily:
        family = best_family(self.domain_size, true_weight, MAX_ROWS)
        if family is None:
            rule = f"domain_size: write {MAX_ROWS} or less; loloha has so many hash functions at most"
            raise ParameterError(rule, self.domain_size)
        return family

    @property
    def constants(self) -> dict[str, Any]:
        """The functions, and the probabilities of the true cell, in one step and in two."""
        return super().constants | self._keeps

    @property
    def permanent_support(self) -> tuple[Fraction, Fraction]:
        """Probability that the cell kept is the true value's, and another value's, which a row hashes to any cell alike."""
        return super().permanent_support[0], self.q

    @property
    def kept_responses(self) -> int:
        """Most permanent responses of a device: the number of cells, or of values if these are fewer."""
        return min(self.family.range_size, self.domain_size)

    def response_key(self, row: int, value: int) -> int:
        """Return the key of a value's permanent response: its hash."""
        return self.family.hash(row, value)
