"""The rules of an upload that the server and the stub server of `deniable.testing` both keep, with their order and codes."""

from __future__ import annotations

import json
import zlib
from binascii import a2b_base64
from datetime import UTC, datetime, time, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.frozen import NamedTuple
from deniable.registry import period
from deniable.registry.rules import is_id
from deniable.wire.addresses import PROBLEM
from deniable.wire.report import FORMAT, MAX_INFLATED_BYTES, Stratum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.declared import Declared
    from deniable.registry import Metric, Registry

MAX_KEY = 128  # characters of an Idempotency-Key
MEDIA_TYPE = "application/json"
REFUSAL_TYPE = "application/problem+json"
CLOCK_SKEW = timedelta(hours=1)  # how far a device's clock may be ahead, unless a server says otherwise
_MEMBERS = {"metric": str, "version": int, "fingerprint": str, "period": str, "segment": str, "count": int, "payloads": str}
_KINDS = list(_MEMBERS.values())


class Refused(Exception):  # noqa: N818 - a refusal is an answer
    """An upload, or a group of it, is refused."""

    def __init__(self, status: int, code: str, detail: str = "", **extra: Any) -> None:
        super().__init__(code)
        self.status = status  # of HTTP
        self.code = code  # stable, for programs
        self.detail = detail  # the rule, what broke it, and what to do
        self.extra = extra  # further members of the answer

    def document(
        self,
        instance: str | None = None,  # URI of the request, if it has one
    ) -> dict[str, Any]:
        """Return the answer's body, of `REFUSAL_TYPE` (RFC 9457)."""
        return {
            "type": f"{PROBLEM}{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": int(self.status),
            "code": self.code,
            "detail": self.detail,
            **self.extra,
            **({"instance": instance} if instance else {}),
        }


def bearer(authorization: str, whose: str) -> str:
    """Return the key in a header Authorization; raise `Refused` with 401 if there is none."""
    kind, _, text = authorization.partition(" ")
    text = text.strip()
    if kind.lower() != "bearer" or not text:
        if authorization and not text and kind.lower() != "bearer":  # a key alone; it is not repeated
            raise Refused(401, "missing_key", "'Bearer ' is missing: send the header Authorization: Bearer, a space and the key")
        raise Refused(401, "missing_key", f"send the header Authorization: Bearer, a space and {whose}")
    return text


def check_key(key: str) -> None:
    """Check an Idempotency-Key; raise `Refused` if it is missing, too long, or not printable."""
    if not 0 < len(key) <= MAX_KEY or not key.isprintable():
        raise Refused(400, "idempotency_key", f"an upload carries an Idempotency-Key of 1 to {MAX_KEY} characters, e.g. a UUID")


def inflated(wire: bytes, content_type: str, encoding: str, most: int) -> bytes:
    """Return the body of an upload as before compression, in bounded memory; raise `Refused` if it is not whole, or too large."""
    if content_type != MEDIA_TYPE and content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise Refused(415, "media_type", f"an upload's Content-Type is {MEDIA_TYPE}")
    encoding = encoding.lower()
    if encoding == "identity":
        return wire
    if encoding != "gzip":
        raise Refused(415, "content_encoding", "an upload is sent plain or with Content-Encoding: gzip")
    inflater = zlib.decompressobj(wbits=31)
    try:
        body = inflater.decompress(wire, most + 1)
    except zlib.error:
        raise Refused(400, "gzip", "the body is not valid gzip") from None
    if len(body) > most:
        raise Refused(413, "inflated_too_large", f"an upload has at most {most} bytes after decompression; send smaller batches")
    if not inflater.eof or inflater.unused_data:
        raise Refused(400, "gzip", "the body is one whole gzip member")
    return body


def check_app(
    stated: str,  # whose reports the upload says it has
    app: str,  # the one whose key it came with
) -> None:
    """Check that an upload is of the app that its key is of; raise `Refused` if it is of another one.

    Without this, reports of one app could be counted in another that declares the same metrics. Clients keep what is refused with
    403, so correcting the DSN loses nothing.
    """
    if stated != app:
        named = f"of app {stated}" if is_id(stated) else "of another app"
        # What to do, each client says in its own words.
        raise Refused(403, "other_app", f"the key is of app {app}, and the reports are {named}")


def groups(
    body: bytes,  # JSON, as `deniable.wire.report.encode` writes it
    app: str | None,  # the app that it must be of; None for any
) -> list[dict[str, Any]]:
    """Read the groups of an upload by the standard library; raise `Refused` unless each has its members, and no other."""
    try:
        document = json.loads(body)
    except ValueError:
        raise Refused(400, "json", "the body is not valid JSON") from None
    except RecursionError:  # arrays in arrays, thousands deep
        raise Refused(400, "batch_shape", "the batch does not have the documented shape") from None
    well_formed = (
        isinstance(document, dict) and document.keys() == {"format", "app", "groups"} and type(document["format"]) is int
    )
    well_formed = well_formed and isinstance(document["app"], str) and isinstance(document["groups"], list)
    if not well_formed or not all(map(_is_group, document["groups"])):
        raise Refused(400, "batch_shape", "the batch does not have the documented shape")
    if document["format"] != FORMAT:
        raise Refused(400, "batch_format", f"batch format {FORMAT} is read here, not {document['format']}")
    if app is not None:
        check_app(document["app"], app)
    described: list[dict[str, Any]] = document["groups"]
    return described


def _is_group(group: object) -> bool:
    return (
        isinstance(group, dict)
        and group.keys() == _MEMBERS.keys()
        and [type(group[name]) for name in _MEMBERS] == _KINDS
        and 0 <= group["version"] <= MAX_INFLATED_BYTES
        and 0 <= group["count"] <= MAX_INFLATED_BYTES
    )


def joined(
    metric: str,  # its id, for the error
    count: int,  # reports that the group says it has
    payloads: str,  # joined and in base64
    size: int | None,  # bytes of one; None if it is not known
) -> bytes:
    """Return the reports of a group, one after another; raise `Refused` unless there are so many, all of this size."""
    try:
        reports = a2b_base64(payloads, strict_mode=True)
    except ValueError:
        raise Refused(400, "base64", "payloads are standard base64 with padding") from None
    size = size or len(reports) // max(count, 1)
    if not count or not size or len(reports) != count * size:
        expected = f"{count} payloads of {size} bytes"
        raise Refused(400, "payload_length", f"a group of {metric} must hold {expected}; this holds {len(reports)} bytes")
    return reports


def parts(metric: str, count: int, payloads: str, size: int | None) -> list[bytes]:
    """Return the reports of a group one by one: see `joined`."""
    reports = joined(metric, count, payloads, size)
    size = len(reports) // count
    return [reports[start : start + size] for start in range(0, len(reports), size)]


class Place(NamedTuple):
    """Where reports of a group are counted."""

    declared: Declared
    stratum: Stratum
    opens: datetime  # they are taken from then on
    closes: datetime  # to the end of this moment


def place(
    registry: Registry,  # what is declared here
    versions_of: Callable[[str], Sequence[Declared]],  # gives the versions of a metric, the highest first
    group: Stratum,  # what the upload says of its reports
    now: datetime,  # the server's time
    skew: timedelta,  # how far a device's clock may be ahead
    *,
    sealed: bool = False,  # whether they are sealed, as a relay gets and forwards them
) -> Place:
    """Return where reports of a group are counted; raise `Refused` if this is not declared here, or not collected now."""
    declared = _declared(registry, versions_of(group.metric), group)
    metric = declared.metric
    if registry.relay and not sealed:
        rule = f"reports of {registry.app} are sealed and go to a relay, and a server takes none from a device"
        raise Refused(400, "relay_only", f"{rule}: name the relay in the DSN")
    if sealed and not registry.relay:
        raise Refused(400, "no_relay", f"the registry of {registry.app} declares no [relay], so no report of it is sealed")
    if metric.expires and metric.expired(now.date()):
        raise Refused(400, "metric_expired", f"collection of {metric.id} ended on {metric.expires}")
    opens, closes = _open(metric, group.period, now, skew)
    try:
        segment = registry.filed(metric, group.segment)
    except ParameterError as error:
        raise Refused(400, "segment", error.rule) from None
    if metric.expires:
        closes = min(closes, datetime.combine(metric.expires + timedelta(days=1), time(), UTC) - timedelta(microseconds=1))
    return Place(declared, Stratum(metric.id, metric.version, group.fingerprint, group.period, segment), opens, closes)


def _declared(registry: Registry, versions: Sequence[Declared], group: Stratum) -> Declared:
    declared = next((version for version in versions if version.metric.version == group.version), None)
    if declared is None:
        if not versions:
            raise Refused(400, "unknown_metric", f"no registry of {registry.app} declares such a metric")
        numbers = ", ".join(str(version.metric.version) for version in versions)
        raise Refused(400, "unknown_version", f"{group.metric} has no version {group.version} here: its versions are {numbers}")
    if group.fingerprint != declared.fingerprint:
        raise Refused(
            400,
            "definition_mismatch",
            f"the device's registry defines {group.metric} version {group.version} differently from this server's",
        )
    return declared


def _open(metric: Metric, name: str, now: datetime, skew: timedelta) -> tuple[datetime, datetime]:
    """Return when a period's reports are taken; now is within."""
    try:
        start, _ = period.bounds(name, metric.period)
    except ParameterError as error:
        raise Refused(400, "period", error.rule) from None
    opens, closes = start - skew, metric.closes(name)
    if now > closes:
        raise Refused(400, "period_closed", f"the period ended more than {metric.grace} ago and takes no more reports")
    if now < opens:
        raise Refused(400, "period_not_open", "the period has not begun; check the device's clock")
    return opens, closes
