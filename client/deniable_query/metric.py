"""A metric, as a server lists it."""

from __future__ import annotations

from typing import Any, TypedDict


class Metric(TypedDict):
    """A metric as the server lists it, before anything is estimated."""

    trial: bool  # whether everything is published at once, however few reports there are
    id: str
    type: str
    version: int
    description: str  # what is asked and why, in words
    owner: str  # whom to ask about it
    expires: str | None  # the last day of collection
    period_length: str  # hour, day, week or month
    domain_size: int | None  # number of possible answers; None if they cannot be listed
    candidates: int | None  # number of answers that are looked for; None if none are declared
    discover: bool  # whether answers that nobody listed are searched for
    mechanism: str
    epsilon: float  # privacy loss of one report in nats
    epsilon_permanent: float | None  # of all reports of one answer; None if reports are independent
    sample: float  # share of the occasions on which a device reports
    min_reports: int  # fewest reports that a release rests on
    next_release: str | None  # when the next period closes; None if no release depends on it
    report_bytes: int
    n: int  # reports in what was published of this version
    updated: str | None  # the hour of the last release; None if nothing was published
    versions: list[dict[str, Any]]  # each version, the highest first
