"""Mechanisms in two steps, for questions that are asked again and again."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING

from deniable.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from fractions import Fraction

    from deniable.source import Source

__all__ = ["Chain"]


@dataclass(frozen=True, kw_only=True)
class Chain(Mechanism):
    """A permanent response, drawn once for an answer and kept, of which every report is a noisy copy.

    However many reports of one answer are seen, together they tell no more than the permanent response itself would:
    `epsilon_permanent`. One report alone tells `epsilon`, which is less. `randomize` takes both steps at once and keeps nothing.

    A device uses one row (cohort, hash function, set of buckets) of the layout for good, uniformly drawn: a row drawn anew for
    each report would tell more with every report, and make permanent responses of their own necessary.

    Parameters
    ----------
    permanent
        Privacy loss of the permanent response, in nats, not less than epsilon.

    Attributes
    ----------
    permanent_ratio : Fraction or None
        The worst likelihood ratio of the permanent response, exactly; None where it has no bound.
    """

    permanent: float = 0
    permanent_ratio: Fraction | None = None

    @property
    def epsilon_permanent(self) -> float:
        """Privacy loss of all reports of one answer together, in nats, where the permanent response is kept."""
        return inf if self.permanent_ratio is None else log(self.permanent_ratio)

    @property
    def kept_responses(self) -> int:
        """How many permanent responses a device comes to keep at most: so many times may `epsilon_permanent` be spent."""
        return self.domain_size

    def memo_key(self, row: int, value: int) -> int:  # noqa: ARG002 - for most, every value has a response of its own
        """Name the permanent response of a value in a row, in [0, kept_responses): values of equal keys share one."""
        return value

    @abstractmethod
    def respond_permanently(self, row: int, value: int, source: Source) -> int:
        """Draw the permanent response to a value: content of a report of this row, as `Layout.pack` takes it.

        A pure function of its arguments and of what the source gives. Its distribution is the same for values of one `memo_key`.
        """

    @abstractmethod
    def respond_instantly(self, row: int, kept: int, source: Source) -> bytes:
        """Draw a report from a permanent response. Both steps together are distributed as `randomize` of this row."""
