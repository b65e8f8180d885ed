"""``deniable query``: what was published of a metric, in words and in a table."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from io import StringIO
from typing import TYPE_CHECKING

from deniable_query import VARIABLES, Query, QueryError, table
from deniable_query.sentences import differences, holds_none, reasons, sentences
from deniable_query.trends import trends, trends_by_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable_query import Answer

_REFUSED = 2
_JOINT = ".."
_OF_VALUE = "value="
_TIMES = ("time", "period", "from", "to")
_LONGER = re.compile(r"([1-9]\d{0,3}) ?(m|mo|months?|y|years?)")
_DATES = re.compile(r"\d{4}-(\d\d|W\d\d)\b(?!.*=)")
_DAYS = {"m": 30, "mo": 30, "month": 30, "months": 30, "y": 365, "year": 365, "years": 365}
_COLUMNS = "https://deniable.github.io/deniable/reference/columns/"
_PREVIOUS = "previous"
_SEVERAL = 2  # rows, whose intervals may hold together


class _Once(argparse.Action):
    """An option that is given once: of two, one would be ignored."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Keep the value, or end with usage if there is one."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice: ask twice")
        setattr(namespace, self.dest, values)


def query(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """``deniable query [METRIC]``: the metrics of an app, or the estimates of one with their intervals and differences."""
    # Exit status: 0 with an answer; 2 without one, also where nothing is published of what is asked.
    address, key = VARIABLES
    parser.description = f"{address} has the address of the server, and {key} a read key of the app."
    about = "its id, such as ui.theme, or ui.theme@1 for one version (default: list all metrics)"
    parser.add_argument("metric", nargs="?", metavar="METRIC", help=about)
    by = "break rows down by time or a segment; may be given several times"
    parser.add_argument("--by", action="append", default=[], metavar="NAME", help=by)
    where = "reports of this segment alone, such as platform=linux; may be given several times"
    parser.add_argument("--where", action="append", default=[], metavar="NAME=VALUE", help=where)
    value = "rows of this answer alone, or of this figure of a number, such as p50 or 200..500; may be given several times"
    parser.add_argument("--value", action="append", default=[], metavar="VALUE", help=value)
    range_ = parser.add_mutually_exclusive_group()
    range_.add_argument(
        "--last", action=_Once, metavar="DAYS", help="the last days or weeks, such as 90d or 12w (default: all published)"
    )
    range_.add_argument(
        "--range",
        action=_Once,
        metavar="FIRST..LAST",
        help="a day, week or month, such as 2026-W47 or 2026-10, or two, both included: 2026-10-01..2026-11-20",
    )
    compare = "with the range before (previous), or with one value of a segment, such as platform=linux"
    parser.add_argument("--compare", action=_Once, metavar="BASE", help=compare)
    parser.add_argument("--trend", action="store_true", help="add the rise in a period of a line through the closed periods")
    parser.add_argument("--level", action=_Once, type=float, metavar="SHARE", help="confidence of the intervals (default: 0.95)")
    paid = parser.add_argument_group("a withheld segment, named by --where; the answer has noise, and costs budget")
    paid.add_argument("--withheld", metavar="PERIOD", help="ask about this closed period, such as 2026-11-20")
    paid.add_argument("--epsilon", type=float, metavar="NATS", help="what the answer costs; the same again costs nothing")
    figure = "its number of reports (count, the default), sum or mean of a number, or most frequent value"
    paid.add_argument("--figure", metavar="NAME", help=figure)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help=f"the rows as a file for a spreadsheet; its columns: {_COLUMNS}")
    form.add_argument("--json", action="store_true", help="the rows for programs")

    def run(arguments: argparse.Namespace) -> int:
        try:
            if arguments.metric is None:
                _list(arguments)
            else:
                text, is_answered = _answered(arguments)
                print(text, end="")
                return 0 if is_answered else _REFUSED
        except QueryError as problem:
            print(f"deniable query: {_in_words_of(arguments, problem)}", file=sys.stderr)
            return _REFUSED
        return 0

    return run


def _list(arguments: argparse.Namespace) -> None:
    """Print which metrics there are."""
    if any(getattr(arguments, name) for name in ("by", "where", "value", "last", "range", "compare", "trend", "level")):
        raise QueryError(0, "", "name the metric that this is about; `deniable query` alone lists all metrics")
    metrics = Query().metrics()
    if arguments.json:
        print(json.dumps(metrics, indent=2, ensure_ascii=False))
        return
    if arguments.csv:
        raise QueryError(0, "", "--csv writes the rows of a metric: name one; --json lists all metrics for programs")
    rows = [
        (
            each["id"],
            each["type"],
            each["period_length"],
            f"{each['n']:,}",
            (each["updated"] or "never")[:10],
            each["description"],
        )
        for each in metrics
    ]
    for line in table.aligned([("METRIC", "TYPE", "PERIOD", "REPORTS", "PUBLISHED", "QUESTION"), *rows]):
        print(line)
    if metrics:
        print(f"\nOne of them: deniable query {metrics[0]['id']}")


def _in_words_of(arguments: argparse.Namespace, problem: QueryError) -> str:
    """Say what is wrong, and with which option, if it is a range."""
    if arguments.compare == _PREVIOUS and problem.code == "query_conflict" and not (arguments.last or arguments.range):
        return "--compare previous is with the time before a range: add --last, such as --last 30d, or --range"
    return f"{'--last' if arguments.last else '--range'}: {problem}" if problem.code == "date_range" else str(problem)


def _answered(arguments: argparse.Namespace) -> tuple[str, bool]:
    """Ask, and write the answer; return as well whether it is of any reports."""
    if arguments.withheld or arguments.epsilon is not None or arguments.figure:
        return _withheld(arguments), True
    _check(arguments)
    values = [each.partition("=")[2] for each in arguments.where if each.startswith(_OF_VALUE)]
    arguments.value = [*arguments.value, *values]
    arguments.where = [each for each in arguments.where if not each.startswith(_OF_VALUE)]
    reports = _reports(arguments)
    rows = reports.where(value=arguments.value) if arguments.value else reports
    rows = rows.by(*arguments.by) if arguments.by else rows
    rows = rows.trend() if arguments.trend else rows
    if arguments.compare == _PREVIOUS:
        rows = rows.compare_previous()
    elif arguments.compare:
        rows = rows.compare(*_pair("--compare", arguments.compare, f"{_PREVIOUS}, or a segment with its base"))
    if arguments.csv:
        text = rows.csv().replace("\r\n", "\n")  # printing writes the line ends of the system
        return text, any(row["n"] not in ("", "0") for row in csv.DictReader(StringIO(text)))
    answer = rows.answer()
    column = "difference" if arguments.compare else "estimate"
    is_answered = any(row["n"] for row in answer.rows)
    nothing = reasons(answer) if is_answered and all(row.get(column) is None for row in answer.rows) else []
    is_answered = is_answered and not (arguments.value and nothing)
    if arguments.json:
        return f"{json.dumps(answer.rows, indent=2, ensure_ascii=False)}\n", is_answered
    remarks = table.remarks_of(answer)
    of_rows = bool(arguments.value) or any(name != "time" for name in arguments.by)
    if not arguments.compare:
        remarks += _about_intervals(answer, are_wider=not of_rows)
    if arguments.compare:
        lines = differences(answer, arguments.compare) + _experiment(arguments, answer) + _about_differences(answer)
    elif of_rows:
        lines = sentences(answer)
        if arguments.trend:
            lines += (
                trends(answer, lambda level: rows.level(level).answer())
                if arguments.value
                else trends_by_segment(reports, answer)
            )
    else:  # what the page of the metric says
        lines = [each for listed in reports.says().values() for each in listed]
    lines = lines or nothing
    cells = table.lines(answer) if any(row["n"] is not None for row in answer.rows) else []
    remarks = (_segments(arguments, answer) if is_answered else []) + remarks
    parts = (lines, _range(answer, arguments), cells, remarks)
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts if part), is_answered


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what the server would refuse in the words of HTTP and Python."""
    for name in arguments.by:
        if "," in name:
            raise QueryError(0, "", f"--by takes one name: write {' '.join(f'--by {each.strip()}' for each in name.split(','))}")
    for text in arguments.where:
        if text.partition("=")[0] in _TIMES:
            raise QueryError(0, "", f"--where takes a segment, and this is {text!r}: days are chosen by --range or --last")
    if longer := _LONGER.fullmatch(arguments.last or ""):
        days = int(longer[1]) * _DAYS[longer[2]]
        rule = f"--last takes days or weeks: write --last {days}d, or whole months as --range, such as 2026-09..2026-11"
        raise QueryError(0, "", f"{rule}; this is {arguments.last!r}")
    if _DATES.match(arguments.compare or ""):
        how = 'two times are compared on the page Compare, or in Python by comparison("2026-09", "2026-10")'
        raise QueryError(0, "", f"--compare takes no time: {how}; this is {arguments.compare!r}")
    if arguments.compare and "=" not in arguments.compare and arguments.compare != _PREVIOUS:
        segment = arguments.compare
        try:
            (answer,) = Query().metric(arguments.metric).experiment(segment).values()
        except QueryError as problem:
            if problem.code not in ("incomparable", "unknown_metric"):
                raise
            return  # the segment is no experiment, and is refused below
        arms = ", ".join(
            dict.fromkeys([answer["base"], *(arm["comparison"]["b"]["name"].partition("=")[2] for arm in answer["arms"])])
        )
        raise QueryError(0, "", f"--compare takes a segment with its base: write {segment}={answer['base']}. The arms are {arms}")


def _experiment(arguments: argparse.Namespace, rows: Answer) -> list[str]:
    """Say what an experiment has shown, if its arms are compared: which one is best, and whether it is decided."""
    segment = (arguments.compare or "").partition("=")[0]
    about = rows.metrics[0]
    of_number = about["unit"] != "share"
    followed = "geometric_mean" if about["scale"] == "log" else "mean"
    # Of a number the mean is followed, and of others one answer.
    others = len(arguments.value) > 1 or (of_number and arguments.value not in ([], [followed]))
    if segment in ("", _PREVIOUS) or arguments.where or others:
        return []
    value = None if of_number or not arguments.value else arguments.value[0]
    try:
        (answer,) = Query().metric(arguments.metric).experiment(segment, value=value).values()
    except QueryError as problem:
        if problem.code != "incomparable":
            raise
        return []  # the segment is no experiment
    order = [answer["order"]["says"]] if answer["order"] else []
    base = f"{segment}={answer['base']}"
    is_declared = arguments.compare == base  # else rows are compared with another arm
    arms = answer["arms"] if is_declared else []
    sentences = order + [f"{arm['comparison']['b']['name']} against {base}: {arm['verdict']['says']}" for arm in arms]
    # Rows may be of a range of time, and an experiment never is.
    sentences = [f"{answer['scope']}: {each}" for each in sentences] if arguments.range or arguments.last else sentences
    return sentences if is_declared else [*sentences, f"A verdict is against the declared base: write --compare {base}."]


def _withheld(arguments: argparse.Namespace) -> str:
    """Ask about a withheld segment, and write the answer."""
    if not (arguments.withheld and arguments.epsilon is not None and arguments.where):
        rule = "a question about a withheld segment has --withheld PERIOD, --where NAME=VALUE and --epsilon NATS"
        raise QueryError(0, "", f"{rule}, such as --withheld 2026-11-20 --where platform=beos --epsilon 0.1")
    others = ("by", "value", "last", "range", "compare", "trend", "csv", "level")
    if other := next((f"--{name}" for name in others if getattr(arguments, name)), None):
        raise QueryError(0, "", f"{other} is for what is published: leave it out, or leave --withheld out")
    cell = ",".join(arguments.where)
    query = Query().metric(arguments.metric)
    (answer,) = query.withheld(arguments.withheld, cell, epsilon=arguments.epsilon, figure=arguments.figure or "count").values()
    if arguments.json:
        return f"{json.dumps(answer, indent=2, ensure_ascii=False)}\n"
    cost = f"This answer cost {answer['spent']:g} nats; {answer['left']:g} are left of this key's budget for the month."
    return "".join(f"{line}\n" for line in (answer["says"], cost, answer["guarantee"]))


def _about_differences(answer: Answer) -> list[str]:
    """Say which differences are beyond chance, of how many, and why an interval of one may hold no difference."""
    tested = [row for row in answer.rows if row.get("p_holm") is not None]
    if not tested:
        return []
    is_log = answer.metrics[0]["scale"] == "log"
    family = "LOW, ALL to HIGH, ALL hold for these together, so other pages have other intervals."
    alpha = 1 - float(tested[0]["level"] or 0)
    rule = f"A difference is beyond chance if its P, HOLM is at most {alpha:.6g}. {answer.together} {family}"
    figures = {str(row.get("value")) for row in tested}
    means = [each for each in figures if each in ("mean", "geometric_mean")]
    if means and len(figures) > 1:
        mean = means[0].replace("_", " ")
        rule += f" The metric's page tests the {mean} alone, as --value {means[0]} does, and may find more of it."
    if not any(row["differs"] and holds_none(row, is_ratio=is_log and row["unit"] != "share") for row in tested):
        return [rule]
    more = (
        f"The test finds a little more than the intervals exclude: a difference may be beyond chance though its interval holds "
        f"{1 if is_log else 0}. It is then at most as large as the interval's end on its side."
    )
    return [rule, more]


def _about_intervals(answer: Answer, *, are_wider: bool) -> list[str]:
    """Say what the intervals of several rows are, and whether the sentences have wider ones, as those of all shares have."""
    rows = [row for row in answer.rows if row["estimate"] is not None]
    if {row["value"] for row in rows} == {"yes", "no"}:  # the share of no mirrors that of yes
        rows = [row for row in rows if row["value"] == "yes"]
    if len(rows) < _SEVERAL:
        return []
    rule = f"LOW to HIGH: the {100 * float(rows[0]['level'] or 0):g}% interval of a row chosen before looking."
    are_wider = are_wider and answer.metrics[0]["unit"] == "share" and len({row["value"] for row in rows}) >= _SEVERAL
    return [f"{rule} Those in the sentences hold for all values at once." if are_wider else rule]


def _segments(arguments: argparse.Namespace, answer: Answer) -> list[str]:
    """Name the segments that the rows are neither of nor broken down by."""
    chosen = [*arguments.by, *(each.partition("=")[0] for each in [*arguments.where, arguments.compare or ""])]
    names = [each for each in answer.metrics[0]["segments"] if each not in chosen]
    return [f"Segments: {', '.join(names)}. To break rows down, add --by {names[0]}."] if names else []


def _reports(arguments: argparse.Namespace) -> Query:
    """Ask about the metric, in the range and the segment."""
    chosen = Query().metric(arguments.metric)
    if arguments.level is not None:
        chosen = chosen.level(arguments.level)
    for text in arguments.where:
        name, value = _pair("--where", text, "a segment with one of its values")
        chosen = chosen.where(**{name: value})
    if arguments.range:
        ends = arguments.range.split(_JOINT)
        return chosen.between(*ends) if all(ends) and len(ends) == 2 else chosen.between(arguments.range)  # noqa: PLR2004 - two times
    return chosen.last(arguments.last) if arguments.last else chosen


def _pair(option: str, text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise QueryError(0, "", f"{option} takes {what}, such as platform=linux; this is {text!r}")
    return name, value


def _range(answer: Answer, arguments: argparse.Namespace) -> list[str]:
    """Say which days the rows are of, and why, and which segment they are compared with."""
    first, last = table.days_of(answer)  # periods count if any day of theirs is in the range
    if not last:
        return []
    chosen = f"the last {_in_days(arguments.last)}" if arguments.last else arguments.range
    why = f", every {answer.metrics[0]['period_length']} that overlaps {chosen}" if chosen else ""
    why += ", open ones included" if chosen and not all(row["closed"] for row in answer.rows if row["to"]) else ""
    is_segment = arguments.compare not in (None, _PREVIOUS)
    why += f", each compared with {arguments.compare}" if is_segment else ""
    return [f"Rows from {first} to {last}{why}:" if first else f"Rows up to {last}{why}:"]


def _in_days(text: str) -> str:
    """Write the last days or weeks in words, such as ``12w``."""
    noun = "week" if text.endswith("w") else "day"
    number = text.rstrip("dw")
    return noun if number == "1" else f"{number} {noun}s"
