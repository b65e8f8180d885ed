"""The checks of an upload for `StubServer`, made with the SDK's own modules.

The rules, their order and their codes are those of the real ingest. A test compares the two.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from binascii import Error as Base64Error
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deniable import mechanisms
from deniable.declared import Declared
from deniable.errors import ParameterError, PayloadError
from deniable.registry import period
from deniable.wire.report import FORMAT, MAX_BODY_BYTES, MAX_INFLATED_BYTES, Report, Stratum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Metric, Registry

__all__ = ["Refusal", "check", "identify", "inflate"]

_MAX_KEY = 128
_CLOCK_SKEW = timedelta(hours=1)
_MEMBERS = {"metric": str, "version": int, "fingerprint": str, "period": str, "segment": str, "count": int, "payloads": str}


class Refusal(Exception):  # noqa: N818 - a refusal is an answer
    """An upload, or a group of it, is refused.

    Parameters
    ----------
    status
        HTTP status.
    code
        The stable code of the problem.
    extra
        Other members of the answer.
    """

    def __init__(self, status: int, code: str, **extra: Any) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.extra = extra


def identify(headers: Mapping[str, str], key: str) -> str:
    """Check an upload's ingest key, and return its Idempotency-Key.

    Raises
    ------
    Refusal
        If either is missing or wrong.
    """
    kind, _, given = headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not given:
        raise Refusal(401, "missing_key")
    if given.strip() != key:
        raise Refusal(401, "unknown_key")
    upload = headers.get("Idempotency-Key", "")
    if not 0 < len(upload) <= _MAX_KEY or not upload.isprintable():
        raise Refusal(400, "idempotency_key")
    return upload


def inflate(headers: Mapping[str, str], wire: bytes) -> bytes:
    """Return the decompressed body of an upload.

    Raises
    ------
    Refusal
        If it is too large, has another content type, or is not one whole gzip member.
    """
    if len(wire) > MAX_BODY_BYTES:
        raise Refusal(413, "body_too_large")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "media_type")
    encoding = headers.get("Content-Encoding", "identity").lower()
    if encoding == "identity":
        return wire
    if encoding != "gzip":
        raise Refusal(415, "content_encoding")
    inflater = zlib.decompressobj(wbits=31)
    try:
        body = inflater.decompress(wire, MAX_INFLATED_BYTES + 1)
    except zlib.error:
        raise Refusal(400, "gzip") from None
    if len(body) > MAX_INFLATED_BYTES:
        raise Refusal(413, "inflated_too_large")
    if not inflater.eof or inflater.unused_data:
        raise Refusal(400, "gzip")
    return body


def check(body: bytes, registry: Registry | None) -> tuple[dict[str, Any], list[Report]]:
    """Check a batch.

    Parameters
    ----------
    body
        JSON, as `deniable.wire.report.encode` writes it.
    registry
        The registry; None to check only the batch's shape.

    Returns
    -------
    tuple
        The answer, and the accepted reports.

    Raises
    ------
    Refusal
        If no report is accepted.
    """
    accepted: list[Report] = []
    errors: list[dict[str, Any]] = []
    for number, group in enumerate(_groups(body)):
        try:
            good, bad = _taken(group, registry)
        except Refusal as refusal:
            errors.append({"group": number, "code": refusal.code, "count": group["count"]})
            continue
        accepted += good
        if bad:
            errors.append({"group": number, "code": bad[0], "count": len(bad)})
    rejected = sum(error["count"] for error in errors)
    if not accepted:
        raise Refusal(422, "all_rejected", accepted=0, rejected=rejected, errors=errors)
    return {"accepted": len(accepted), "rejected": rejected, "errors": errors}, accepted


def _groups(body: bytes) -> list[dict[str, Any]]:
    try:
        document = json.loads(body)
    except ValueError:
        raise Refusal(400, "json") from None
    whole = isinstance(document, dict) and document.keys() == {"format", "groups"} and type(document["format"]) is int
    if not whole or not isinstance(document["groups"], list) or not all(map(_is_group, document["groups"])):
        raise Refusal(400, "batch_shape")
    if document["format"] != FORMAT:
        raise Refusal(400, "batch_format")
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
    layout = None
    if registry is not None:
        metric = _metric(group, registry)
        _check_period(group["period"], metric)
        group = group | {"segment": _filed(group["segment"], metric, registry)}
        layout = mechanisms.of(metric).layout
    count = group["count"]
    try:
        payloads = b64decode(group["payloads"], validate=True)
    except (Base64Error, ValueError):
        raise Refusal(400, "base64") from None
    if not count or not payloads or len(payloads) % count or (layout and len(payloads) != count * layout.payload_size):
        raise Refusal(400, "payload_length")
    size = len(payloads) // count
    stratum = Stratum(*(group[name] for name in Stratum._fields))
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


def _metric(group: dict[str, Any], registry: Registry) -> Metric:
    metric = registry.metrics.get(group["metric"])
    if metric is None:
        raise Refusal(400, "unknown_metric")
    if group["version"] != metric.version:
        raise Refusal(400, "unknown_version")
    if group["fingerprint"] != Declared.of(metric).fingerprint:
        raise Refusal(400, "definition_mismatch")
    if metric.expired(datetime.now(UTC).date()):
        raise Refusal(400, "metric_expired")
    return metric


def _check_period(name: str, metric: Metric) -> None:
    now = datetime.now(UTC)
    try:
        start, _ = period.bounds(name, metric.period)
    except ParameterError:
        raise Refusal(400, "period") from None
    if now > metric.closes(name):
        raise Refusal(400, "period_closed")
    if now < start - _CLOCK_SKEW:
        raise Refusal(400, "period_not_open")


def _filed(written: str, metric: Metric, registry: Registry) -> str:
    try:
        return registry.filed(metric, written)
    except ParameterError:
        raise Refusal(400, "segment") from None
