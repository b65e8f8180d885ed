"""Colours and settings that all plots share."""

from __future__ import annotations

from typing import Any

__all__ = ["INK", "LINE", "SOFT", "STYLE"]

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
