"""A batch: reports encoded once, with a key that every attempt repeats."""

from __future__ import annotations

import json
import math
import time
from base64 import b64decode, b64encode
from typing import Any, ClassVar

from deniable.errors import PayloadError
from deniable.exact.sha import sha256
from deniable.frozen import dataclass, replace
from deniable.wire.report import Report, Stratum, encode, grouped

_FORMAT = 1  # the format of `Batch.write`, not of the body


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded upload. Every attempt sends the same bytes, and after one that may have arrived the same key, for good."""

    app: str  # the app that its reports are of
    key: str  # the idempotency key, a random UUID
    body: bytes  # the upload's JSON, see `deniable.wire.report`
    reports: tuple[Report, ...]  # the reports of the body
    created: float  # When it was made, in seconds since 1970. It stays on the device.
    HEAD: ClassVar[int] = 100  # bytes of a written batch that say how many reports it has

    @classmethod
    def of(cls, app: str, reports: tuple[Report, ...]) -> Batch:
        """Encode reports with a new random key."""
        from uuid import uuid4  # noqa: PLC0415 - the app's thread never needs it

        return cls(app, str(uuid4()), encode(app, reports), reports, time.time())

    def halves(self) -> tuple[Batch, Batch]:
        """Split a batch of two reports or more."""
        # The keys and contents of the halves follow from the batch. So if it is split again after a crash, the halves are the
        # same, and the server counts nothing twice.
        reports = sorted(self.reports, key=lambda report: (report.stratum, report.sent))
        half = len(reports) // 2
        first, second = (
            # The second is a little younger, so that they are sent in this order.
            Batch(self.app, _derived(self.key, part), encode(self.app, selection), tuple(selection), self.created + part / 1000)
            for part, selection in enumerate((reports[:half], reports[half:]))
        )
        return first, second

    def renewed(self) -> Batch:
        """Return the batch with a new key. The server must not have seen the present one: it would count the reports twice."""
        from uuid import uuid4  # noqa: PLC0415 - the app's thread never needs it

        return replace(self, key=str(uuid4()))

    def write(self) -> bytes:
        """Write what another attempt needs beside the key. It has no ingest key and no raw answer."""
        document: dict[str, Any] = {
            "format": _FORMAT,
            "made": int(self.created),
            "reports": len(self.reports),
            "body": self.body.decode(),
        }
        if any(report.sealed for report in self.reports):
            # What is in sealed reports, by group: the device cannot open them, and shows its user what was sent.
            document["opened"] = [
                b64encode(b"".join(report.payload for report in group if report.sealed)).decode()
                for _, group in grouped(self.reports)
            ]
        return json.dumps(document, separators=(",", ":")).encode()

    @staticmethod
    def count(head: bytes) -> int:
        """Return the number of reports in a written batch of which these are the first `HEAD` bytes; 1 if it does not say."""
        _, _, number = head.partition(b'"reports":')
        digits = number.partition(b",")[0]
        return int(digits) if digits.isdigit() else 1

    @classmethod
    def read(
        cls,
        key: str,  # its idempotency key, a UUID
        data: bytes,  # what was written
    ) -> Batch:
        """Read a written batch back; raise `PayloadError` if this is no written batch."""
        # The error does not repeat what was read: a damaged file may still hold reports.
        try:
            document = json.loads(data)
            _require(document["format"] == _FORMAT)
            body = document["body"].encode()
            content = json.loads(body)
            reports = tuple(_decode(content, document.get("opened")))
            batch = cls(content["app"], key, body, reports, float(document["made"]))
            _require(isinstance(batch.app, str) and 0 < len(reports) == document["reports"] and math.isfinite(batch.created))
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
            rule = "a batch holds when it was made, a body and the number of reports in it"
            raise PayloadError("spool_file", rule) from None
        return batch


def _decode(document: Any, opened: Any) -> list[Report]:
    reports: list[Report] = []
    for group, within in zip(document["groups"], opened or [""] * len(document["groups"]), strict=True):
        stratum = Stratum(**{name: group[name] for name in Stratum._fields})
        _require(all(isinstance(part, int if name == "version" else str) for name, part in stratum._asdict().items()))
        sent = _parts(group["payloads"], group["count"])
        plain = _parts(within, group["count"]) if within else sent
        reports += [Report(stratum, *pair) for pair in zip(plain, sent if within else [b""] * len(sent), strict=True)]
    return reports


def _parts(written: str, count: int) -> list[bytes]:
    """Read so many texts of one length, written one after another in base64."""
    joined = b64decode(written, validate=True)
    size, remainder = divmod(len(joined), count)  # a count of 0 raises an error, too
    _require(size > 0 == remainder)
    return [joined[start : start + size] for start in range(0, len(joined), size)]


def _require(holds: bool) -> None:  # noqa: FBT001 - a condition
    if not holds:
        raise ValueError


def _derived(key: str, part: int) -> str:
    from uuid import UUID  # noqa: PLC0415 - the app's thread never needs it

    return str(UUID(bytes=sha256(f"{key}/{part}".encode()).digest()[:16], version=4))
