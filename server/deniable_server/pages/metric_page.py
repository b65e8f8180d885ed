"""What a page shows of a metric: a sentence, its numbers as text, and its chart."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil, exp, isnan
from typing import TYPE_CHECKING, Any

from flask import request
from msgspec.structs import asdict, replace

from deniable.mechanisms.sets import OfSets
from deniable.messages.plural import few, plural
from deniable_aggregator.accounting.crowds import readers, relay
from deniable_aggregator.answer import digits, figures
from deniable_aggregator.answer.absence import nearest
from deniable_aggregator.answer.headline import headline
from deniable_aggregator.answer.model.fields import LEVEL, so_far
from deniable_aggregator.answer.question import number_range
from deniable_aggregator.answer.question.date_range import JOINT
from deniable_aggregator.answer.refusal import withholding
from deniable_server.http import paging
from deniable_server.pages import frame, number_page
from deniable_server.pages.parts import chart, diagnosis, time_range
from deniable_server.pages.parts.choice import choice_asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.fields import Span
    from deniable_aggregator.answer.model.metric import Earlier, Estimates, Merged
    from deniable_aggregator.answer.model.shares import FactorShare, ValueEstimate
    from deniable_aggregator.answer.select import Published
    from deniable_server.pages.parts.metric_data import MetricData
    from deniable_server.service import App

LEVELS = (0.9, 0.95, 0.99, 0.999)  # to choose from
_ORDERS = ("estimate", "domain")
_VIEWS = ("unbiased", "consistent")
_LEAST_LOWERED = 5e-5  # a smaller share is written as 0
_MOST_ROWS = 18  # on one page: a domain may have 65,536 values
_WHOLE = 32  # rows up to which a page has all: the hours of a day are not split
_UNDETECTED_ROWS = 10
_MOST_PAIRS = 20
_MOST_WITHHELD = 8
_MOST_PERIODS = 366  # to choose from: there may be years of hours


def page_of(
    app: App,
    measured: Estimates,
    facts: dict[str, Any],  # members of the answer, and what else the template asks for
    data: MetricData | None = None,  # of what is published; None of what is counted
    *,
    period: str | None = None,  # as it was asked for, of what is counted
) -> Response:
    """Show the estimates of a metric, in the ``order`` and ``view`` of the request, on one ``page`` of many values."""
    declared = app.versions[measured.id, measured.version]
    kind = declared.metric.kind
    order = choice_asked("order", _ORDERS) or ("estimate" if kind.ranked else "domain")
    views = _VIEWS if measured.number is None else number_page.VIEWS
    view = choice_asked("view", views) or views[0]
    number = paging.number()
    level = facts.get("level", LEVEL)
    parts = picture(measured, order, view, number, everything=request.args.get("x") == "all")
    paging.check(number, parts["pages"])
    period = data.period if data else period
    over_time = data.over_time if data else None
    unit, units = data.units if data else ("", [])
    chosen = {name: request.args.get(name) for name in ("level", "order", "view", "base", "value", "by", "segments", "x")} | {
        "period": period,
        "segment": data.segment if data else None,
        "range": data.range.text if data else "",
    }
    days = so_far(facts["days"], facts["updated"] or datetime.now(UTC))
    first, detail = figures.first_sentence(headline(measured, None, level))
    if parts.get("number") and parts["number"].says:
        first, detail = parts["number"].says, parts["number"].detail
    return frame.page(
        "metric.html",
        app=app,
        m=facts | described(app, measured),
        headline=first,
        detail=detail,
        near=near(app, measured.id),
        offered=offered(facts["periods"], *(span.last for span in facts["included"] if period)),
        levels=sorted({*LEVELS, level}),
        series=over_time,
        yes_or_no=any(row.value is True for row in measured.estimates),
        unit=unit,
        units=units,
        segments=data.segments if data and measured.n else None,
        ranges=time_range.RANGES,
        number_range=_number_range(declared.metric, data),
        days=data.range.days if data and ".." in data.range.text else None,
        range_words=data.range.words if data else "",
        range_link=data.range.fixed if data and ".." not in data.range.text else "",
        covered=figures.brief_range(str(days.first), str(days.last), "day")
        if days and days.first and days.first != days.last
        else "",
        query_address=data.query_address if data else "",
        orders=_ORDERS,
        order=order,
        views=views,
        view=view,
        chosen={name: value for name, value in chosen.items() if value},
        has_form=bool(facts["periods"] or (data and data.version.cells)),
        closed_range=data.closed_range if data and measured.n and not facts["closed"] else "",
        here=".live_metric" if "live" in facts else ".metric",
        influence=float(declared.mechanism.influence),
        page=number,
        absent=frame.sentence(facts.get("reason") or ""),
        empty=None if data is None or measured.n or data.is_part else diagnosis.of(app, declared),
        nearest=nearest(period, facts["periods"]) if period else [],
        **parts,
    )


def _number_range(metric: Metric, data: MetricData | None) -> tuple[str, str] | None:
    """Return the ends of the range of a number that is asked for, as they were written; None where there are no ranges."""
    if data is None or not number_range.has_ranges(metric):
        return None
    above, _, at_most = (frame.typed().get("value") or data.within or "").partition(JOINT)
    return above, at_most


def offered(periods: Sequence[Span], *chosen: str | None) -> list[Span]:
    """Return the periods to choose from, the last one first: the last `_MOST_PERIODS`, and those chosen already."""
    recent = periods[-_MOST_PERIODS:]
    older = [span for span in periods[:-_MOST_PERIODS] if span.last in chosen]
    return [*reversed(recent), *reversed(older)]


def near(app: AppMetrics, id_: str) -> tuple[str | None, str | None]:
    """Name the metrics before and after one."""
    ids = list(app.highest)
    at = ids.index(id_) if id_ in ids else len(ids)
    return ids[at - 1] if at > 0 else None, ids[at + 1] if at + 1 < len(ids) else None


def withheld(published: Sequence[Published], version: int, period: str | None) -> str:
    """Say which values of segments a version withholds, and why; empty if it withholds none."""
    (of,) = (each for each in published if each.declared.metric.version == version)
    names = [figures.group(cell) for cell in of.withheld(period)]
    if not names:
        return ""
    listed = f"Withheld {'is' if len(names) == 1 else 'are'} {few(names, _MOST_WITHHELD, '; ')}"
    doubt = f"{'It' if len(names) == 1 else 'Each'} may have few reports or none."
    return f"{listed}: {withholding(of.declared)}. {doubt}"


def pooled(merged: Merged | None) -> dict[str, Any] | None:
    """Draw the estimate of several versions together."""
    if merged is None:
        return None
    rows = chart.order(merged.estimates, by_estimate=True)
    return asdict(merged) | {"chart": chart.chart(rows[:_MOST_ROWS], over=rows)}


def before(earlier: Earlier, level: float) -> dict[str, Any]:
    """Draw what was published under an earlier definition."""
    rows = chart.order(estimated(earlier), by_estimate=True)
    return asdict(earlier) | {
        "title": figures.beginning(earlier.says),
        "headline": headline(earlier, so_far(earlier.days, earlier.updated), level),
        "chart": chart.chart(rows[:_MOST_ROWS], over=rows) if rows else None,
    }


def picture(measured: Estimates, order: str, view: str, page: int = 1, *, everything: bool = True) -> dict[str, Any]:
    """Draw the values in a view, on a page of `_MOST_ROWS` of them at most. Or draw the number."""
    if measured.number is not None:
        values = [value for value in measured.number.values if not isnan(value.frequency)]
        shares = chart.chart(values) if values else None
        return {
            "number": number_page.view(measured.number, view, everything=everything),
            "values": shares,
            "chart": None,
            "pages": 1,
        }
    rows = estimated(measured)
    if view == "consistent":
        rows = [_consistent(row, measured.n) for row in rows]
    if not rows:
        return {"chart": None, "pages": 1}
    rows = chart.order(rows, by_estimate=order == "estimate")
    first = len(rows) if len(rows) <= _WHOLE else _MOST_ROWS
    if measured.domain_size is None and order == "estimate":  # of ten thousand candidates few are of interest
        first = min(first, sum(row.detected for row in rows) + _UNDETECTED_ROWS)
    # The first page may be shorter than the others.
    begin = first + _MOST_ROWS * (page - 2) if page > 1 else 0
    selection = rows[begin : begin + (_MOST_ROWS if page > 1 else first)]
    return {
        "chart": chart.chart(selection, over=rows) if selection else None,
        "pages": 1 + max(0, ceil((len(rows) - first) / _MOST_ROWS)),
        "begin": begin,
        "lowered": _lowered(measured) if view == "consistent" else "",
    }


def estimated(measured: Estimates) -> list[ValueEstimate]:
    """Return the values with an estimate: none without reports, and no candidates that share their hashes."""
    return [row for row in measured.estimates if not isnan(row.frequency)]


def _lowered(measured: Estimates) -> str:
    """Say by how much consistent shares differ from unbiased ones; empty if by nothing that shows."""
    amount, rows = measured.lowered_by, estimated(measured)
    if isnan(amount) or not rows or abs(amount) < _LEAST_LOWERED:
        return ""
    verb = "lowered" if amount > 0 else "raised"
    sentence = f"Each share is {verb} by {100 * abs(amount):.2g} points, so that all sum to 100%."
    largest = max(rows, key=lambda row: row.frequency)
    if abs(amount) > largest.stderr:
        sentence += " That is more than the standard error of the largest: for large shares the unbiased ones are better."
    return sentence


def _consistent(row: ValueEstimate, n: int) -> ValueEstimate:
    """Return a row with its consistent share for the unbiased one, and what is possible of its intervals."""
    interval, simultaneous = digits.possible_ends(row.interval), digits.possible_ends(row.simultaneous)
    return replace(row, frequency=row.consistent, count=row.consistent * n, interval=interval, simultaneous=simultaneous)


def described(app: AppMetrics, measured: Estimates) -> dict[str, Any]:
    """Return the texts about a metric for its page."""
    declared = app.versions[measured.id, measured.version]
    metric = declared.metric
    size, limit, others = len(measured.estimates), measured.detection_frequency, measured.unallocated
    between = "" if others is None or isnan(others.stderr) else figures.share_range(others.interval, others.stderr)
    # Rounded up, because "at most" must stay true of the number shown.
    odds = ceil(100 * exp(measured.epsilon) - 1e-6) / 100
    return {
        "labels": [row.label for row in measured.estimates],
        "size": size,
        "what": _domain(metric, size, candidates=bool(measured.candidates)),
        "detected": sum(row.detected for row in measured.estimates),
        "limit": None if isnan(limit) else figures.share(limit, limit / 10),
        "others": between,
        "odds": f"{odds:,.2f}",
        "permanent": metric.permanent,
        "readers": readers.sentence(app.declared, metric),
        "mixed": relay.sentence(app.declared, metric),
        "expired": metric.expired(datetime.now(UTC).date()),
        "unit": metric.unit,
        "example": metric.kind.example(metric),
        "first_label": metric.label(0) if metric.values else "",
        "last_label": metric.label(len(metric.values) - 1) if metric.values else "",
        "table": _table(measured),
        **_order_and_options(measured),
        "awaited": app.awaited(declared),
        "part": declared.mechanism.part,
        "most": metric.most,
        "at_once": _at_once(declared.mechanism),
    }


def _at_once(mechanism: Mechanism) -> int:
    """Return how many options a report about a set is about; 0 of other metrics."""
    return int(mechanism.about * mechanism.options_listed) if isinstance(mechanism, OfSets) else 0


def _domain(metric: Metric, size: int, *, candidates: bool) -> str:
    """Say in a few words what answers there are."""
    if metric.axis:
        return f"{metric.range[0]} to {metric.range[1]} {metric.unit}"
    if metric.estimate:
        return f"{len(metric.values)} positions"
    noun = "candidate" if candidates else metric.kind.noun
    return plural(size, noun)


def _table(measured: Estimates) -> dict[str, Any] | None:
    """Return the table of a product's two factors, with the share of each value of either."""
    if measured.association is None or len(measured.association.factors) != 2:  # noqa: PLR2004
        return None
    (down, rows), (across, columns) = measured.association.margins.items()
    cells = iter(measured.estimates)  # in the order of the domain: the second factor runs fastest
    return {
        "names": (down, across),
        "columns": [(column.value, *_with_range(column)) for column in columns],
        "rows": [(row.value, [_with_range(next(cells)) for _ in columns], _with_range(row)) for row in rows],
    }


def _with_range(row: ValueEstimate | FactorShare) -> tuple[str, str]:
    return figures.share(row.frequency, row.stderr), figures.share_range(row.interval, row.stderr)


def _order_and_options(measured: Estimates) -> dict[str, Any]:
    """Return the texts about the order of an ordinal, and about the options of a set."""
    texts, size = dict[str, Any](), len(measured.estimates)
    if measured.order is not None:
        texts["mean_position"] = _with_interval(measured.order.mean, measured.order.interval, (1.0, float(size)))
    if measured.chosen is not None:
        texts["options_chosen"] = _with_interval(measured.chosen.mean, measured.chosen.interval, (0.0, float(size)))
        level = 0.05 / max(len(measured.chosen.pairs), 1)  # of the test of one pair, so that all together hold at 5%
        pairs = sorted((pair for pair in measured.chosen.pairs if not isnan(pair.both)), key=lambda pair: -pair.both)
        texts["pairs"] = [
            {
                "names": " and ".join(pair.options),
                "reports": figures.count(pair.n),
                "between": figures.possible_share_range(pair.interval, pair.stderr),
                "both": figures.share(pair.both, pair.stderr),
                "linked": pair.p_value is not None and pair.p_value < level,
            }
            for pair in pairs[:_MOST_PAIRS]
        ]
    return texts


def _with_interval(value: float, interval: tuple[float, float], range_: tuple[float, float]) -> str:
    """Write a mean with its interval, as far as they are possible."""
    if isnan(value):
        return "?"
    ends = figures.possible(interval[0], range_), figures.possible(interval[1], range_)
    return f"{figures.number(figures.possible(value, range_), ends)} ({' to '.join(figures.number_ends(ends))})"
