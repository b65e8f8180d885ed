"""The plot of rehearsals: the measured error of each metric beside the predicted one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from deniable_aggregator.process.plotting import INK, LINE, STYLE, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.planning.rehearsal import Result

_MEASURED = "#0f766e"


def draw(
    results: Sequence[Result],  # one line each, at least one
    path: str,  # file to write; its ending gives the format, e.g. `.svg` or `.png`
) -> None:
    """Plot the errors of rehearsals; raise `ConfigurationError` if the file cannot be written."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.4 + 0.45 * len(results)), layout="constrained")
        panel = figure.subplots()
        for place, result in enumerate(results):
            spread = result.measured * 2 * result.ratio_stderr
            panel.errorbar(result.measured, place, xerr=spread, color=_MEASURED, marker="o", label=None if place else "measured")
            if result.predicted:
                panel.plot(result.predicted, place, color=INK, marker="|", markersize=16, label=None if place else "predicted")
        panel.set(xscale="log", xlabel="standard error of a share, or of a mean", ylim=(len(results) - 0.5, -0.5))
        panel.set_yticks(range(len(results)), [f"{result.metric} ({result.mechanism})" for result in results])
        panel.grid(axis="x", color=LINE, linewidth=0.8)
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
        save(figure, path)
