"""``deniable query``: what was published of a metric, in words and in a table."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable_query import Query, QueryError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from deniable_query import Answer
    from deniable_query.answer import Cell

VARIABLES = {"DENIABLE_URL": "", "DENIABLE_READ_KEY": ""}
_ABOUT = {"DENIABLE_URL": "the server's address", "DENIABLE_READ_KEY": "a read key of the app"}
_REFUSED = 2
_JOINT = ".."
_LAST = "--last takes some days or weeks, such as 90d or 12w"
_RANGE = "--range takes two days, such as 2026-10-01..2026-11-20"
_PREVIOUS = "previous"
_ESTIMATE = {"estimate": "ESTIMATE", "low": "LOW", "high": "HIGH"}
_DIFFERENCE = {"difference": "DIFFERENCE", "diff_low_all": "LOW, ALL", "diff_high_all": "HIGH, ALL"}


def query(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """``deniable query METRIC``: the estimates of a metric, with their intervals and differences."""
    # Exit status: 0 with an answer; 2 without one.
    parser.description = "DENIABLE_URL has the address of the server, and DENIABLE_READ_KEY a read key of the app."
    parser.add_argument("metric", metavar="METRIC", help="its id, such as ui.theme, or ui.theme@1 for one version")
    by = "break rows down by time or a segment; may be given several times"
    parser.add_argument("--by", action="append", default=[], metavar="NAME", help=by)
    where = "reports of this segment alone, such as platform=linux; may be given several times"
    parser.add_argument("--where", action="append", default=[], metavar="NAME=VALUE", help=where)
    value = "rows of this answer alone, or of this figure of a number, such as p50 or 200..500; may be given several times"
    parser.add_argument("--value", action="append", default=[], metavar="VALUE", help=value)
    range_ = parser.add_mutually_exclusive_group()
    range_.add_argument("--last", metavar="DAYS", help="the last days or weeks, such as 90d or 12w (default: all published)")
    range_.add_argument("--range", metavar="FIRST..LAST", help="two days, both included, such as 2026-10-01..2026-11-20")
    compare = "with the range before (previous), or with one value of a segment, such as platform=linux"
    parser.add_argument("--compare", metavar="BASE", help=compare)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the rows as a file for a spreadsheet")
    form.add_argument("--json", action="store_true", help="the rows for programs")

    def run(arguments: argparse.Namespace) -> int:
        try:
            print(_answered(arguments), end="")
        except QueryError as problem:
            print(f"deniable query: {_in_words_of(arguments, problem)}", file=sys.stderr)
            return _REFUSED
        return 0

    return run


def _in_words_of(arguments: argparse.Namespace, problem: QueryError) -> str:
    """Say what is wrong with a range as it is written here; the server speaks of its member ``date_range``."""
    if problem.code != "date_range":
        return str(problem)
    why, _, _ = problem.detail.partition("; ")
    rule, text = (_LAST, arguments.last) if arguments.last else (_RANGE, arguments.range)
    return f"{rule}; this is {text!r}" if why.startswith(problem.code) else f"{why}; {rule}"


def _answered(arguments: argparse.Namespace) -> str:
    """Ask, and write the answer."""
    if missing := [name for name in VARIABLES if not os.environ.get(name)]:
        variables = " and ".join(f"{name} ({_ABOUT[name]})" for name in missing)
        raise QueryError(0, "", f"set {variables}; `deniable serve` prints the lines to copy")
    # Sentences are of all values: a value chooses among the rows.
    reports = _reports(arguments)
    rows = reports.where(value=arguments.value) if arguments.value else reports
    by = arguments.by
    if arguments.compare == _PREVIOUS:
        rows = rows.compare_previous()
    elif arguments.compare:
        segment, base = _pair("--compare", arguments.compare, f"{_PREVIOUS}, or a segment with its base")
        by = by if segment in by else [*by, segment]
        rows = rows.compare(segment, base)
    rows = rows.by(*by) if by else rows
    if arguments.csv:
        return rows.csv().replace("\r\n", "\n")  # printing writes the line ends of the system
    answer = rows.answer()
    if arguments.json:
        return f"{json.dumps(answer.rows, indent=2, ensure_ascii=False)}\n"
    sentences = [each for listed in reports.says().values() for each in listed]
    if any(row["p_holm"] is not None for row in answer.rows if "p_holm" in row):
        sentences.append(
            "A difference is beyond chance if its P, HOLM is below 0.05. All intervals of differences hold together."
        )
    reasons = dict.fromkeys(str(row["reason"]) for row in answer.rows if row["reason"] and row["estimate"] is None)
    parts = (sentences, _range(answer), _table(answer, by), list(reasons))
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts if part)


def _reports(arguments: argparse.Namespace) -> Query:
    """Ask about the metric, in the range and the segment."""
    chosen = Query(os.environ["DENIABLE_URL"], os.environ["DENIABLE_READ_KEY"]).metric(arguments.metric)
    for text in arguments.where:
        name, value = _pair("--where", text, "a segment with one of its values")
        chosen = chosen.where(**{name: value})
    if arguments.range:
        first, joint, last = arguments.range.partition(_JOINT)
        if not joint:
            raise QueryError(0, "", f"{_RANGE}; this is {arguments.range!r}")
        return chosen.between(first, last)
    return chosen.last(arguments.last) if arguments.last else chosen


def _pair(option: str, text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise QueryError(0, "", f"{option} takes {what}, such as platform=linux; this is {text!r}")
    return name, value


def _range(answer: Answer) -> list[str]:
    """Say which days the rows are of."""
    days = [(row["from"], row["to"]) for row in answer.rows if row["to"]]
    if not days:
        return []
    first, last = min((each or "" for each, _ in days), default=""), max(str(each) for _, each in days)
    last = min(last, str(datetime.now(UTC).date()))  # of an open period the last day lies ahead
    return [f"Rows from {first} to {last}:" if first else f"Rows up to {last}:"]


def _table(answer: Answer, by: Sequence[str]) -> list[str]:
    names = [*("period" if name == "time" else name for name in by), "value"]
    about = answer.metrics[0]
    has_differences = any("difference" in row for row in answer.rows)
    differences = _DIFFERENCE if has_differences else {}
    titles = [*_ESTIMATE.values(), *differences.values(), *(["P, HOLM"] if has_differences else []), "REPORTS"]
    rows = [[name.upper() for name in names] + titles]
    for row in answer.rows:
        # A range of a number has a share, whatever the number's unit and scale are.
        unit, scale = ("share", "linear") if _JOINT in str(row["value"]) else (about["unit"], about["scale"])
        cells = [str(row.get(name) or "") for name in names]
        cells += [_figure(row[name], unit) for name in _ESTIMATE]
        cells += [_difference(row[name], unit, is_ratio=scale == "log") for name in differences]
        cells += [_number(row["p_holm"])] if has_differences else []
        rows.append([*cells, "" if row["n"] is None else f"{row['n']:,}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _figure(number: Cell, unit: str) -> str:
    if not isinstance(number, float):
        return "" if number is None else str(number)
    return f"{100 * number:.2f}%" if unit == "share" else f"{number:.5g} {unit}"


def _difference(number: Cell, unit: str, *, is_ratio: bool) -> str:
    """Write a difference with its sign, of shares in points; or a ratio as a factor."""
    if not isinstance(number, float):
        return "" if number is None else str(number)
    if is_ratio:
        return f"\N{MULTIPLICATION SIGN} {number:.3g}"
    return f"{100 * number:+.2f}" if unit == "share" else f"{number:+.4g} {unit}"


def _number(number: Cell) -> str:
    return f"{number:.2g}" if isinstance(number, float) else ""
