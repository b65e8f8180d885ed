"""Uploads: what the relay can check of sealed reports with the registry, which is public."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.declared import Declared
from deniable.registry import period
from deniable.upload_rules import CLOCK_SKEW, Refused, groups, parts, place
from deniable.wire import sealing
from deniable.wire.report import Stratum
from deniable_relay.pools import Crowd

if TYPE_CHECKING:
    from deniable.registry import Registry

_MOST_PLACES = 10_000
_described = itemgetter(*Stratum._fields)
_FIRST, _LAST = 1 / 8, 7 / 8  # of the time for late reports: when a pool closes, and when it closes for good


class Checked(NamedTuple):
    """An upload of which reports can be kept."""

    answer: dict[str, Any]  # to give
    reports: list[tuple[Crowd, list[bytes]]]


class _Place(NamedTuple):
    """What groups of one description have in common."""

    crowd: Crowd  # with the number of no key
    size: int  # bytes of a sealed report
    opens: float  # reports are taken from then on, in seconds since 1970


class Reader:
    """Reads uploads for a registry."""

    def __init__(self, registry: Registry) -> None:
        self.app = registry.app
        self._registry = registry
        self._versions = {name: Declared.of(metric) for name, metric in registry.metrics.items()}
        self._places: dict[Stratum, _Place] = {}

    def read(self, body: bytes, now: float) -> Checked:
        """Check each group of an upload; refuse one without any group that can be kept."""
        reports: list[tuple[Crowd, list[bytes]]] = []
        errors: list[dict[str, Any]] = []
        for number, group in enumerate(groups(body, self.app)):
            try:
                reports += self._group(group, now)
            except Refused as refusal:
                errors.append({"group": number, "code": refusal.code, "count": group["count"], "detail": refusal.detail})
        rejected = sum(error["count"] for error in errors)
        answer = {"accepted": sum(len(sealed) for _, sealed in reports), "rejected": rejected, "errors": errors}
        if not reports:
            raise Refused(422, "all_rejected", "no report of the upload can be kept; do not send it again", **answer)
        return Checked(answer | {"duplicate": False}, reports)

    def _group(self, group: dict[str, Any], now: float) -> list[tuple[Crowd, list[bytes]]]:
        described = Stratum(*_described(group))
        placed = self._places.get(described)
        if placed is None or not placed.opens <= now <= placed.crowd.last:
            placed = self._placed(described, now)
        by_key: dict[int, list[bytes]] = {}
        for sealed in parts(described.metric, group["count"], group["payloads"], placed.size):
            by_key.setdefault(sealed[0], []).append(sealed)
        return [(placed.crowd._replace(number=number), reports) for number, reports in by_key.items()]

    def _placed(self, described: Stratum, now: float) -> _Place:
        declared = self._versions.get(described.metric)
        moment = datetime.fromtimestamp(now, UTC)
        placed = place(self._registry, lambda _: [declared] if declared else [], described, moment, CLOCK_SKEW, sealed=True)
        metric = placed.declared.metric
        end = period.bounds(described.period, metric.period)[1].timestamp()
        late = placed.closes.timestamp() - end
        first, last = end + _FIRST * late, end + _LAST * late
        if now > last:
            raise Refused(400, "period_closed", "the period's reports were forwarded, and no more are taken")
        # Reports are bound to what the device said, so the pool is of that. The server files a segment that is not declared.
        crowd = Crowd(described, 0, metric.crowd, first, last)
        known = _Place(crowd, placed.declared.layout.payload_size + sealing.LONGER, placed.opens.timestamp())
        if placed.stratum == described:  # clients choose the text of others, which must not fill the cache
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            self._places[described] = known
        return known
