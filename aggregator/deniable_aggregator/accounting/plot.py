"""The plot of an account: totals by number of reports, or by days."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from deniable_aggregator.process.plotting import INK, SOFT, STYLE, label, logarithmic, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.accounting.statement import Statement

CURVES = {
    "advanced": ("advanced composition", "#b4530a"),
    "basic": ("plain sum", INK),
    "zcdp": ("zCDP", "#8a6d3b"),
    "renyi": ("Renyi", "#6d5bd0"),
    "optimal": ("exact, any mechanisms", "#0f766e"),
    "exact": ("exact, these mechanisms", "#2563eb"),
}
"""By key of `METHODS`: the name and the color of its line."""


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
        for key, (name, color) in CURVES.items():
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
        logarithmic(panel)
        panel.set(xlim=(counts[0], max(counts[-1], counts[0] + 1)), xlabel=axis, ylabel="epsilon in all")
        label(panel, labels)
        figure.suptitle(f"What all reports of a device tell together, for a delta of {last.delta:g}", weight="bold", size=12)
        save(figure, path)
