"""Pages that are made from the code and committed, so that a checkout has them. With every Python they are the same.

python docs/texts.py    # writes them
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.messages import reasons
from deniable_aggregator.answer.model.rows import ASKED, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent


def pages() -> Iterator[tuple[str, str]]:
    """Make each page from the code, as its name and its text."""
    yield "reference/variables.md", _variables()
    yield "reference/reasons.md", _reasons()
    yield "reference/columns.md", _columns()
    yield "decisions/index.md", _decisions()


def _variables() -> str:
    readers = "*For operators and app developers.*"
    about = f"{readers} [Add the SDK to an app](../how-to/embed.md) and [Settings](settings.md) say what each variable does."
    lines = ["# Environment variables", "", about, ""]
    for title, floor in (
        ("In an app", "client"),
        ("Of `deniable query`", "query"),
        ("Of a server", "server"),
        ("Of a worker", "aggregator"),
    ):
        (point,) = entry_points(group="deniable.variables", name=floor)
        lines += [f"## {title}", "", "| variable | default |", "|---|---|"]
        lines += [f"| `{name}` | {f'`{default}`' if default else ''} |" for name, default in point.load().items()]
        lines.append("")
    return "\n".join(lines)


def _reasons() -> str:
    more = "[When something is missing](../how-to/missing.md) says where you see these lines."
    about = f"*For app developers.* If a report is dropped, the SDK logs the reason once, on the logger `deniable`. {more}"
    lines = ["# Why a report is dropped", "", about, ""]
    for title, column, group in (
        ("Answers that are not reported", "`dropped`", reasons.ANSWERS),
        ("Answers that are reported as others", "in what `flush` returns", reasons.INSTEAD),
        ("Reports that are lost", "`dropped` or `faults`", reasons.LOSSES),
        ("The server does not answer", "reason", reasons.FAILURES),
        ("The server refuses reports of a metric", "`refusals`", reasons.REFUSALS),
        ("The server refuses an upload", "code", reasons.CODES),
        ("The server, or another program, refuses an upload and has no such code", "status", reasons.STATUSES),
        ("The served registry is not used", "reason", reasons.SERVED),
    ):
        lines += [f"## {title}", "", f"| {column} | what happened | what to do |", "|---|---|---|"]
        named: dict[reasons.Reason, list[str]] = {}
        for name, reason in group.items():
            field = "clipped" if group is reasons.INSTEAD and name != "undeclared" else name  # `flush` counts these alike
            named.setdefault(reason, []).append(f"`{field}`")
        lines += [f"| {', '.join(names)} | {reason.happened} | {_to_do(reason)} |" for reason, names in named.items()]
        lines.append("")
    return "\n".join(lines)


def _to_do(reason: reasons.Reason) -> str:
    return reason.remedy + (f"; while you develop: {reason.developing}" if reason.developing else "")


_CONDITIONS = {
    "time": '`by("time")`',
    "value": "always, except with `values=False`",
    "view": "`consistent()`",
    "compare": "`compare(...)`, `compare_previous()`",
    "include": "`trend()`",
}


_ABOUT_COLUMNS = """\
# Columns of rows

*For analysts.* The answer to a query has rows: in Python, as JSON, and in files (CSV, Parquet, Arrow). The columns are always the
same, in this order. [Query and export](../how-to/query.md) shows how to ask.

- **One row is one estimate**: for one metric and one value, and for the segment and time that the query asks for.
- **Each estimate comes with** its interval (`low`, `high`, at the confidence `level`), its `unit`, and the number of reports
  behind it (`n`).
- **A row without an estimate** says why in `reason`, and its columns of numbers are empty. An empty column is an empty cell in a
  CSV, and null in the other forms.
- **A share is a number**: 0.25 is 25%. It may be below 0 or above 1, because noise is subtracted and nothing is cut.
- **Each segment** in the query's dimensions has a column before `value`, with the segment's value as text. The column has the
  name of the segment. If another column has this name, the column's name begins with `segment_`.

| column | type | what it says | there with |
|---|---|---|---|
"""
_TYPES_OF_COLUMNS = """
[Read an estimate](../explanation/estimates.md) says when to use which of the two intervals. In a CSV a date is written
`2026-11-28`, a time `2026-11-28T00:00:00Z`, and a boolean `true` or `false`. Numbers have a point. The
[files of pages](http/pages.md) give their columns the same names.
"""


def _columns() -> str:
    conditions = {column: _CONDITIONS[name] for name, columns in ASKED.items() for column in columns}
    rows = (
        f"| `{name}` | {type_} | {meaning} | {conditions.get(name, 'always')} |\n" for name, (type_, meaning) in COLUMNS.items()
    )
    return "".join([_ABOUT_COLUMNS, *rows, _TYPES_OF_COLUMNS])


def _decisions() -> str:
    lines = [
        "# Decisions",
        "",
        "*For contributors and reviewers.* Choices that a newcomer would question, each with its reason.",
        "",
    ]
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
        lines += [f"- [{title}]({path.name})"]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", ":glob:", "", "[0-9]*", "```", ""])


if __name__ == "__main__":
    for name, text in pages():
        (DOCS / name).write_text(text, "utf-8")
