"""Reports, and the body of an upload.

::

    {"format": 1, "app": "shop", "groups": [{
        "metric": "ui.theme", "version": 1, "fingerprint": "6f0c2a9e51b3d784",
        "period": "2026-11-21", "segment": "platform=linux",
        "count": 3, "payloads": "base64 of the payloads, one after another"}]}

All are of one app. A server refuses an upload whose app is not that of its key. Reports of one stratum are a group. Groups and
payloads are sorted, so their order says nothing. There is no time and no name of the device in it. The payloads of metrics with
`shuffled` are sealed, each by itself.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

from deniable.frozen import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 1
MAX_BODY_BYTES = 256 * 1024
"""Largest upload, as it is sent."""
MAX_INFLATED_BYTES = 1024 * 1024
"""Largest upload after decompression."""


class Stratum(NamedTuple):
    """What reports share that are counted together."""

    metric: str  # the metric's id
    version: int  # the metric's version
    fingerprint: str  # digest of all that device and server must agree on
    period: str  # the name of the period
    segment: str  # the segment, or empty


class Report(NamedTuple):
    """One randomised answer, ready to leave the device."""

    stratum: Stratum
    payload: bytes  # the mechanism's payload
    sealed: bytes = b""  # the payload as a relay gets it (`deniable.wire.sealing`); empty if it goes to the server as it is

    @property
    def sent(self) -> bytes:
        """The bytes that travel."""
        return self.sealed or self.payload


def grouped(reports: Iterable[Report]) -> list[tuple[Stratum, list[Report]]]:
    """Group reports by stratum, in the order of the upload."""
    groups: dict[Stratum, list[Report]] = {}
    for report in reports:
        groups.setdefault(report.stratum, []).append(report)
    # What travels is sorted, so it does not show the order of the answers.
    return [(stratum, sorted(group, key=_sent)) for stratum, group in sorted(groups.items())]


def _sent(report: Report) -> bytes:
    return report.sent


def encode(
    app: str,  # the app whose registry the reports are made by
    reports: Iterable[Report],
) -> bytes:
    """Write the body of an upload: JSON in UTF-8."""
    document = {
        "format": FORMAT,
        "app": app,
        "groups": [
            stratum._asdict() | {"count": len(group), "payloads": b64encode(b"".join(map(_sent, group))).decode()}
            for stratum, group in grouped(reports)
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()
