"""Pools: ``POST /v1/pools`` takes a part of a pool from a relay, and opens its reports one by one.

A report that does not open, or has another layout inside, is refused by itself. So one device cannot spoil a pool. Reports are
known by digests, so a part that comes again adds nothing, under whatever name.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from flask import Blueprint, Response

from deniable.errors import PayloadError
from deniable.upload_rules import Place, Refused, parts, place
from deniable.wire import addresses, sealing
from deniable.wire.report import Stratum
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.uploads import refused_reports
from deniable_aggregator.store.uploads.batch import Opened
from deniable_server.api.auth import app_by_relay_key
from deniable_server.api.uploads import batches, intake
from deniable_server.api.uploads.batches import PoolPart
from deniable_server.http.problem import RETRY_SECONDS, Problem
from deniable_server.http.visit import visit
from deniable_server.service import service

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable.wire.layout import Layout
    from deniable_server.service import App, Service

blueprint = Blueprint("pools", __name__)


_decoder = msgspec.json.Decoder(PoolPart)


@blueprint.post(addresses.POOLS)
def pools() -> Response:
    """Take a part of a pool."""
    app = app_by_relay_key()
    if lack := service().opener.lacks(app.declared):
        raise Problem(503, "no_sealing_key", lack, retry_after=RETRY_SECONDS)
    answer = _take(service(), app, intake.read_body(visit(), service().settings.max_inflated_bytes))
    return Response(msgspec.json.encode(answer), 202, content_type="application/json")


def _take(known: Service, app: App, body: bytes) -> dict[str, Any]:
    part = batches.read(_decoder, body, app)
    group = part.group
    described = Stratum(group.metric, group.version, group.fingerprint, group.period, group.segment)
    placed = place(
        app.registry, app.versions_of, described, datetime.now(UTC), timedelta(seconds=known.settings.clock_skew), sealed=True
    )
    declared = placed.declared
    least = declared.metric.crowd
    if part.pool < least:
        rule = f"a pool of {group.metric} has at least {least} reports, and this one has {part.pool}"
        raise Refused(422, "pool_too_small", f"{rule}: let the relay read the metrics.toml of this server")
    size = declared.layout.payload_size + sealing.LONGER
    sealed = parts(group.metric, group.count, group.payloads, size)
    payloads = known.opener.open(app.declared.app, described, sealed)
    refused: Counter[str] = Counter()
    good: list[tuple[bytes, bytes]] = []
    for report_, payload in zip(sealed, payloads, strict=True):
        code = _fault(declared.layout, payload)
        if code:
            refused[code] += 1
        else:
            good.append((report_, payload or b""))
    new = _append(known, app, placed, good) if good else 0
    _note(app, declared, refused)
    visit().upload.outcome, visit().upload.accepted = "accepted", new
    return {"accepted": len(good), "new": new, "rejected": refused.total(), "errors": refused}


def _fault(layout: Layout, payload: bytes | None) -> str:
    """Return the code of a report that cannot be counted, or an empty text."""
    if payload is None:
        return "seal"
    try:
        layout.unpack(payload)
    except PayloadError as error:
        return error.code
    return ""


def _append(known: Service, app: App, placed: Place, reports: list[tuple[bytes, bytes]]) -> int:
    """Append reports that are not there; return how many."""
    sealed, payloads = zip(*reports, strict=True)
    opened = Opened(placed.stratum, placed.declared.layout, sealed, payloads, known.settings.max_backlog, placed.closes)
    admitted = app.store.admit(opened)
    if admitted.outcome != "appended":
        code = "backlog_full" if admitted.outcome == "full" else "store_full"
        raise Problem(503, code, "the store has no room now; try again later", retry_after=RETRY_SECONDS)
    known.took_upload()
    return admitted.new


def _note(app: App, declared: Declared, refused: Counter[str]) -> None:
    """Count refused reports for the owner. No error fails the part."""
    metric, version, _ = declared.definition
    with suppress(StoreError):
        if refused:
            codes = {refused_reports.Refused(metric, version, code): number for code, number in refused.items()}
            refused_reports.add(app.store, Counter(codes))
