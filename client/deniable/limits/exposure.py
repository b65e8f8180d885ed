"""What the reports of a device show besides its answers: the group that its rows put it in, and its segments.

Both travel in clear and stay the same, so they tell devices apart over all metrics and periods: identifiers of a few bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, log2, prod
from typing import TYPE_CHECKING

from deniable import mechanisms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deniable.registry import Registry

__all__ = ["Exposure", "groups"]


def groups(rows: Iterable[int]) -> int:
    """Count the groups into which the rows of some metrics together put devices.

    A device has one place between 0 and 1. Its row in a metric of r rows is the one of r equal parts that the place lies in.
    So the groups are the stretches between the ends of all parts of all metrics. An end is a fraction below 1; in lowest terms,
    its denominator divides one of the numbers of rows.

    Parameters
    ----------
    rows
        Number of rows of each metric.
    """
    divisors = {divisor for each in set(rows) for divisor in _divisors(each)}
    return max(1, sum(map(_totient, divisors)))


def _divisors(number: int) -> Iterator[int]:
    for divisor in range(1, isqrt(number) + 1):
        if number % divisor == 0:
            yield from (divisor, number // divisor)


def _totient(number: int) -> int:
    """Count the numbers below `number` that share no divisor with it."""
    found, rest, prime = number, number, 2
    while prime * prime <= rest:
        if rest % prime == 0:
            found -= found // prime
            while rest % prime == 0:
                rest //= prime
        prime += 1
    return found - found // rest if rest > 1 else found


@dataclass(frozen=True, slots=True)
class Exposure:
    """What tells one device from another.

    Parameters
    ----------
    rows
        Groups into which the rows of all metrics with permanent responses together put devices; 1 where none has rows.
    segments
        Combinations of the segments that any metric carries.
    """

    rows: int
    segments: int

    @classmethod
    def of(cls, registry: Registry) -> Exposure:
        """Work it out for a registry.

        Raises
        ------
        ParameterError
            If a metric has no mechanism.
        """
        kept = {mechanisms.of(metric).layout.rows for metric in registry.metrics.values() if metric.kept}
        names = {name for metric in registry.metrics.values() for name in metric.segments}
        return cls(groups(kept), prod(len(registry.segments[name]) for name in names))

    @property
    def row_bits(self) -> float:
        """The most that rows show of a device, in bits."""
        return log2(self.rows)

    @property
    def segment_bits(self) -> float:
        """The most that segments show, likewise."""
        return log2(self.segments)
