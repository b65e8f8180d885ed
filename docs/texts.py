"""Pages that are made from the code and committed, so that a checkout has them. With every Python they are the same.

python docs/texts.py    # writes them
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.messages import reasons

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent


def pages() -> Iterator[tuple[str, str]]:
    """Make each page from the code, as its name and its text."""
    yield "reference/variables.md", _variables()
    yield "reference/reasons.md", _reasons()
    yield "decisions/index.md", _decisions()


def _variables() -> str:
    readers = "*For operators and app developers.*"
    about = f"{readers} [Add the SDK to an app](../how-to/embed.md) and [Settings](settings.md) say what each of them does."
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
    more = "[When something is missing](../how-to/missing.md) says where these lines are seen."
    about = f"*For app developers.* Whatever drops a report says so once, on the logger `deniable`. {more}"
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
            named.setdefault(reason, []).append(f"`{name}`")
        lines += [f"| {', '.join(names)} | {reason.happened} | {_to_do(reason)} |" for reason, names in named.items()]
        lines.append("")
    return "\n".join(lines)


def _to_do(reason: reasons.Reason) -> str:
    return reason.remedy + (f"; while you develop: {reason.developing}" if reason.developing else "")


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
