"""What the list says of the segments of a metric: which difference is the clearest one in its last periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference.sentence import more_with
from deniable_aggregator.answer.figures import Measure
from deniable_aggregator.answer.model.fields import LEVEL
from deniable_aggregator.answer.reading import LineOptions
from deniable_aggregator.answer.readings import read
from deniable_aggregator.answer.readings.lines import differences
from deniable_aggregator.answer.readings.number import range_of
from deniable_aggregator.answer.refusal import QueryTooLarge
from deniable_aggregator.answer.table import cost
from deniable_server.pages.segments.compared import pairs_of
from deniable_server.pages.segments.table import MOST_VALUES, answers_of, tested_of

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.metric import Estimates
    from deniable_aggregator.answer.select import Published


class Clearest(NamedTuple):
    """The clearest difference between segments of a metric."""

    says: str  # in which segment what is more or less than in the base, and by how much
    # value, base: parameters of the metric's page
    value: str
    base: str


def dimensions_of(app: AppMetrics, version: Declared) -> list[str]:
    """Name the dimensions of a version that the list compares: those of an experiment are tested at all looks, and apart."""
    metric = version.metric
    return [] if metric.discover else [each for each in metric.segments if each not in app.registry.experiments]


def dimensions(app: AppMetrics) -> int:
    """Count the dimensions that are tested together, over all metrics, whichever version the list is of."""
    return sum(max(len(dimensions_of(app, each)) for each in app.versions_of(id_)) for id_ in app.highest)


def clearest(
    version: Published,
    measured: Estimates,
    together: int,  # as of `dimensions`
) -> Clearest | None:
    """Return the clearest difference beyond chance, over all metrics and dimensions that the list may name.

    It is None if there is none, and if it would take too long to look for it.
    """
    metric = version.declared.metric
    names, answers = dimensions_of(version.app, version.declared), answers_of(measured)
    if not answers or sum(len(version.breakdown.values[name]) for name in names) > MOST_VALUES:
        return None
    tested = tested_of(measured, answers, "")
    options = LineOptions(set(tested).__contains__, lambda _: tested, "population", consistent=False, level=LEVEL)
    pairs = [pair for name in names for pair in pairs_of(version, name)]
    selections = [each for pair in pairs for each in (pair.first, pair.second)]
    distinct = {tuple(each.releases): each for each in selections}
    strata = {stratum for each in selections for stratum in each.releases}
    try:
        cost.check([version.declared] * len(distinct), [version.declared] * len(strata), options, compared=True)
    except QueryTooLarge:  # the page of the metric compares no segments then, either
        return None
    lines = {key: each.lines(options) for key, each in zip(distinct, read(list(distinct.values())), strict=True)}
    sides = [(lines[tuple(pair.first.releases)], lines[tuple(pair.second.releases)]) for pair in pairs]
    # All metrics and dimensions are tested together (Bonferroni), whichever are on this page of the list. That an interval at
    # this level holds no zero is the test: p-values would take ten times as long.
    level = 1 - (1 - LEVEL) / max(together * sum(second.hypotheses for _, second in sides), 1)
    differing = list[tuple[float, Clearest]]()
    measure = Measure(measured.number is None, metric.unit, metric.scale, range_of(metric))
    for pair, (first, second) in zip(pairs, sides, strict=True):
        difference = differences(first, second, None)
        if isinstance(difference, str):
            continue
        rows = zip(second.labels, difference.estimates.tolist(), *map(np.ndarray.tolist, difference.interval(level)), strict=True)
        for label, size, low, high in rows:
            middle, *ends = (figures.distance(each, metric.scale) for each in (size, low, high))
            if ends[0] > 0 or ends[1] < 0:
                says = more_with(answers[label].label, size, (low, high), measure, (pair.base, pair.cell))
                differing.append((abs(middle) / (ends[1] - ends[0]), Clearest(says, label, pair.base)))
    return max(differing, key=lambda one: one[0])[1] if differing else None
