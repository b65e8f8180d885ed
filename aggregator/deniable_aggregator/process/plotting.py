"""Colours and settings that all plots share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
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


def save(figure: Figure, path: str) -> None:
    """Write a plot to a file, whose ending gives the format, such as ``.svg`` or ``.png``."""
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.endswith(".svg") else None)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--plot cannot be written: {error}") from None
