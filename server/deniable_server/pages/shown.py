"""What a page shows of a metric: its numbers as text, and its chart."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil, exp, isnan
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from deniable_server.pages import chart, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.registry import Metric
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.fields import Span
    from deniable_aggregator.answer.model.metric import Estimates, Latest, Merged
    from deniable_aggregator.answer.model.shares import FactorShare, ValueEstimate

_SHOWN = 5e-5  # a share that is written
_MOST_ROWS = 80  # on one page: a domain may have 65,536 values
_UNDETECTED_ROWS = 10
_PREVIEW_ROWS = 4
_PREVIEW_COLUMNS = 64
_MOST_PAIRS = 20
_MOST_PERIODS = 366  # to choose from: there may be years of hours


def found(app: AppMetrics, text: str, type_: str) -> list[str]:
    """Find the metrics of a type with a text in their id, description or owner; without either, all."""
    words = text.casefold().split()
    asked = ((id_, declared.metric) for id_, declared in app.highest.items())
    return [
        id_
        for id_, metric in asked
        if (not type_ or metric.type == type_)
        and all(word in f"{id_} {metric.description} {metric.owner}".casefold() for word in words)
    ]


def types(app: AppMetrics) -> list[str]:
    """Name the types of the app's metrics."""
    return sorted({declared.metric.type for declared in app.highest.values()})


def offered(periods: Sequence[Span], *chosen: str | None) -> list[Span]:
    """Return the periods to choose from, the last one first: the last `_MOST_PERIODS`, and those chosen already."""
    recent = periods[-_MOST_PERIODS:]
    older = [each for each in periods[:-_MOST_PERIODS] if each.last in chosen]
    return [*reversed(recent), *reversed(older)]


def near(app: AppMetrics, id_: str) -> tuple[str | None, str | None]:
    """Name the metrics before and after one."""
    ids = list(app.highest)
    at = ids.index(id_) if id_ in ids else len(ids)
    return ids[at - 1] if at > 0 else None, ids[at + 1] if at + 1 < len(ids) else None


def together(merged: Merged | None) -> dict[str, Any] | None:
    """Draw the merged estimate of versions."""
    if merged is None:
        return None
    rows = chart.order(merged.estimates, by_estimate=True)[:_MOST_ROWS]
    return asdict(merged) | {"chart": chart.chart(rows, over=merged.estimates)}


def picture(measured: Estimates, order: str, view: str, page: int = 1) -> dict[str, Any]:
    """Draw the values in a view, on a page of `_MOST_ROWS` of them at most. Or draw the number."""
    if measured.number is not None:
        values = [each for each in measured.number.values if not isnan(each.frequency)]
        return {
            "drawn": number.shown(measured.number, view),
            "values": chart.chart(values) if values else None,
            "chart": None,
            "pages": 1,
        }
    estimated = _estimated(measured)
    if view == "consistent":
        estimated = [_consistent(row, measured.n) for row in estimated]
    if not estimated:
        return {"chart": None, "pages": 1}
    rows = chart.order(estimated, by_estimate=order == "estimate")
    first = _MOST_ROWS
    if measured.domain_size is None and order == "estimate":  # of ten thousand candidates few are of interest
        first = min(first, sum(row.detected for row in rows) + _UNDETECTED_ROWS)
    begin = first + _MOST_ROWS * (page - 2) if page > 1 else 0
    shown = rows[begin : begin + (_MOST_ROWS if page > 1 else first)]
    pages = 1 + max(0, ceil((len(rows) - first) / _MOST_ROWS))
    drawn = chart.chart(shown, over=rows) if shown else None
    return {"chart": drawn, "pages": pages, "begin": begin, "lowered": _lowered(measured) if view == "consistent" else ""}


def _lowered(measured: Estimates) -> str:
    """Say by how much consistent shares differ from unbiased ones; empty if by nothing that shows."""
    amount, rows = measured.lowered_by, _estimated(measured)
    if isnan(amount) or not rows or abs(amount) < _SHOWN:
        return ""
    way = "lowered" if amount > 0 else "raised"
    said = f"Each share is {way} by {100 * abs(amount):.2g} points, so that all sum to 100%."
    largest = max(rows, key=lambda row: row.frequency)
    if abs(amount) > largest.stderr:
        said += " That is more than the standard error of the largest: for large shares the unbiased ones are better."
    return said


def _estimated(measured: Estimates) -> list[ValueEstimate]:
    """Return the values with an estimate: none without reports, and no candidates that share their hashes."""
    return [row for row in measured.estimates if not isnan(row.frequency)]


def _consistent(row: ValueEstimate, n: int) -> ValueEstimate:
    """Return a row with its consistent share for the unbiased one, and what is possible of its intervals."""
    (low, high), (lowest, highest) = ((min(max(end, 0.0), 1.0) for end in ends) for ends in (row.interval, row.simultaneous))
    return replace(row, frequency=row.consistent, count=row.consistent * n, interval=(low, high), simultaneous=(lowest, highest))


def card(app: AppMetrics, measured: Latest) -> dict[str, Any]:
    """Describe a metric for the list, with its largest values, or with all values if they are ordered."""
    drawn = None if measured.number is None else number.shown(measured.number)
    told = asdict(measured) | described(app, measured) | {"rows": (), "columns": (), "peak": None, "drawn": drawn}
    rows = _estimated(measured)
    if not rows:
        return told
    ranked = chart.order(rows, by_estimate=True)
    if measured.type == "ordinal" and _PREVIEW_ROWS < len(rows) <= _PREVIEW_COLUMNS:
        return told | {"columns": chart.columns(rows), "peak": chart.chart(ranked[:1], over=rows).rows[0]}
    top = rows if measured.type == "boolean" else ranked[:_PREVIEW_ROWS]
    return told | {"rows": chart.chart(top).rows}


def described(app: AppMetrics, measured: Estimates) -> dict[str, Any]:
    """Return the texts about a metric for its page."""
    found = app.versions[measured.id, measured.version]
    metric = found.metric
    size, limit, rest = len(measured.estimates), measured.detection_frequency, measured.unallocated
    between = [] if rest is None or isnan(rest.stderr) else [chart.share(end, rest.stderr) for end in rest.interval]
    # Rounded up, because "at most" must stay true of the number shown.
    odds = ceil(100 * exp(measured.epsilon) - 1e-6) / 100
    return {
        "labels": [row.label for row in measured.estimates],
        "size": size,
        "what": _domain(metric, size, candidates=bool(measured.candidates)),
        "detected": sum(row.detected for row in measured.estimates),
        "limit": None if isnan(limit) else chart.share(limit, limit),
        "rest": " to ".join(between),
        "odds": f"{odds:,.2f}",
        "kept": metric.kept,
        "expired": metric.expired(datetime.now(UTC).date()),
        "unit": metric.unit,
        "example": metric.range[0] if metric.range else "",
        "first_label": metric.label(0) if metric.values else "",
        "last_label": metric.label(len(metric.values) - 1) if metric.values else "",
        "table": _table(measured),
        **_more(measured),
        "awaited": app.awaited(found),
        "part": found.mechanism.part,
    }


def _domain(metric: Metric, size: int, *, candidates: bool) -> str:
    """Say in a few words what answers there are."""
    if metric.axis:
        return f"{metric.range[0]} to {metric.range[1]} {metric.unit}"
    if metric.estimate:
        return f"{len(metric.values)} positions"
    kind = "candidate" if candidates else "option" if metric.type == "set" else "value"
    return f"{chart.count(size)} {kind}{'s' if size != 1 else ''}"


def _table(measured: Estimates) -> dict[str, Any] | None:
    """Return the table of a product's two factors, with the share of each value of either."""
    if measured.association is None or len(measured.association.factors) != 2:  # noqa: PLR2004
        return None
    (down, rows), (across, columns) = measured.association.margins.items()
    cells = iter(measured.estimates)
    return {
        "names": (down, across),
        "columns": [(each.value, *_written(each)) for each in columns],
        "rows": [(each.value, [_written(next(cells)) for _ in columns], _written(each)) for each in rows],
    }


def _written(row: ValueEstimate | FactorShare) -> tuple[str, str]:
    low, high = (chart.share(end, row.stderr) for end in row.interval)
    return chart.share(row.frequency, row.stderr), f"{low.removesuffix('%')} to {high}"


def _more(measured: Estimates) -> dict[str, Any]:
    """Return the texts about the order of an ordinal, and about the options of a set."""
    told: dict[str, Any] = {}
    if measured.order is not None:
        told["mean_position"] = _with_interval(measured.order.mean, measured.order.interval)
    if measured.chosen is not None:
        told["options_chosen"] = _with_interval(measured.chosen.mean, measured.chosen.interval)
        level = 0.05 / max(len(measured.chosen.pairs), 1)
        pairs = sorted((each for each in measured.chosen.pairs if not isnan(each.both)), key=lambda each: -each.both)
        told["pairs"] = [
            {
                "names": " and ".join(each.options),
                "reports": chart.count(each.n),
                "between": " to ".join(chart.share(min(max(end, 0.0), 1.0), each.stderr) for end in each.interval),
                "both": chart.share(each.both, each.stderr),
                "linked": each.p_value is not None and each.p_value < level,
            }
            for each in pairs[:_MOST_PAIRS]
        ]
    return told


def _with_interval(value: float, interval: tuple[float, float]) -> str:
    if isnan(value):
        return "?"
    low, high = (number.written(end, interval) for end in interval)
    return f"{number.written(value, interval)} ({low} to {high})"
