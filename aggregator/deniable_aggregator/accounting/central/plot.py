"""The plot of noise: its Renyi divergence over the order, and the epsilon over the number of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from deniable_aggregator.accounting.plot import CURVES
from deniable_aggregator.process.plotting import STYLE, label, logarithmic, save

if TYPE_CHECKING:
    from deniable_aggregator.accounting.central.curves import Curves

_EXACT = "exact, this noise"


def draw(
    curves: Curves,
    path: str,  # file to write; its ending gives the format, e.g. `.svg` or `.png`
) -> None:
    """Draw both curves on logarithmic axes; raise `ConfigurationError` if the file cannot be written."""
    noise, last = curves.noise, curves.totals[-1]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(curves.orders, curves.divergences, color=CURVES["renyi"][1], linewidth=2)
        logarithmic(left)
        left.set(xlabel="order alpha", ylabel="Renyi divergence of all queries, nats")
        ends = []
        for key, (name, color) in CURVES.items():
            if key in last:
                totals = [each[key] for each in curves.totals]
                line = "--" if key == "renyi" else "-"  # of Gaussian noise it lies on the line of zCDP
                right.plot(curves.queries, totals, line, color=color, linewidth=2 if key in ("basic", "exact") else 1.2)
                ends.append((totals[-1], _EXACT if key == "exact" else name, color))
        logarithmic(right)
        most = max(curves.queries[-1], curves.queries[0] + 1)
        right.set(xlim=(curves.queries[0], most), xlabel="queries", ylabel=f"epsilon in all, delta {curves.delta:g}")
        label(right, ends)
        title = f"{noise.name} noise, {noise.parameter} {noise.scale:g}, sensitivity {noise.sensitivity:g}"
        figure.suptitle(title, weight="bold", size=12)
        save(figure, path)
