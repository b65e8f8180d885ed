"""The answers about a metric, member by member. The API's JSON, its schema and the pages use them."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from deniable.registry.metric import Value
from deniable.registry.period import LENGTHS

__all__ = [
    "Association",
    "Chosen",
    "Count",
    "Description",
    "Estimates",
    "FactorShare",
    "Latest",
    "Listed",
    "Measurement",
    "Merged",
    "MergedVersion",
    "Moment",
    "Number",
    "NumberEstimate",
    "OrderEstimate",
    "PairEstimate",
    "Part",
    "QuantileEstimate",
    "Span",
    "Unallocated",
    "ValueEstimate",
    "ValueShare",
    "ValuesBelow",
    "Version",
]

Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]
# nan without reports; JSON writes it as null, so the schema says this.
if TYPE_CHECKING:
    Number = float
else:
    Number = float | None
_Interval = tuple[Number, Number]


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """The periods that a release covers.

    Parameters
    ----------
    first
        The first one; None: from the beginning.
    last
        The last one.
    """

    first: str | None
    last: str


class Version(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a version was published.

    Parameters
    ----------
    version
        Its number.
    expires
        Its last day of collection, or None.
    n
        Reports in its releases.
    updated
        The hour of the last one; None: nothing was published.
    """

    version: Count
    expires: date | None
    n: Count
    updated: Moment | None


class ValueShare(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of a value.

    Parameters
    ----------
    value
        The answer exactly.
    label
        The answer as it is shown.
    n
        Reports that the share rests on. Of a set these are the reports about the option.
    frequency
        The unbiased share, which may be negative or above 1.
    stderr
        Its standard error.
    interval
        The pointwise interval.
    simultaneous
        The interval that holds together with those of all other values.
    """

    value: Value
    label: str
    n: Count
    frequency: Number
    stderr: Number
    interval: _Interval
    simultaneous: _Interval


class ValueEstimate(ValueShare, frozen=True, forbid_unknown_fields=True):
    """All that is estimated of a value.

    Parameters
    ----------
    value, label, n, frequency, stderr, simultaneous
        As of a `ValueShare`.
    interval
        The interval that `interval_kind` names.
    interval_kind
        ``"pointwise"``: it holds for a value that was chosen before looking. ``"selected"``: the value is one of those detected,
        which were selected by their estimates; of their intervals all but a share of 1 - level hold on average.
    consistent
        A possible share, for people to look at: none is negative, and those of all possible values are 1 together. It is biased:
        rare values are shown too high on average, and frequent ones a little too low.
    count
        The unbiased number of respondents with the value.
    detected
        Whether the value is present, at the level for all values together.
    """

    interval_kind: Literal["pointwise", "selected"]
    consistent: Number
    count: Number
    detected: bool


class Unallocated(Struct, frozen=True, forbid_unknown_fields=True):
    """The share that none of the candidates accounts for, or of what a search found; detected or not.

    Parameters
    ----------
    frequency
        The unbiased share, which may be negative or above 1.
    stderr
        Its standard error.
    interval
        Its pointwise interval.
    """

    frequency: Number
    stderr: Number
    interval: _Interval


class FactorShare(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of a factor's value, over all values of the other factors.

    Parameters
    ----------
    value
        The value.
    frequency
        The unbiased share, which may be negative or above 1.
    stderr
        Its standard error.
    interval
        Its pointwise interval.
    """

    value: str
    frequency: Number
    stderr: Number
    interval: _Interval


class Association(Struct, frozen=True, forbid_unknown_fields=True):
    """The test that the factors of a product are independent.

    Parameters
    ----------
    factors
        The values of each.
    margins
        The share of each value of a factor.
    statistic
        Of the chi-square test.
    degrees
        Its degrees of freedom.
    p_value
        Chance of a statistic at least as large if they are independent.
    """

    factors: dict[str, list[str]]
    margins: dict[str, list[FactorShare]]
    statistic: float | None
    degrees: Count
    p_value: float | None


class QuantileEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """A quantile of a number.

    Parameters
    ----------
    share
        The share of answers below it.
    value
        The quantile, in the metric's unit.
    interval
        Its band.
    resolved
        Whether there are enough reports to tell its share from 0 and from 1. If not, the band may miss it.
    """

    share: float
    value: float
    interval: tuple[float, float]
    resolved: bool


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a number's range.

    Parameters
    ----------
    low, high
        Its ends, in the metric's unit.
    share
        The share of answers in it, by the likeliest distribution.
    below
        The share of answers below its high end.
    """

    low: float
    high: float
    share: float
    below: float


class NumberEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a number, in its unit; of an ordinal of which only the mean is asked, in positions from 1 on.

    Parameters
    ----------
    unit
        As declared; empty for positions.
    range
        The least and the greatest number. Answers beyond were reported as the nearer end.
    scale
        ``"log"``: the mean is the geometric mean.
    mean
        The unbiased mean, which may lie out of range. On a logarithmic scale its logarithm is unbiased.
    stderr
        Its standard error; null on a logarithmic scale, where the interval is not symmetric.
    interval
        Its interval for the population that the respondents were drawn from.
    respondents
        Its interval for the answers that came. Of a kept mean it is the same, because rounding is part of both. Of a kept
        distribution both are half a part wider on each side, because an answer may lie anywhere in its part.
    sum
        The mean times the number of reports, with the interval for the answers that came; null on a logarithmic scale.
    quantiles
        Of the distribution; none if only the mean is estimated.
    bands
        Those of the quantiles. ``"approximate"``: each holds as stated if the quantile is resolved. ``"strict"``: all hold
        together, for every population and every number of reports.
    values
        Of a number with a step: the share of each value, or of a few neighbours together, without bias. Else empty.
    parts
        The distribution, in order; likewise. It is a picture, without intervals.
    """

    unit: str
    range: tuple[float, float]
    scale: Literal["linear", "log"]
    mean: Number
    stderr: Number
    interval: _Interval
    respondents: _Interval
    sum: tuple[Number, _Interval] | None
    quantiles: list[QuantileEstimate]
    bands: Literal["approximate", "strict"]
    values: list[ValueShare]
    parts: list[Part]


class ValuesBelow(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of answers that are a value or an earlier one.

    Parameters
    ----------
    value
        The value, as it is shown.
    share
        The unbiased share.
    stderr
        Its standard error.
    """

    value: str
    share: float
    stderr: float


class OrderEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of an ordinal besides the share of each value.

    Parameters
    ----------
    mean
        The unbiased mean position; the first value has position 1.
    stderr
        Its standard error.
    interval
        Its interval.
    median
        The median value.
    median_between
        The first and the last value that the median may be.
    below
        Cumulative shares, of each value.
    """

    mean: float
    stderr: float
    interval: tuple[float, float]
    median: str
    median_between: tuple[str, str]
    below: list[ValuesBelow]


class PairEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """Two options of a set.

    Parameters
    ----------
    options
        The two.
    n
        Reports about the two.
    both
        The unbiased share of people who chose both.
    stderr
        Its standard error.
    interval
        Its pointwise interval.
    p_value
        Chance of reports at least as far from what they are on average if the choices are independent.
    """

    options: tuple[str, str]
    n: Count
    both: Number
    stderr: Number
    interval: _Interval
    p_value: float | None


class Chosen(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a set besides the share of each option.

    Parameters
    ----------
    mean
        The unbiased mean number of options that people chose.
    stderr
        Its standard error.
    interval
        Its interval.
    pairs
        Pairs of options; none unless the metric is ``joint``.
    """

    mean: Number
    stderr: Number
    interval: _Interval
    pairs: list[PairEstimate]


class MergedVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """A version's part in a merged estimate.

    Parameters
    ----------
    version
        Its number.
    n
        Its reports.
    weight
        Its weight.
    included
        Its releases.
    """

    version: Count
    n: Count
    weight: Annotated[float, Meta(ge=0, le=1)]
    included: list[Span]


class Merged(Struct, frozen=True, forbid_unknown_fields=True):
    """One estimate of the values that versions have in common.

    Parameters
    ----------
    versions
        The versions with their weights.
    n
        Reports of all of them.
    p_value
        Chance of versions that differ at least as much if people answer them in the same way.
    estimates
        The values.
    """

    versions: list[MergedVersion]
    n: Count
    p_value: float
    estimates: list[ValueShare]


class Description(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric, independently of its reports.

    Parameters
    ----------
    trial
        Whether everything is published at once, however few reports there are.
    id, type, version, description, owner, expires, discover, sample, min_reports
        As declared.
    period_length
        Its collection window.
    domain_size
        Number of possible answers; None if they cannot be listed.
    candidates
        Number of answers that are looked for; None if none are declared.
    mechanism
        How answers are randomised.
    epsilon
        Privacy loss of one report in nats.
    epsilon_permanent
        Privacy loss of all reports of one answer; None for a metric whose reports are independent.
    next_release
        When the next period closes; None if no release depends on it.
    report_bytes
        Bytes of a report.
    """

    trial: bool
    id: str
    type: Literal["boolean", "categorical", "ordinal", "product", "string", "key", "number", "set"]
    version: Count
    description: str
    owner: str
    expires: date | None
    period_length: Annotated[str, Meta(extra_json_schema={"enum": [*LENGTHS]})]
    domain_size: int | None
    candidates: int | None
    discover: bool
    mechanism: str
    epsilon: float
    epsilon_permanent: float | None
    sample: float
    min_reports: Count
    next_release: Moment | None
    report_bytes: Count


class Listed(Description, frozen=True, forbid_unknown_fields=True):
    """A metric in a list: its `Description`, and how much of it was published.

    Parameters
    ----------
    n
        Reports in the releases of the version described.
    updated
        The hour of the last one; None: nothing was published.
    versions
        Each version, the highest first.
    """

    n: Count
    updated: Moment | None
    versions: list[Version]


class Estimates(Description, frozen=True, forbid_unknown_fields=True):
    """A metric's `Description`, and what reports say of it.

    Parameters
    ----------
    n
        Number of reports used.
    target
        Whose shares are estimated, with what error: those of the population that the respondents were drawn from. Over several
        periods it is the mean, each period weighted by its reports; the error holds also if the same people answered in all.
    detection_frequency
        The share at which one more value would be detected half of the time; None if none would be, however many people hold it.
    unallocated
        The share that none of the candidates accounts for, or of what a search found; None if all answers are listed.
    association
        For a product, whether its factors are associated; None if there are none, or if it cannot be tested.
    lowered_by
        The amount by which the consistent share of each value is below the unbiased one, as far as it is above 0; negative if it
        is above. None of a set, whose shares need no whole, and where there are no shares.
    estimates
        The values: all of them, the candidates, or what was discovered; of a set its options. None of a number.
    number
        Of a number, or of the mean of an ordinal; else None.
    order
        Of an ordinal of which each value is estimated; else None. Also without reports, or if its mechanism gives none.
    chosen
        Of a set; else None.
    """

    n: Count
    target: Literal["population"]
    detection_frequency: Number
    unallocated: Unallocated | None
    association: Association | None
    lowered_by: Number
    estimates: list[ValueEstimate]
    number: NumberEstimate | None
    order: OrderEstimate | None
    chosen: Chosen | None


class Latest(Estimates, frozen=True, forbid_unknown_fields=True):
    """`Estimates` of what was published.

    Parameters
    ----------
    updated
        The hour of the last release; None: nothing was published.
    included
        The releases used.
    versions
        How much was published of each version, the highest first.
    """

    updated: Moment | None
    included: list[Span]
    versions: list[Version]


class Measurement(Latest, frozen=True, forbid_unknown_fields=True):
    """The answer about one metric: `Latest`, and what else can be asked for.

    Parameters
    ----------
    level
        Confidence of the intervals, and of detection.
    closed
        Whether nothing more will be published for the periods included.
    periods
        All releases.
    segments
        The cells that were published in the releases included.
    period, segment
        What was asked for; None: all.
    warnings
        What to consider before passing this on.
    merged
        One estimate of the values that versions have in common; None if fewer than two have any.
    """

    level: float
    closed: bool
    periods: list[Span]
    segments: list[str]
    period: str | None
    segment: str | None
    warnings: list[str]
    merged: Merged | None
