"""The rows of an answer as people read them: each estimate with its interval and its number of reports."""

from __future__ import annotations

import re
from html import escape
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any

from deniable_query import digits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable_query.answer import Answer, Cell, Row

_ESTIMATE = {"estimate": "ESTIMATE", "low": "LOW", "high": "HIGH"}
_DIFFERENCE = {"difference": "DIFFERENCE", "diff_low_all": "LOW, ALL", "diff_high_all": "HIGH, ALL"}
_TREND = {"trend": "TREND", "trend_low": "LOW", "trend_high": "HIGH"}
_OF_TIME = ("time", "from", "to")
_MOST_NAMED = 4  # rows
_QUANTILE = re.compile(r"p\d\d")


def lines(answer: Answer) -> list[str]:
    """Write the rows as a table of text."""
    return aligned(_table(answer))


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Write rows of cells with their columns one below the other."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def days_of(answer: Answer) -> tuple[str, str]:
    """Return the first and the last day of the rows; a first one that is empty: from the beginning. Two empty ones: no rows."""
    days = [(str(row["from"] or ""), str(row["to"])) for row in answer.rows if row["to"]]
    if not days:
        return "", ""
    first, last = min(each for each, _ in days), max(each for _, each in days)
    published = max((each.get("updated") or "" for each in answer.metrics), default="")[:10]  # an open period ends with this day
    return first, max(min(last, published), first) if published else last


def html(answer: Answer) -> str:
    """Write the rows as a table of HTML, for notebooks. Texts may come from devices, so they are escaped."""
    head, *rows = _table(answer)
    written = [_row("th", head), *(_row("td", row) for row in rows)]
    remarks = "".join(f"<p>{escape(each)}</p>" for each in remarks_of(answer))
    return f"<table>{''.join(written)}</table>{remarks}"


def remarks_of(answer: Answer) -> list[str]:
    """Say what rows are compared with, why some have no figures, what else to consider, and what the store is; each once."""
    rows, remarks = answer.rows, _base(answer.rows)
    for name in ("reason", "note"):
        for text in dict.fromkeys(part for row in rows for part in _parts(row[name])):
            of = [row for row in rows if text in _parts(row[name])]
            silent = all(row["estimate"] is None for row in of)
            remarks.append(text if silent or len(of) == len(rows) else f"{_named(answer, of)}: {text}")
    # The banners of pages, in the same words.
    if answer.trial:
        remarks.append("Trial: Every report is published at once, and small groups are not protected.")
    if answer.simulated:
        words = "Simulated: Reports of simulated people were counted here, for {} (deniable simulate --send)."
        remarks.append(words.format(answer.simulated))
    return remarks


def _parts(text: Cell) -> list[str]:
    """Split what is said of a row, which may be several things."""
    return str(text).split("; ") if text else []


def _base(rows: Sequence[Row]) -> list[str]:
    """Say which days are compared with, where these are others."""
    own = [(row["from"], row["to"], row.get("base_from"), row["base_to"]) for row in rows if row.get("base_to")]
    if all((begin, end) == (base_begin, base_end) for begin, end, base_begin, base_end in own):
        return []
    first, last = min(str(each[2] or "") for each in own), max(str(each[3]) for each in own)
    return [f"Compared with the time {f'from {first} to {last}' if first else f'up to {last}'}."]


def _named(answer: Answer, rows: Sequence[Row]) -> str:
    """Name some rows: by what stands before their values if all rows of it are meant, else by their values, or by both."""
    *before, last = _names(answer)
    cells = dict.fromkeys(_cell(row, before) for row in rows)
    are_all = sum(_cell(row, before) in cells for row in answer.rows) == len(rows)
    values = dict.fromkeys(str(row[last]) for row in rows)
    if before and are_all:
        names = list(cells)
    elif sum(str(row[last]) in values for row in answer.rows) == len(rows):
        names = list(values)
    else:
        names = list(dict.fromkeys(_cell(row, [*before, last]) for row in rows))
    left = len(names) - _MOST_NAMED
    return ", ".join(names) if left <= 0 else f"{', '.join(names[:_MOST_NAMED])} and {left} more"


def _cell(row: Row, names: Sequence[str]) -> str:
    return " ".join(str(row[name]) for name in names)


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(each)}</{tag}>' for each in cells)}</tr>"


def _table(answer: Answer) -> list[list[str]]:
    """Write all cells, the titles first."""
    has, names = {each["name"] for each in answer.columns}, _names(answer)
    differences = _DIFFERENCE if "difference" in has else {}
    trends = _TREND if "trend" in has else {}
    titles = [*_ESTIMATE.values(), *differences.values(), *(["P, HOLM"] if differences else []), *trends.values(), "REPORTS"]
    table = [[name.upper() for name in names] + titles]
    metrics = {each["id"]: each for each in answer.metrics}
    lines_with_trend = set()
    for row in answer.rows:
        unit = str(row["unit"] or "")
        # A range of a number has a share, whatever the number's scale is.
        metric = metrics[str(row["metric"])]
        is_ratio = unit != "share" and metric["scale"] == "log"
        cells = [str(row.get(name) or "") for name in names]
        cells += figures_of(row, metric)
        for names_of in filter(None, (differences, trends)):
            size, *ends = (row[name] for name in names_of)
            if names_of is trends:  # rows of several times have it in common, so it is written once
                line = (*(row[name] for name in names if name not in ("period", "time")), row["metric"], row.get("version"))
                size, *ends = (None, None, None) if line in lines_with_trend else (size, *ends)
                lines_with_trend.add(line)
            cells += distances(size, *ends, unit=unit, range_=range_of(metric), is_ratio=is_ratio)
            cells += [_number(row["p_holm"])] if names_of is differences else []
        table.append([*cells, "" if row["n"] is None else f"{row['n']:,}"])
    return table


def _names(answer: Answer) -> list[str]:
    """Return the columns that name a row, the value last."""
    listed = [each["name"] for each in answer.columns]
    absent = {*_OF_TIME, "version", *(["metric"] if len(answer.metrics) == 1 else [])}
    before = takewhile(lambda name: name not in ("value", "n"), listed)
    return [*(name for name in before if name not in absent), *(["value"] if "value" in listed else [])]


def figures_of(row: Row, metric: dict[str, Any], *, in_sentence: bool = False) -> list[str]:
    """Write an estimate and the ends of its interval as pages do: of a number, or in a sentence, what is possible of them."""
    cells, unit = [row[name] for name in _ESTIMATE], str(row["unit"] or "")
    if unit != "share":
        least, most = range_of(metric)
        cells = [min(max(each, least), most) if isinstance(each, float) else each for each in cells]
    texts = figures(*cells, unit=unit, are_possible=in_sentence)
    return [_one_sided(row, metric, texts, in_sentence=in_sentence), *texts[1:]]


def side_of(row: Row, metric: dict[str, Any]) -> int:
    """Return which end of the range a quantile may be at: -1 the least, 1 the greatest, 0 neither, and of all else."""
    value, low, high = (row[name] for name in _ESTIMATE)
    is_quantile = _QUANTILE.fullmatch(str(row["value"])) and row["unit"] != "share" and metric.get("range")
    if not (is_quantile and isinstance(value, float) and isinstance(low, float) and isinstance(high, float)):
        return 0
    least, most = metric["range"]
    return digits.reached(value, (low, high), (least, most))


def _one_sided(row: Row, metric: dict[str, Any], texts: list[str], *, in_sentence: bool) -> str:
    """Write an estimate; of a quantile that may be at an end of the range only what its band excludes."""
    side = side_of(row, metric)
    if not side:
        return texts[0]
    most, least = ("at most", "at least") if in_sentence else ("\N{LESS-THAN OR EQUAL TO}", "\N{GREATER-THAN OR EQUAL TO}")
    return f"{most} {texts[2]}" if side < 0 else f"{least} {texts[1]}"


def range_of(metric: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the greatest answer that is possible, as far as the server says them."""
    least, most = metric.get("range") or (-inf, inf)
    return least, most


def figures(estimate: Cell, low: Cell, high: Cell, *, unit: str, are_possible: bool = False) -> list[str]:
    """Write an estimate and the ends of its interval, which are rounded outwards."""
    if not (isinstance(low, float) and isinstance(high, float)):
        return ["" if each is None else f"{each} {unit}".rstrip() for each in (estimate, low, high)]
    if not isinstance(estimate, float):  # an answer that no report names
        return [estimate if isinstance(estimate, str) else "", *figures(low, low, high, unit=unit)[1:]]
    ends = (low, high)
    if unit == "share":
        places = digits.of_share(digits.stderr(ends))
        if are_possible:
            estimate, (low, high) = min(max(estimate, 0.0), 1.0), digits.possible_ends(ends)
        shares = [digits.written(100 * estimate, places), *digits.written_ends((100 * low, 100 * high), (places, places))]
        return [f"{each}%" for each in shares]
    of_ends = digits.of_number(low, ends), digits.of_number(high, ends)
    numbers = [digits.written(estimate, digits.of_number(estimate, ends)), *digits.written_ends(ends, of_ends)]
    return [f"{each} {unit}" for each in numbers]


def distances(size: Cell, low: Cell, high: Cell, *, unit: str, range_: tuple[float, float], is_ratio: bool) -> list[str]:
    """Write a difference or a trend and the ends of its interval, with signs: of shares in points; or ratios as factors."""
    if not (isinstance(size, float) and isinstance(low, float) and isinstance(high, float)):
        return ["" if each is None else str(each) for each in (size, low, high)]
    is_share = unit == "share"
    ends = digits.written_distance((low, high), range_, is_share=is_share, is_ratio=is_ratio, positive="+")
    if is_ratio:
        return [f"\N{MULTIPLICATION SIGN} {each}" for each in (digits.written(size, digits.of_ratio(size, (low, high))), *ends)]
    number = digits.written((100 if is_share else 1) * size, digits.of_distance((low, high), is_share=is_share), "+")
    return [each if is_share else f"{each} {unit}" for each in (number, *ends)]


def _number(number: Any) -> str:
    return f"{number:.2g}" if isinstance(number, float) else ""
