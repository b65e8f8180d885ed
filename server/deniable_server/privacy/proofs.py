"""Proofs by enumeration for a report: of each metric's mechanism, or of the same one with fewer answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.proof import prove

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.proof import Proof
    from deniable.registry import Metric

_PAYLOADS = 1 << 14  # times values: this is walked in a few seconds
_FEW = 3  # answers of the smaller mechanism
_FEW_SETS = 8  # those of sets of three options


@dataclass(frozen=True, slots=True)
class Proved:
    """The result of walking every draw."""

    metric: str  # its id
    proof: Proof | None  # of its own mechanism, or of the same one with fewer answers; None if neither can be walked here
    own: bool  # whether it is its own mechanism


def attempt(metric: Metric, mechanism: Mechanism) -> Proved:
    """Prove a metric's mechanism by walking all draws; if these are too many, the same one with few answers."""
    if _walkable(mechanism):
        return Proved(metric.id, prove(mechanism), own=True)
    try:
        size = _FEW_SETS if metric.kind.options else _FEW
        few = mechanism.resized(size)
    except ParameterError:
        return Proved(metric.id, None, own=False)
    return Proved(metric.id, prove(few) if _walkable(few) else None, own=False)


def _walkable(mechanism: Mechanism) -> bool:
    layout = mechanism.layout
    payloads = layout.rows * (layout.width if layout.kind == "index" else 1 << min(layout.width, 64))
    return payloads * min(mechanism.domain_size, _PAYLOADS) <= _PAYLOADS
