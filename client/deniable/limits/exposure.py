"""Exposure: what the reports of a device show besides its answers. These are the group of its rows, and its segments.

Both are not randomised and stay the same. So they are identifiers of a few bits, over all metrics and periods.
"""

from __future__ import annotations

from math import isqrt, log2, prod
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deniable.registry import Registry

MANY_GROUPS = 256
"""Most groups into which rows and segments should divide devices. With more groups, each has few devices, and lint warns."""


def groups(
    rows: Iterable[int],  # number of rows of each metric
) -> int:
    """Return the number of groups into which the rows of some metrics together divide devices."""
    # A device has one place between 0 and 1. Its row in a metric of r rows is that one of r equal parts that contains the place.
    # So the ends of all parts of all metrics divide places into groups. An end is a fraction below 1. In lowest terms its
    # denominator divides one of the numbers of rows.
    divisors = {divisor for each in set(rows) for divisor in _divisors(each)}
    return max(1, sum(map(_totient, divisors)))


def _divisors(number: int) -> Iterator[int]:
    for divisor in range(1, isqrt(number) + 1):
        if number % divisor == 0:
            yield from (divisor, number // divisor)


def _totient(number: int) -> int:
    """Return how many numbers below `number` have no common divisor with it."""
    count, remainder, prime = number, number, 2
    while prime * prime <= remainder:
        if remainder % prime == 0:
            count -= count // prime
            while remainder % prime == 0:
                remainder //= prime
        prime += 1
    return count - count // remainder if remainder > 1 else count


@dataclass(frozen=True, slots=True)
class Exposure:
    """How finely a registry tells devices apart."""

    # Number of groups into which the rows of all metrics with permanent responses together divide devices; 1 for no rows.
    rows: int
    segments: int  # number of combinations of the segments that any metric carries

    @classmethod
    def of(cls, registry: Registry) -> Exposure:
        """Compute the exposure of a registry; raise `ParameterError` if a metric has no mechanism."""
        return cls.together(registry, map(Declared.of, registry.metrics.values()))

    @classmethod
    def together(
        cls,
        registry: Registry,
        metrics: Iterable[Declared],  # some metrics of it
    ) -> Exposure:
        """Compute the exposure of some metrics of a registry."""
        rows, names = set(), set[str]()
        for declared in metrics:
            rows |= {declared.layout.rows} if declared.metric.permanent else set()
            names |= {*declared.metric.segments}
        return cls(groups(rows), prod(len(registry.segments[name]) for name in names))

    @property
    def words(self) -> str:
        """What it is, as a sentence; empty if reports show nothing besides answers."""
        ways = (("rows of kept answers", self.row_bits), ("segments", self.segment_bits))
        shows = [f"{bits:.1f} bits by its {name}" for name, bits in ways if bits]
        return f"besides answers, reports show something of the device: {', '.join(shows)}" if shows else ""

    @property
    def row_bits(self) -> float:
        """Most bits that rows show of a device."""
        return log2(self.rows)

    @property
    def segment_bits(self) -> float:
        """Most bits that segments show of a device."""
        return log2(self.segments)
