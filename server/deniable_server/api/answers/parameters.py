"""What a question names in its address: a metric, a level, and no unknown parameters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flask import request

from deniable.messages.lookalike import did_you_mean
from deniable_aggregator.answer.model.fields import LEVEL
from deniable_aggregator.answer.model.query import LEVELS, RULES, meant_level
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.select import Published
from deniable_server.http.problem import Problem
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable_aggregator.answer.question.date_range import DateRange
    from deniable_server.service import App

LONGEST_SHOWN = 40
"""Most characters of a request that a refusal repeats."""
BOTH = "an answer is of one period or of a range, not of both"
"""What is said to who names both."""
_MOST_LISTED = 20  # metrics in a refusal


def published_of(app: App, name: str) -> list[Published]:
    """Look up what was published of ``metric@version``; or of all versions of a ``metric``, the highest first."""
    return Published.of_each(app, versions_asked(app, name))


def versions_asked(app: App, name: str) -> list[Declared]:
    """Return the version of a name ``metric@version``; or all versions of a ``metric``, the highest first."""
    declared = find_metric(app, name)
    return [declared] if "@" in name else app.versions_of(declared.metric.id)


def only_parameters(*names: str) -> None:
    """Refuse a request with unknown parameters."""
    unknown = sorted(set(request.args) - set(names))
    if unknown:
        allowed = f"parameters are {', '.join(names)}" if names else "there are no parameters"
        near = did_you_mean(unknown[0][:LONGEST_SHOWN], names)
        raise Problem(400, "unknown_parameter", f"{', '.join(unknown)}: there is no such parameter; {allowed}{near}")


def find_metric(app: App, id_: str) -> Declared:
    """Return the metric of a name ``metric`` or ``metric@version``."""
    declared = app.find(id_)
    if declared is None:
        metric, _, version = id_.partition("@")
        known = ", ".join(str(each.metric.version) for each in app.versions_of(metric))
        if known:
            raise Problem(
                404, "unknown_version", f"{metric} has no version {version[:LONGEST_SHOWN]!r}: its versions are {known}"
            )
        rule = f"the registry of {app.name} declares no metric {id_[:LONGEST_SHOWN]!r}"
        listed = f": its metrics are {', '.join(app.highest)}" if 0 < len(app.highest) <= _MOST_LISTED else ""
        raise Problem(404, "unknown_metric", f"{rule}{listed}{did_you_mean(id_, app.highest)}")
    return declared


def level_asked() -> float:
    """Read the parameter ``level``."""
    text = request.args.get("level", str(LEVEL))
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    least, most = LEVELS
    if not least <= level <= most:
        raise Problem(400, "level", f"level is {RULES['level']}; this is {text[:LONGEST_SHOWN]}{meant_level(text)}")
    return level


def dates_asked(
    length: str,  # of the metric's periods
) -> DateRange | None:
    """Read the parameter ``date_range``, as in a query. None: all."""
    text = request.args.get("date_range", "")
    if not text:
        return None
    if request.args.get("period"):
        raise Problem(400, "date_range", BOTH)
    dates = date_range.read(text, datetime.now(UTC))
    visit().details["period"] = "/".join(dates.names(length))  # as the audit log has the range of a query
    return dates
