"""An empty page: why nothing is shown of a metric, what to do, and in a trial the last reports as they come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import DeniableError
from deniable_aggregator.answer.absence.diagnosis import diagnose
from deniable_aggregator.answer.readings.report import report_says
from deniable_aggregator.store.errors import CommandForbidden
from deniable_aggregator.store.uploads import latest_reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.declared import Declared
    from deniable_aggregator.store.uploads.latest_reports import LatestReport
    from deniable_server.service import App

_TITLES = {
    "collected": ("The metric is collected", "not expired, not replaced"),
    "uploads": ("Devices reach this server", "an upload of this app within a day"),
    "accepted": ("Its reports are accepted", "app and server define it alike"),
    "counted": ("A worker counts", "it gave a sign of life within a minute"),
    "enough": ("There are enough reports", "fewer wait for the next period"),
    "due": ("The release is due", "a period is over, and late reports had their time"),
}
_OF_A_RELAY = {
    "uploads": ("Pools come from the relay", "it mixes reports, and devices reach it alone"),
    "enough": ("There are enough reports", "fewer are dropped by the relay"),
}
_MARKS = {"holds": ("good", "✓"), "fails": ("bad", "✕"), "waits": ("hold", "…"), "unknown": ("unknown", "?")}


class Check(NamedTuple):
    """A condition, as the page shows it."""

    title: str
    about: str
    state: str  # in a word
    look: str  # of its mark
    mark: str
    says: str


class Came(NamedTuple):
    """A report, as the page shows it."""

    at: str
    metric: str
    says: str
    code: str  # why it was refused; empty if it was accepted


class EmptyPage(NamedTuple):
    """Why nothing is shown of a metric."""

    headline: str
    checks: list[Check]
    remedy: str
    compares: bool  # whether two files of metrics are to be compared
    looked: str  # when
    latest: list[Came] | None  # in a trial; None where nothing is kept


def of(app: App, declared: Declared) -> EmptyPage:
    """Say why nothing is shown of a metric."""
    diagnosis = diagnose(app, declared)
    cause = next(condition for condition in diagnosis.conditions if condition.name == diagnosis.cause)
    latest = list(_latest(app)) if app.trial else None
    looked = f"{datetime.now(UTC):%H:%M} UTC"
    titles = _TITLES | (_OF_A_RELAY if app.declared.relay else {})
    checks = [Check(*titles[each.name], each.state, *_MARKS[each.state], each.says) for each in diagnosis.conditions]
    return EmptyPage(diagnosis.says, checks, cause.remedy, cause.name == "accepted", looked, latest)


def _latest(app: App) -> Iterator[Came]:
    try:
        reports = latest_reports.read(app.store)
    except CommandForbidden:
        return
    for report in reports:
        at = f"{datetime.fromtimestamp(report.came, UTC):%H:%M:%S}"
        if not report.metric:
            yield Came(at, "not declared here", "", report.code)
            continue
        yield Came(at, f"{report.metric}@{report.version}", _says(app, report), report.code)


def _says(app: App, report: LatestReport) -> str:
    declared = app.versions.get((report.metric, report.version))
    try:
        return report_says(declared, report.payload) if declared else ""
    except DeniableError:  # it is no report of this definition
        return ""
