"""The wire: a batch of reports as a device uploads it.

::

    {"format": 1, "groups": [{
        "metric": "ui.theme", "version": 1, "fingerprint": "6f0c2a9e51b3d784",
        "period": "2026-11-21", "segment": "platform=linux",
        "count": 3, "payloads": "base64 of the payloads, one after another"}]}

Reports of one metric, version, period and segment travel together. Groups and payloads are sorted, so that their order says
nothing, and there is neither a time nor a name of the device in it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FORMAT", "MAX_BODY_BYTES", "MAX_INFLATED_BYTES", "Report", "Stratum", "encode", "grouped"]

FORMAT = 1
MAX_BODY_BYTES = 256 * 1024
"""Largest upload, as sent."""
MAX_INFLATED_BYTES = 1024 * 1024
"""Largest upload after decompression."""


class Stratum(NamedTuple):
    """What reports must share to be counted together.

    Parameters
    ----------
    metric
        The metric's id.
    version
        The metric's version.
    fingerprint
        Digest of everything that device and server must agree on.
    period
        The collection window.
    segment
        The public breakdown, or empty.
    """

    metric: str
    version: int
    fingerprint: str
    period: str
    segment: str


@dataclass(frozen=True, slots=True)
class Report:
    """One randomised answer, ready to leave the device.

    Parameters
    ----------
    stratum
        What it is counted with.
    payload
        The mechanism's bytes.
    """

    stratum: Stratum
    payload: bytes


def grouped(reports: Iterable[Report]) -> list[tuple[Stratum, list[bytes]]]:
    """Put together what is counted together, in the order of the wire.

    Payloads are sorted, so that the order in which people answered is not in it.
    """
    groups: dict[Stratum, list[bytes]] = {}
    for report in reports:
        groups.setdefault(report.stratum, []).append(report.payload)
    return [(stratum, sorted(payloads)) for stratum, payloads in sorted(groups.items())]


def encode(reports: Iterable[Report]) -> bytes:
    """Write a batch.

    Returns
    -------
    bytes
        JSON, UTF-8.
    """
    document = {
        "format": FORMAT,
        "groups": [
            stratum._asdict() | {"count": len(payloads), "payloads": b64encode(b"".join(payloads)).decode()}
            for stratum, payloads in grouped(reports)
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()
