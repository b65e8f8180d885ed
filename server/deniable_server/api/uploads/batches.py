"""Batches: what an upload holds, and which of its reports can be counted."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from deniable.forecast import space
from deniable.upload_rules import Refused, check_app, joined, place
from deniable.wire import report
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.store.uploads import batch, latest_reports
from deniable_aggregator.store.uploads.latest_reports import LatestReport
from deniable_server.service import Collected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_server.http.visit import Upload
    from deniable_server.service import App
    from deniable_server.settings import Settings

_MAX_ERRORS = 100
_MOST_COLLECTED = 10_000

REJECTIONS = (
    *("unknown_metric", "unknown_version", "definition_mismatch", "relay_only", "metric_expired"),
    *(
        "period",
        "period_closed",
        "period_not_open",
        "segment",
        "base64",
        "payload_length",
        "index_range",
        "row_range",
        "padding_bits",
    ),
)
"""Codes of refused groups, and of refused reports in them."""


# No payload is empty, so an upload has at most as many reports as bytes. Valid numbers have at most seven digits.
_Count = Annotated[int, msgspec.Meta(ge=0, le=report.MAX_INFLATED_BYTES)]


class Group(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Reports of one metric, version, period and segment, their payloads joined and in base64."""

    metric: Annotated[str, msgspec.Meta(description="Id of the metric")]
    version: Annotated[_Count, msgspec.Meta(description="Version of the metric")]
    fingerprint: Annotated[str, msgspec.Meta(description="Digest of all that device and server must agree on")]
    period: Annotated[str, msgspec.Meta(description="Name of the period")]
    segment: Annotated[str, msgspec.Meta(description="The segment, or empty")]
    count: Annotated[_Count, msgspec.Meta(description="Number of reports")]
    payloads: Annotated[str, msgspec.Meta(description="The payloads, joined and in base64")]


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """The content of an upload."""

    format: Annotated[int, msgspec.Meta(description="Number of the format")]
    app: Annotated[str, msgspec.Meta(description="The app that the reports are of")]
    groups: Annotated[list[Group], msgspec.Meta(description="Reports, grouped")]


class PoolPart(msgspec.Struct, forbid_unknown_fields=True):
    """Reports of one pool, sealed."""

    format: Annotated[int, msgspec.Meta(description="Number of the format")]
    app: Annotated[str, msgspec.Meta(description="The app that the reports are of")]
    pool: Annotated[int, msgspec.Meta(ge=1, description="Number of reports of the whole pool")]
    group: Annotated[Group, msgspec.Meta(description="Some of them")]


_decoder = msgspec.json.Decoder(Batch)


class Checked(NamedTuple):
    """A batch of which reports can be counted."""

    answer: dict[str, Any]  # to give
    entry: bytes  # to append
    growth: dict[bytes, int]  # bytes in the store, by the kind of a group, of sums that no upload to this process has paid for


@dataclass(frozen=True, slots=True)
class _Rejection:
    """Reports of one group that are refused for one reason."""

    group: int
    code: str
    count: int
    detail: str


Content = TypeVar("Content", Batch, PoolPart)


def read(decoder: msgspec.json.Decoder[Content], body: bytes, app: App) -> Content:
    """Read the content of an upload; refuse what is no JSON, has another shape or format, or is of another app."""
    try:
        content = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(400, "batch_shape", f"the batch does not have the documented shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):  # a text inside is not UTF-8
        raise Refused(400, "json", "the body is not valid JSON") from None
    if content.format != report.FORMAT:
        raise Refused(400, "batch_format", f"this server reads batch format {report.FORMAT}, not {content.format}")
    check_app(content.app, app.declared.app)
    return content


def check(app: App, limits: Settings, body: bytes, upload: Upload) -> Checked:
    """Check each report of a batch, note in the upload which are refused, and refuse a batch without any that can be counted."""
    content = read(_decoder, body, app)
    now = datetime.now(UTC).timestamp()
    groups: list[tuple[bytes, bytes]] = []
    growth: dict[bytes, int] = {}
    rejections: list[_Rejection] = []
    accepted = 0
    for index, group in enumerate(content.groups):
        try:
            of, payloads, bad = _group(app, limits, group, now)
        except Refused as refusal:
            rejections.append(_Rejection(index, refusal.code, group.count, refusal.detail))
            continue
        accepted += group.count
        if bad:
            rejections.append(_Rejection(index, *bad))
            accepted -= bad[1]
        if payloads:
            groups.append((of.kind, payloads))
            if of.kind not in app.paid:
                growth[of.kind] = space.stratum(of.layout, len(payloads) // of.size)
    # Payloads are not empty, so a group has at most this many reports, whatever number it states.
    upload.refused = [
        (group.metric, group.version, group.fingerprint, rejection.code, min(rejection.count, len(group.payloads)))
        for rejection in rejections
        for group in (content.groups[rejection.group],)
    ]
    upload.latest = _latest(app, content.groups, rejections, int(now))
    errors = [asdict(rejection) for rejection in rejections[:_MAX_ERRORS]]
    answer = {"accepted": accepted, "rejected": sum(rejection.count for rejection in rejections), "errors": errors}
    if not accepted:
        raise Refused(422, "all_rejected", "no report of the batch can be counted; do not send it again", **answer)
    return Checked(answer, batch.join(groups), growth)


def _latest(app: App, groups: Sequence[Group], rejections: Sequence[_Rejection], now: int) -> list[LatestReport]:
    """Return the last reports of a batch; none but in a trial. What no registry declares has no name and no payload."""
    if not app.trial:
        return []
    refused = {rejection.group: rejection for rejection in rejections}
    latest: list[LatestReport] = []
    for index, group in enumerate(groups):
        declared, rejection = app.versions.get((group.metric, group.version)), refused.get(index)
        if declared is None:
            latest.append(LatestReport(now, "", 0, rejection.code if rejection else "", b""))
            continue
        size = declared.layout.payload_size
        with suppress(Base64Error, ValueError):
            payloads = a2b_base64(group.payloads, strict_mode=True)
            for start in range(max(0, len(payloads) - size * latest_reports.MOST), len(payloads) - size + 1, size):
                payload = payloads[start : start + size]
                alone = rejection is None or rejection.count < group.count  # others of the group are accepted
                bad = rejection is not None and (not alone or tally.sift(declared.layout, payload)[1])
                latest.append(LatestReport(now, *declared.definition[:2], rejection.code if rejection and bad else "", payload))
    return latest[-latest_reports.MOST :]


def _group(app: App, limits: Settings, group: Group, now: float) -> tuple[Collected, bytes, tuple[str, int, str] | None]:
    """Check a group; return what it has in common with others, its valid reports, and code, number and rule of the rest."""
    collected = app.collected.get((group.metric, group.version, group.fingerprint, group.period, group.segment))
    if collected is None or not collected.opens <= now <= collected.closes:
        collected = _collected(app, limits, group, datetime.fromtimestamp(now, UTC))
    size = collected.size
    payloads = joined(group.metric, group.count, group.payloads, size)
    # Deleting the valid bytes at a place leaves nothing of valid reports. This is a fast test; `sift` decides report by report.
    for start, allowed in collected.valid_bytes:
        if payloads[start::size].translate(None, allowed):
            good, bad, reason = tally.sift(collected.layout, payloads)
            return collected, good, (reason.code, bad, str(reason)) if reason else None
    return collected, payloads, None


def _collected(app: App, limits: Settings, group: Group, now: datetime) -> Collected:
    """Check the description of a group, and cache what its like have in common."""
    described = Stratum(group.metric, group.version, group.fingerprint, group.period, group.segment)
    placed = place(app.registry, app.versions_of, described, now, timedelta(seconds=limits.clock_skew))
    layout = placed.declared.layout
    collected = Collected(
        layout,
        batch.kind(placed.stratum, layout),
        layout.payload_size,
        tally.valid_bytes(layout),
        placed.opens.timestamp(),
        placed.closes.timestamp(),
    )
    # A segment that is not declared is counted as another. Clients choose its text, so it must not fill the cache.
    if placed.stratum != described:
        return collected
    if len(app.collected) >= _MOST_COLLECTED:
        app.collected.clear()
    app.collected[described] = collected
    return collected
