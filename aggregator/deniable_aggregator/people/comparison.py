"""Estimates beside what simulated people truly answered."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from deniable.declared import versions
from deniable_aggregator.answer.app import AppMetrics
from deniable_aggregator.answer.measurement import measure
from deniable_aggregator.answer.model.number import QUANTILE_NAMES
from deniable_aggregator.answer.select import Published
from deniable_aggregator.publish import release

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deniable.registry import Registry
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.people.truth import Figure
    from deniable_aggregator.store import Store

LEVEL = 0.999


class Compared(NamedTuple):
    """A figure of all periods together."""

    metric: str
    segment: str  # the cell; empty for everybody
    value: str
    # truth, estimate, low, high: the true figure, the estimated one, and the ends of its interval
    truth: float
    estimate: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.truth <= self.high


def compare(store: Store, registry: Registry, figures: Iterable[Figure]) -> Iterator[Compared]:
    """Yield the figures of all periods together that are estimated, beside their estimates."""
    app = AppMetrics(registry, versions(registry), store)
    known = release.summaries(store)
    measured: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = {}
    for figure in figures:
        cell = figure.metric, figure.segment
        if cell not in measured:
            published = Published.of_each(app, [app.highest[figure.metric]])
            measured[cell] = _estimates(measure(published, known, None, figure.segment or None, LEVEL))
        estimates = measured[cell].get(figure.value)
        if estimates:
            yield Compared(figure.metric, figure.segment, figure.value, figure.truth, *estimates)


def _estimates(answer: Measurement) -> dict[str, tuple[float, float, float]]:
    """Return each estimate with its interval, by the answer as it is shown, or what rows of a table call it."""
    estimates = {row.label: (row.frequency, *row.simultaneous) for row in answer.estimates}
    if answer.number:
        geometric = answer.number.geometric_mean
        if geometric:
            estimates["geometric_mean"] = geometric.value, *geometric.interval
        estimates["mean"] = answer.number.mean, *answer.number.interval
        for name, quantile in zip(QUANTILE_NAMES, answer.number.quantiles, strict=False):
            if quantile.resolved:
                estimates[name] = quantile.value, *quantile.interval
    return {name: figures for name, figures in estimates.items() if not any(map(isnan, figures))}  # nan: of no report
