"""The checks of an upload for `StubServer`, made with the SDK's own modules.

Rules that both keep stand in `deniable.upload_rules`. JSON is read by other means here, because the SDK has no msgspec. A test
compares all answers.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.errors import PayloadError
from deniable.process.clock import now
from deniable.upload_rules import Refused, bearer, check_key, inflated, place
from deniable.wire.report import FORMAT, MAX_BODY_BYTES, MAX_INFLATED_BYTES, Report, Stratum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Registry

_CLOCK_SKEW = timedelta(hours=1)
_MEMBERS = {"metric": str, "version": int, "fingerprint": str, "period": str, "segment": str, "count": int, "payloads": str}


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
    for number, group in enumerate(_groups(body)):
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


def _groups(body: bytes) -> list[dict[str, Any]]:
    try:
        document = json.loads(body)
    except ValueError:
        raise Refused(400, "json") from None
    except RecursionError:  # arrays in arrays, thousands deep
        raise Refused(400, "batch_shape") from None
    well_formed = isinstance(document, dict) and document.keys() == {"format", "groups"} and type(document["format"]) is int
    if not well_formed or not isinstance(document["groups"], list) or not all(map(_is_group, document["groups"])):
        raise Refused(400, "batch_shape")
    if document["format"] != FORMAT:
        raise Refused(400, "batch_format")
    groups: list[dict[str, Any]] = document["groups"]
    return groups


def _is_group(group: object) -> bool:
    return (
        isinstance(group, dict)
        and group.keys() == _MEMBERS.keys()
        and all(type(group[name]) is kind for name, kind in _MEMBERS.items())
        and all(0 <= group[name] <= MAX_INFLATED_BYTES for name in ("version", "count"))
    )


def _taken(group: dict[str, Any], registry: Registry | None) -> tuple[list[Report], list[str]]:
    """Return the good reports of a group, and the code of each bad one."""
    layout, stratum = None, Stratum(*(group[name] for name in Stratum._fields))
    if registry is not None:
        metric = registry.metrics.get(stratum.metric)
        placed = place(
            registry, lambda _: [Declared.of(metric)] if metric else [], stratum, datetime.fromtimestamp(now(), UTC), _CLOCK_SKEW
        )
        layout, stratum = placed.declared.layout, placed.stratum
    count = group["count"]
    try:
        payloads = b64decode(group["payloads"], validate=True)
    except (Base64Error, ValueError):
        raise Refused(400, "base64") from None
    if not count or not payloads or len(payloads) % count or (layout and len(payloads) != count * layout.payload_size):
        raise Refused(400, "payload_length")
    size = len(payloads) // count
    good: list[Report] = []
    bad: list[str] = []
    for start in range(0, len(payloads), size):
        payload = payloads[start : start + size]
        try:
            if layout:
                layout.unpack(payload)
        except PayloadError as error:
            bad.append(error.code)
        else:
            good.append(Report(stratum, payload))
    return good, bad
