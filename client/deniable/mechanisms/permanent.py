"""Mechanisms in two steps, for metrics that are recorded again and again."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, log
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import MAX_EPSILON, exact
from deniable.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from deniable.source import Source

__all__ = ["MAX_ROWS", "Permanent", "flips", "second_flip"]

MAX_ROWS = 4096
"""Most rows of a permanent mechanism whose rows grow with its domain. A device's row stays the same and is part of each of its
reports. So many devices must share it: a device hides among (devices / rows)."""


@dataclass(frozen=True, kw_only=True)
class Permanent(Mechanism):
    """A permanent response, drawn once for an answer and kept, of which every report is a noisy copy.

    However many reports of one answer are seen, together they tell no more than the permanent response itself would:
    `epsilon_permanent`. One report alone tells `epsilon`, which is less. `randomize` takes both steps at once and keeps nothing.

    An answer that changes has another response. Reports from k responses tell at most k times `epsilon_permanent` between
    histories that change, and return to an earlier answer, at the same times. Answers of one `response_key` count as one. That an
    answer changed shows, and so does a return to an earlier one. Between other histories there is no such bound, and none at all
    where a report is the permanent response itself.

    A device uses one row (cohort, hash function, set of buckets) of the layout for good, uniformly drawn: a row drawn anew for
    each report would tell more with every report, and make permanent responses of their own necessary.

    Parameters
    ----------
    permanent
        Privacy loss of the permanent response, in nats, not less than epsilon; 0 takes twice epsilon, at most 16.
        Where it is epsilon, a report is the permanent response itself, and reports of the same answer are all the same.

    Attributes
    ----------
    permanent_ratio : Fraction or None
        The worst likelihood ratio of the permanent response, exactly; None where it has no bound.
    """

    permanent: float = 0
    permanent_ratio: Fraction | None = None
    requested_permanent: Fraction = field(init=False, repr=False, compare=False)

    def _read_permanent(self, default: Fraction | None = None) -> Fraction:
        """Read the permanent epsilon asked for, and set it."""
        wanted = exact(self.permanent) if self.permanent else default or min(2 * self.requested, Fraction(MAX_EPSILON))
        if wanted < self.requested:
            raise ParameterError("permanent is not below epsilon: a report is a noisy copy of it", self.permanent)
        self._set(permanent=float(wanted), requested_permanent=wanted)
        return wanted

    @property
    def chosen(self) -> dict[str, Any]:
        """The options with the values they have, the permanent epsilon as it was written."""
        given = super().chosen
        return given | {"permanent": self.requested_permanent} if "permanent" in given else given

    @property
    def canonical(self) -> str:
        """All that device and decoder must agree on; the permanent response too, though no decoder needs it."""
        return f"{super().canonical} {self.permanent_ratio}"

    @property
    def epsilon_permanent(self) -> float:
        """Privacy loss of all reports of one answer together, in nats, where the permanent response is kept."""
        if self.permanent_ratio is None:
            return inf
        return min(log(self.permanent_ratio.numerator) - log(self.permanent_ratio.denominator), self.permanent or inf)

    @property
    def kept_responses(self) -> int:
        """How many permanent responses a device comes to keep at most: so many times may `epsilon_permanent` be spent.

        What that bounds, and what not, is said of the class.
        """
        return self.domain_size

    def response_key(self, row: int, value: int) -> int:  # noqa: ARG002 - for most, every value has a response of its own
        """Name the permanent response of a value in a row: those of equal keys share one. At most `kept_responses` keys."""
        return value

    @abstractmethod
    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the permanent response to a value: content of a report of this row, as `Layout.pack` takes it.

        A pure function of its arguments and of what the source gives. Values of one `response_key` have the same distribution.
        """

    @abstractmethod
    def respond_instantly(self, row: int, kept: int, source: Source) -> bytes:
        """Draw a report from a permanent response. Both steps together are distributed as `randomize` of this row."""


def second_flip(first: Fraction, both: Fraction) -> Fraction:
    """Compute the probability of a second flip of a bit, after which one flipped with probability `first` is so with `both`.

    A flip with probability r after one with probability s is a flip with probability s + r - 2 r s.
    """
    return (both - first) / (1 - 2 * first)


def flips(source: Source, probability: Fraction, width: int) -> int:
    """Draw which of `width` bits are flipped, each with the same probability."""
    return source.words(probability.numerator, probability.denominator, width, 1)[0]
