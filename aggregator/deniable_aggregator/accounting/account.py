"""All totals of one list of spends, and which of them to quote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deniable_aggregator import checks
from deniable_aggregator.accounting import losses, renyi, sums, zcdp
from deniable_aggregator.accounting.spend import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable_aggregator.accounting.spend import Spend

_SAME = 2e-6  # nats: rounding up adds less than this to an exact total
_WORTH = 0.95  # a total above this share of the plain sum is not worth stating a delta for


@dataclass(frozen=True, slots=True)
class Method:
    """A composition method."""

    name: str  # in a few words
    source: str  # authors and year


METHODS = {
    "basic": Method("plain sum", "Dwork and others 2006"),
    "advanced": Method("advanced composition", "Dwork, Rothblum, Vadhan 2010"),
    "closed": Method("optimal composition, closed form", "Kairouz, Oh, Viswanath 2017"),
    "zcdp": Method("zero-concentrated (zCDP)", "Bun, Steinke 2016; Canonne, Kamath, Steinke 2020"),
    "renyi": Method("Renyi", "Mironov 2017; Canonne, Kamath, Steinke 2020"),
    "optimal": Method("exact, for any mechanisms", "Kairouz, Oh, Viswanath 2017; Murtagh, Vadhan 2016"),
    "exact": Method("exact, for these mechanisms (PLD)", "Sommer, Meiser, Mohammadi 2019"),
}
"""By key, from the simplest to the tightest. Each is an upper bound if reports are randomised independently."""


@dataclass(frozen=True, slots=True)
class Account:
    """The totals of some reports."""

    delta: float  # the delta at which all totals but the plain sum hold
    rho: float  # zero-concentrated total
    totals: dict[str, float]  # epsilon in nats, by key of `METHODS`

    @property
    def basic(self) -> float:
        """The plain sum, which holds with a delta of 0."""
        return self.totals["basic"]

    @property
    def quoted(self) -> str:
        """Key of the least total: the plain sum if no other is less, else the exact one, up to rounding."""
        least = min(self.totals.values()) + _SAME
        return "basic" if self.basic <= least else [key for key, total in self.totals.items() if total <= least][-1]

    @property
    def epsilon(self) -> float:
        """The least total."""
        return self.totals[self.quoted]

    @property
    def worth_a_delta(self) -> bool:
        """Whether the least total is well below the plain sum."""
        return self.epsilon <= _WORTH * self.basic


def account(
    spends: Iterable[Spend],  # reports whose noise is independent, of one device or of several
    delta: float,  # a probability
) -> Account:
    """Add spends up by every method."""
    # The totals hold between any two sequences of answers. Later questions may depend on earlier reports, but epsilons may not. A
    # budget that ends a sequence early does no harm: it leaves out a part.
    checks.delta(delta)
    listed = merged(spends)
    worst = tuple(replace(spend, share=1.0) for spend in listed)
    rho = zcdp.compose(spend.count * zcdp.of_pure(spend.epsilon) for spend in listed)
    optimal = losses.together(worst)
    totals = {
        "basic": sums.basic(listed),
        "advanced": sums.advanced(listed, delta),
        "closed": sums.closed(listed, delta),
        "zcdp": zcdp.epsilon(rho, delta),
        "renyi": renyi.epsilon(renyi.curve(worst), delta),
        "optimal": min(optimal.epsilon(delta), sums.basic(listed)),
    }
    if listed != worst:
        totals["exact"] = min(losses.together(listed).epsilon(delta), totals["optimal"])
    return Account(delta, rho, totals)
