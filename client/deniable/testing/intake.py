"""The checks of an upload for `StubServer`, made with the SDK's own modules.

Rules that both keep stand in `deniable.upload_rules`. JSON is read by other means here, because the SDK has no msgspec. A test
compares all answers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.errors import PayloadError
from deniable.process.clock import now
from deniable.upload_rules import CLOCK_SKEW, Refused, bearer, check_key, groups, inflated, parts, place
from deniable.wire import sealing
from deniable.wire.report import MAX_BODY_BYTES, MAX_INFLATED_BYTES, Report, Stratum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Registry


def identify(headers: Mapping[str, str], key: str) -> str:
    """Check an upload's ingest key, and return its Idempotency-Key; raise `Refused` if either is missing or wrong."""
    if bearer(headers.get("Authorization", ""), "the app's ingest key") != key:
        raise Refused(401, "unknown_key")
    upload = headers.get("Idempotency-Key", "")
    check_key(upload)
    return upload


def inflate(headers: Mapping[str, str], wire: bytes) -> bytes:
    """Return the decompressed body of an upload; raise `Refused` if it is too large, or not one whole gzip member."""
    if len(wire) > MAX_BODY_BYTES:
        raise Refused(413, "body_too_large")
    encoding = headers.get("Content-Encoding", "identity")
    return inflated(wire, headers.get("Content-Type", ""), encoding, MAX_INFLATED_BYTES)


def check(
    body: bytes,  # JSON, as `deniable.wire.report.encode` writes it
    registry: Registry | None,  # the registry; None to check only the batch's shape
) -> tuple[dict[str, Any], list[Report]]:
    """Check a batch; return the answer and the accepted reports, or raise `Refused` if none is accepted."""
    accepted: list[Report] = []
    errors: list[dict[str, Any]] = []
    for number, group in enumerate(groups(body, registry.app if registry else None)):
        try:
            good, bad = _taken(group, registry)
        except Refused as refusal:
            errors.append({"group": number, "code": refusal.code, "count": group["count"]})
            continue
        accepted += good
        if bad:
            errors.append({"group": number, "code": bad[0], "count": len(bad)})
    rejected = sum(error["count"] for error in errors)
    if not accepted:
        raise Refused(422, "all_rejected", accepted=0, rejected=rejected, errors=errors)
    return {"accepted": len(accepted), "rejected": rejected, "errors": errors}, accepted


def _taken(group: dict[str, Any], registry: Registry | None) -> tuple[list[Report], list[str]]:
    """Return the good reports of a group, and the code of each bad one."""
    layout, size, stratum = None, None, Stratum(*(group[name] for name in Stratum._fields))
    if registry is not None:
        metric = registry.metrics.get(stratum.metric)
        # With a relay in the registry it is the relay's part that is played: nothing is opened.
        moment, sealed = datetime.fromtimestamp(now(), UTC), registry.relay is not None
        placed = place(registry, lambda _: [Declared.of(metric)] if metric else [], stratum, moment, CLOCK_SKEW, sealed=sealed)
        size, stratum = placed.declared.layout.payload_size + sealing.LONGER * sealed, placed.stratum
        layout = None if sealed else placed.declared.layout
    good: list[Report] = []
    bad: list[str] = []
    for payload in parts(stratum.metric, group["count"], group["payloads"], size):
        try:
            if layout:
                layout.unpack(payload)
        except PayloadError as error:
            bad.append(error.code)
        else:
            good.append(Report(stratum, payload))
    return good, bad
