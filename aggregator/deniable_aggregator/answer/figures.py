"""How answers are written in sentences: values, shares, numbers, differences, chances, counts, lists and periods."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from math import exp, floor, inf, log, log10
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period
from deniable_aggregator.answer import digits
from deniable_aggregator.answer.digits import MINUS, stderr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.fields import Days

_HALF, _OFTEN, _RAREST = 0.5, 0.25, 1e-4  # p-values
_ROUNDING = 1e-9  # what the inverse of a p-value may be off by, because of how numbers are stored
_THIN = "\N{NARROW NO-BREAK SPACE}"


class Measure(NamedTuple):
    """What an estimate is of: a share, or a number in a unit and on a scale."""

    is_share: bool
    unit: str = ""  # of a number
    scale: str = "linear"  # of a number: "linear", or "log", where a difference is a ratio
    range: tuple[float, float] = (-inf, inf)  # of a number: the least and the greatest that is possible
    is_quantile: bool = False  # of a number: whether its interval is a band

    def estimate(self, value: float, interval: tuple[float, float]) -> str:
        """Write an estimate with as many digits as its interval allows: a number as far as it is possible, a share unbiased."""
        if self.is_share:
            return share(value, stderr(interval))
        if self.reaches(value, interval):
            return self.one_sided(value, interval, "\N{LESS-THAN OR EQUAL TO}", "\N{GREATER-THAN OR EQUAL TO}")
        return number(possible(value, self.range), self._within(interval), self.unit)

    def reaches(self, value: float, interval: tuple[float, float]) -> int:
        """Return which end of the range a quantile may be at: -1 the least, 1 the greatest, 0 neither."""
        return digits.reached(value, self._within(interval), self.range) if self.is_quantile else 0

    def at_end(self, value: float) -> int:
        """Return at which end of the range a quantile is: -1 the least, 1 the greatest, 0 neither."""
        return digits.at_end(value, self.range) if self.is_quantile else 0

    def one_sided(
        self,
        value: float,
        interval: tuple[float, float],
        most: str = "at most",
        least: str = "at least",
    ) -> str:
        """Write a number; of a quantile that may be at an end of the range only what its band excludes."""
        side = self.reaches(value, interval)
        if not side:
            return self.estimate(value, interval)
        low, high = number_ends(self._within(interval), self.unit)
        return f"{most} {high}" if side < 0 else f"{least} {low}{_THIN + self.unit if self.unit else ''}"

    def possible(self, value: float, interval: tuple[float, float]) -> str:
        """Write an estimate in a sentence: a share, too, as far as it is possible."""
        return self.estimate(possible(value) if self.is_share else value, interval)

    def ends(self, interval: tuple[float, float]) -> str:
        """Write between which ends an estimate lies."""
        if self.is_share:
            return share_range(interval, stderr(interval))
        return " to ".join(number_ends(self._within(interval), self.unit))

    def size(
        self,
        ends: tuple[float, float],  # of the interval of a difference, or on a logarithmic scale of a ratio
        *,
        is_rise: bool,
    ) -> str:
        """Write by how much something rose or fell, without a sign; by how much at most, if the interval holds no difference."""
        low, high = sorted(distance(end, self.scale) * (1 if is_rise else -1) for end in ends)
        least, most = self._written((low, high), sign="")
        words = f"up to {most}" if self.holds_none(ends) else _joined(least, most)
        return f"a factor of {words}" if self.scale == "log" else words

    def holds_none(self, ends: tuple[float, float]) -> bool:
        """Tell whether an interval of a difference, or of a ratio, holds no difference."""
        return min(ends) <= (1 if self.scale == "log" else 0) <= max(ends)

    def signed(self, ends: tuple[float, float]) -> str:
        """Write the interval of a difference with signs, or on a logarithmic scale as factors."""
        low, high = (distance(end, self.scale) for end in ends)
        words = _joined(*self._written((low, high), sign="+"))
        return f"a factor of {words}" if self.scale == "log" else words

    def rate(self, ends: tuple[float, float], *, is_rise: bool) -> str:
        """Write `size` of a rise in each period: on a logarithmic scale in percent."""
        if self.scale != "log":
            return self.size(ends, is_rise=is_rise)
        low, high = sorted(100 * (end - 1) * (1 if is_rise else -1) for end in ends)
        places = digits.of_share(stderr((low, high)) / 100)
        first, last = digits.written_difference((low, high), (places, places))
        return f"up to {last}%" if self.holds_none(ends) else f"{first} to {last}%"

    def difference(self, value: float, interval: tuple[float, float]) -> str:
        """Write a difference with its sign and as many digits as its interval allows, or on a logarithmic scale as a factor."""
        if self.scale == "log":
            return f"\N{MULTIPLICATION SIGN} {digits.written(value, digits.of_ratio(value, interval))}"
        places = digits.of_distance(interval, is_share=self.is_share)
        if self.is_share:
            return digits.written(100 * value, places, "+")
        return f"{digits.written(value, places, '+')}{_THIN + self.unit if self.unit else ''}"

    def most(self, intervals: Sequence[tuple[float, float]]) -> str:
        """Write how large differences of shares with these intervals are at most, rounded up."""
        reach = min(100 * max(abs(end) for interval in intervals for end in interval), 100.0)
        return f"{digits.written_most(reach)} points"

    def _within(self, interval: tuple[float, float]) -> tuple[float, float]:
        return possible(interval[0], self.range), possible(interval[1], self.range)

    def _written(self, ends: tuple[float, float], sign: str) -> tuple[str, str]:
        """Write the ends of two distances, the second one with the unit."""
        if self.scale == "log":
            return digits.written_distance((exp(ends[0]), exp(ends[1])), self.range, is_share=False, is_ratio=True)
        low, high = digits.written_distance(ends, self.range, is_share=self.is_share, is_ratio=False, positive=sign)
        return low, f"{high} points" if self.is_share else f"{high}{_THIN + self.unit if self.unit else ''}"


def _joined(low: str, high: str) -> str:
    """Write the ends of an interval, the second one with its unit; once if they are alike, as those of whole numbers may be."""
    return high if are_alike(low, high) else f"{low} to {high}"


def are_alike(low: str, high: str) -> bool:
    """Whether the ends of an interval of numbers, the second one with its unit, are written alike."""
    return high.partition(_THIN)[0] == low


def distance(difference: float, scale: str) -> float:
    """Return how far apart two sides are, with its sign: of a ratio its logarithm."""
    return log(difference) if scale == "log" else difference


def percent(frequency: float, places: int, sign: str = "%") -> str:
    """Write a frequency in percent, unclipped; what rounds to 0 has no sign."""
    return f"{digits.written(100 * frequency, places)}{sign}"


def possible(estimate: float, range_: tuple[float, float] = (0.0, 1.0)) -> float:
    """Return a share or a number as far as it is possible: an unbiased one of few reports may lie far out of its range."""
    return min(max(estimate, range_[0]), range_[1])


def share(frequency: float, error: float) -> str:
    """Write a frequency in percent with as many digits as its standard error allows."""
    return percent(frequency, digits.of_share(error))


def share_range(ends: tuple[float, float], error: float, joint: str = "to") -> str:
    """Write two frequencies in percent, such as the ends of an interval, with one sign for both."""
    return percent_range(ends, digits.of_share(error), joint)


def possible_share_range(ends: tuple[float, float], error: float, joint: str = "to") -> str:
    """Write the ends of the interval of a share as `share_range`, as far as they are possible."""
    return share_range(digits.possible_ends(ends), error, joint)


def percent_range(ends: tuple[float, float], places: int, joint: str = "to") -> str:
    """Write the ends of an interval in percent, with so many digits after the point."""
    low, high = digits.written_ends((100 * ends[0], 100 * ends[1]), (places, places))
    return f"{low} {joint} {high}%"


def number(
    value: float,
    interval: tuple[float, float],
    unit: str = "",
) -> str:
    """Write a number with its unit, and with as many digits as its interval allows.

    Examples
    --------
    >>> number(412.345, (398.2, 431.0), "ms")
    '412\u202fms'
    >>> number(4.0, (4.0, 5.0))
    '4'
    >>> number(1.04, (1.04, 7200.0), "s")
    '1.0\u202fs'
    """
    text = digits.written(value, digits.of_number(value, interval))
    return f"{text}{_THIN + unit if unit else ''}"


def number_ends(interval: tuple[float, float], unit: str = "") -> tuple[str, str]:
    """Write the ends of the interval of a number, rounded outwards, the second one with the unit.

    Examples
    --------
    >>> number_ends((398.2, 431.3), "ms")
    ('398', '432\u202fms')
    """
    first, last = (digits.of_number(end, interval) for end in interval)
    low, high = digits.written_ends(interval, (first, last))
    return low, f"{high}{_THIN + unit if unit else ''}"


def count(value: float) -> str:
    """Write a whole number in groups of three digits; what rounds to 0 has no sign."""
    rounded = round(value)
    return f"{MINUS if rounded < 0 else ''}{abs(rounded):,}"


def moment(
    name: str,  # the period
    length: str,
) -> str:
    """Write a period as it stands in a sentence.

    Examples
    --------
    >>> moment("2026-10", "month"), moment("2026-W47", "week")
    ('October 2026', 'the week of 16 November 2026')
    """
    return f"{'the week of ' if length == 'week' else ''}{_begin(name, length, '%B')}"


def brief(
    name: str,  # the period
    length: str,
) -> str:
    """Write a period in few letters."""
    return f"{'week of ' if length == 'week' else ''}{_begin(name, length, '%b')}"


def _begin(name: str, length: str, month: str) -> str:
    begins, _ = period.bounds(name, length)
    if length == "month":
        return f"{begins:{month} %Y}"
    return f"{begins.day} {begins:{month} %Y}{begins:, %H:%M}" if length == "hour" else f"{begins.day} {begins:{month} %Y}"


def hour(moment: datetime) -> str:
    """Write a full hour in few letters; of today without its date."""
    is_today = moment.date() == datetime.now(UTC).date()
    return f"{'today' if is_today else f'{moment.day} {moment:%b %Y}'}, {moment:%H:%M} UTC"


def brief_range(since: str, last: str, length: str) -> str:
    """Write two periods in few letters, such as `17 to 24 Nov 2026`; what both have in common once."""
    first, end = _begin(since, length, "%b"), _begin(last, length, "%b")
    if length == "hour":
        day, _, _ = first.partition(", ")
        return f"{first} to {end.removeprefix(f'{day}, ')}"
    parts, ends = first.split(), end.split()
    common = 0
    while common < len(parts) - 1 and parts[-1 - common] == ends[-1 - common]:
        common += 1
    both = f"{' '.join(parts[: len(parts) - common])} to {end}"
    return f"weeks of {both}" if length == "week" else both


def brief_days(covered: Days) -> str:
    """Write which days something covers from a first one on, in few letters."""
    first, last = str(covered.first), str(covered.last)
    return brief(last, "day") if first == last else brief_range(first, last, "day")


def moments(
    first: str,  # the period
    last: str,
    length: str,
) -> str:
    """Write two periods in words, weeks in few letters, with the year of both once.

    Examples
    --------
    >>> moments("2026-09", "2026-10", "month"), moments("2026-W46", "2026-W47", "week"), moments("2025-12", "2026-01", "month")
    ('September to October 2026', 'the week of 9 Nov to the week of 16 Nov 2026', 'December 2025 to January 2026')
    """
    one, other = (f"the {brief(each, length)}" if length == "week" else moment(each, length) for each in (first, last))
    year = other[-5:]
    return f"{one.removesuffix(year) if length != 'hour' else one} to {other}"


def days(
    covered: Days,
) -> str:
    """Write which days something covers, as a sentence begins.

    Examples
    --------
    >>> from datetime import date
    >>> from deniable_aggregator.answer.model.fields import Days
    >>> days(Days(date(2026, 9, 28), date(2026, 11, 29)))
    'From 28 September to 29 November 2026'
    """
    first, last = covered.first, f"{covered.last.day} {covered.last:%B %Y}"
    if first is None:
        return f"Up to {last}"
    if first == covered.last:
        return f"On {last}"
    return f"From {first.day} {first:%B}{'' if first.year == covered.last.year else f' {first.year}'} to {last}"


def interval(level: float, *, together: bool = False, looks: bool = False) -> str:
    """Name an interval: of one value alone or of all values at once, at one look or at every look.

    Examples
    --------
    >>> interval(0.95), interval(0.95, together=True), interval(0.95, together=True, looks=True)
    ('95% interval', '95% interval, all values at once', '95% interval, all values at once, at every look')
    """
    return f"{100 * level:g}% interval{', all values at once' * together}{', at every look' * looks}"


def quoted(label: str) -> str:
    """Write a value as it stands in a sentence, where it may look like a word of it."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{label}\N{RIGHT DOUBLE QUOTATION MARK}"


def segment(name: str) -> str:
    """Write the name of a segment with spaces, as a label."""
    return name.replace("=", " = ").replace(",", ", ")


def group(name: str) -> str:
    """Write the name of a segment as it stands in a sentence, after `with`.

    Examples
    --------
    >>> group("platform=web"), group("platform=web,arm=new")
    ('platform web', 'platform web and arm new')
    """
    return listed([part.replace("=", " ", 1) for part in name.split(",")])


def listed(names: Sequence[str], joint: str = "and") -> str:
    """List names as a sentence does.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return f" {joint} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def within(sentence: str) -> str:
    """Write a sentence of ours as the end of another one: its first word small, unless it begins with a value or a number.

    Examples
    --------
    >>> within("No clear leader."), within("\u201cNo\u201d leads.")
    ('no clear leader.', '\u201cNo\u201d leads.')
    """
    return f"{sentence[:1].lower()}{sentence[1:]}"


def beginning(sentence: str) -> str:
    """Write a sentence of ours with a capital, unless it begins with a value."""
    return f"{sentence[:1].upper()}{sentence[1:]}"


def first_sentence(text: str) -> tuple[str, str]:
    """Part a text of ours after its first sentence; a full stop within a quoted value ends none.

    Examples
    --------
    >>> first_sentence("\u201cA. B\u201d leads. Which is first?"), first_sentence("None.")
    (('\u201cA. B\u201d leads.', 'Which is first?'), ('None.', ''))
    """
    depth = 0
    for at, (letter, follows) in enumerate(pairwise(text)):
        depth += (letter == "\N{LEFT DOUBLE QUOTATION MARK}") - (letter == "\N{RIGHT DOUBLE QUOTATION MARK}")
        if letter == "." and follows == " " and depth <= 0:
            return text[: at + 1], text[at + 2 :]
    return text, ""


def chance(p_value: float) -> str:
    """Write in words how often something happens by chance alone, with two digits at most.

    Examples
    --------
    >>> chance(0.0625), chance(0.003), chance(0.4), chance(0.8), chance(1e-9)
    ('1 in 16', '1 in 330', '2 in 5', 'more than 1 in 2', 'under 1 in 10,000')
    """
    if p_value > _HALF:
        return "more than 1 in 2"
    if p_value < _RAREST:
        return f"under 1 in {round(1 / _RAREST):,}"
    if p_value > _OFTEN:
        of = min((of for of in range(2, 11)), key=lambda of: abs(max(round(p_value * of), 1) / of - p_value))
        return f"{max(round(p_value * of), 1)} in {of}"
    times = 1 / p_value * (1 + _ROUNDING)
    step = 10 ** max(floor(log10(times)) - 1, 0)
    return f"1 in {floor(times / step) * step:,}"
