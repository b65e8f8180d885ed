"""Pages of the site that are made, and stand nowhere else: commands, mechanisms, the map of accuracy."""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from io import StringIO
from itertools import groupby
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.commands.catalogue import CATALOGUE
from deniable.commands.parser import Parser
from deniable.mechanisms.sets import OfSets
from deniable.mechanisms.window import Window

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import accuracy
import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ACCURACY = Path(__file__).parent / "reference" / "accuracy.json"
_EPSILONS = [step / 4 for step in range(2, 25)]
_VALUES = 16
_SCORED = {
    "window": ("65,537 positions", "a mean", "% of the range"),
    "sampled_options": (f"{_VALUES} options", "an option's share", " points"),
    "sampled_pair": (f"{_VALUES} options", "the share of a case of two options", " points"),
    "padded_subset": (f"{_VALUES} options, one in an answer", "an option's share", " points"),
}
"""What is estimated with mechanisms that do not estimate the share of each value: of how many answers, what, and its unit."""


def write(folder: Path) -> None:
    """Write all of them.

    Parameters
    ----------
    folder
        Where the other pages are.
    """
    for name, text in pages():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:  # else Sphinx would read it again
            path.write_text(text, "utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """Make each page from the code, as its name and its text."""
    yield from texts.pages()
    yield "reference/commands.md", _commands()
    yield from _mechanisms()
    yield from _accuracy()


def page(name: str) -> str:
    """Return the file of a page by its name on the site, such as ``reference/mechanisms``."""
    return f"{name}/index.md" if name == "reference/mechanisms" else f"{name}.md"


def _commands() -> str:
    os.environ["COLUMNS"] = "100"
    lines = [
        "# Commands",
        "",
        "*For everybody.* Each command prints this with `--help`. An extra brings what a command needs.",
        "",
    ]
    for point in sorted(entry_points(group="deniable.commands"), key=lambda point: point.name):
        about = CATALOGUE[point.name]
        parser = Parser(prog=f"deniable {point.name}", description=about.summary)
        point.load()(parser)
        parser.complete(about.examples, about.extra)
        lines += [f"## `{point.name}`", "", "```text", parser.format_help().rstrip(), "```", ""]
        for action in parser._actions:  # noqa: SLF001 - argparse has no other way to tell its subcommands
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                for name, sub in action.choices.items():
                    lines += [f"### `{point.name} {name}`", "", "```text", sub.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


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
        "Numbers, and means of ordered answers, have `window`.",
        "Sets have `sampled_options`; with `most`, `padded_subset`; if joint, `sampled_pair`.",
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
    yield "reference/mechanisms/index.md", "\n".join(lines)


def _mechanism(name: str, cls: Any) -> Iterator[tuple[str, str]]:
    """Make the page of a mechanism, and its picture."""
    lines = [f"# `{name}`", "", f"{cls.summary[0].upper()}{cls.summary[1:]}.", ""]
    lines += ["```{eval-rst}", f".. autoclass:: {cls.__module__}.{cls.__name__}", "   :no-index:", "```"]
    rows = [(epsilon, result) for epsilon in (0.5, 1.0, 2.0, 4.0) if (result := _make(name, epsilon))]
    if rows:
        answers, estimate, unit = _SCORED.get(name, (f"{_values(name)} values", "a share", " points"))
        lines += [
            "",
            f"## Figures, for {answers}",
            "",
            f"| epsilon asked for | worst ratio of two answers | standard error of {estimate}, 10,000 reports | bytes a report |",
            "|---|---|---|---|",
            *(
                f"| {epsilon if name != 'coin' else 'ln 3'} | {float(result.ratio):.4f} | {100 * _error(result):.2f}{unit} "
                f"| {result.layout.payload_size} |"
                for epsilon, result in rows
            ),
            "",
            f"`deniable prove {name}` walks every draw. It checks the ratio, the total mass, the unbiasedness and the size.",
        ]
    if len(rows) > 1 and name in (*mechanisms.names(), "window"):
        beside = "one bit and Laplace noise" if name == "window" else "the least of all mechanisms"
        lines += ["", f"![Standard error of {name} over epsilon, beside {beside}]({name}.svg)"]
        yield f"reference/mechanisms/{name}.svg", _plot(name)
    yield f"reference/mechanisms/{name}.md", "\n".join(lines)


def _values(name: str) -> int:
    return {"coin": 2, "binary": 2, "window": 1 << 16 | 1}.get(name, 1 << _VALUES if name in _SCORED else _VALUES)


@cache
def _make(name: str, epsilon: float) -> Any:
    """Make a mechanism for the figures; None where there is none."""
    if name not in (*mechanisms.names(), *_SCORED) or (name == "coin" and epsilon != 1.0):
        return None
    return mechanisms.make(name, domain_size=_values(name), epsilon=None if name == "coin" else epsilon)


def _error(mechanism: Any) -> float:
    """Return the standard error of a share among 10,000 reports, as the mean over all values; of what is scored, the worst."""
    if isinstance(mechanism, Window):
        return sqrt(float(mechanism.worst_noise) / 10_000)
    if isinstance(mechanism, OfSets):
        return sqrt(float(mechanism.worst_variance) / 10_000)
    return sqrt(float(mechanism.mean_variance) / 10_000)


def _plot(name: str) -> str:
    """Draw the standard error over epsilon, beside that of others."""
    plt = _pyplot(name)
    figure, axes = plt.subplots(figsize=(6, 3))
    for (label, errors), style in zip(_others(name), ("--", ":"), strict=False):
        axes.plot(_EPSILONS, [100 * error for error in errors], color="grey", linestyle=style, label=label)
    axes.plot(_EPSILONS, [100 * _error(_make(name, epsilon)) for epsilon in _EPSILONS], color="teal", label=name)
    axes.set(
        xlabel="epsilon, nats",
        ylabel="standard error, % of the range" if name == "window" else "standard error, points",
        yscale="log",
    )
    axes.legend(frameon=False)
    axes.grid(visible=True, alpha=0.3)
    return _written(figure)


def _others(name: str) -> Iterator[tuple[str, list[float]]]:
    """Compute the errors of others: of the best for as many values; of a mean, those of one bit and of Laplace noise."""
    if name == "window":
        bits = (mechanisms.make(name, domain_size=2, epsilon=epsilon, blocks=1, length=1) for epsilon in _EPSILONS)
        yield "one bit", list(map(_error, bits))
        yield "Laplace noise", [sqrt(2 / epsilon**2 / 10_000) for epsilon in _EPSILONS]
    else:
        rivals = [each for each in mechanisms.names() if each != "coin" and _values(each) == _values(name)]
        yield "least of all", [min(_error(_make(each, epsilon)) for each in rivals) for epsilon in _EPSILONS]


def _pyplot(name: str) -> Any:
    """Import what draws, so that a picture of this name is the same each time."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice

    plt.rcParams["svg.hashsalt"] = name
    return plt


def _written(figure: Any) -> str:
    """Write a figure as SVG."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - slow to import

    written = StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})
    plt.close(figure)
    return written.getvalue()


_MAP = """\
# A map of accuracy

*For those who compare.* Every estimate comes with a standard error and an interval. Are they right? Here each mechanism is
simulated many times, and its errors are compared with what the code says of them.

| | what it is | right if |
|---|---|---|
| ratio | mean squared error over its exact variance, given who answered | 1 |
| pointwise | the share of 95% intervals that hold the truth, all values alike | at least 0.95 |
| simultaneous | the share of runs in which all 95% intervals of the page hold | at least 0.95 |

Intervals have two targets: the *population* that the respondents were drawn from, and the *respondents* themselves. Two
populations are simulated: shares by Zipf's law, and one value that all hold. A name with `-pool` is the mechanism as it is for
texts, with random hash functions and 128 candidates. Figures come with their standard error, `0.987±0.012`.

Reports are not made one by one. Their sums are drawn by the exact probabilities of cells and bits, and decoded by the code of the
service. Tests prove that devices have these probabilities. Respondents send one report each.
"""
_MADE = """\
Not measured here:

* `google_rappor`, which is decoded as `rappor-pool` is: `python benchmarks/rappor.py` measures it;
* `pem` and `tree_hist`, which search for values: `python benchmarks/discovery.py` does;
* `rappor-pool` with 100,000 reports, because its regression takes seconds for each run;
* 1,024 values and pools at other epsilons than 1 and 4.

`python benchmarks/accuracy.py --json docs/reference/accuracy.json` measures all of it.
Every figure is in {download}`accuracy.json`.
"""
_HEADS = (
    "mechanism",
    "values",
    "cells",
    "ratio",
    *(f"{kind}, {target}" for target in accuracy.TARGETS for kind in ("pointwise", "simultaneous")),
)
_OFF = ("mechanism", "values", "epsilon", "reports", "truth", "runs", *_HEADS[3:])


def _accuracy() -> Iterator[tuple[str, str]]:
    """Make the map of accuracy, and its pictures, from the figures that its benchmark wrote."""
    cells = json.loads(ACCURACY.read_text("utf-8"))["cells"]
    ours = [cell for cell in cells if "library" not in cell]
    rivals = [cell for cell in cells if "library" in cell]
    off = [cell for cell in ours if accuracy.off(cell)]
    yield "reference/accuracy-ratio.svg", _strips("ratio", ours, ["ratio"], accuracy.RATIO)
    yield "reference/accuracy-coverage.svg", _strips("coverage", ours, ["coverage", "simultaneous"], (accuracy.COVERAGE, 0.95))
    low, high = accuracy.RATIO
    lines = [
        _MAP,
        "## Where we are off",
        "",
        f"{len(off)} of {len(ours):,} cells have a ratio outside {low} to {high} or a coverage below {accuracy.COVERAGE}.",
        f"{sum('again' in cell for cell in ours)} cells looked so at first. They were measured again, with other seeds and eight",
        "times as long, and only what was measured then counts. The standard errors say what chance may do.",
        "",
        *(_rows(_OFF, map(_cell, sorted(off, key=_distance, reverse=True))) if off else []),
        "## Each mechanism",
        "",
        f"{len(ours):,} cells: {_listed(ours, 'd')} values, epsilon {_listed(ours, 'epsilon')}, {_listed(ours, 'n')} reports.",
        "A line has the least and the greatest ratio of its cells, and their lowest coverage.",
        "",
        "![Ratio of each cell by mechanism](accuracy-ratio.svg)",
        "",
        "![Coverage of each cell by mechanism](accuracy-coverage.svg)",
        "",
        *_rows(_HEADS, _summaries(ours)),
        "## Beside others",
        "",
        "The same truths with the devices and the estimates of pure-ldp 1.2.0 and multi-freq-ldpy 0.2.5, 300 reports, 8 and 128",
        "values, epsilon 1 and 4. They have no intervals. Ratio: squared error over the exact variance of an unbiased estimate.",
        "Bias: the mean error of the share of the most common value, in points, of the cell where it is surest. multi-freq-ldpy",
        "cuts and scales its shares, so both its error and its bias depend on the truth. What is wrong with others, we show in",
        "[Faults in other libraries](rivals.md).",
        "",
        *_rows(("library", "mechanism", "cells", "ratio", "bias, points"), _rivals(rivals)),
        _MADE,
    ]
    yield "reference/accuracy.md", "\n".join(lines)


def _rows(heads: Iterable[str], rows: Iterable[list[str]]) -> list[str]:
    """Write a table."""
    heads = list(heads)
    return [f"| {' | '.join(each)} |" for each in (heads, ["---"] * len(heads), *rows)] + [""]


def _figures(cell: dict[str, Any]) -> list[list[float]]:
    """List the figures of a cell in the order of the tables, each with its standard error."""
    return [cell["ratio"], *(cell[kind][target] for target in accuracy.TARGETS for kind in ("coverage", "simultaneous"))]


def _cell(cell: dict[str, Any]) -> list[str]:
    about = [
        f"`{cell['mechanism']}`",
        f"{cell['d']:,}",
        f"{cell['epsilon']:g}",
        f"{cell['n']:,}",
        cell["truth"],
        f"{cell['runs']:,}",
    ]
    return about + list(map(_text, _figures(cell)))


def _text(figure: list[float]) -> str:
    return f"{figure[0]:.3f}±{figure[1]:.3f}"


def _distance(cell: dict[str, Any]) -> float:
    """Return by how much a cell is off."""
    ratio, *covered = (figure for figure, _ in _figures(cell))
    return max(abs(ratio - 1) - 0.05, accuracy.COVERAGE - min(covered))


def _listed(cells: list[dict[str, Any]], key: str) -> str:
    """List the settings of the cells."""
    numbers = [f"{each:,g}" if isinstance(each, float) else f"{each:,}" for each in sorted({cell[key] for cell in cells})]
    return f"{', '.join(numbers[:-1])} and {numbers[-1]}" if len(numbers) > 1 else numbers[0]


def _summaries(cells: list[dict[str, Any]]) -> Iterator[list[str]]:
    order = list(dict.fromkeys(cell["mechanism"] for cell in cells))
    for (place, d), results in groupby(sorted(cells, key=_by(order)), key=_by(order)):
        ratios, *covered = zip(*map(_figures, results), strict=True)
        ratio = f"{min(ratios)[0]:.3f} to {max(ratios)[0]:.3f}"
        yield [f"`{order[place]}`", f"{d:,}", str(len(ratios)), ratio, *(_text(min(each)) for each in covered)]


def _by(order: list[str]) -> Any:
    return lambda cell: (order.index(cell["mechanism"]), cell["d"])


def _rivals(cells: list[dict[str, Any]]) -> Iterator[list[str]]:
    def key(cell: dict[str, Any]) -> tuple[str, str]:
        return cell["library"], cell["mechanism"]

    for (library, mechanism), group in groupby(cells, key=key):
        results = list(group)
        ratios = [cell["ratio"][0] for cell in results if "ratio" in cell]
        bias, error = max((cell["bias"] for cell in results), key=lambda bias: abs(bias[0]) / bias[1])
        ratio = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "none is stated"
        yield [library, f"`{mechanism}`", str(len(results)), ratio, f"{100 * bias:+.1f}±{100 * error:.1f}"]


def _strips(name: str, cells: list[dict[str, Any]], kinds: list[str], bounds: tuple[float, float]) -> str:
    """Draw the figures of all cells, a strip for each mechanism."""
    order = list(dict.fromkeys(cell["mechanism"] for cell in cells))
    plt = _pyplot(name)
    figure, axes = plt.subplots(figsize=(7, 0.25 * len(order) + 1.2), dpi=200)  # thousands of points: as pixels
    for number, kind in enumerate(kinds):
        points = [
            (order.index(cell["mechanism"]) + (0.3 * number - 0.15 * (len(kinds) - 1)), figure, error)
            for cell in cells
            for figure, error in ([cell[kind]] if kind == "ratio" else cell[kind].values())
        ]
        rows, values, errors = zip(*points, strict=True)
        label = {"coverage": "pointwise"}.get(kind, kind)
        style = {"fmt": ".", "markersize": 3, "elinewidth": 0.3, "alpha": 0.6, "rasterized": True}
        axes.errorbar(values, rows, xerr=errors, label=label, color=("teal", "darkorange")[number], **style)
    for bound in bounds:
        axes.axvline(bound, color="grey", linestyle="--", linewidth=0.8)
    axes.set(yticks=range(len(order)), yticklabels=order, xlabel=f"{name}, with standard errors")
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x", alpha=0.3)
    if len(kinds) > 1:
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(kinds))
    return _written(figure)
