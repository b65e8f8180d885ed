"""The plot of an account: totals by number of reports, or by days."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from deniable_aggregator.process.plotting import INK, LINE, SOFT, STYLE, save, separated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.accounting.statement import Statement

_CURVES = {
    "advanced": ("advanced composition", "#b4530a"),
    "basic": ("plain sum", INK),
    "zcdp": ("zCDP", "#8a6d3b"),
    "renyi": ("Renyi", "#6d5bd0"),
    "optimal": ("exact, any mechanisms", "#0f766e"),
    "exact": ("exact, these mechanisms", "#2563eb"),
}
_WHOLE = 1000.0  # totals from here on are written without decimals
_GAP = 0.055  # between labels, as a share of the axis


def draw(
    axis: str,  # what the axis counts, e.g. "reports of one device"
    places: Sequence[tuple[int, Statement]],  # places on the axis, ascending, each with its account
    path: str,  # file to write; its ending gives the format, e.g. `.svg` or `.png`
    flat: Sequence[tuple[str, float]] = (),  # totals that are the same everywhere, with their names
) -> None:
    """Draw totals on two logarithmic axes; raise `ConfigurationError` if the file cannot be written."""
    counts = [count for count, _ in places]
    last = places[-1][1].accounts[0]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.6), layout="constrained")
        panel = figure.subplots()
        labels = []
        for key, (name, color) in _CURVES.items():
            if key in last.totals:
                totals = [statement.accounts[0].totals[key] for _, statement in places]
                panel.plot(
                    counts, totals, color=color, linewidth=2 if key in ("basic", "optimal", "exact") else 1.2, clip_on=False
                )
                labels.append((totals[-1], name, color))
        budget = [statement.allowed for _, statement in places]
        levels = [(name, [total] * len(places)) for name, total in flat]
        levels += [("the budget allows", budget)] if all(map(isfinite, budget)) else []
        for name, totals in levels:
            panel.plot(counts, totals, color=SOFT, linewidth=1.5, linestyle="--", drawstyle="steps-post")
            labels.append((totals[-1], name, SOFT))
        panel.set(xscale="log", yscale="log", xlim=(counts[0], max(counts[-1], counts[0] + 1)), xlabel=axis)
        panel.set_ylabel("epsilon in all")
        for side in (panel.xaxis, panel.yaxis):
            side.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.6g}"))
            side.set_minor_formatter(NullFormatter())
        panel.grid(axis="y", color=LINE, linewidth=0.8)
        panel.set_axisbelow(True)
        places_of = panel.transAxes.inverted()
        heights = [float(places_of.transform(panel.transData.transform((counts[-1], total)))[1]) for total, _, _ in labels]
        for height, (total, name, color) in zip(separated(heights, _GAP), labels, strict=True):
            text = f"{name}: {total:,.0f}" if total >= _WHOLE else f"{name}: {total:.4g}"
            panel.annotate(
                text, (1, height), (8, 0), "axes fraction", "offset points", color=color, va="center", annotation_clip=False
            )
        figure.suptitle(f"What all reports of a device tell together, for a delta of {last.delta:g}", weight="bold", size=12)
        save(figure, path)
