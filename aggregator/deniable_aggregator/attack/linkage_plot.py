"""The plot of a linkage attack: who is found and what is guessed, one panel for each story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from deniable_aggregator.process.plotting import INK, LINE, SOFT, STYLE, save

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from deniable_aggregator.attack.linkage import Linked

_FOUND, _GUESSED = "#b4530a", "#0f766e"
_TITLES = {"voters": "A clinic and a voters' roll", "reviews": "Ratings and public reviews"}


def draw(
    results: Mapping[str, Sequence[Linked]],  # by the name of the story, at least one
    path: str,  # file to write; its ending gives the format, e.g. `.svg` or `.png`
) -> None:
    """Plot what is found; raise `ConfigurationError` if the file cannot be written."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 1.2 + 0.38 * sum(map(len, results.values()))), layout="constrained")
        panels = figure.subplots(len(results), squeeze=False, sharex=True).ravel().tolist()
        for panel, (story, linked) in zip(panels, results.items(), strict=True):
            _panel(panel, linked)
            panel.set_title(_TITLES[story], loc="left", size=10, color=SOFT)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
        panels[-1].set_xlabel("people")
        save(figure, path)


def _panel(panel: Axes, results: Sequence[Linked]) -> None:
    for place, linked in enumerate(results):
        named, claims, guesses, without = (
            each / linked.people for each in (linked.named, linked.right_claims, linked.guesses, linked.without)
        )
        first = place == 0
        panel.barh(place - 0.2, named, 0.34, color=_FOUND, alpha=0.35, label="record or report found" if first else None)
        panel.barh(place + 0.2, claims, 0.34, color=_GUESSED, alpha=0.35, label="answer claimed, and right" if first else None)
        panel.plot([without, guesses], [place + 0.2] * 2, color=_GUESSED, linewidth=1.5)
        panel.plot(guesses, place + 0.2, color=_GUESSED, marker="o", linestyle="", label="best guess is right" if first else None)
        panel.plot(
            without,
            place + 0.2,
            color=INK,
            marker="o",
            fillstyle="none",
            linestyle="",
            label="the same, had the person stayed away" if first else None,
        )
    panel.set(xlim=(0, 1.02), ylim=(len(results) - 0.5, -0.5))
    panel.set_yticks(range(len(results)), [linked.published for linked in results])
    panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.grid(axis="x", color=LINE, linewidth=0.8)
    panel.set_axisbelow(True)
