"""What a few rows say, each in a sentence."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from deniable_query import digits
from deniable_query.table import figures_of, range_of, side_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable_query.answer import Answer, Row

_MOST = 4  # rows; of more the table says it better
_MOST_DIFFERENT = 3  # differences that are said, the clearest first
_MOST_NAMED = 8  # other differences, by their names alone
_JOINT = ".."
_BASE = "it is the base"  # why a row has no difference that could have none
_MEANS = {"mean": "The mean", "geometric_mean": "The geometric mean", "p50": "The median"}


def sentences(answer: Answer) -> list[str]:
    """Say what each row estimates, of few rows of one time."""
    rows = [row for row in answer.rows if row["estimate"] is not None and "value" in row]
    if len(rows) > _MOST or any("time" in row for row in rows):
        return []
    segments = segments_of(answer)
    metrics = {each["id"]: each for each in answer.metrics}
    says = [f"{prefix_of(row, segments)}{_sentence(row, metrics[str(row['metric'])])}" for row in rows]
    return list(dict.fromkeys(says))  # several rows of a group may say together that they detect nothing


def reasons(answer: Answer) -> list[str]:
    """Say why rows tell nothing, if they have one reason for it."""
    different = {str(row["reason"]) for row in answer.rows if row.get("reason") and row["reason"] != _BASE}
    return [f"{reason[:1].upper()}{reason[1:]}." for reason in different] if len(different) == 1 else []


def segments_of(answer: Answer) -> list[str]:
    """Return the segments that rows are broken down by."""
    names = [each["name"] for each in answer.columns]
    return names[names.index("to") + 1 : names.index("value")] if "value" in names else []


def prefix_of(row: Row, segments: list[str]) -> str:
    """Name the segments of a row before what is said of it."""
    named = [f"{name}={row[name]}" for name in segments if row.get(name)]
    return f"{', '.join(named)}: " if named else ""


def _sentence(row: Row, metric: dict[str, Any]) -> str:
    if row["detected"] is False and (says := _unresolved(row)):
        return says
    value, unit = str(row["value"]), str(row["unit"])
    estimate, low, high = figures_of(row, metric, in_sentence=True)
    name = f"{100 * float(row['level'] or 0):g}% interval"
    interval = f"({name} {low} to {high})"
    if unit != "share":
        if value not in _MEANS and (side := side_of(row, metric) or _end_of(row, metric)):
            share = int(value[1:]) if side < 0 else 100 - int(value[1:])
            return f"At least {share}% of answers are {estimate} {interval}."
        # At least: many answers may be this very number.
        start = f"{_MEANS[value]} is" if value in _MEANS else f"At least {int(value[1:])}% of answers are at most"
        return f"{start} {estimate} {interval}."
    if metric["unit"] != "share":
        words = f"of answers are {_range(value)} {metric['unit']}"
        if row["detected"] is False:
            return f"Between {low} and {high} {words} ({name}): many lie near an end of the range."
        return f"{estimate} {words} {interval}."
    return f"\u201c{value}\u201d has a share of {estimate} {interval}."


def _end_of(row: Row, metric: dict[str, Any]) -> int:
    """Return at which end of the range a quantile is, as one of whole numbers may be: -1 the least, 1 the greatest, 0 neither."""
    return digits.at_end(float(row["estimate"] or 0), metric.get("range") or (-inf, inf))


def _unresolved(row: Row) -> str:
    """Say that reports do not tell a value or a quantile; empty where they tell something."""
    value = str(row["value"])
    if row["unit"] != "share":  # its interval may miss
        name = "median" if value == "p50" else f"{value[1:]}% quantile"
        return f"{row['n']:,} {'report does' if row['n'] == 1 else 'reports do'} not resolve the {name}."
    return f"{row['n']:,} {'report detects' if row['n'] == 1 else 'reports detect'} no answer." if _tells_nothing(row) else ""


def _tells_nothing(row: Row) -> bool:
    """Return whether the interval of a share has all shares that are possible."""
    return float(row["low"] or 0) <= 0 and float(row["high"] or 0) >= 1


def _range(text: str) -> str:
    above, _, at_most = text.partition(_JOINT)
    return " and ".join([*([f"above {above}"] if above else []), *([f"at most {at_most}"] if at_most else [])])


def differences(
    answer: Answer,
    base: str,  # what rows are compared with: a segment such as `plan=free`; else the time before
) -> list[str]:
    """Say which differences of the rows are beyond chance, which way and by how much: the clearest first."""
    metrics = {each["id"]: each for each in answer.metrics}
    tested = [row for row in answer.rows if isinstance(row.get("p_holm"), float)]
    if {row["value"] for row in tested} == {"yes", "no"}:  # the share of no mirrors that of yes
        tested = [row for row in tested if row["value"] == "yes"]
    if not tested:
        return []
    sure = sorted((row for row in tested if row["differs"]), key=lambda row: (row["p_holm"], -abs(float(row["difference"] or 0))))
    if not sure:
        return [f"No difference beyond chance {f'from {base}' if '=' in base else 'from the time before'}."]
    segment, _, value = base.partition("=")
    others = [name for name in segments_of(answer) if name != segment]
    others = [*(["period"] if answer.rows and "time" in answer.rows[0] else []), *others]
    words = []
    for row in sure[:_MOST_DIFFERENT]:
        beside = f"with {segment} {row[segment]} than with {value}" if value else "than in the time before"
        words.append(f"{prefix_of(row, others)}{_differs(row, metrics[str(row['metric'])], beside)}")
    more = len(sure) - _MOST_DIFFERENT
    if more <= 0:
        return words
    parting = [name for name in (*others, segment, "value") if name in tested[0] and len({row[name] for row in tested}) > 1]
    names = [_named(row, parting or ["value"]) for row in sure[_MOST_DIFFERENT:][:_MOST_NAMED]]
    left = more - len(names)
    unnamed = f" and {left} {'other' if left == 1 else 'others'}" if left else ""
    return [*words, f"{more} more {'differs' if more == 1 else 'differ'}: {', '.join(names)}{unnamed}."]


def _named(row: Row, parting: list[str]) -> str:
    """Name a row by what parts it from the others."""
    return " ".join(str(row[name]) if name == "value" else f"{name}={row[name]}" for name in parting)


def holds_none(row: Row, *, is_ratio: bool) -> bool:
    """Tell whether the interval of a difference, which holds with those of all others, holds no difference."""
    low, high = row["diff_low_all"], row["diff_high_all"]
    return isinstance(low, float) and isinstance(high, float) and low <= (1 if is_ratio else 0) <= high


def _differs(row: Row, metric: dict[str, Any], beside: str) -> str:
    """Say of a row that differs which way, and by how much: between the ends of the interval of all differences at once."""
    unit, of_share = str(row["unit"]), row["unit"] == "share"
    is_ratio = not of_share and metric["scale"] == "log"
    is_more = float(row["difference"] or 0) > (1 if is_ratio else 0)
    verb = f"{'more' if is_more else 'less'} frequent" if of_share else "higher" if is_more else "lower"
    subject = subject_of(row, metric)
    subject = f"{subject[0].upper()}{subject[1:]}"
    return f"{subject} is {verb} {beside}, by {_size(row, unit, range_of(metric), is_ratio=is_ratio, is_more=is_more)}."


def subject_of(row: Row, metric: Mapping[str, Any]) -> str:
    """Write what a row estimates as it stands within a sentence."""
    value = str(row["value"])
    if row["unit"] == "share":
        return f"\u201c{value}\u201d" if metric["unit"] == "share" else f"an answer {_range(value)} {metric['unit']}"
    return f"the {_MEANS[value][4:]}" if value in _MEANS else f"the {value[1:]}% quantile"


def _size(row: Row, unit: str, range_: tuple[float, float], *, is_ratio: bool, is_more: bool) -> str:
    """Write how large a difference is, without a sign; how large at most, if its interval holds no difference."""
    low, high = float(row["diff_low_all"] or 0), float(row["diff_high_all"] or 0)
    if not is_more:
        low, high = (1 / high, 1 / low) if is_ratio else (-high, -low)
    begin, end = digits.written_distance((low, high), range_, is_share=unit == "share", is_ratio=is_ratio)
    words = f"up to {end}" if holds_none(row, is_ratio=is_ratio) else end if begin == end else f"{begin} to {end}"
    return f"a factor of {words}" if is_ratio else f"{words} {'points' if unit == 'share' else unit}"
