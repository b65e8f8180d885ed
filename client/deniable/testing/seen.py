"""Answers and reports, as a test of an app sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.frozen import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.client import Client
    from deniable.wire.report import Report


class Captured(NamedTuple):
    """One answer that an app recorded.

    Parameters
    ----------
    metric
        The metric's id.
    value
        The answer, as the app gave it.
    segments
        The segments that a report of it would carry, such as ``{"platform": "linux"}``.
    """

    metric: str
    value: Any
    segments: Mapping[str, str]

    @classmethod
    def of(cls, client: Client, metric: str, value: object) -> Captured:
        """Return an answer that a client has taken."""
        prepared = client._metrics.prepared.get(metric)  # noqa: SLF001
        return cls(metric, value, segments_of(prepared.segment) if prepared else {})


class SentReport(NamedTuple):
    """One report that a stub server took.

    Parameters
    ----------
    metric
        The metric's id.
    version
        The metric's version.
    period
        The period in which it counts, such as ``2027-03``.
    segments
        The segments that it carries, such as ``{"platform": "linux"}``.
    payload
        The randomised answer.
    """

    metric: str
    version: int
    period: str
    segments: Mapping[str, str]
    payload: bytes

    @classmethod
    def of(cls, report: Report) -> SentReport:
        """Return a report of the wire as one."""
        stratum = report.stratum
        return cls(stratum.metric, stratum.version, stratum.period, segments_of(stratum.segment), report.payload)


def segments_of(written: str) -> dict[str, str]:
    """Return the segments of a text such as ``platform=linux,arm=new``."""
    return dict(part.split("=", 1) for part in written.split(",") if part)
