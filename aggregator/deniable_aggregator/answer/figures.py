"""How answers are written in sentences: values, shares, numbers, differences, chances, counts, lists and periods."""

from __future__ import annotations

from math import exp, floor, log, log10
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.fields import Days

MINUS = "\N{MINUS SIGN}"
_DIGITS = 4  # of a percentage after the point, at most
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

    def difference(
        self,
        ends: tuple[float, float],  # between which it lies
        interval: tuple[float, float],  # which sets the number of digits
    ) -> str:
        """Write between which ends a difference lies: in points, in the unit, or as a factor."""
        if self.is_share:
            return f"{share_range(ends, stderr(interval), sign='')} points"
        low, high = ends
        if self.scale == "log":
            return f"a factor of {low:.3g} to {high:.3g}"
        return f"{number(low, interval)} to {number(high, interval, self.unit)}"

    def size(
        self,
        ends: tuple[float, float],  # of the interval of a difference, or on a logarithmic scale of a ratio
        interval: tuple[float, float],  # which sets the number of digits
    ) -> str:
        """Write between which ends the size of a difference lies, without its sign."""
        low, high = sorted(abs(distance(end, self.scale)) for end in ends)
        if self.scale == "log":
            low, high = exp(low), exp(high)
        return self.difference((low, high), interval if self.is_share else (low, high))


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


def number(value: float, interval: tuple[float, float], unit: str = "") -> str:
    """Write a number with its unit, and with as many digits as its interval allows: two of half its length.

    If value and interval are whole numbers, so is the text.

    Examples
    --------
    >>> number(412.345, (398.2, 431.0), "ms")
    '412\u202fms'
    >>> number(4.0, (4.0, 5.0))
    '4'
    """
    reach = abs(interval[1] - interval[0]) / 2
    digits = 1 - floor(log10(reach)) if reach > 0 else 2
    if all(float(end).is_integer() for end in (value, *interval)):
        digits = min(digits, 0)
    text = f"{abs(round(value, digits)):,.{min(max(digits, 0), 6)}f}"
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
    """Write a period in words."""
    return _moment(name, length, "%B")


def brief(
    name: str,  # the period
    length: str,
) -> str:
    """Write a period in few letters."""
    return _moment(name, length, "%b")


def _moment(name: str, length: str, month: str) -> str:
    begins, _ = period.bounds(name, length)
    if length == "week":
        return f"week {name[-2:].lstrip('0')} of {name[:4]}"
    if length == "month":
        return f"{begins:{month} %Y}"
    return f"{begins.day} {begins:{month} %Y}{begins:, %H:%M}" if length == "hour" else f"{begins.day} {begins:{month} %Y}"


def brief_range(since: str, last: str, length: str) -> str:
    """Write two periods in few letters, such as `17 to 24 Nov 2026`; what both have in common once."""
    first, end = brief(since, length), brief(last, length)
    if length == "week":
        return (
            f"weeks {since[-2:].lstrip('0')} to {last[-2:].lstrip('0')} of {last[:4]}"
            if since[:4] == last[:4]
            else f"{first} to {end}"
        )
    joint = {"hour": ", ", "day": " ", "month": " "}[length]
    parts, ends = first.split(joint), end.split(joint)
    if length == "hour":
        return f"{first} to {ends[-1]}" if parts[0] == ends[0] else f"{first} to {end}"
    common = 0
    while common < len(parts) - 1 and parts[-1 - common] == ends[-1 - common]:
        common += 1
    return f"{' '.join(parts[: len(parts) - common])} to {end}"


def moments(
    first: str,  # the period
    last: str,
    length: str,
) -> str:
    """Write two periods in words, with the year of both once.

    Examples
    --------
    >>> moments("2026-09", "2026-10", "month"), moments("2026-W02", "2026-W03", "week"), moments("2025-12", "2026-01", "month")
    ('September to October 2026', 'week 2 to week 3 of 2026', 'December 2025 to January 2026')
    """
    one, other = moment(first, length), moment(last, length)
    for year in (f" of {first[:4]}", f" {first[:4]}"):
        if one.endswith(year) and other.endswith(year):
            one = one.removesuffix(year)
    return f"{one} to {other}"


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
    """Write the name of a segment with spaces, as people read it."""
    return name.replace("=", " = ").replace(",", ", ")


def listed(names: Sequence[str]) -> str:
    """List names as a sentence does.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def within(sentence: str) -> str:
    """Write a sentence of ours as the end of another one: its first word small, unless it begins with a value or a number.

    Examples
    --------
    >>> within("No clear leader."), within("\u201cNo\u201d leads.")
    ('no clear leader.', '\u201cNo\u201d leads.')
    """
    return f"{sentence[:1].lower()}{sentence[1:]}"


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
