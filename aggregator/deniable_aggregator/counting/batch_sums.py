"""What batches add to the store: cells of tallies, and of weight tallies if reports have bits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from deniable.errors import PayloadError
from deniable_aggregator import tally
from deniable_aggregator.store.sums.deltas import Additions, Deltas, Weights
from deniable_aggregator.tally import set_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store.uploads import batch

Joined = dict[tuple["Stratum", "Layout"], bytes]


def join(
    batches: Iterable[list[batch.Group]],  # the groups of each
) -> Joined:
    """Join the payloads of batches, by stratum and layout."""
    # Decoding mostly returns the same object for equal strata or layouts, and an id is hashed faster than their fields.
    by_object: dict[tuple[int, int], tuple[batch.Group, list[bytes]]] = {}
    for groups in batches:
        for group in groups:
            key = id(group.stratum), id(group.layout)
            if key not in by_object:
                by_object[key] = group, []
            by_object[key][1].append(group.payloads)
    payloads: dict[tuple[Stratum, Layout], list[bytes]] = defaultdict(list)
    for group, parts in by_object.values():
        payloads[group.stratum, group.layout] += parts
    return {of: b"".join(parts) for of, parts in payloads.items()}


def count(
    joined: Joined,  # as `join` returns them
) -> tuple[Deltas, int]:
    """Return the cells to add, by stratum or weights, and the number of reports; PayloadError if no device sends one of them."""
    deltas: Deltas = {}
    reports = 0
    for (stratum, layout), payloads in joined.items():
        reports += len(payloads) // layout.payload_size
        # A few reports of a wide layout change few cells: then only these go to the store.
        additions = tally.count_few(layout, payloads)
        deltas[stratum] = Additions(*additions) if additions else tally.count(layout, payloads).cells
        if layout.kind == "bits":
            deltas[Weights(stratum)] = set_bits.count(layout, payloads)
    return deltas, reports


def countable(groups: list[batch.Group]) -> bool:
    """Return whether a device could have sent all reports of a batch."""
    try:
        count(join([groups]))
    except PayloadError:
        return False
    return True
