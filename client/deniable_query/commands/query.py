"""``deniable query``: what was published of a metric, in words and in a table."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from deniable_query import Query, QueryError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from deniable_query import Answer
    from deniable_query.answer import Row

VARIABLES = {"DENIABLE_URL": "", "DENIABLE_READ_KEY": ""}
_ABOUT = {"DENIABLE_URL": "the server's address", "DENIABLE_READ_KEY": "a read key of the app"}
_REFUSED = 2
_FIGURES = ("estimate", "low", "high")


def query(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """``deniable query METRIC [--by NAME] [--last 90d] [--csv | --json]``: the estimates of a metric, with their intervals."""
    # Exit status: 0 with an answer; 2 without one.
    parser.description = "DENIABLE_URL has the address of the server, and DENIABLE_READ_KEY a read key of the app."
    parser.add_argument("metric", metavar="METRIC", help="its id, such as ui.theme, or ui.theme@1 for one version")
    by = "break rows down by time or a segment; may be given several times"
    parser.add_argument("--by", action="append", default=[], metavar="NAME", help=by)
    parser.add_argument("--last", metavar="DAYS", help="the last days or weeks, such as 90d or 12w (default: all published)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the rows as a file for a spreadsheet")
    form.add_argument("--json", action="store_true", help="the rows for programs")

    def run(arguments: argparse.Namespace) -> int:
        try:
            print(_answered(arguments), end="")
        except QueryError as problem:
            print(f"deniable query: {problem}", file=sys.stderr)
            return _REFUSED
        return 0

    return run


def _answered(arguments: argparse.Namespace) -> str:
    """Ask, and write the answer."""
    if missing := [name for name in VARIABLES if not os.environ.get(name)]:
        variables = " and ".join(f"{name} ({_ABOUT[name]})" for name in missing)
        raise QueryError(0, "", f"set {variables}; `deniable serve` prints the lines to copy")
    chosen = Query(os.environ["DENIABLE_URL"], os.environ["DENIABLE_READ_KEY"]).metric(arguments.metric)
    chosen = chosen.by(*arguments.by) if arguments.by else chosen
    chosen = chosen.last(arguments.last) if arguments.last else chosen
    if arguments.csv:
        return chosen.csv()
    answer = chosen.answer()
    if arguments.json:
        return f"{json.dumps(answer.rows, indent=2, ensure_ascii=False)}\n"
    sentences = [each for listed in chosen.says().values() for each in listed]
    if arguments.by or arguments.last:
        sentences.insert(0, "Of all that is published:")
    reasons = dict.fromkeys(str(row["reason"]) for row in answer.rows if row["reason"] and row["estimate"] is None)
    parts = (sentences, _range(answer), _table(answer, arguments.by), list(reasons))
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts if part)


def _range(answer: Answer) -> list[str]:
    """Say which days the rows are of."""
    days = [(row["from"], row["to"]) for row in answer.rows if row["to"]]
    if not days:
        return []
    first, last = min((each or "" for each, _ in days), default=""), max(each for _, each in days)
    return [f"Rows from {first} to {last}:" if first else f"Rows up to {last}:"]


def _table(answer: Answer, by: Sequence[str]) -> list[str]:
    names = [*("period" if name == "time" else name for name in by), "value"]
    unit = answer.metrics[0]["unit"]
    rows = [[name.upper() for name in names] + ["ESTIMATE", "LOW", "HIGH", "REPORTS"]]
    for row in answer.rows:
        cells = [str(row.get(name) or "") for name in names]
        rows.append([*cells, *(_figure(row, name, unit) for name in _FIGURES), "" if row["n"] is None else f"{row['n']:,}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _figure(row: Row, name: str, unit: str) -> str:
    number = row[name]
    if not isinstance(number, float):
        return "" if number is None else str(number)
    return f"{100 * number:.2f}%" if unit == "share" else f"{number:.5g} {unit}"
