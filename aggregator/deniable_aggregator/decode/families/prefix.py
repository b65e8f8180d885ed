"""Tallies of a search: their reports are about prefixes, so only the search decodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.mechanisms.prefix import PrefixTree
from deniable_aggregator.decode.families.family import Shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally


class Levels(Shares[PrefixTree]):
    """Some rows are about each level."""

    def apart(self, tally: Tally, values: Sequence[int] | None) -> Estimate:  # noqa: ARG002
        """Refuse: the reports are about prefixes."""
        raise ParameterError("what searches for values is decoded by deniable_aggregator.decode.discovery", self.mechanism.name)

    def pairs(self, p: float, q: float) -> PairSupport:  # noqa: ARG002
        """Refuse: the functions are a pool."""
        raise ParameterError("pairs of values are counted with a complete family of hash functions", self.mechanism.name)
