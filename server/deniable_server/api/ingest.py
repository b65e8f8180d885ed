"""Ingest: ``POST /v1/reports`` takes a batch, checks all its reports, and appends it to the stream once.

``GET /v1/registry`` sends the signed registry to devices.
"""

from __future__ import annotations

import logging
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from flask import Blueprint, Response, g, request
from werkzeug.wsgi import get_content_length

from deniable.errors import ParameterError
from deniable.registry import period
from deniable.wire import report
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.store import batch, deltas, refused_reports
from deniable_aggregator.store.errors import StoreError, StoreFull
from deniable_server.api.auth import app_by_ingest_key, upload_key, uploader
from deniable_server.http.problem import RETRY_SECONDS, Problem
from deniable_server.service import Collected, service

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable_server.service import App
    from deniable_server.settings import Settings

__all__ = ["REJECTIONS", "Batch", "Group", "blueprint", "check_batch"]

blueprint = Blueprint("ingest", __name__)

log = logging.getLogger("deniable.server")

_MAX_KEY = 128
_MAX_ERRORS = 100
_MOST_COLLECTED = 10_000
_MOST_PAID = 100_000
_OVERHEAD = 64  # bytes of an upload beside its entry: the record of its key, and its place in the stream
_DIGEST_BYTES = 8

REJECTIONS = (
    *("unknown_metric", "unknown_version", "definition_mismatch", "metric_expired", "period", "period_closed", "period_not_open"),
    *("segment", "base64", "payload_length", "index_range", "row_range", "padding_bits"),
)
"""Codes of refused groups, and of refused reports in them."""


# No payload is empty, so an upload has at most as many reports as bytes. Valid numbers have at most seven digits.
_Count = Annotated[int, msgspec.Meta(ge=0, le=report.MAX_INFLATED_BYTES)]


class Group(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Reports of one metric, version, period and segment, their payloads joined and in base64."""

    metric: str
    version: _Count
    fingerprint: str
    period: str
    segment: str
    count: _Count
    payloads: str


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """The content of an upload."""

    format: int
    groups: list[Group]


_decoder = msgspec.json.Decoder(Batch)


@dataclass(frozen=True, slots=True)
class _Rejection:
    """Reports of one group that are refused for one reason."""

    group: int
    code: str
    count: int
    detail: str


@blueprint.post("/v1/reports")
def reports() -> Response:
    """Take a batch of reports.

    202 with the numbers accepted and rejected; rejected reports need not be sent again. If an upload is repeated with the same
    Idempotency-Key, it gets the same numbers with ``duplicate`` true, and is not counted again.
    """
    app, limits = uploader()
    known = service()
    try:
        key, body = _key(), _body(known.settings)
    except Problem:
        known.limits.take(limits)  # it counts, even if it is malformed
        raise
    try:
        answer, entry, growth = check_batch(app, known.settings, body)
    except Problem as problem:
        known.limits.take(limits)
        remembered = app.store.recall(key, known.settings.idempotency_ttl)  # it may have been accepted while its period was open
        if remembered is None:
            _note_refused(app)
            raise
        return _repeated(remembered, key, body, problem.extra)
    volumes = known.limits.storing(app.store.partition(key), len(entry) + _OVERHEAD + sum(growth.values()))
    appended = app.store.append(
        entry,
        key=key,
        remember=_remembered(key, body, answer),
        cap=known.settings.max_backlog,
        ttl=known.settings.idempotency_ttl,
        limits=limits,
        volumes=volumes,
    )
    if appended.outcome == "appended":
        if growth:
            _note_paid(app, growth)
        _note_refused(app)
        return _answer(answer, duplicate=False)
    if appended.excess:
        raise known.limits.problem([*limits, *volumes], appended.excess)
    if appended.outcome == "full":
        detail = "more batches wait to be counted than this server holds; try again later"
        raise Problem(503, "backlog_full", detail, retry_after=RETRY_SECONDS)
    if appended.outcome == "no room":
        with suppress(StoreFull):
            known.limits.take(limits)
        detail = "the store has no memory left for uploads; try again later"
        raise Problem(503, "store_full", detail, retry_after=RETRY_SECONDS)
    return _repeated(appended.previous, key, body, answer)


@blueprint.get("/v1/registry")
def registry() -> Response:
    """Send the signed registry: complete, and the same bytes for every device."""
    envelope = app_by_ingest_key().envelope
    if envelope is None:
        raise Problem(404, "no_signed_registry", "this server has no signed registry for devices, which use the one in their app")
    return Response(envelope.write(), mimetype="application/json")


def _answer(answer: dict[str, Any], *, duplicate: bool) -> Response:
    g.outcome, g.accepted = "duplicate" if duplicate else "accepted", answer["accepted"]
    return Response(msgspec.json.encode(answer | {"duplicate": duplicate}), 202, content_type="application/json")


def _note_paid(app: App, growth: dict[bytes, int]) -> None:
    if len(app.paid) + len(growth) > _MOST_PAID:
        app.paid.clear()
    app.paid.update(growth)


def _note_refused(app: App) -> None:
    """Count the refused reports of an upload for the owner. An error here does not fail the upload."""
    told = g.get("refused", ())
    if not told:
        return
    reports: Counter[tuple[str, int, str]] = Counter()
    for metric, version, code, number in told:
        found = app.versions.get((metric, version), app.highest.get(metric))
        reports[(metric, found.metric.version, code) if found else ("", 0, code)] += number
    try:
        refused_reports.add(app.store, reports)
    except StoreError as error:
        log.warning("refused reports could not be counted (%s)", type(error).__name__)


def _remembered(key: str, body: bytes, answer: dict[str, Any]) -> bytes:
    """Return the record of an upload: eight bytes of digest, and the numbers of its answer."""
    # The digest includes the key, which is not in the store. So a reader of the store cannot try which reports an upload had.
    digest = sha256(f"{key}\n".encode() + body).digest()[:_DIGEST_BYTES]
    return digest + msgspec.msgpack.encode((answer["accepted"], answer["rejected"]))


def _repeated(remembered: bytes, key: str, body: bytes, now: dict[str, Any]) -> Response:
    """Answer an upload whose key is known: with the numbers of the first answer, and with its errors if they are the same now."""
    accepted, rejected = msgspec.msgpack.decode(remembered[_DIGEST_BYTES:])
    first = {"accepted": accepted, "rejected": rejected, "errors": []}
    if not remembered.startswith(_remembered(key, body, first)[:_DIGEST_BYTES]):
        raise Problem(422, "idempotency_mismatch", "this Idempotency-Key was used for another upload; draw a new one for each")
    if (now.get("accepted"), now.get("rejected")) == (accepted, rejected):
        first["errors"] = now["errors"]
    return _answer(first, duplicate=True)


def _key() -> str:
    key = upload_key()
    if not 0 < len(key) <= _MAX_KEY or not key.isprintable():
        raise Problem(400, "idempotency_key", f"an upload carries an Idempotency-Key of 1 to {_MAX_KEY} characters, e.g. a UUID")
    return key


def _body(limits: Settings) -> bytes:
    """Read the body within its limits, before and after decompression."""
    environ = request.environ  # looking up a missing header is faster here
    if get_content_length(environ) is None:
        raise Problem(411, "length_required", "an upload says its length in Content-Length")
    if environ.get("CONTENT_TYPE") != "application/json" and request.mimetype != "application/json":
        raise Problem(415, "media_type", "an upload's Content-Type is application/json")
    encoding = environ.get("HTTP_CONTENT_ENCODING", "identity").lower()
    wire = request.get_data(cache=False)
    if encoding == "identity":
        return wire
    if encoding != "gzip":
        raise Problem(415, "content_encoding", "an upload is sent plain or with Content-Encoding: gzip")
    return _inflate(wire, limits.max_inflated_bytes)


def _inflate(wire: bytes, limit: int) -> bytes:
    """Decompress one gzip member in bounded memory."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        body = inflater.decompress(wire, limit + 1)
    except zlib.error:
        raise Problem(400, "gzip", "the body is not valid gzip") from None
    if len(body) > limit:
        raise Problem(413, "inflated_too_large", f"an upload has at most {limit} bytes after decompression; send smaller batches")
    if not inflater.eof or inflater.unused_data:
        raise Problem(400, "gzip", "the body is one whole gzip member")
    return body


def check_batch(app: App, limits: Settings, body: bytes) -> tuple[dict[str, Any], bytes, dict[bytes, int]]:
    """Check a batch; return the answer to give, the entry to append, and what its sums take in the store.

    The last are bytes, by the kind of a group, of those that no upload to this process has paid for.
    """
    try:
        given = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(400, "batch_shape", f"the batch does not have the documented shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):  # a text inside is not UTF-8
        raise Problem(400, "json", "the body is not valid JSON") from None
    if given.format != report.FORMAT:
        raise Problem(400, "batch_format", f"this server reads batch format {report.FORMAT}; got {given.format}")
    now = datetime.now(UTC).timestamp()
    groups: list[tuple[bytes, bytes]] = []
    growth: dict[bytes, int] = {}
    rejections: list[_Rejection] = []
    accepted = 0
    for index, group in enumerate(given.groups):
        try:
            of, payloads, bad = _group(app, limits, group, now)
        except Problem as problem:
            rejections.append(_Rejection(index, problem.code, group.count, problem.detail))
            continue
        accepted += group.count
        if bad:
            rejections.append(_Rejection(index, *bad))
            accepted -= bad[1]
        if payloads:
            groups.append((of.kind, payloads))
            if of.kind not in app.paid:
                growth[of.kind] = deltas.STRATUM + deltas.most_bytes(of.layout, len(payloads) // of.size)
    rejected = sum(rejection.count for rejection in rejections)
    errors = [asdict(rejection) for rejection in rejections[:_MAX_ERRORS]]
    # Payloads are not empty, so a group has at most this many reports, whatever number it states.
    g.refused = [
        (group.metric, group.version, each.code, min(each.count, len(group.payloads)))
        for each in rejections
        for group in (given.groups[each.group],)
    ]
    if not accepted:
        detail = "no report of the batch can be counted; do not send it again"
        raise Problem(422, "all_rejected", detail, accepted=0, rejected=rejected, errors=errors)
    return {"accepted": accepted, "rejected": rejected, "errors": errors}, batch.join(groups), growth


def _group(app: App, limits: Settings, group: Group, now: float) -> tuple[Collected, bytes, tuple[str, int, str] | None]:
    """Check a group; return what it has in common with others, its valid reports, and code, number and rule of the rest."""
    collected = app.collected.get((group.metric, group.version, group.fingerprint, group.period, group.segment))
    if collected is None or not collected.opens <= now <= collected.closes:
        collected = _collected(app, limits, group, datetime.fromtimestamp(now, UTC))
    try:
        payloads = a2b_base64(group.payloads, strict_mode=True)
    except (Base64Error, ValueError):
        raise Problem(400, "base64", "payloads are standard base64 with padding") from None
    size = collected.size
    if not group.count or len(payloads) != group.count * size:
        expected = f"{group.count} payloads of {size} bytes"
        raise Problem(400, "payload_length", f"a group of {group.metric} holds {expected}; got {len(payloads)} bytes")
    for place, allowed in collected.valid_bytes:
        if payloads[place::size].translate(None, allowed):
            good, bad, reason = tally.sift(collected.layout, payloads)
            return collected, good, (reason.code, bad, str(reason)) if reason else None
    return collected, payloads, None


def _declared(app: App, group: Group, now: datetime) -> Declared:
    declared = app.versions.get((group.metric, group.version))
    if declared is None:
        known = ", ".join(str(each.metric.version) for each in app.versions_of(group.metric))
        if not known:
            raise Problem(400, "unknown_metric", f"no registry of {app.name} declares such a metric")
        raise Problem(400, "unknown_version", f"versions of {group.metric} here are {known}; got {group.version}")
    metric = declared.metric
    if group.fingerprint != declared.fingerprint:
        raise Problem(
            400,
            "definition_mismatch",
            f"the device's registry defines {metric.id} version {metric.version} differently from this server's",
        )
    if metric.expires and metric.expired(now.date()):
        raise Problem(400, "metric_expired", f"collection of {metric.id} ended on {metric.expires}")
    return declared


def _collected(app: App, limits: Settings, group: Group, now: datetime) -> Collected:
    """Check the description of a group. The result is cached if all is declared; there are few of these."""
    declared = _declared(app, group, now)
    metric, layout = declared.metric, declared.layout
    try:
        start, _ = period.bounds(group.period, metric.period)
    except ParameterError as error:
        raise Problem(400, "period", f"{error.rule}") from None
    opens, closes = start - timedelta(seconds=limits.clock_skew), metric.closes(group.period)
    if now > closes:
        raise Problem(400, "period_closed", f"the period ended more than {metric.grace} ago and takes no more reports")
    if now < opens:
        raise Problem(400, "period_not_open", "the period has not begun; check the device's clock")
    try:
        segment = app.registry.filed(metric, group.segment)
    except ParameterError as error:
        raise Problem(400, "segment", error.rule) from None
    if metric.expires:
        closes = min(closes, datetime.combine(metric.expires + timedelta(days=1), time(), UTC) - timedelta(microseconds=1))
    stratum = Stratum(group.metric, group.version, group.fingerprint, group.period, segment)
    found = Collected(
        layout, batch.kind(stratum, layout), layout.payload_size, tally.valid_bytes(layout), opens.timestamp(), closes.timestamp()
    )
    if segment != group.segment:
        return found
    if len(app.collected) >= _MOST_COLLECTED:
        app.collected.clear()
    app.collected[stratum] = found
    return found
