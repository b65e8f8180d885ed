"""Uploads: from a request to what it changed in the store. Nothing here needs Flask.

An upload is prepared, appended to the stream of its partition, and settled. `take` does this for one upload, with all that is to
be done about one that is refused. `deniable_server.api.uploads.door` does it for good ones that arrived together.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from werkzeug.wsgi import get_content_length, get_input_stream

from deniable import upload_rules
from deniable.upload_rules import Refused
from deniable_aggregator.process import logs
from deniable_aggregator.store.errors import NoRoom, StoreError, StoreFull
from deniable_aggregator.store.uploads import latest_reports, refused_reports
from deniable_aggregator.store.uploads.partition import Upload
from deniable_aggregator.store.uploads.refused_reports import Refused as Refused_
from deniable_server.api.auth import bearer, identify, note, upload_key
from deniable_server.api.uploads import batches
from deniable_server.http.problem import RETRY_SECONDS, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Appended
    from deniable_aggregator.store.values.limit import Limit
    from deniable_server.access.keys import Key
    from deniable_server.http.visit import Visit
    from deniable_server.service import App, Service
    from deniable_server.settings import Settings

_MOST_PAID = 100_000
_SMALL = 1 << 16  # bytes of a body that is checked within a millisecond
_OVERHEAD = 64  # bytes of an upload beside its entry: the record of its key, and its place in the stream
_DIGEST_BYTES = 8


class Prepared(NamedTuple):
    """An upload of which reports can be counted."""

    app: App
    key: str
    body: bytes
    batch: batches.Checked
    limits: Sequence[Limit]  # for requests
    volumes: Sequence[Limit]  # for what is stored

    def stored(self, settings: Settings) -> Upload:
        """Return what the store is given of it."""
        remember = record(self.key, self.body, self.batch.answer)
        return Upload(
            self.batch.entry, self.key, remember, settings.max_backlog, settings.idempotency_ttl, self.limits, self.volumes
        )


def take(known: Service, visit: Visit) -> dict[str, Any]:
    """Take an upload, and return the answer to it; raise Refused if nothing of it is counted."""
    if visit.decided:  # by the door, which has asked the store
        logs.note(app=visit.app)
        answer: dict[str, Any] = visit.decision()()
        return answer
    of = identify(known, visit, "ingest")
    app, limits = known.apps[of.app], known.limits.due(_limits(known, visit, of))
    try:
        key, body = _key(visit), read_body(visit, known.settings.max_inflated_bytes)
    except Refused:
        known.limits.take(limits)  # it counts, even if it is malformed
        raise
    try:
        checked = batches.check(app, known.settings, body, visit.upload)
    except Refused as refusal:
        known.limits.take(limits)
        remembered = app.store.recall(key, known.settings.idempotency_ttl)  # it may have been accepted while its period was open
        if remembered is None:
            _note(known, app, visit)
            raise
        return _repeated(visit, remembered, key, body, refusal.extra)
    upload = Prepared(app, key, body, checked, limits, _volumes(known, visit, app, key, checked))
    # After a StoreError the device sends the upload again with the same key, and it is counted once.
    return settle(known, visit, upload, app.store.append(upload.stored(known.settings)))


def prepare(known: Service, visit: Visit) -> Prepared | None:
    """Prepare an upload without asking the store, within a millisecond; return None or refuse unless it is certainly good."""
    # Nothing is counted or decided here: `take` begins again with an upload that is not prepared.
    visit.role = "ingest"
    of = known.ring.fresh(bearer(visit, "the app's ingest key"), "ingest")
    if of is None or not known.apps[of.app].store.knows_partitions or not known.limits.know_source(visit):
        return None
    note(visit, of)
    app, limits = known.apps[of.app], _limits(known, visit, of)
    if known.limits.any_used_up(limits):
        return None
    key, body = _key(visit), read_body(visit, min(known.settings.max_inflated_bytes, _SMALL))
    if len(body) > _SMALL:
        return None
    checked = batches.check(app, known.settings, body, visit.upload)
    if visit.upload.refused:
        return None
    return Prepared(app, key, body, checked, limits, _volumes(known, visit, app, key, checked))


def settle(known: Service, visit: Visit, upload: Prepared, appended: Appended) -> dict[str, Any]:
    """Return the answer to the device after the store's; raise Refused if the upload was not appended."""
    if appended.outcome == "appended":
        known.took_upload()
        _note_paid(upload.app, upload.batch.growth)
        _note(known, upload.app, visit)
        return _answer(visit, upload.batch.answer, duplicate=False)
    if appended.excess:
        raise known.limits.problem([*upload.limits, *upload.volumes], appended.excess)
    if appended.outcome == "full":
        detail = "more batches wait to be counted than this server holds; try again later"
        raise Problem(503, "backlog_full", detail, retry_after=RETRY_SECONDS)
    if appended.outcome == "no room":
        with suppress(StoreFull):  # the request counts for its limits, if there is memory for the counters
            known.limits.take(upload.limits)
        known.outage.failed("", NoRoom())
        detail = "the store has no memory left for uploads; try again later"
        raise Problem(503, "store_full", detail, retry_after=RETRY_SECONDS)
    return _repeated(visit, appended.previous, upload.key, upload.body, upload.batch.answer)


def _limits(known: Service, visit: Visit, of: Key) -> list[Limit]:
    partition = known.apps[of.app].store.partition(upload_key(visit))
    return known.limits.of(visit, of.app, of.id, partition)


def _volumes(known: Service, visit: Visit, app: App, key: str, checked: batches.Checked) -> list[Limit]:
    size = len(checked.entry) + _OVERHEAD + sum(checked.growth.values())
    return known.limits.storing(visit, app.store.partition(key), size)


def _answer(visit: Visit, answer: dict[str, Any], *, duplicate: bool) -> dict[str, Any]:
    visit.upload.outcome, visit.upload.accepted = "duplicate" if duplicate else "accepted", answer["accepted"]
    return answer | {"duplicate": duplicate}


def _note_paid(app: App, growth: dict[bytes, int]) -> None:
    # Whoever comes after a restart or this pays again, which is too much rather than too little.
    if len(app.paid) + len(growth) > _MOST_PAID:
        app.paid.clear()
    app.paid.update(growth)


def _note(known: Service, app: App, visit: Visit) -> None:
    """Count the refused reports of an upload for the owner, and keep the last reports of a trial. No error fails the upload."""
    try:
        if visit.upload.refused:
            refused_reports.add(app.store, _refused(app, visit))
        latest_reports.add(app.store, visit.upload.latest)
    except StoreError as error:
        known.outage.failed("", error)


def _refused(app: App, visit: Visit) -> Counter[Refused_]:
    reports: Counter[Refused_] = Counter()
    for metric, version, fingerprint, code, number in visit.upload.refused:
        declared = app.versions.get((metric, version), app.highest.get(metric))
        if declared is None:  # clients choose the name, so it is not kept
            reports[Refused_("", 0, code)] += number
            continue
        known = declared.definition == (metric, version, fingerprint)
        made_for = "" if known else refused_reports.made_for(version, fingerprint)
        reports[Refused_(metric, declared.metric.version, code, made_for)] += number
    return reports


def record(key: str, body: bytes, answer: dict[str, Any]) -> bytes:
    """Return the record of an upload: eight bytes of digest, and the numbers of its answer."""
    # The digest includes the key, which is not in the store. So a reader of the store cannot try which reports an upload had.
    digest = sha256(f"{key}\n".encode() + body).digest()[:_DIGEST_BYTES]
    return digest + msgspec.msgpack.encode((answer["accepted"], answer["rejected"]))


def _repeated(visit: Visit, remembered: bytes, key: str, body: bytes, now: dict[str, Any]) -> dict[str, Any]:
    """Answer an upload whose key is known: with the numbers of the first answer, and with its errors if they are the same now."""
    accepted, rejected = msgspec.msgpack.decode(remembered[_DIGEST_BYTES:])
    first = {"accepted": accepted, "rejected": rejected, "errors": []}
    if not remembered.startswith(record(key, body, first)[:_DIGEST_BYTES]):
        raise Refused(422, "idempotency_mismatch", "this Idempotency-Key was used for another upload; draw a new one for each")
    if (now.get("accepted"), now.get("rejected")) == (accepted, rejected):
        first["errors"] = now["errors"]
    return _answer(visit, first, duplicate=True)


def _key(visit: Visit) -> str:
    key = upload_key(visit)
    upload_rules.check_key(key)
    return key


def read_body(visit: Visit, most: int) -> bytes:
    """Read the body within its limits, before and after decompression."""
    environ = visit.environ
    if get_content_length(environ) is None:
        raise Refused(411, "length_required", "an upload says its length in Content-Length")
    wire = get_input_stream(environ).read()
    encoding = environ.get("HTTP_CONTENT_ENCODING", "identity")
    return upload_rules.inflated(wire, environ.get("CONTENT_TYPE", ""), encoding, most)
