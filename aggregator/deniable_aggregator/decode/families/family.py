"""The base of families: what is asked of a tally, whichever mechanism made its reports."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from deniable.errors import ParameterError
from deniable.mechanisms.base import FrequencyOracle, Mechanism
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.families.law import Law
    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally

AnyMechanism = TypeVar("AnyMechanism", bound=Mechanism)
Oracle = TypeVar("Oracle", bound=FrequencyOracle)

_LISTED = 1 << 16  # most values that a payload is compared with


@dataclass(frozen=True, eq=False)
class Family(Generic[AnyMechanism]):
    """One form of tally."""

    mechanism: AnyMechanism

    @property
    def mixed(self) -> bool:
        """Whether the support of each value is a sum of several counts, which differs from each of them and is exact."""
        return False

    @property
    def foreseen(self) -> bool:
        """Whether the error of a share is known before there are reports."""
        return True

    def estimate(self, tally: Tally, values: Sequence[int] | None, repeats: float, *, permanent: bool) -> Estimate:
        """Estimate shares; see `deniable_aggregator.decode.estimate`, which checks the arguments."""
        independent = self.independent_estimate(tally, values)
        response = self.mechanism.in_two_steps if permanent else None
        return Panel(tally.n, independent, repeats, response) if tally.n and (repeats or response) else independent

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:  # noqa: ARG002
        """Estimate shares as if each report were of another device."""
        raise ParameterError("mechanism: choose a frequency oracle, whose reports show shares of values", self.mechanism.name)

    def supports(self, tally: Tally) -> NDArray[np.int64]:  # noqa: ARG002
        """Count, for each value of a whole domain, the reports that support it: (domain_size,), each in [0, n]."""
        raise ParameterError(
            "mechanism: choose a pure one, of which the reports that support a value are counted", self.mechanism.name
        )

    def unused(self, tally: Tally) -> NDArray[np.int64]:  # noqa: ARG002
        """Count the reports that support each code without a value, of which there are `Mechanism.unused`."""
        return np.zeros(0, np.int64)

    def pairs(self, p: float, q: float) -> PairSupport:  # noqa: ARG002
        """Compute the probabilities of pairs, if those of single values are p and q; see `pair_support`."""
        raise ParameterError("mechanism: choose a pure one, of which pairs of values are counted", self.mechanism.name)

    @abstractmethod
    def likelihood(
        self,
        table: NDArray[np.uint8],  # (reports, payload_size), the payloads
        values: NDArray[Any],  # (values,), those that reports are compared with
    ) -> NDArray[np.float32]:
        """Compute how likely each report is under each value: (reports, values), each row with 1 as its largest."""

    def law(self, values: Sequence[int] | None) -> Law:  # noqa: ARG002
        """Return the law of the tally of people who hold some values, or any of the domain."""
        raise ParameterError(
            "mechanism: choose one of people who hold one of the values, of which tallies are simulated", self.mechanism.name
        )

    def nobody(self, values: int, n: int) -> Estimate:  # noqa: ARG002
        """Return the estimate, of n reports, of so many values that nobody holds."""
        raise ParameterError("mechanism: choose one of shares or means, for which there are plans", self.mechanism.name)

    def distinct(self, table: NDArray[np.uint8], size: int) -> tuple[list[bytes], NDArray[np.intp]]:
        """Return the payloads that differ, and which each report is; raise `ParameterError` if too many values are compared."""
        if size > _LISTED:
            rule = f"reports of {self.mechanism.name} are compared with at most {_LISTED} values"
            raise ParameterError(rule, size)
        seen = np.ascontiguousarray(table).view(f"V{self.mechanism.layout.payload_size}").ravel()
        payloads, places = np.unique(seen, return_inverse=True)
        return [payload.tobytes() for payload in payloads], places


class Shares(Family[Oracle]):
    """Of a frequency oracle: what a payload supports separates the values, by one likelihood ratio."""

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Ask the mechanism which values each payload supports."""
        payloads, places = self.distinct(table, self.mechanism.domain_size)  # each of them may be supported
        rows = np.full((len(payloads), len(values)), np.float32(1 / self.mechanism.ratio), np.float32)
        for place, payload in enumerate(payloads):
            held = self.mechanism.supported(payload)
            rows[place, [at for at, value in enumerate(values) if value in held]] = 1
        return topped(rows)[places]

    def nobody(self, values: int, n: int) -> Estimate:
        """Nothing supports them beyond chance."""
        return Supported(self.mechanism, n, np.zeros(values, np.int64))


class Counted(Shares[Oracle]):
    """Of an oracle whose support is counted: each value has one probability of it if it is held, and one if not."""

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:
        """Estimate from the support of all values."""
        return self.of(tally, values, self.supports(tally))

    def of(
        self,
        tally: Tally,
        values: Sequence[int] | None,
        support: NDArray[np.int64],
        touched: NDArray[np.int64] | None = None,
    ) -> Supported:
        """Make the estimate of some values from the support of all."""
        complete = Supported(self.mechanism, tally.n, support, touched)
        if values is None:
            return complete
        chosen = list(values)
        selected_touched = None if touched is None else touched[chosen]
        return Supported(self.mechanism, tally.n, support[chosen], selected_touched, shares=complete.plausible[chosen])


def topped(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Divide each row by its largest number."""
    return np.asarray(rows / rows.max(axis=1, keepdims=True), np.float32)
