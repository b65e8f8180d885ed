"""How many digits an estimate is written with, and how the ends of its interval are rounded: as servers do on pages.

Whoever asks needs nothing of a server, so these are copies of the aggregator's functions; a test compares.
"""

from __future__ import annotations

from math import ceil, floor, inf, isfinite, log10

MINUS = "\N{MINUS SIGN}"
_MOST = 6  # after the point
_MOST_OF_SHARE = 4  # of a percentage
_TWO_DIGITS = 3.55  # below, a standard error has two digits, and from there on one: the rule of the Particle Data Group
_ROUNDING = 1e-9  # what an end may be off by, because of how numbers are stored, in steps of its last digit


def stderr(interval: tuple[float, float]) -> float:
    """Return about the standard error of an estimate. A 95% interval is four of them long; only digits depend on it."""
    low, high = interval
    return (high - low) / 4


def of_error(error: float) -> int:
    """Return the digits after the point of a number with a standard error, so that the last one is about as large; -1: tens.

    Examples
    --------
    >>> of_error(2.1), of_error(0.3), of_error(35)
    (0, 1, -1)
    """
    return -floor(log10(error) + _ROUNDING)


def of_share(error: float) -> int:
    """Return the digits after the point of a percentage, from the standard error of the share.

    Examples
    --------
    >>> of_share(0.021), of_share(0.0038)
    (0, 1)
    """
    return min(max(of_error(100 * error), 0), _MOST_OF_SHARE) if error > 0 else 1


def of_interval(value: float, interval: tuple[float, float]) -> int:
    """Return the digits after the point of a number that its interval allows; of whole numbers none.

    The larger end of the interval has two digits at least.

    Examples
    --------
    >>> of_interval(412.3, (398.0, 431.0)), of_interval(4.0, (4.0, 5.0))
    (0, 0)
    """
    error = abs(stderr(interval))
    digits = max(of_error(error), _own(max(map(abs, interval)))) if 0 < error < inf else 2
    return min(digits, 0) if are_whole(value, interval) else digits


def of_number(value: float, interval: tuple[float, float]) -> int:
    """Return the digits after the point of a number: as `of_interval`, but beside an interval without 0 two digits at least."""
    digits = of_interval(value, interval)
    if value > 0 and min(interval) > 0:  # on a logarithmic scale the low end is far below half the length
        digits = max(digits, _own(value))
    return min(digits, 0) if are_whole(value, interval) else digits


def of_ratio(ratio: float, interval: tuple[float, float]) -> int:
    """Return the digits after the point of a ratio: two digits at least.

    Examples
    --------
    >>> of_ratio(0.97, (0.862, 1.1)), of_ratio(2.2, (1.6, 3.9))
    (2, 1)
    """
    return min(max(of_interval(ratio, interval), _own(ratio), 0), _MOST)


def that_shows(end: float, digits: int, *, up: bool, none: float = 0.0) -> int:
    """Return as many digits, or more, so that an end of an interval beside `none` is not rounded to `none`.

    Examples
    --------
    >>> that_shows(0.0066, 1, up=False), that_shows(-0.0066, 1, up=False), that_shows(0.6, 1, up=False)
    (3, 1, 1)
    """
    while digits < _MOST and end != none and outwards(end, digits, up=up) == none:
        digits += 1
    return digits


def outwards(end: float, digits: int, *, up: bool) -> float:
    """Round an end of an interval away from its middle.

    Examples
    --------
    >>> outwards(23.4, 0, up=False), outwards(31.2, 0, up=True)
    (23.0, 32.0)
    """
    if not isfinite(end):
        return end
    steps = end * 10.0**digits
    return round((ceil(steps - _ROUNDING) if up else floor(steps + _ROUNDING)) / 10.0**digits, max(digits, 0))


def possible_ends(ends: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the interval of a share as far as they are possible.

    An unbiased share of rare answers may lie below 0 with its whole interval. It then reaches up to a sixth of its length, about
    as Feldman and Cousins' intervals do (Phys. Rev. D 57, 1998, table X), and at the other end likewise.

    Examples
    --------
    >>> possible_ends((-0.07, -0.01)), possible_ends((-0.01, 0.05)), possible_ends((1.01, 1.07))
    ((0.0, 0.01), (0.0, 0.05), (0.99, 1.0))
    """
    low, high = ends
    least = (high - low) / 6
    return min(max(min(low, 1.0 - least), 0.0), 1.0), min(max(high, least, 0.0), 1.0)


def written(value: float, digits: int, positive: str = "") -> str:
    """Write a number with so many digits after the point, in groups of three; what rounds to 0 has no sign."""
    text = f"{abs(round(value, digits)):,.{min(max(digits, 0), _MOST)}f}"
    if not float(text.replace(",", "")):
        return text
    return f"{MINUS if value < 0 else positive}{text}"


def written_ends(ends: tuple[float, float], places: tuple[int, int], positive: str = "") -> tuple[str, str]:
    """Write the ends of an interval, each with so many digits after the point, rounded outwards."""
    pairs = enumerate(zip(ends, places, strict=True))
    low, high = (written(outwards(end, digits, up=at == 1), digits, positive) for at, (end, digits) in pairs)
    return low, high


def written_difference(
    ends: tuple[float, float], places: tuple[int, int], positive: str = "", none: float = 0.0
) -> tuple[str, str]:
    """Write the ends of the interval of a difference as `written_ends`; one that would be rounded to `none` has more digits."""
    pairs = enumerate(zip(ends, places, strict=True))
    first, last = (that_shows(end, digits, up=at == 1, none=none) for at, (end, digits) in pairs)
    return written_ends(ends, (first, last), positive)


def of_distance(ends: tuple[float, float], *, is_share: bool) -> int:
    """Return the digits after the point of a difference of numbers, or of shares in points, from its interval.

    One more if the standard error begins with 1, 2 or 3 up to 3.54: so a difference has no fewer digits than its two sides.

    Examples
    --------
    >>> of_distance((0.012, 0.062), is_share=True), of_distance((0.0, 0.16), is_share=True)
    (1, 0)
    """
    error = stderr(ends)
    fine = error / 10 if 0 < error < inf and error * 10.0 ** of_error(error) < _TWO_DIGITS else error
    if is_share:
        return of_share(fine)
    return max(of_interval(ends[0], ends), 0 if are_whole(ends[0], ends) or not 0 < error < inf else of_error(fine), 0)


def written_distance(
    ends: tuple[float, float], range_: tuple[float, float], *, is_share: bool, is_ratio: bool, positive: str = ""
) -> tuple[str, str]:
    """Write the ends of the interval of a difference of numbers, of shares in points, or as a ratio of numbers."""
    # Nothing is farther apart than the ends of its range, so an interval that is cut there holds as often.
    low, high = range_
    if is_ratio:
        most = high / low if 0 < low < high < inf else inf
        first, last = (min(max(end, 1 / most), most) for end in ends)
        return written_difference((first, last), (of_ratio(first, ends), of_ratio(last, ends)), none=1.0)
    places, factor, most = of_distance(ends, is_share=is_share), 100 if is_share else 1, 1.0 if is_share else high - low
    first, last = (factor * min(max(end, -most), most) for end in ends)
    return written_difference((first, last), (places, places), positive)


def reached(value: float, band: tuple[float, float], range_: tuple[float, float]) -> int:
    """Return which end of the range the band of a quantile reaches: -1 the least, 1 the greatest, 0 neither or both.

    Reports then do not distinguish the quantile from this end, so no digit of it is known. Of whole numbers, digits promise
    nothing more, so 0.

    Examples
    --------
    >>> reached(0.11, (0.0, 0.32), (0.0, 40.0)), reached(0.11, (0.05, 0.32), (0.0, 40.0)), reached(1.0, (0.0, 2.0), (0.0, 9.0))
    (-1, 0, 0)
    """
    if are_whole(value, band):
        return 0
    slack = _ROUNDING * abs(range_[1] - range_[0]) if isfinite(range_[1] - range_[0]) else 0.0
    return int(band[1] >= range_[1] - slack) - int(band[0] <= range_[0] + slack)


def at_end(value: float, range_: tuple[float, float]) -> int:
    """Return at which end of the range a quantile is, as one of whole numbers may be: -1 the least, 1 the greatest, 0 neither."""
    return int(value >= range_[1]) - int(value <= range_[0])


def are_whole(value: float, interval: tuple[float, float]) -> bool:
    """Whether a number and the ends of its interval are whole."""
    return all(float(each).is_integer() for each in (value, *interval))


def _own(value: float) -> int:
    """Return the digits after the point of a number that is written with two digits."""
    return 1 - floor(log10(abs(value)) + _ROUNDING) if value else 0
