"""How ``plan`` and ``simulate`` show metrics that devices do not record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def marked(
    metric: str,  # an id
    off: Mapping[str, str],  # why metrics are off, by id
) -> str:
    """Write a metric as the first cell of its row."""
    return f"{metric} (off)" if metric in off else metric


def lines(
    off: Mapping[str, str],  # as for `marked`
) -> Iterator[str]:
    """Say what the mark means, and why each metric has it."""
    if off:
        yield "off: devices do not record it. What its row says is what it would show if they did."
    for metric, why in off.items():
        yield f"{metric} is off: {why}"
