"""What is read of a number, and of an ordinal of which only the mean is asked."""

from __future__ import annotations

from functools import cached_property, partial
from math import ceil, isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import asdict, replace
from scipy.special import ndtri

from deniable.mechanisms.window import Window
from deniable.registry.answers.axis import AS_FAR
from deniable_aggregator import decode
from deniable_aggregator.answer.model.metric import Estimates
from deniable_aggregator.answer.model.number import (
    QUANTILE_NAMES,
    QUANTILES,
    GeometricMean,
    NumberEstimate,
    NumberPart,
    QuantileEstimate,
    RangeEnds,
    mean_name,
)
from deniable_aggregator.answer.model.shares import ValueShare
from deniable_aggregator.answer.question import number_range
from deniable_aggregator.answer.reading import Centre, Lines, Reading
from deniable_aggregator.answer.readings.cache import once
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.numbers.distribution import distribution
from deniable_aggregator.decode.numbers.mean import arithmetic_mean, mean
from deniable_aggregator.decode.numbers.order import order
from deniable_aggregator.decode.numbers.profile import cell_chances, value_shares
from deniable_aggregator.decode.numbers.range_share import exact_ends, range_share
from deniable_aggregator.decode.numbers.strict import strict_quantile
from deniable_aggregator.inference.quantiles import FARTHEST
from deniable_aggregator.inference.slope import Course

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.registry import Metric
    from deniable_aggregator.answer.model.metric import Description
    from deniable_aggregator.answer.reading import LineOptions
    from deniable_aggregator.decode.numbers.distribution import Distribution, Near
    from deniable_aggregator.decode.numbers.mean import ArithmeticMean
    from deniable_aggregator.decode.numbers.range_share import ExactEnds, RangeShare
    from deniable_aggregator.inference.difference import Ends

MOST_VALUES = 21
"""Values of a number with a step whose shares are told one by one. Of more, single shares would have large errors."""
_UNKNOWN = float("nan")


class _Figure(NamedTuple):
    """A mean or a quantile, in the metric's unit."""

    value: float
    stderr: float  # nan where there is none
    interval: Callable[[float], tuple[float, float]]  # computes its interval at a level


class NumberReading(Reading):
    """A mean, and the distribution if it is estimated."""

    @cached_property
    def centre(self) -> Centre:
        """The mean place of a number, or of an ordinal of which only the mean is asked."""
        metric = self.declared.metric
        if metric.binned:
            return self._of_parts()
        estimate = mean(self.declared.mechanism, self.counted, repeats=self.repeats, permanent=metric.permanent)
        return Centre(
            estimate.place, estimate.stderr, estimate.spread, estimate.interval, partial(estimate.interval, target="respondents")
        )

    def _of_parts(self) -> Centre:
        """Estimate the mean from the shares of equal parts of the axis, each at its middle: it errs by half a part at most."""
        mechanism, permanent, nan = self.declared.mechanism, self.declared.metric.permanent, _UNKNOWN
        shares = decode.estimate(mechanism, self.counted, repeats=self.repeats, permanent=permanent)
        position = order(mechanism, shares, repeats=self.repeats, permanent=permanent)
        if position is None:
            return Centre(nan, nan, nan, lambda _: (nan, nan), lambda _: (nan, nan))
        size = mechanism.domain_size

        def interval(level: float) -> tuple[float, float]:
            low, high = position.interval(level)
            return (low - 1) / size, high / size

        stderr = position.stderr / size
        shared = stderr**2 * self.n / (1 + self.repeats)  # responses are kept: at most all of it
        return Centre((position.mean - 0.5) / size, stderr, shared, interval, interval)

    @cached_property
    def arithmetic(self) -> ArithmeticMean | None:
        """The arithmetic mean on a logarithmic scale; None where reports do not tell it."""
        metric = self.declared.metric
        if not metric.axis or metric.permanent:
            return None
        return arithmetic_mean(self.declared.mechanism, self.counted, metric.axis, repeats=self.repeats)

    @cached_property
    def spread(self) -> Distribution | None:
        """The distribution of a number; None without reports. The fit is slow, so it is remembered."""
        declared, metric = self.declared, self.declared.metric

        def fit() -> Distribution | None:
            permanent, places = metric.permanent, self._places
            return distribution(declared.mechanism, self.counted, repeats=self.repeats, permanent=permanent, values=places)

        # A step is in no fingerprint.
        return once(("distribution", declared.fingerprint, self.repeats, metric.step), self.counted, fit)

    @property
    def _places(self) -> list[float]:
        """The places of the only values that answers have; none if anywhere."""
        metric = self.declared.metric
        return [metric.axis.share(value) for value in metric.step_values] if metric.axis else []

    def range_share(self, text: str) -> RangeShare:
        """Estimate the share of answers in a range; raise `UnknownValue` if it is none of the metric."""
        if text not in self._range_shares:
            self._range_shares[text] = self._range_share(text)
        return self._range_shares[text]

    @cached_property
    def _range_shares(self) -> dict[str, RangeShare]:
        return {}

    def _range_share(self, text: str) -> RangeShare:
        metric = self.declared.metric
        low, high = number_range.read(text, metric).places(metric)
        return range_share(
            self.declared.mechanism,
            self.counted,
            low,
            high,
            repeats=self.repeats,
            permanent=metric.permanent,
            values=self._places,
        )

    def _range_ends(self) -> RangeEnds | None:
        metric = self.declared.metric
        if not number_range.has_ranges(metric):
            return None
        ends = exact_ends(self.declared.mechanism, self.n, self._places, parts=metric.binned)
        number = to_number(metric)
        return RangeEnds([float(f"{number(place):.12g}") for place in ends.places], _ends_in_words(metric, ends))

    def near(self, share: float) -> Near | None:
        """Return the places that can hold a quantile; None where reports do not tell them."""
        spread = self.spread if self.declared.metric.estimate == "distribution" else None
        return spread.near(share, FARTHEST) if spread else None

    def estimates(self, about: Description, level: float) -> Estimates:
        """Return the answer about a number."""
        return Estimates(
            **asdict(about),
            n=self.n,
            target="population",
            detection_frequency=_UNKNOWN,
            unallocated=None,
            association=None,
            lowered_by=_UNKNOWN,
            leading=None,
            estimates=[],
            number=self._number(level),
            order=None,
            chosen=None,
        )

    def _number(self, level: float) -> NumberEstimate:
        metric, n = self.declared.metric, self.n
        number = to_number(metric)
        low, high = range_of(metric)
        spread = self.spread if metric.estimate == "distribution" else None
        centre = self.centre
        ends, respondents = (_mapped(number, interval(level)) for interval in (centre.interval, centre.respondents))
        value, stderr, geometric = number(centre.place), centre.stderr * (high - low), None
        if metric.scale == "log":
            geometric = GeometricMean(value, ends, respondents)
            value, stderr, ends, respondents = self._arithmetic(level)
        return NumberEstimate(
            unit=metric.unit,
            range=(low, high),
            scale=metric.scale,
            geometric_mean=geometric,
            mean=value,
            stderr=stderr,
            interval=ends,
            respondents=respondents,
            sum=None if isnan(value) else (n * value, (n * respondents[0], n * respondents[1])),
            quantiles=[] if spread is None else _quantiles(spread, number, level),
            bands="approximate",
            values=self._values(level),
            range_ends=self._range_ends(),
            range_share=None,
            parts=[] if spread is None else _parts(spread.grouped(), number),
        )

    def _arithmetic(self, level: float) -> tuple[float, float, tuple[float, float], tuple[float, float]]:
        """Return the arithmetic mean on a logarithmic scale, its standard error, and both of its intervals; nan if not known."""
        nan, estimate = _UNKNOWN, self.arithmetic
        if estimate is None:
            return nan, nan, (nan, nan), (nan, nan)
        respondents = estimate.interval(level, target="respondents")
        return estimate.value, estimate.stderr, estimate.interval(level), respondents

    def _values(self, level: float) -> list[ValueShare]:
        """Return the shares of the values of a number with a step; of many values, neighbours are joined."""
        metric, mechanism = self.declared.metric, self.declared.mechanism
        values = metric.step_values
        if not values or not self.n or metric.axis is None or not isinstance(mechanism, Window):
            return []
        size = ceil(len(values) / MOST_VALUES)
        starts = range(0, len(values), size)
        chances = cell_chances(mechanism, self._places)
        shares, stderr = value_shares(chances, self.counted.counts[0].astype(np.float64), starts, self.repeats)
        reaches = [-float(ndtri(tail(each))) * stderr for each in (level, 1 - (1 - level) / len(starts))]
        columns = (shares, stderr, *(end for reach in reaches for end in (shares - reach, shares + reach)))
        rows = zip(starts, *(column.tolist() for column in columns), strict=True)
        return [
            ValueShare(
                value=f"{values[start]:.12g}",
                label=" to ".join(f"{end:.12g}" for end in dict.fromkeys((values[start], values[start : start + size][-1]))),
                n=self.n,
                frequency=share,
                stderr=error,
                interval=(low, high),
                simultaneous=(lowest, highest),
            )
            for start, share, error, low, high, lowest, highest in rows
        ]

    def with_strict_bands(self, estimate: NumberEstimate, level: float) -> NumberEstimate:
        """Return what was estimated with strict bands of its quantiles, if it has any. They are slow, so they are remembered."""
        declared, mechanism = self.declared, self.declared.mechanism
        if not estimate.quantiles or self.declared.metric.binned:
            return estimate
        # How many other reports a device can have made, at most.
        repeats = ceil(len(self.periods) * declared.metric.per_period * declared.metric.together) - 1

        def bands() -> list[tuple[float, float]]:
            return [strict_quantile(mechanism, self.counted, each.share, level, repeats=repeats) for each in estimate.quantiles]

        number, strict = to_number(declared.metric), once(("strict", declared.fingerprint, repeats, level), self.counted, bands)
        ends = [(number(low), number(high)) for low, high in strict]
        quantiles = [replace(each, interval=interval) for each, interval in zip(estimate.quantiles, ends, strict=True)]
        return replace(estimate, quantiles=quantiles, bands="strict")

    def lines(self, options: LineOptions) -> Lines:
        """Return the means, the quantiles and the ranges that are asked for."""
        metric, names = self.declared.metric, [name for name in options.of_number(self.declared.metric) if options.keeps(name)]
        figures = {name: figure for name in names if (figure := self._figure(name, options))}

        def interval(level: float) -> Ends:
            ends = [figure.interval(level) for figure in figures.values()]
            return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

        return Lines(
            reading=self,
            n=self.n,
            labels=list(figures),
            reports=np.full(len(figures), self.n, np.int64),
            estimates=np.array([figure.value for figure in figures.values()]),
            stderr=np.array([figure.stderr for figure in figures.values()]),
            detected=[self.resolves(name) for name in figures],
            interval=interval,
            lowered_by=_UNKNOWN,
            shares=None,
            centre=self._centre(options) if mean_name(metric) in figures else None,
        )

    def resolves(self, name: str) -> bool | None:
        """Tell whether there are enough reports for a quantile, or few answers lie near the ends of a range; None of a mean."""
        if number_range.is_range(name):
            return not self.range_share(name).is_blurred
        if name not in QUANTILE_NAMES or self.spread is None:
            return None
        return self.spread.resolves(self.spread.quantile(QUANTILES[QUANTILE_NAMES.index(name)]))

    def _centre(self, options: LineOptions) -> Centre:
        centre = self.centre
        return centre._replace(interval=centre.respondents) if options.target == "respondents" else centre

    def _figure(self, name: str, options: LineOptions) -> _Figure | None:
        """Estimate a mean, a quantile or a range by its name; None of a quantile without reports."""
        metric, number = self.declared.metric, to_number(self.declared.metric)
        if name == mean_name(metric):
            centre = self._centre(options)
            stderr = centre.stderr * moved(metric)(1.0) if metric.scale == "linear" else _UNKNOWN
            return _Figure(number(centre.place), stderr, lambda level: _mapped(number, centre.interval(level)))
        if name == "mean":
            arithmetic = self.arithmetic
            if arithmetic is None or not self.n:
                return _Figure(_UNKNOWN, _UNKNOWN, lambda _: (_UNKNOWN, _UNKNOWN))
            return _Figure(arithmetic.value, arithmetic.stderr, partial(arithmetic.interval, target=options.target))
        if number_range.is_range(name):
            within = self.range_share(name)
            return _Figure(within.share, within.stderr, partial(within.interval, target=options.target))
        share, spread = QUANTILES[QUANTILE_NAMES.index(name)], self.spread
        if spread is None:
            return None

        def band(level: float) -> tuple[float, float]:
            quantile = spread.quantile(share, level)
            return number(quantile.low), number(quantile.high)

        return _Figure(number(spread.quantile(share).place), _UNKNOWN, band)


def course_of(times: Sequence[int], readings: Sequence[NumberReading]) -> Course:
    """Return the course of a mean, from what was read at each time."""
    centres = [each.centre for each in readings]
    columns = (np.array([[getattr(centre, name)] for centre in centres]) for name in ("place", "stderr", "spread"))
    return Course(times, [each.n for each in readings], [each.repeats for each in readings], *columns)


def to_number(metric: Metric) -> Callable[[float], float]:
    """Return the function from places on the axis to numbers in the metric's unit, or to positions of an ordinal from 1 on."""
    if not metric.estimate:
        return float  # shares stay as they are
    return metric.axis.number if metric.axis else lambda place: 1 + place * (len(metric.values) - 1)


def range_of(metric: Metric) -> tuple[float, float]:
    """Return the least and the greatest answer that is possible, as `to_number` has them."""
    if not metric.estimate:
        return 0.0, 1.0
    return (float(metric.axis.low), float(metric.axis.high)) if metric.axis else (1.0, float(len(metric.values)))


def _mapped(number: Callable[[float], float], ends: tuple[float, float]) -> tuple[float, float]:
    return number(ends[0]), number(ends[1])


def moved(metric: Metric) -> Callable[[float], float]:
    """Return the function from a distance on the axis to a difference of numbers; on a logarithmic scale to their ratio."""
    if not metric.estimate:
        return float  # so do differences of shares
    if metric.axis is None:
        return lambda distance: distance * (len(metric.values) - 1)
    low, high = float(metric.axis.low), float(metric.axis.high)
    if metric.scale == "log":
        most = AS_FAR / metric.axis.reach  # so that the interval of few reports has finite ends, and its low one is above 0
        return lambda distance: float((high / low) ** min(max(distance, -most), most))
    return lambda distance: distance * (high - low)


def _ends_in_words(metric: Metric, ends: ExactEnds) -> str:
    """Say which ends of a range are exact, before one is asked for."""
    distance = f"{moved(metric)(ends.blur):.3g}"
    near = f"a factor of {distance}" if metric.scale == "log" else f"{distance} {metric.unit}".rstrip()
    if ends.of == "parts":
        parts = f"Devices report {len(ends.places) + 1} parts."
        return f"{parts} An end is exact between two parts; any other is rounded to one of these."
    if ends.of == "points":
        step = "" if metric.step else " Where answers have few values, “step” in the registry makes them exact ends."
        wide = f"No end is exact: answers within {near} of it may count on either side."
        return f"{wide} Leave one end out, and there is one less.{step}"
    if len(ends.places) == len(metric.step_values) - 1:
        return "An end is exact at each value that answers have. One between two values means the lower one."
    return f"An end is exact at the values offered. Answers within {near} of any other may count on either side."


def _quantiles(spread: Distribution, number: Callable[[float], float], level: float) -> list[QuantileEstimate]:
    quantiles = (spread.quantile(share, level) for share in QUANTILES)
    return [
        QuantileEstimate(each.share, number(each.place), (number(each.low), number(each.high)), spread.resolves(each))
        for each in quantiles
    ]


def _parts(spread: Distribution, number: Callable[[float], float]) -> list[NumberPart]:
    edges = [number(edge) for edge in spread.edges.tolist()]
    return [
        NumberPart(*part) for part in zip(edges, edges[1:], spread.mass.tolist(), spread.cumulative[1:].tolist(), strict=False)
    ]
