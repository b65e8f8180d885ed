"""The last periods of many metrics, for a list of them: read by their names, without the index of all releases."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from deniable.wire.report import Stratum
from deniable_aggregator.answer.over_time import series
from deniable_aggregator.answer.over_time.periods import back
from deniable_aggregator.answer.select import Published
from deniable_aggregator.publish import release

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Declared, Definition
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.series import Series
    from deniable_aggregator.publish.release import Release, Summary

_LINE = {"hour": 48, "day": 31, "week": 26, "month": 13}
"""How many periods a small line has, and a trend is looked for in."""
_COMPARED = {"hour": 32, "day": 14, "week": 4, "month": 4}
"""How many periods tell the last change, although the last ones may be open: enough of metrics with very many values."""
_MOST_VALUES = 100


def recent(app: AppMetrics, versions: Sequence[Declared], known: Mapping[Definition, Summary]) -> list[Series]:
    """Estimate versions of metrics, each with a release, in their last periods, with the last change and the trend."""
    strata = {
        version.definition: [Stratum(*version.definition, name, "") for name in _names(version, known[version.definition].last)]
        for version in versions
    }
    notes = release.noted(app.store, [stratum for listed in strata.values() for stratum in listed])
    listed = []
    for version in versions:
        releases = {each.period: (each, notes[each]) for each in strata[version.definition] if each in notes}
        listed.append(series([Published(app, version, {"": releases})], look="unshifted"))
    return listed


def recent_segments(
    app: AppMetrics,
    cells: Sequence[tuple[Declared, Sequence[str]]],  # versions of metrics, each with a release; and cells of each
    known: Mapping[Definition, Summary],
) -> list[Published]:
    """Look up some cells of versions in their last periods, as many as tell the last change."""
    listed = [
        [
            Stratum(*version.definition, name, cell)
            for name in islice(back(known[version.definition].last, "", version.metric.period), _COMPARED[version.metric.period])
            for cell in own
        ]
        for version, own in cells
    ]
    notes = release.noted(app.store, [stratum for strata in listed for stratum in strata])
    published = []
    for (version, _), strata in zip(cells, listed, strict=True):
        by_cell: dict[str, dict[str, tuple[Stratum, Release]]] = {}
        for stratum in strata:
            if stratum in notes:
                by_cell.setdefault(stratum.segment, {})[stratum.period] = (stratum, notes[stratum])
        published.append(Published(app, version, by_cell))
    return published


def _names(version: Declared, last: str) -> list[str]:
    metric = version.metric
    is_line = metric.estimate or (not metric.open and len(metric.values) <= _MOST_VALUES)
    return list(islice(back(last, "", metric.period), (_LINE if is_line else _COMPARED)[metric.period]))
