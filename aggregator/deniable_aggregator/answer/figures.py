"""How answers are written in sentences: values, shares, numbers, differences, chances, counts, lists and periods."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, exp, floor, inf, log, log10
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.fields import Days

MINUS = "\N{MINUS SIGN}"
_DIGITS = 4  # of a percentage after the point, at most
_MOST_DIGITS = 6  # of another number
_HALF, _OFTEN, _RAREST = 0.5, 0.25, 1e-4  # p-values
_ROUNDING = 1e-9  # what the inverse of a p-value may be off by, because of how numbers are stored
_THIN = "\N{NARROW NO-BREAK SPACE}"


class Measure(NamedTuple):
    """What an estimate is of: a share, or a number in a unit and on a scale."""

    is_share: bool
    unit: str = ""  # of a number
    scale: str = "linear"  # of a number: "linear", or "log", where a difference is a ratio

    def estimate(self, value: float, interval: tuple[float, float]) -> str:
        """Write an estimate with as many digits as its interval allows."""
        return share(value, stderr(interval)) if self.is_share else number(value, interval, self.unit)

    def possible(self, value: float, interval: tuple[float, float]) -> str:
        """Write an estimate in a sentence: a share as far as it is possible."""
        return self.estimate(possible(value) if self.is_share else value, interval)

    def ends(self, interval: tuple[float, float]) -> str:
        """Write between which ends an estimate lies."""
        if self.is_share:
            return share_range(interval, stderr(interval))
        return f"{number(interval[0], interval)} to {number(interval[1], interval, self.unit)}"

    def size(
        self,
        ends: tuple[float, float],  # of the interval of a difference, or on a logarithmic scale of a ratio
        *,
        is_rise: bool,
    ) -> str:
        """Write by how much something rose or fell, without a sign; if the interval holds no difference, by how much at most."""
        low, high = sorted(distance(end, self.scale) * (1 if is_rise else -1) for end in ends)
        parts = self._written((low, high), sign="")
        if low > 0:
            words = f"{parts[0]} to {parts[1]}"
            return f"a factor of {words}" if self.scale == "log" else words
        return f"a factor of up to {parts[1]}" if self.scale == "log" else f"up to {parts[1]}"

    def signed(self, ends: tuple[float, float]) -> str:
        """Write the interval of a difference with signs, or on a logarithmic scale as factors."""
        low, high = (distance(end, self.scale) for end in ends)
        words = " to ".join(self._written((low, high), sign="+"))
        return f"a factor of {words}" if self.scale == "log" else words

    def rate(self, ends: tuple[float, float], *, is_rise: bool) -> str:
        """Write `size` of a rise in each period: on a logarithmic scale in percent."""
        if self.scale != "log":
            return self.size(ends, is_rise=is_rise)
        low, high = sorted(100 * (end - 1) * (1 if is_rise else -1) for end in ends)
        return f"{low:.2g} to {high:.2g}%" if low > 0 else f"up to {high:.2g}%"

    def most(self, intervals: Sequence[tuple[float, float]]) -> str:
        """Write how large differences of shares with these intervals are at most, rounded up."""
        reach = min(100 * max(abs(end) for interval in intervals for end in interval), 100.0)
        digits = max(1 - floor(log10(reach)), 0) if reach > 0 else 0
        return f"{ceil(reach * 10**digits) / 10**digits:.{digits}f} points"

    def _written(self, ends: tuple[float, float], sign: str) -> tuple[str, str]:
        """Write two distances, the second one with the unit. What is not 0 is not written as 0, so that its side is seen."""
        # No shares are more than 100 points apart, so an interval that is cut there holds as often.
        if self.scale == "log":
            return f"{exp(ends[0]):.3g}", f"{exp(ends[1]):.3g}"
        factor, unit = (100, " points") if self.is_share else (1, f"{_THIN}{self.unit}" if self.unit else "")
        low, high = (factor * float(end) for end in ends)
        # Rounding moves an end of shares by a twentieth of the interval at most, and one of a number by half of that.
        digits = max(1 - floor(log10((high - low) / (1 if self.is_share else 2))), 0) if high > low else 2
        if not self.is_share and low.is_integer() and high.is_integer():
            digits = 0
        while digits < _MOST_DIGITS and any(end and not round(end, digits) for end in (low, high)):
            digits += 1
        most = 100.0 if self.is_share else inf
        first, last = (f"{_sign(end, sign)}{min(abs(end), most):,.{digits}f}" for end in (low, high))
        return first, f"{last}{unit}"


def _sign(value: float, positive: str) -> str:
    return MINUS if value < 0 else positive if value > 0 else ""


def distance(difference: float, scale: str) -> float:
    """Return how far apart two sides are, with its sign: of a ratio its logarithm."""
    return log(difference) if scale == "log" else difference


def stderr(interval: tuple[float, float]) -> float:
    """Return about the standard error of an estimate. A 95% interval is four of them long; only digits depend on it."""
    low, high = interval
    return (high - low) / 4


def percent(frequency: float, digits: int, sign: str = "%") -> str:
    """Write a frequency in percent, unclipped; what rounds to 0 has no sign."""
    text = f"{100 * frequency:.{digits}f}"
    negative = text.startswith("-") and float(text) != 0
    return f"{MINUS if negative else ''}{text.lstrip('-')}{sign}"


def possible(estimate: float, range_: tuple[float, float] = (0.0, 1.0)) -> float:
    """Return a share or a number as far as it is possible: an unbiased one of few reports may lie far out of its range."""
    return min(max(estimate, range_[0]), range_[1])


def share(frequency: float, error: float) -> str:
    """Write a frequency in percent with as many digits as its standard error allows."""
    return percent(frequency, share_digits(error))


def share_range(ends: tuple[float, float], error: float, joint: str = "to", sign: str = "%") -> str:
    """Write two frequencies in percent, such as the ends of an interval, with one sign for both."""
    low, high = (percent(end, share_digits(error), "") for end in ends)
    return f"{low} {joint} {high}{sign}"


def share_digits(error: float) -> int:
    """Choose the digits after the point of a percentage so that its standard error has two significant ones."""
    return min(max(1 - floor(log10(100 * error)), 0), _DIGITS) if error > 0 else 1


def digits_of(rows: Sequence[tuple[float, tuple[float, float]]]) -> int:
    """Return how many digits after the point a column of numbers has: two of half the shortest interval.

    Examples
    --------
    >>> digits_of([(412.3, (398.0, 431.0)), (1020.0, (900.0, 1100.0))])
    0
    """
    reaches = [reach for _, (low, high) in rows if (reach := abs(high - low) / 2) > 0]
    digits = 1 - floor(log10(min(reaches))) if reaches else 2
    return min(digits, 0) if _are_whole(rows) else digits


def _are_whole(rows: Sequence[tuple[float, tuple[float, float]]]) -> bool:
    return all(float(each).is_integer() for value, ends in rows for each in (value, *ends))


def number(
    value: float,
    interval: tuple[float, float],
    unit: str = "",
    digits: int | None = None,  # after the point, of the column where it stands; None: its own
) -> str:
    """Write a number with its unit, and with as many digits as its interval allows: two of half its length.

    Where the interval has no 0, a number has two digits of its own. If value and interval are whole numbers, so is the text.

    Examples
    --------
    >>> number(412.345, (398.2, 431.0), "ms")
    '412\u202fms'
    >>> number(4.0, (4.0, 5.0))
    '4'
    >>> number(1.04, (1.04, 7200.0), "s")
    '1.0\u202fs'
    """
    if digits is None:
        digits = digits_of([(value, interval)])
        if value > 0 and min(interval) > 0:  # on a logarithmic scale the low end is far below half the length
            digits = max(digits, 1 - floor(log10(value)))
        if _are_whole([(value, interval)]):
            digits = min(digits, 0)
    text = f"{abs(round(value, digits)):,.{min(max(digits, 0), _MOST_DIGITS)}f}"
    sign = MINUS if value < 0 and float(text.replace(",", "")) else ""
    return f"{sign}{text}{_THIN + unit if unit else ''}"


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


def moments(
    first: str,  # the period
    last: str,
    length: str,
) -> str:
    """Write two periods in words, with the year of both once.

    Examples
    --------
    >>> moments("2026-09", "2026-10", "month"), moments("2026-W46", "2026-W47", "week"), moments("2025-12", "2026-01", "month")
    ('September to October 2026', 'the week of 9 November to that of 16 November 2026', 'December 2025 to January 2026')
    """
    one, other = moment(first, length), moment(last, length).replace("the week of", "that of")
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


def interval(level: float, *, together: bool = False) -> str:
    """Name an interval: of one value alone, or one that holds together with those of all other values."""
    return f"{100 * level:g}% interval{', all values at once' if together else ''}"


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
