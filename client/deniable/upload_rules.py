"""The rules of an upload that the server and the stub server of `deniable.testing` both keep, with their order and codes."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.frozen import NamedTuple
from deniable.registry import period
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.declared import Declared
    from deniable.registry import Metric, Registry

MAX_KEY = 128  # characters of an Idempotency-Key
MEDIA_TYPE = "application/json"


class Refused(Exception):  # noqa: N818 - a refusal is an answer
    """An upload, or a group of it, is refused."""

    def __init__(self, status: int, code: str, detail: str = "", **extra: Any) -> None:
        super().__init__(code)
        self.status = status  # of HTTP
        self.code = code  # stable, for programs
        self.detail = detail  # the rule, what broke it, and what to do
        self.extra = extra  # further members of the answer


def bearer(authorization: str, whose: str) -> str:
    """Return the key in a header Authorization; raise `Refused` with 401 if there is none."""
    kind, _, text = authorization.partition(" ")
    text = text.strip()
    if kind.lower() != "bearer" or not text:
        raise Refused(401, "missing_key", f"the request carries the header Authorization: Bearer with {whose}")
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
) -> Place:
    """Return where reports of a group are counted; raise `Refused` if this is not declared here, or not collected now."""
    declared = _declared(registry, versions_of(group.metric), group)
    metric = declared.metric
    if metric.shuffled:
        rule = f"reports of {metric.id} are sealed and go to a relay, which mixes them; a server takes none from a device"
        raise Refused(400, "relay_only", f"{rule}: name the relay in the DSN")
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
