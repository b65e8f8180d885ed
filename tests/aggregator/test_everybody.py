"""What everybody may see, against somebody who keeps all that was ever shown and computes with it whatever can be computed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from registries import metric_toml, registry_toml
from scipy.optimize import linprog

from deniable.declared import Declared
from deniable.registry import parse
from deniable_aggregator import tally
from deniable_aggregator.answer.everybody import ALIKE, answers_alike, shown_cells
from deniable_aggregator.answer.readings import reading_of
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.suppression import publishable
from deniable_aggregator.publish.suppression.cube import Cube

from .test_suppression import LEAST, fewest

if TYPE_CHECKING:
    from deniable_aggregator.tally import Tally

VERSIONS, CHANNELS = ("1.0", "1.1", "2.0"), ("stable", "beta")
REGISTRY = parse(
    registry_toml(
        metric_toml("mixed", values=["light", "dark"], epsilon=8, segments=["version", "channel"], public=True),
        metric_toml("set", type="set", values=["a", "b", "c"], epsilon=8, public=True),
        metric_toml("both", type="product", factors={"theme": ["light", "dark"], "export": ["no", "yes", "later"]}, epsilon=8),
        metric_toml("size", estimate="mean", range=[0, 10], unit="s", epsilon=8),
        segments={"version": list(VERSIONS), "channel": list(CHANNELS)},
        generalize={"version": "."},
        publication={"min_reports": LEAST},
    )
)
MIXED = Declared.of(REGISTRY.metrics["mixed"])
BREAKDOWN = Breakdown.of(REGISTRY, MIXED.metric)
LEAVES = [f"version={version},channel={channel}" for version, channel in product(VERSIONS, CHANNELS)]


def tally_of(answers, declared=MIXED) -> Tally:
    """Make the tally of reports that say what was answered: so many of each answer."""
    layout = declared.layout
    return tally.from_cells(layout, np.array(answers, np.int64))


class View:
    """What is shown of some periods: a row of zeros and ones for each cell and period, over the leaves with reports of each."""

    def __init__(self, periods, least_then=LEAST, rule=shown_cells):
        self.answers = np.array([counts for leaves in periods for counts in leaves.values()])
        self.cells, at = {}, 0  # by cell and period: the columns of its leaves
        for period, leaves in enumerate(periods):
            cube = Cube.of(BREAKDOWN, {leaf: sum(counts) for leaf, counts in leaves.items()})
            published = [cell for cell in publishable([cube], least_then) if "channel" not in cell]
            names = [BREAKDOWN.text(leaf) for leaf in cube.leaves]
            of = {cell: [at + list(leaves).index(names[each]) for each in cube.members(cell)] for cell in published}
            readings = {cell: reading_of(MIXED, tally_of(self.answers[columns].sum(axis=0)), {}) for cell, columns in of.items()}
            self.cells |= {(cell, period): of[cell] for cell in rule(BREAKDOWN, readings)}
            at += len(leaves)
        self.reports = self.answers.sum(axis=1)
        self.rows = np.zeros((len(self.cells), at), int)
        for row, columns in zip(self.rows, self.cells.values(), strict=True):
            row[columns] = 1

    def groups(self):
        """Yield each set of leaves, of any periods, whose reports can be computed, as a row of zeros and ones."""
        if not len(self.rows):
            return
        basis = np.linalg.svd(self.rows.astype(float), full_matrices=False)
        span = basis.Vh[basis.S > 1e-9]
        for bits in product((0, 1), repeat=self.rows.shape[1]):
            group = np.array(bits)
            if group.any() and np.abs(group @ span.T @ span - group).max() < 1e-9:
                yield group

    def share(self, group):
        """Return the highest estimated share of an answer in a group."""
        return np.nanmax(reading_of(MIXED, tally_of(group @ self.answers), {}).shares.frequency)


NUMBER = st.one_of(st.just(0), st.integers(1, 12), st.integers(10, 60))
COUNTS = st.one_of(
    st.tuples(NUMBER, NUMBER),
    st.tuples(st.integers(10, 60), st.integers(0, 3)),  # nearly all gave one answer
).filter(sum)


@st.composite
def histories(draw, most):
    """Make a few periods, each with the answers of some leaves: `most` leaves in all of them."""
    periods, left = [], most
    for _ in range(draw(st.integers(1, 3))):
        leaves = draw(st.lists(st.sampled_from(LEAVES), unique=True, min_size=min(left, 1), max_size=min(left, 6)))
        left -= len(leaves)
        periods.append({leaf: draw(COUNTS) for leaf in sorted(leaves)})
    return [each for each in periods if each]


HIDDEN = [{"version=1.0,channel=stable": (50, 1), "version=2.0,channel=stable": (10, 30)}]
"""Nearly all of one version gave one answer, and all people together did not."""
LEFT = [{"version=1.0,channel=beta": (9, 0), "version=1.1,channel=beta": (9, 0), "version=2.0,channel=stable": (10, 30)}]
"""Two versions are too small to be shown, and together they answer alike."""


@pytest.mark.parametrize("history", [HIDDEN, LEFT])
def test_the_attacker_finds_what_is_there(history):
    """Where cells that do not answer alike were shown one by one, and the total always."""

    def one_by_one(_, readings):
        return {cell for cell, reading in readings.items() if not answers_alike(reading)}

    view = View(history, rule=one_by_one)
    assert max(map(view.share, view.groups())) >= ALIKE
    view = View(history)
    assert list(view.cells) == [("", 0)]


@given(histories(most=7), st.sampled_from([1, 4, LEAST]))
@example(HIDDEN, LEAST)
@example(LEFT, LEAST)
@example(HIDDEN + LEFT, 1)
@settings(max_examples=60, deadline=None)
def test_no_group_that_can_be_computed_answers_alike_or_is_small(history, least_then):
    """Whatever was needed for a release when it was made, and of whatever periods: also of sums of a day that went."""
    view = View(history, least_then)
    for group in view.groups():
        assert group @ view.reports >= LEAST
        assert view.share(group) < ALIKE
    if len(view.rows):
        assert fewest(view.rows, view.reports, LEAST) == LEAST


@given(histories(most=7))
@example(HIDDEN)
@example(LEFT)
@settings(max_examples=30, deadline=None)
def test_nobody_can_conclude_that_a_group_answers_alike(history):
    """A solver that knows the size of every leaf, and that no number is below 0, finds answers with which it does not."""
    view = View(history)
    # One unknown for each leaf and answer. Each figure is known to a thousandth, alone and in the sums of all first periods.
    known = [row for end in range(len(history)) for row in _sums(view, end)]
    estimate = {tuple(row): reading_of(MIXED, tally_of(row @ view.answers), {}).shares.frequency for row in known}
    assume(all((shares >= 0).all() and (shares <= 1).all() for shares in estimate.values()))
    bounds = [(0, int(n)) for n in view.reports]
    for value in (0, 1):
        sizes = np.array([row @ view.reports for row in known], float)
        middle = np.array([estimate[tuple(row)][value] for row in known])
        upper = np.vstack([*known, *(-row for row in known)]) if known else None
        limits = np.concatenate([(middle + 5e-4) * sizes, -(middle - 5e-4) * sizes]) if known else None
        for target in _targets(view):
            solved = linprog(target, upper, limits, bounds=bounds, method="highs")
            assert solved.status == 0
            assert solved.fun < ALIKE * (target @ view.reports)


def _sums(view, end):
    """Return the rows of one period, and the sums over the periods until then of each cell."""
    rows = dict(zip(view.cells, view.rows, strict=True))
    yield from (row for (_, period), row in rows.items() if period == end)
    for cell in {cell for cell, _ in rows}:
        until = [row for (name, period), row in rows.items() if name == cell and period <= end]
        if until:
            yield np.sum(until, axis=0)


def _targets(view):
    """Yield each leaf and each pair of leaves, as rows."""
    one = np.eye(view.rows.shape[1], dtype=int)
    yield from one
    yield from (first + second for at, first in enumerate(one) for second in one[at + 1 :])


@given(histories(most=6))
@example(HIDDEN + LEFT)
@settings(max_examples=60, deadline=None)
def test_what_is_not_shown_is_in_no_figure(history):
    """Other answers in a period that is not shown change nothing of what is."""
    view = View(history)
    hidden = [period for period in range(len(history)) if ("", period) not in view.cells]
    other = [
        {leaf: counts[::-1] for leaf, counts in leaves.items()} if period in hidden else leaves
        for period, leaves in enumerate(history)
    ]
    again = View(other)
    visible = {place for place in view.cells if place[1] not in hidden}
    assert visible == {place for place in again.cells if place[1] not in hidden}
    for place in visible:
        columns = view.cells[place]
        assert (view.answers[columns] == again.answers[columns]).all()


def reading(id_, answers):
    declared = Declared.of(REGISTRY.metrics[id_])
    mechanism = declared.mechanism
    return reading_of(declared, tally.count(declared.layout, b"".join(map(mechanism.randomize, answers))), {})


def test_a_factor_of_a_product_that_all_answered_alike():
    """No combination has nearly all, and one theme has."""
    metric = REGISTRY.metrics["both"]
    people = [("light", "no"), ("light", "yes"), ("light", "later")] * 400
    assert answers_alike(reading("both", map(metric.position, people)))
    assert not answers_alike(reading("both", map(metric.position, [*people, *[("dark", "no")] * 400])))


def test_an_option_of_a_set_that_nearly_all_chose():
    """Others do not matter: each option is a question of its own."""
    metric = REGISTRY.metrics["set"]
    assert answers_alike(reading("set", [metric.position(["a", "b"]), metric.position(["a"])] * 600))
    assert not answers_alike(reading("set", [metric.position(["a", "b"]), metric.position(["c"])] * 600))


def test_a_set_needs_enough_reports_of_each_option():
    """As its release does."""
    declared = Declared.of(replace(REGISTRY.metrics["set"], epsilon="1", min_reports=100))  # a report is about one option
    for times, visible in ((450, {""}), (75, set())):
        counted = tally.count(declared.layout, b"".join(map(declared.mechanism.randomize, [0, 1] * times)))
        assert shown_cells(BREAKDOWN, {"": reading_of(declared, counted, {})}) == visible


def test_a_number_is_not_looked_at():
    """Of its reports no single answer is estimated."""
    assert not answers_alike(reading("size", [REGISTRY.metrics["size"].position(3)] * 300))


def test_a_release_without_a_total_is_not_shown():
    """Nothing is known of what its cells leave."""
    group = reading_of(MIXED, tally_of((30, 30)), {})
    assert shown_cells(BREAKDOWN, {"version=1.0": group}) == set()


def test_a_word_that_the_registry_no_longer_has_hides_the_table():
    """Else the cells of two days together would make groups that were looked at on neither."""
    part, total = (reading_of(MIXED, tally_of(answers), {}) for answers in ((30, 30), (60, 60)))
    assert shown_cells(BREAKDOWN, {"": total, "version=1.0": part}) == {"", "version=1.0"}
    assert shown_cells(BREAKDOWN, {"": total, "version=0.9": part}) == {""}
