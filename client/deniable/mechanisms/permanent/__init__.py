"""Mechanisms with permanent responses, for metrics that are recorded repeatedly."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import inf, log
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import MAX_EPSILON, exact
from deniable.frozen import dataclass, field
from deniable.mechanisms.base import FrequencyOracle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.source import Source


@dataclass(frozen=True, kw_only=True)
class Permanent(FrequencyOracle):
    """A mechanism in two steps: a permanent response is drawn once for an answer and kept; each report is a noisy copy of it.

    All reports of one answer together have the privacy loss `epsilon_permanent` of the permanent response. One report alone has
    the loss `epsilon`, which is less. `randomize` takes both steps at once and keeps nothing.

    A changed answer has another response. It shows that the answer changed, and that it returned to an earlier one. Compare two
    histories whose answers change, and return to an earlier answer, at the same times. Reports from k responses then have a loss
    of at most k times `epsilon_permanent`. Answers of one response key count as one. Between other histories there is no such
    bound. If a report is the permanent response itself, there is no bound at all between them.

    A device uses one row (cohort, hash function, set of buckets) of the layout for good. The row is drawn uniformly. A new row
    for each report would need new permanent responses, and each of them would add to the loss.
    """

    # Privacy loss of the permanent response in nats, not less than epsilon. With 0 it is twice epsilon, at most 16. If it equals
    # epsilon, a report is the permanent response itself, and all reports of one answer are equal.
    permanent: float = 0
    # The worst likelihood ratio of the permanent response, exactly; None if it has no bound.
    permanent_ratio: Fraction | None = None
    requested_permanent: Fraction = field(init=False, repr=False, compare=False)

    def _read_permanent(self, default: Fraction | None = None) -> Fraction:
        """Read the requested permanent epsilon, and set it."""
        epsilon = exact(self.permanent) if self.permanent else default or min(2 * self.requested, Fraction(MAX_EPSILON))
        if epsilon < self.requested:
            raise ParameterError("permanent: write epsilon or more; a report is a noisy copy of it", self.permanent)
        self._set(permanent=float(epsilon), requested_permanent=epsilon)
        return epsilon

    @property
    def in_two_steps(self) -> Permanent:
        """The mechanism itself."""
        return self

    @property
    def chosen(self) -> dict[str, Any]:
        """The options with their values; the permanent epsilon as it was written."""
        options = super().chosen
        return options | {"permanent": self.requested_permanent} if "permanent" in options else options

    @property
    def canonical(self) -> str:
        """All that device and decoder must agree on. It includes the permanent response, which no decoder needs."""
        return f"{super().canonical} {self.permanent_ratio}"

    @property
    def epsilon_permanent(self) -> float:
        """Privacy loss of all reports of one answer together, in nats, if the permanent response is kept."""
        if self.permanent_ratio is None:
            return inf
        return min(log(self.permanent_ratio.numerator) - log(self.permanent_ratio.denominator), self.permanent or inf)

    @property
    @abstractmethod
    def permanent_support(self) -> tuple[Fraction, Fraction]:
        """Probability that a permanent response supports the true value, and another one, over rows and draws.

        As a payload: the report that it would be, were it sent.
        """

    def permanent_variance(
        self,
        frequency: float,  # the share of the respondents who hold the value, in [0, 1]
    ) -> float:
        """Compute the part of one report's variance that the permanent response has, and with it all other reports of it."""
        # It is the variance of an estimate from the permanent response itself, were it seen. The rest of `variance(f, 1)` is
        # noise that each report draws afresh.
        p, q = (float(probability) for probability in self.permanent_support)
        return (frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)) / (p - q) ** 2

    @property
    def kept_responses(self) -> int:
        """Most permanent responses of a device. It spends `epsilon_permanent` at most so many times.

        The class describes what this bounds and what it does not.
        """
        return self.domain_size

    def response_key(self, row: int, value: int) -> int:  # noqa: ARG002 - for most, every value has a response of its own
        """Return the key of a value's permanent response in a row. Values of one key share a response."""
        return value

    @abstractmethod
    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the permanent response to a value: the content of a report of this row, as `Layout.pack` takes it.

        It depends only on the arguments and the draws. Values of one `response_key` have the same distribution.
        """

    @abstractmethod
    def respond_instantly(self, row: int, response: int, source: Source) -> bytes:
        """Draw a report from a permanent response. Both steps together have the distribution of `randomize` in this row."""

    def respond_to_all(self, responses: Sequence[tuple[int, int]], source: Source) -> Iterable[bytes]:
        """Draw a report from each of some permanent responses, with their rows: as `respond_instantly`, faster."""
        return (self.respond_instantly(row, response, source) for row, response in responses)


def second_flip(first: Fraction, both: Fraction) -> Fraction:
    """Compute the probability of a second flip, so that a bit is flipped by both steps together with probability `both`."""
    # The first flip has probability `first`. Flips with probabilities s and r together are one flip with probability s + r - 2 r
    # s.
    return (both - first) / (1 - 2 * first)


def flips(source: Source, probability: Fraction, width: int) -> int:
    """Draw which of `width` bits are flipped, each with the given probability."""
    return flips_of_all(source, probability, width, 1)[0]


def flips_of_all(source: Source, probability: Fraction, width: int, count: int) -> list[int]:
    """Draw the flips of `count` reports."""
    return source.words(probability.numerator, probability.denominator, width, count)
