"""The plot of an averaging attack: success by number of reports, one panel for each mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from deniable_aggregator.process.plotting import INK, LINE, SOFT, STYLE, save, separated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from deniable_aggregator.attack.averaging import Result

_COLORS = {"fresh": "#b4530a", "kept": "#0f766e", "lost": "#6d5bd0"}
_LABELS = {"fresh": "noise drawn anew", "kept": "response kept", "lost": "kept, but lost at times"}
_TOP = 1.04  # end of the success axis
_GAP = 0.065  # between labels, as a share of the axis
_COLUMNS = 2


def draw(
    results: Sequence[Result],  # one panel each, at least one
    path: str,  # file to write; its ending gives the format, e.g. `.svg` or `.png`
) -> None:
    """Plot the success of attacks; raise `ConfigurationError` if the file cannot be written."""
    columns = min(len(results), _COLUMNS)
    rows = -(-len(results) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(0.6 + 5.4 * columns, 0.6 + 3.6 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
        for panel, result in zip(panels, results, strict=False):
            _panel(panel, result)
        for unused in panels[len(results) :]:
            unused.set_axis_off()
        figure.suptitle("Right guesses about a device, from all its reports of one answer", weight="bold", size=12)
        save(figure, path)


def _panel(panel: Axes, result: Result) -> None:
    mechanism, most = result.observer.mechanism, result.curves[0].reports[-1]
    title = f"{mechanism.name}, {mechanism.domain_size} values, ε = {mechanism.epsilon:.3g} a report"
    bound = None
    if permanent := mechanism.in_two_steps:
        title += f", {permanent.epsilon_permanent:.3g} for all"
        bound = result.observer.bound().success
    panel.set_title(title, loc="left", size=10, color=SOFT)
    panel.set(xscale="log", xlim=(1, max(most, 2)), ylim=(0, _TOP), xlabel="reports of one device")
    panel.set_ylabel("right guesses" if panel.get_subplotspec().is_first_col() else "")  # type: ignore[union-attr]
    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda reports, _: f"{reports:,.0f}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", color=LINE, linewidth=0.8)
    panel.set_axisbelow(True)
    guess = float(result.observer.chances.max())
    panel.axhline(guess, color=SOFT, linewidth=1, linestyle=":")
    labels = [(guess, f"no report: {guess:.1%}", SOFT)]
    if bound is not None:
        panel.axhline(bound, color=INK, linewidth=1.2, linestyle="--", zorder=3)
        labels.append((bound, f"bound: {bound:.1%}", INK))
    for curve in result.curves:
        color = _COLORS[curve.way]
        panel.fill_between(curve.reports, curve.low, curve.high, color=color, alpha=0.16, linewidth=0)
        panel.plot(curve.reports, curve.success, color=color, linewidth=2, marker="o", markersize=3.5, clip_on=False)
        labels.append((curve.success[-1], _LABELS[curve.way], color))
    for height, (_, text, color) in zip(separated([label[0] / _TOP for label in labels], _GAP), labels, strict=True):
        panel.annotate(
            text, (1, height), (8, 0), "axes fraction", "offset points", color=color, va="center", annotation_clip=False
        )
