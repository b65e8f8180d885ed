"""What is read of answers: the share of each value."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.forecast.search import nothing_found
from deniable.mechanisms.texts.prefix import PrefixTree
from deniable_aggregator import decode
from deniable_aggregator.answer.model.metric import Estimates
from deniable_aggregator.answer.model.shares import (
    Association,
    FactorShare,
    OrderEstimate,
    Unallocated,
    ValueEstimate,
    ValuesBelow,
)
from deniable_aggregator.answer.reading import Lines, Reading
from deniable_aggregator.answer.readings.cache import once
from deniable_aggregator.answer.readings.leading import leading
from deniable_aggregator.decode import panel
from deniable_aggregator.decode.consistent import consistent, lowered_by
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.numbers.order import order
from deniable_aggregator.decode.search.discovery import discover
from deniable_aggregator.decode.some_values import some_values
from deniable_aggregator.decode.tables.joint import from_product

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.answer.model.metric import Description
    from deniable_aggregator.answer.model.shares import Chosen
    from deniable_aggregator.answer.reading import LineOptions
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.tables.joint import Joint

_MOST_LISTED = 50  # values of a series or a comparison
_MOST_ORDERED = 1024  # values; with more, their covariance takes too long for a page
_MOST_COMBINATIONS = 1024  # with more, their covariance takes too long for a page


class ShareReading(Reading):
    """The share of each value."""

    @property
    def values(self) -> Sequence[int]:
        """Positions of the values with a share: all, the candidates, what was discovered, or options."""
        return self._decoded[0]

    @property
    def shares(self) -> Estimate:
        """The share of each of the values."""
        return self._decoded[1]

    @cached_property
    def _decoded(self) -> tuple[Sequence[int], Estimate]:
        metric, mechanism, counted, repeats = self.declared.metric, self.declared.mechanism, self.counted, self.repeats
        if not metric.open:
            return range(metric.domain_size), decode.estimate(mechanism, counted, repeats=repeats, permanent=metric.permanent)
        # A search, and many candidates, are slow, so they are remembered.
        return once((self.declared.fingerprint, self.declared.candidates, repeats), counted, self._search)

    def _search(self) -> tuple[Sequence[int], Estimate]:
        metric, mechanism, counted, repeats = self.declared.metric, self.declared.mechanism, self.counted, self.repeats
        if isinstance(mechanism, PrefixTree):
            discovery = discover(mechanism, counted, text=metric.max_length > 0)
            return discovery.values, panel.Panel(counted.n, discovery, repeats) if repeats else discovery
        candidates = self.declared.candidates
        return candidates, decode.estimate(mechanism, counted, candidates, repeats=repeats, permanent=metric.permanent)

    @property
    def possible(self) -> NDArray[np.float64]:
        """Shares that are possible together: none is negative, and all possible answers are 1 together."""
        return consistent(self.shares.frequency, complete=not self.declared.metric.open)

    @property
    def lowered_by(self) -> float:
        """The amount that possible shares above 0 are below the unbiased ones; nan if each is possible alone."""
        return lowered_by(self.shares.frequency, complete=not self.declared.metric.open)

    def most_frequent(self) -> list[int]:
        """Return the places of the most frequent values, 50 at most, as they are declared; none of unknown share."""
        frequency = self.shares.frequency
        known = np.flatnonzero(~np.isnan(frequency))
        largest = known[np.argsort(-frequency[known], kind="stable")[:_MOST_LISTED]]
        return sorted(int(place) for place in largest if place < len(self.values))

    def estimates(self, about: Description, level: float) -> Estimates:
        """Return the answer about shares."""
        metric, shares = self.declared.metric, self.shares
        rows, limit = list(self._rows(level)), shares.detection_frequency(1 - level)
        return Estimates(
            **asdict(about),
            n=self.n,
            target="population",
            detection_frequency=limit,
            unallocated=_unallocated(shares, level) if metric.open else None,
            association=self._association(level),
            lowered_by=self.lowered_by,
            leading=leading(metric, shares, rows, level, limit) if self.n else None,
            # What a search tried and could not confirm is not an answer that anybody is known to have given.
            estimates=[row for row in rows if row.detected or not metric.discover],
            number=None,
            order=self._order(level),
            chosen=self._chosen(level),
        )

    def _rows(self, level: float) -> Iterator[ValueEstimate]:
        metric, estimate = self.declared.metric, self.shares
        detected = estimate.detected(1 - level)
        # Whoever reads the answer looks at what is detected, so these intervals allow for it even where all values are listed.
        selected, simultaneous = estimate.selected_interval(detected, level), estimate.interval(level, simultaneous=True)
        columns = (estimate.reports, estimate.frequency, estimate.stderr, *selected, *simultaneous, self.possible, estimate.count)
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        for position, present, row in zip(self.values, detected, numbers, strict=True):
            n, frequency, stderr, low, high, lowest, highest, share, count = row
            yield ValueEstimate(
                value=metric.value(position),
                label=metric.label(position),
                n=n,
                frequency=frequency,
                stderr=stderr,
                interval=(low, high),
                interval_kind="selected" if present else "pointwise",
                simultaneous=(lowest, highest),
                consistent=share,
                count=count,
                detected=bool(present),
            )

    def _association(self, level: float) -> Association | None:
        """Estimate the margins of a product, and test whether its factors are independent; None if neither can be done."""
        metric, factors = self.declared.metric, self.declared.metric.factors
        mechanism = self.declared.mechanism
        if not factors or not self.n or metric.domain_size > _MOST_COMBINATIONS:
            return None
        shape = [len(listed) for _, listed in factors]
        try:
            table = from_product(mechanism, self.counted, shape, repeats=self.repeats, permanent=metric.permanent)
            test = table.independence()
        except ParameterError:  # the mechanism declared has no such table, or it is too large
            return None
        listed = {name: list(values) for name, values in factors}
        margins = {name: _margin(table, axis, values, level) for axis, (name, values) in enumerate(listed.items())}
        return Association(listed, margins, finite(test.statistic), test.degrees, finite(test.p_value))

    def _order(self, level: float) -> OrderEstimate | None:
        """Estimate mean, median and cumulative shares of an ordinal; None for other metrics, and where they are not known."""
        metric, mechanism, shares = self.declared.metric, self.declared.mechanism, self.shares
        if not metric.kind.ordered or len(metric.values) > _MOST_ORDERED:
            return None
        try:
            positions = order(mechanism, shares, repeats=self.repeats, permanent=metric.permanent)
        except ParameterError:  # the mechanism declared has no covariance
            return None
        if positions is None:
            return None
        middle, first, last = (metric.label(place) for place in positions.median(level))
        below = zip(positions.below.tolist(), positions.below_stderr.tolist(), strict=True)
        return OrderEstimate(
            mean=positions.mean,
            stderr=positions.stderr,
            interval=positions.interval(level),
            median=middle,
            median_between=(first, last),
            below=[ValuesBelow(metric.label(place), share, stderr) for place, (share, stderr) in enumerate(below)],
        )

    def _chosen(self, level: float) -> Chosen | None:  # noqa: ARG002 - of a set
        return None

    def lines(self, options: LineOptions) -> Lines:
        """Return the shares of the values that are asked for."""
        metric, shares = self.declared.metric, self.shares
        detected = shares.detected(1 - options.level)
        labels = [metric.label(position) for position in self.values]
        # What a search tried and could not confirm is not an answer that anybody is known to have given.
        places = [at for at, label in enumerate(labels) if (detected[at] or not metric.discover) and options.keeps(label)]
        listed = some_values(shares, places)
        why = {} if detected.any() or not metric.discover else {"nothing": self._nothing(1 - options.level)}
        return Lines(
            **why,
            reading=self,
            n=self.n,
            labels=[labels[at] for at in places],
            reports=listed.reports,
            estimates=self.possible[places] if options.consistent else listed.frequency,
            stderr=listed.stderr if options.target == "population" else listed.respondents_stderr,
            detected=[bool(detected[at]) for at in places],
            interval=lambda level: listed.interval(level, target=options.target),
            lowered_by=self.lowered_by if options.consistent else float("nan"),
            shares=listed,
            centre=None,
        )

    def _nothing(self, alpha: float) -> str:
        """Say why a search found nothing."""
        return nothing_found(self.declared.metric, self.declared.mechanism, self.n, self.shares.detection_frequency(alpha))


def _unallocated(estimate: Estimate, level: float) -> Unallocated:
    share, stderr = estimate.unallocated
    reach = -float(ndtri(tail(level))) * stderr
    return Unallocated(share, stderr, (share - reach, share + reach))


def _margin(table: Joint, axis: int, values: Sequence[str], level: float) -> list[FactorShare]:
    shares, stderrs = (each.tolist() for each in table.margin(axis))
    reach = -float(ndtri(tail(level)))
    rows = zip(values, shares, stderrs, strict=True)
    return [FactorShare(value, share, error, (share - reach * error, share + reach * error)) for value, share, error in rows]
