"""The census: the exact number of reports of each cell of a closed release.

``{app}:census:<metric>``
    hash from each stratum to its number of reports, as counted, and a digest of what the segments' values generalised to then;
    written by the script that publishes the last release of a period.

Questions that are paid for are answered from it (`deniable_aggregator.budgets`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from deniable_aggregator import shelf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.report import Stratum
    from deniable_aggregator.breakdown import Breakdown
    from deniable_aggregator.store import Store

__all__ = ["Count", "key", "read"]


def key(app: str, metric: str) -> str:
    """Name the key of a metric's census."""
    return f"{{{app}}}:census:{metric}"


@dataclass(frozen=True, slots=True)
class Count:
    """What the census has of a cell.

    Parameters
    ----------
    n
        How many reports there are, exactly.
    kin
        Digest of the breakdown by which they were told apart.
    """

    n: int = field(repr=False)
    kin: str

    @classmethod
    def of(cls, breakdown: Breakdown, n: int) -> Count:
        """Count reports of a cell of a breakdown."""
        return cls(n, _kin(breakdown))

    def fits(self, breakdown: Breakdown) -> bool:
        """Tell whether cells are still what they were: which values there are, and what they generalise to."""
        return self.kin == _kin(breakdown)

    def note(self) -> str:
        """Write it for the census."""
        return json.dumps([self.n, self.kin])


def read(store: Store, strata: Sequence[Stratum]) -> dict[Stratum, Count]:
    """Read what the census has of some strata of one metric, one or more; those that it does not have are left out."""
    names = [shelf.name(stratum) for stratum in strata]
    found = cast("list[bytes | None]", store.redis.hmget(key(store.app, strata[0].metric), names))
    return {stratum: Count(*json.loads(note)) for stratum, note in zip(strata, found, strict=True) if note is not None}


def _kin(breakdown: Breakdown) -> str:
    tree = [[name, [breakdown.chain(name, value) for value in values]] for name, values in breakdown.values.items()]
    return sha256(json.dumps(tree).encode()).hexdigest()[:16]
