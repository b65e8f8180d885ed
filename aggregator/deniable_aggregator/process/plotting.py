"""Colours and settings that all plots share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE = "#1a1f24", "#57616b", "#e6e7e3"
"""Colours of text, of less important text, and of grid lines."""

STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.hashsalt": "deniable",
}
"""For ``matplotlib.rc_context``."""


_GAP = 0.055  # between labels, as a share of the axis
_WHOLE = 1000.0  # totals from here on are written without decimals


def label(
    panel: Axes,
    ends: Sequence[tuple[float, str, str]],  # of each line: its last height, its name and its color
) -> None:
    """Write the name and the last height of each line right of the panel."""
    places = panel.transAxes.inverted()
    heights = [float(places.transform(panel.transData.transform((1, total)))[1]) for total, _, _ in ends]
    for height, (total, name, color) in zip(separated(heights, _GAP), ends, strict=True):
        text = f"{name}: {total:,.0f}" if total >= _WHOLE else f"{name}: {total:.4g}"
        panel.annotate(
            text, (1, height), (8, 0), "axes fraction", "offset points", color=color, va="center", annotation_clip=False
        )


def logarithmic(panel: Axes) -> None:
    """Make both axes logarithmic, with plain numbers, and draw a grid."""
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 - an extra, of which colours need nothing

    panel.set(xscale="log", yscale="log")
    for side in (panel.xaxis, panel.yaxis):
        side.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.6g}"))
        side.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", color=LINE, linewidth=0.8)
    panel.set_axisbelow(True)


def save(figure: Figure, path: str) -> None:
    """Write a plot to a file, whose ending gives the format, such as ``.svg`` or ``.png``."""
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.endswith(".svg") else None)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--plot cannot be written: {error}") from None


def separated(heights: Sequence[float], gap: float) -> list[float]:
    """Move labels up until none is nearer than the gap to another, then down below the top; in shares of a panel's height."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = [heights[i] for i in order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], 1 - gap * (len(placed) - 1 - i))
    return [height for _, height in sorted(zip(order, placed, strict=True))]
