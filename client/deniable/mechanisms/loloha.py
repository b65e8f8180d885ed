"""Local hashing in two steps: a device keeps few responses, however often its answer changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.mechanisms.l_grr import Shifted
from deniable.mechanisms.local_hash import LocalHash, best_family
from deniable.mechanisms.permanent import MAX_ROWS

if TYPE_CHECKING:
    from deniable.exact.hashing import LinearFamily

__all__ = ["Loloha"]


class Loloha(LocalHash, Shifted):
    """LOLOHA: a device hashes its answers to g cells, always by the same function, and keeps a response for each cell.

    Answers of one cell share a response, so a device spends `epsilon_permanent` at most g times, not once for each value. A
    change within a cell does not show; one from cell to cell does, and so does a return to an earlier cell. Both
    steps together are local hashing of epsilon, exactly, over a complete family of functions: the estimates are unbiased, and
    no error outlasts the number of reports.

    g is the prime of least exact variance whose family has at most 4,096 functions. The function is drawn once and is part of
    each report, so people hide only among those who share it. A family has as many functions as the domain has values, or more:
    larger domains are refused.

    References
    ----------
    H. H. Arcolezi, C. Pinzon, C. Palamidessi, S. Gambs: Frequency estimation of evolving data under local differential privacy.
    EDBT 2023. (Their second step keeps a report's epsilon below what is asked for, for more than two cells; ours gives it.)
    """

    name = "loloha"
    summary = (
        "hash the value into a few cells by the device's function, keep a noisy cell, and report that with noise anew each time"
    )

    def _parameters(self) -> dict[str, Any]:
        claims = super()._parameters()
        return claims | self._steps(claims["family"].range_size, claims["p"])

    def _family(self, kept: int) -> LinearFamily:
        family = best_family(self.domain_size, kept, MAX_ROWS)
        if family is None:
            rule = f"loloha has at most {MAX_ROWS} hash functions, so that many devices share each, for at most as many values"
            raise ParameterError(rule, self.domain_size)
        return family

    @property
    def constants(self) -> dict[str, Any]:
        """The functions, and the probabilities of the true cell, at once and in two steps."""
        return super().constants | self._keeps

    @property
    def kept_responses(self) -> int:
        """How many permanent responses a device comes to keep at most: one for each cell, or value where these are fewer."""
        return min(self.family.range_size, self.domain_size)

    def response_key(self, row: int, value: int) -> int:
        """Name the permanent response of a value: its hash."""
        return self.family.hash(row, value)
