"""Pages of the site that are made from the code: commands, environment variables, mechanisms, and the list of decisions."""

from __future__ import annotations

import argparse
import os
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from io import StringIO
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.commands.catalogue import CATALOGUE
from deniable.commands.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Iterator

DECISIONS = Path(__file__).parent / "decisions"
_EPSILONS = [step / 4 for step in range(2, 25)]
_VALUES = 16


def write(folder: Path) -> None:
    """Write all of them.

    Parameters
    ----------
    folder
        Where the other pages are.
    """
    for name, text in made():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:  # else Sphinx would read it again
            path.write_text(text, "utf-8")


def made() -> Iterator[tuple[str, str]]:
    """Make each page from the code, as its name and its text."""
    yield "commands.md", _commands()
    yield "variables.md", _variables()
    yield "decisions/index.md", _decisions()
    yield from _mechanisms()


def _commands() -> str:
    os.environ["COLUMNS"] = "100"
    lines = ["# Commands", "", "Each command prints with `--help` what stands here. An extra brings what a command needs.", ""]
    for point in sorted(entry_points(group="deniable.commands"), key=lambda each: each.name):
        about = CATALOGUE[point.name]
        parser = Parser(prog=f"deniable {point.name}", description=about.summary)
        point.load()(parser)
        parser.complete(about.examples)
        lines += [f"## `{point.name}`", "", "```text", parser.format_help().rstrip(), "```", ""]
        for action in parser._actions:  # noqa: SLF001 - argparse has no other way to tell its subcommands
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                for name, sub in action.choices.items():
                    lines += [f"### `{point.name} {name}`", "", "```text", sub.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def _variables() -> str:
    about = "What each of them does stands in [Embed it](embed.md) and [Operate it](operations.md)."
    lines = ["# Environment variables", "", about, ""]
    for title, floor in (("In an app", "client"), ("Of a server", "server"), ("Of a worker", "aggregator")):
        (point,) = entry_points(group="deniable.variables", name=floor)
        lines += [f"## {title}", "", "| variable | default |", "|---|---|"]
        lines += [f"| `{name}` | {f'`{default}`' if default else ''} |" for name, default in point.load().items()]
        lines.append("")
    return "\n".join(lines)


def _decisions() -> str:
    lines = ["# Decisions", "", "Choices that a newcomer would question, each with its reason.", ""]
    for path in sorted(DECISIONS.glob("[0-9]*.md")):
        title = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
        lines += [f"- [{title}]({path.name})"]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", ":glob:", "", "[0-9]*", "```", ""])


def _mechanisms() -> Iterator[tuple[str, str]]:
    rows = []
    for name, (module, class_name) in mechanisms._ALL.items():  # noqa: SLF001 - the site lists all of them
        cls = getattr(import_module(f"deniable.mechanisms.{module}"), class_name)
        rows.append(f"| [`{name}`]({name}.md) | {cls.summary} |")
        yield from _mechanism(name, cls)
    lines = [
        "# Mechanisms",
        "",
        '`mechanism = "auto"`, the default, takes the smallest report among mechanisms within 1% of the least exact error.',
        "For texts and keys it takes `fast_local_hash`, or `pem` where answers are to be discovered.",
        "",
        "| mechanism | what the device does |",
        "|---|---|",
        *rows,
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *mechanisms._ALL,  # noqa: SLF001 - as above
        "```",
        "",
    ]
    yield "mechanisms/index.md", "\n".join(lines)


def _mechanism(name: str, cls: Any) -> Iterator[tuple[str, str]]:
    """Make the page of a mechanism, and its picture."""
    lines = [f"# `{name}`", "", f"{cls.summary[0].upper()}{cls.summary[1:]}.", ""]
    lines += ["```{eval-rst}", f".. autoclass:: {cls.__module__}.{cls.__name__}", "   :no-index:", "```"]
    rows = [(epsilon, made) for epsilon in (0.5, 1.0, 2.0, 4.0) if (made := _make(name, epsilon))]
    if rows:
        lines += [
            "",
            f"## Figures, for {_values(name)} values",
            "",
            "| epsilon asked for | worst ratio of two answers | standard error of a share, 10,000 reports | bytes a report |",
            "|---|---|---|---|",
            *(
                f"| {epsilon if name != 'coin' else 'ln 3'} | {float(made.ratio):.4f} | {100 * _error(made):.2f} points "
                f"| {made.layout.payload_size} |"
                for epsilon, made in rows
            ),
            "",
            f"`deniable prove {name}` walks every draw. It checks the ratio, the total mass, the unbiasedness and the size.",
        ]
    if len(rows) > 1:
        lines += ["", f"![Standard error of {name} over epsilon, beside the least of all mechanisms]({name}.svg)"]
        yield f"mechanisms/{name}.svg", _plot(name)
    yield f"mechanisms/{name}.md", "\n".join(lines)


def _values(name: str) -> int:
    return 2 if name in ("coin", "binary") else _VALUES


@cache
def _make(name: str, epsilon: float) -> Any:
    """Make a mechanism for the figures; None where there is none."""
    if name not in mechanisms.names() or (name == "coin" and epsilon != 1.0):
        return None
    return mechanisms.make(name, domain_size=_values(name), epsilon=None if name == "coin" else epsilon)


def _error(mechanism: Any) -> float:
    """Return the standard error of a share among 10,000 reports, as the mean over all values."""
    return sqrt(float(mechanism.mean_variance) / 10_000)


def _plot(name: str) -> str:
    """Draw the standard error over epsilon, beside the least of all mechanisms for as many values."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice

    plt.rcParams["svg.hashsalt"] = name
    rivals = [each for each in mechanisms.names() if each != "coin" and _values(each) == _values(name)]
    figure, axes = plt.subplots(figsize=(6, 3))
    least = [100 * min(_error(_make(each, epsilon)) for each in rivals) for epsilon in _EPSILONS]
    axes.plot(_EPSILONS, least, color="grey", linestyle="--", label="least of all")
    axes.plot(_EPSILONS, [100 * _error(_make(name, epsilon)) for epsilon in _EPSILONS], color="teal", label=name)
    axes.set(xlabel="epsilon, nats", ylabel="standard error, points", yscale="log")
    axes.legend(frameon=False)
    axes.grid(visible=True, alpha=0.3)
    written = StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})
    plt.close(figure)
    return written.getvalue()
