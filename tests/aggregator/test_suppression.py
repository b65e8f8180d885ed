"""What is published together, against whoever computes with it whatever can be computed."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from deniable.registry.hierarchy import parents
from deniable_aggregator.publish import suppression
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.suppression import difference, nested, publishable, span
from deniable_aggregator.publish.suppression.cube import Cube
from deniable_aggregator.publish.suppression.difference import Difference, Verdict
from deniable_aggregator.publish.suppression.span import Span

LEAST = 10


def judged(cube: Cube, least=LEAST):
    """Return what is said of each cell of enough reports."""
    return {cube.breakdown.text(words): verdict for words, verdict in suppression._judged(cube, least, None, many=False).items()}


def withheld(cube: Cube, least=LEAST):
    """Return the cells of enough reports that would give others away."""
    return {cell for cell, verdict in judged(cube, least).items() if verdict is Verdict.UNSAFE}


def indicator(cube: Cube, cells) -> np.ndarray:
    """One row of zeros and ones to a cell."""
    rows = np.zeros((len(cells), len(cube.leaves)), int)
    for row, cell in zip(rows, cells, strict=True):
        row[cube.members(cell)] = 1
    return rows


def rank(rows) -> int:
    """Row reduction in fractions: exact."""
    left = [[Fraction(int(x)) for x in row] for row in rows]
    pivots = 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((i for i in range(pivots, len(left)) if left[i][column]), None)
        if pivot is None:
            continue
        left[pivots], left[pivot] = left[pivot], left[pivots]
        for i in range(pivots + 1, len(left)):
            factor = left[i][column] / left[pivots][column]
            if factor:
                left[i] = [a - factor * b for a, b in zip(left[i], left[pivots], strict=True)]
        pivots += 1
    return pivots


def fewest(rows: np.ndarray, reports: np.ndarray, least: int) -> int:
    """Return how many reports the best attacker tells of, by trying every set of leaves; `least` where it is no fewer.

    Of the leaves of a set alone something can be computed if and only if the other columns have a lower rank.
    """
    full, best = rank(rows), least
    light = [i for i, n in enumerate(reports) if n < least]
    for size in range(1, len(light) + 1):
        for columns in combinations(light, size):
            n = int(reports[list(columns)].sum())
            if n < best and rank(np.delete(rows, columns, axis=1)) < full:
                best = n
    return best


def fewest_as_a_set(rows: np.ndarray, reports: np.ndarray, least: int) -> int | None:
    """Return the fewest reports of a set of leaves whose sum can be computed, by integer programming; None if they are enough."""
    p, leaves = rows.shape
    combined = np.hstack([np.eye(leaves), -rows.T])  # the set, and the weights of the cells
    solved = milp(
        np.concatenate([reports, np.zeros(p)]),
        integrality=np.concatenate([np.ones(leaves), np.zeros(p)]),
        bounds=Bounds(np.concatenate([np.zeros(leaves), np.full(p, -50)]), np.concatenate([np.ones(leaves), np.full(p, 50)])),
        constraints=[
            LinearConstraint(combined, 0, 0),
            LinearConstraint(np.concatenate([reports, np.zeros(p)]), 1, least - 1),
        ],
    )
    return None if solved.x is None else round(solved.fun)


def cube_of(values, above, numbers) -> Cube:
    breakdown = Breakdown(values, above)
    keys = map(breakdown.text, product(*values.values()))
    return Cube.of(breakdown, dict(zip(keys, numbers, strict=False)))


VERSIONS = ("1.0", "1.1", "2.0", "2")


@st.composite
def cubes(draw, most=9):
    """Small cubes of one to three segments, one of them with a hierarchy, with empty, small and large leaves."""
    shape = draw(st.lists(st.integers(1, 3), min_size=0, max_size=2))
    values = {f"n{i}": tuple("abc"[:k]) for i, k in enumerate(shape)}
    versions = VERSIONS[: draw(st.integers(1, 4))]
    place = draw(st.integers(0, len(shape)))
    names = [*values]
    names.insert(place, "version")
    values = {name: versions if name == "version" else values[name] for name in names}
    size = int(np.prod([len(v) for v in values.values()]))
    number = st.one_of(st.just(0), st.integers(1, 4), st.integers(1, 2 * LEAST), st.integers(LEAST, 50))
    numbers = draw(st.lists(number, min_size=size, max_size=size))
    while sum(n > 0 for n in numbers) > most:
        numbers[max(i for i, n in enumerate(numbers) if n)] = 0
    return cube_of(values, {"version": parents(versions, ".")}, numbers)


def test_the_attackers_find_what_is_there():
    """A sum that is known but for one leaf gives it away, and the attackers of these tests tell how many reports that has."""
    rows = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]])
    reports = np.array([40, 30, 3, 20])
    assert fewest(rows, reports, LEAST) == fewest_as_a_set(rows, reports, LEAST) == 3
    assert fewest(rows[1:], reports, LEAST) == LEAST
    assert fewest_as_a_set(rows[1:], reports, LEAST) is None


@given(cubes())
@settings(max_examples=80, deadline=None)
def test_nothing_that_can_be_computed_tells_of_few(cube):
    """No weighted sum of published cells, and no set of leaves that they determine, has 1 to least - 1 reports."""
    published = publishable([cube], LEAST)
    rows = indicator(cube, sorted(published))
    assert fewest(rows, cube.reports, LEAST) == LEAST
    if len(rows):
        assert fewest_as_a_set(rows, cube.reports, LEAST) is None


STALLED = {"a,1.0,a": 3, "a,1.1,b": 2, "a,2.0,a": 1, "a,2.0,b": 4, "b,1.0,a": 4, "b,1.1,b": 5, "b,2.0,a": 5}
"""Reports of leaves where neither a flow nor a cover in parts of leaves tells whether one cell may be published."""


@given(cubes(most=8))
@example(
    cube_of(
        {"n0": ("a", "b"), "version": VERSIONS[:3], "n1": ("a", "b")},
        {"version": parents(VERSIONS[:3], ".")},
        [STALLED.get(",".join(words), 0) for words in product("ab", VERSIONS[:3], "ab")],
    )
)
@settings(max_examples=60, deadline=None)
def test_nothing_is_withheld_without_need(cube):
    """A withheld cell with enough reports would give few away if it were published, too."""
    published, verdicts = publishable([cube], LEAST), judged(cube)
    assert Verdict.OPEN not in verdicts.values()
    assert published | withheld(cube) == set(verdicts)
    for cell in withheld(cube):
        assert cube.total(cell) >= LEAST
        assert fewest(indicator(cube, sorted({*published, cell})), cube.reports, LEAST) < LEAST
    assert set(verdicts) == {text for text in map(cube.breakdown.text, cube.cells()) if cube.total(text) >= LEAST}


@given(cubes(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_no_two_answers_differ_by_few(cube, random):
    """Of two published cells the reports in one and not in the other are none or enough, taken together."""
    cells = sorted(publishable([cube], LEAST))
    for _ in range(20 if cells else 0):
        one, other = (set(cube.members(random.choice(cells)).tolist()) for _ in range(2))
        differing = int(cube.reports[sorted(one ^ other)].sum())
        assert differing == 0 or differing >= LEAST


@given(cubes())
@settings(max_examples=100, deadline=None)
def test_solving_the_linear_system_gives_no_hidden_cell(cube):
    """Least squares over all published cells determines no cell of 1 to least - 1 reports."""
    rows = indicator(cube, sorted(publishable([cube], LEAST))).astype(float)
    for words in cube.cells():
        cell = cube.breakdown.text(words)
        if len(rows) and cube.total(cell) < LEAST:
            target = indicator(cube, [cell])[0]
            weights = np.linalg.lstsq(rows.T, target, rcond=None)[0]
            assert np.abs(rows.T @ weights - target).max() > 1e-6


@given(cubes())
@settings(max_examples=60, deadline=None)
def test_cells_along_one_order_are_exact_as_well(cube):
    """Along one order of the segments the same holds, and the total is kept."""
    published = [cube.breakdown.text(words) for words, safe in nested.choose(cube, LEAST).items() if safe]
    assert fewest(indicator(cube, published), cube.reports, LEAST) == LEAST
    assert (cube.reports.sum() >= LEAST) == ("" in published)


@given(cubes(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_choice_is_always_the_same(cube, random):
    """The order in which strata are given does not matter."""
    leaves = list(zip(map(cube.breakdown.text, cube.leaves), cube.reports.tolist(), strict=True))
    random.shuffle(leaves)
    assert publishable([Cube.of(cube.breakdown, dict(leaves))], LEAST) == publishable([cube], LEAST)


def table(*rows, least=LEAST):
    """Return a table of two segments, r and c, and what is published of it."""
    values = {"r": tuple(f"r{i}" for i in range(len(rows))), "c": tuple(f"c{i}" for i in range(len(rows[0])))}
    cube = cube_of(values, {}, [n for row in rows for n in row])
    return cube, publishable([cube], least)


def test_a_small_cell_takes_three_more_with_it():
    """The textbook case (Cox 1980): with all margins published a small cell is hidden by a rectangle of four."""
    cube, published = table((3, 40, 50), (60, 70, 80), (90, 95, 99))
    hidden = {cube.breakdown.text(leaf) for leaf in cube.leaves} - published
    assert len(withheld(cube)) == 3
    assert hidden == {"r=r0,c=c0", *withheld(cube)}
    assert {cell.split(",")[0] for cell in hidden} == {"r=r0", next(iter(hidden - {c for c in hidden if "r0" in c}))[:4]}
    assert {"", "r=r0", "r=r1", "c=c0", "c=c2"} <= published


BRIDGE = ((9, 2, 90, 91), (3, 8, 4, 92), (93, 94, 9, 5), (95, 96, 6, 9))


def test_two_hidden_in_every_line_are_not_enough():
    """Where each row and column hides two cells or more, margins still give away a cell that bridges two blocks of them."""
    cube, published = table(*BRIDGE)
    names = [cube.breakdown.text(leaf) for leaf in cube.leaves]
    naive = [cell for cell, n in zip(names, cube.reports, strict=True) if n >= LEAST]
    margins = ["", *(f"r=r{i}" for i in range(4)), *(f"c=c{i}" for i in range(4))]
    hidden = np.array(BRIDGE) < LEAST
    assert (hidden.sum(axis=0) >= 2).all()
    assert (hidden.sum(axis=1) >= 2).all()
    rows = indicator(cube, [*margins, *naive])
    assert fewest(rows, cube.reports, LEAST) == 4
    assert rank([*rows, indicator(cube, ["r=r1,c=c2"])[0]]) == rank(rows)
    rows = indicator(cube, sorted(published))
    assert fewest(rows, cube.reports, LEAST) == LEAST
    assert rank([*rows, indicator(cube, ["r=r1,c=c2"])[0]]) > rank(rows)


def test_a_difference_of_two_reports_is_not_told():
    """Two margins that overlap in all but one report each are not both published: of two reports the difference tells both."""
    cube, published = table((1000, 1), (1, 1000))
    rows = indicator(cube, ["r=r0", "c=c0"])
    assert fewest_as_a_set(rows, cube.reports, LEAST) is None
    assert fewest(rows, cube.reports, LEAST) == 2
    assert len({"r=r0", "c=c0"} & published) == 1


def test_a_tracker_is_refused():
    """All less all but a few is those few (Denning, Denning, Schwartz 1979): a group is not published if it leaves few."""
    values = {"v": ("a", "b")}
    cube = cube_of(values, {}, [500, 9])
    assert publishable([cube], LEAST) == {""}
    assert withheld(cube) == {"v=a"}
    assert publishable([cube_of(values, {}, [500, 10])], LEAST) == {"", "v=a", "v=b"}


def test_a_rare_version_is_shown_within_a_more_common_one():
    """In place of a withheld cell the nearest published one is offered: along the hierarchy, then with a segment left open."""
    versions = ("2.4.0", "2.4.1", "2.5.0", "3.0.0")
    cube = cube_of(
        {"p": ("x", "y"), "version": versions}, {"version": parents(versions, ".")}, [200, 3, 5, 100, 150, 4, 120, 300]
    )
    published = publishable([cube], LEAST)
    offered = {
        cell: next(around for around in cube.breakdown.coarser(cell) if around in published)
        for cell in ("version=2.4.1", "p=x,version=2.4.1", "p=x,version=2.5.0")
    }
    assert offered == {"version=2.4.1": "version=2.4", "p=x,version=2.4.1": "p=x,version=2", "p=x,version=2.5.0": "p=x,version=2"}


@pytest.mark.parametrize("least", [0, 1])
def test_without_a_threshold_everything_is_published(least):
    """A threshold of one report withholds only what is empty."""
    cube, published = table((3, 1, 0), (1, 2, 5), least=least)
    assert published == {cube.breakdown.text(words) for words in cube.cells()}


def test_too_few_at_all():
    """Of fewer reports than the threshold, or of none, nothing is published."""
    assert publishable([cube_of({"v": ("a", "b")}, {}, [5, 4])], LEAST) == set()
    assert publishable([cube_of({"v": ("a", "b")}, {}, [0, 0])], LEAST) == set()


def test_what_is_not_found_out_is_withheld(monkeypatch):
    """A check that runs out of effort withholds the cell; what is left is as safe."""
    monkeypatch.setattr(suppression, "MAX_ROUNDS", 0)
    monkeypatch.setattr(Difference, "_pack", lambda *_: Verdict.OPEN)
    cube, published = table((3, 40, 50), (60, 70, 80), (90, 95, 99))
    left_open = {cell for cell, verdict in judged(cube).items() if verdict is Verdict.OPEN}
    assert left_open
    assert not left_open & published
    assert fewest(indicator(cube, sorted(published)), cube.reports, LEAST) == LEAST


def test_effort_is_bounded(monkeypatch):
    """All checks of a cube together solve no more linear programs than are allowed."""
    allowed = []

    def verdict(self, rounds, _exchanges):
        allowed.append(rounds)
        self.rounds = rounds
        return Verdict.OPEN

    monkeypatch.setattr(suppression, "MAX_ROUNDS", 3)
    monkeypatch.setattr(suppression, "MAX_ALL_ROUNDS", 5)
    monkeypatch.setattr(Difference, "verdict", verdict)
    table((3, 40, 50), (60, 70, 80), (90, 95, 9))
    assert allowed[:3] == [3, 2, 0]
    assert sum(allowed) == 5


def test_many_small_combinations_take_bounded_work(monkeypatch, caplog):
    """474 combinations of about three reports take no more steps than are allowed. Cells left open are withheld and counted."""
    steps = []

    def clear(*step):
        steps.append(step[1:])
        span.clear(*step)

    monkeypatch.setattr(difference, "clear", clear)
    monkeypatch.setattr(suppression, "MAX_ALL_EXCHANGES", 2000)  # ten thousand take seconds
    values = {"a": tuple("abcde"), "b": tuple("abcde"), "c": tuple("abcde"), "d": tuple("abcd")}
    cube = cube_of(values, {}, np.random.default_rng(2).poisson(3, 500).tolist())
    published = publishable([cube], LEAST)
    assert 1000 < len(steps) <= 2000
    assert f"{caplog.records[0].args[0]} cells took too long" in caplog.text
    enough = [text for text in map(cube.breakdown.text, cube.cells()) if cube.total(text) >= LEAST]
    assert 0 < caplog.records[0].args[0] <= len(set(enough) - published)
    assert {text for text in enough if "," not in text} <= published
    rows = indicator(cube, sorted(published)).astype(float)
    assert (np.linalg.pinv(rows) @ rows).diagonal().max() < 1 - 1e-9  # no combination alone can be computed


def test_many_cells_are_published_in_order(monkeypatch):
    """A cube with too many cells is published in the order of its segments, as is one with too many leaves."""
    for limit in ("MAX_MEMBERSHIPS", "MAX_LEAVES"):
        cube, published = table((30, 40), (50, 60))
        assert {"c=c0", "c=c1"} <= published
        monkeypatch.setattr(suppression, limit, 3)
        assert publishable([cube], LEAST) == published - {"c=c0", "c=c1"}
        monkeypatch.undo()


def test_along_one_order_few_cells_are_withheld():
    """Where a rest is too small, one cell that has a rest of its own goes, and none that others make up wholly."""
    versions = ("1.0", "1.1", "3.0", "4", "5")
    cube = cube_of({"version": versions}, {"version": parents(versions, ".")}, [20, 30, 15, 3, 60])
    assert [words for words, safe in nested.choose(cube, LEAST).items() if not safe] == [("5",)]


def test_where_the_prime_divides_too_much(monkeypatch):
    """Where the arithmetic may have missed something, the cube is published in the order of its segments."""
    monkeypatch.setattr(Span, "sound", lambda *_: False)
    cube, published = table((3, 40), (50, 60))
    assert published == {"", "r=r0", "r=r1", *map(cube.breakdown.text, cube.leaves)} - {"r=r0,c=c0", "r=r0,c=c1"}


def realistic(least, hierarchy):
    """6 platforms and 40 versions, both of a Zipf law, 100,000 reports."""
    versions = tuple(f"{a}.{b}.{c}" for a in (2, 3) for b in range(5) for c in range(4))
    rng = np.random.default_rng(1)
    weights = np.outer(1 / np.arange(1, 7), 1 / (1 + rng.permutation(40))).ravel()
    numbers = rng.multinomial(100_000, weights / weights.sum()).tolist()
    above = {"version": parents(versions, ".")} if hierarchy else {}
    cube = cube_of({"platform": tuple("abcdef"), "version": versions}, above, numbers)
    return cube, publishable([cube], least)


@pytest.mark.parametrize("hierarchy", [False, True])
def test_most_cells_survive(hierarchy):
    """Of a realistic table all margins are published, and nine in ten of the cells that have enough reports."""
    cube, published = realistic(100, hierarchy)
    enough = {text for text in map(cube.breakdown.text, cube.cells()) if cube.total(text) >= 100}
    assert {text for text in enough if "," not in text} <= published
    assert len(published) > 0.9 * len(enough)


def test_three_segments():
    """300 leaves of three segments are checked in full, and least squares finds no hidden leaf."""
    rng = np.random.default_rng(3)
    values = {"x": tuple("abcdef"), "y": tuple("abcdefghij"), "z": tuple("abcde")}
    cube = cube_of(values, {}, rng.multinomial(30_000, rng.dirichlet(np.full(300, 0.7))).tolist())
    published = publishable([cube], 100)
    assert Verdict.OPEN not in judged(cube, 100).values()
    rows = indicator(cube, sorted(published)).astype(float)
    projection = np.linalg.pinv(rows) @ rows
    small = np.flatnonzero(cube.reports < 100)
    assert len(small) > 100
    assert projection.diagonal()[small].max() < 1 - 1e-9
    assert sum(cell.count("=") == 3 for cell in published) > 10


def test_a_large_cube_is_published_in_order():
    """10,000 leaves are published along the order of the segments: every rest of a published cell is empty or enough."""
    rng = np.random.default_rng(5)
    versions = tuple(f"{a}.{b}" for a in range(10) for b in range(10))
    values = {"x": tuple(f"x{i}" for i in range(20)), "version": versions, "z": tuple("abcde")}
    above = {"version": parents(versions, ".")}
    cube = cube_of(values, above, (1 + rng.multinomial(1_000_000, rng.dirichlet(np.full(10_000, 0.5)))).tolist())
    assert len(cube.leaves) == 10_000
    published = publishable([cube], 100)
    breakdown = cube.breakdown
    rests = {(None, None, None): 0}
    for leaf, n in zip(cube.leaves, cube.reports.tolist(), strict=True):
        last = [words for words in breakdown.ladder(leaf) if breakdown.text(words) in published][-1]
        rests[last] = rests.get(last, 0) + n
    assert all(n == 0 or n >= 100 for n in rests.values())
    assert len(published) > 3000
    assert "z=a" not in published


@given(cubes(), st.integers(2, 4), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_no_part_tells_of_few(cube, parts, random):
    """Reports are divided into parts at random. No weighted sum of published cells tells of 1 to least - 1 reports of a part."""
    texts = [cube.breakdown.text(leaf) for leaf in cube.leaves]
    divided = [dict.fromkeys(texts, 0) for _ in range(parts)]
    for text, n in zip(texts, cube.reports.tolist(), strict=True):
        for _ in range(parts * n):
            random.choice(divided)[text] += 1
    part_cubes = [Cube.of(cube.breakdown, part) for part in divided]
    published = publishable(part_cubes, LEAST)
    for part in part_cubes:
        rows = indicator(part, sorted(published))
        assert fewest(rows, part.reports, LEAST) == LEAST
        assert all(part.total(cell) >= LEAST for cell in published)
    assert published <= publishable([part_cubes[0]], LEAST)


def test_too_many_parts_are_published_along_one_order():
    """Where the cubes of all parts are too large together, cells along one order of the segments are published; each is safe."""
    options, words = 60, [f"v{number:03}" for number in range(200)]
    assert options * len(words) > suppression.MAX_ALL_LEAVES
    breakdown, rng = Breakdown({"version": tuple(words)}), np.random.default_rng(1)
    numbers = {f"version={word}": rng.poisson(11 if place % 3 else 40, options) for place, word in enumerate(words)}
    cubes = [Cube.of(breakdown, {leaf: int(n[option]) for leaf, n in numbers.items()}) for option in range(options)]
    published = publishable(cubes, LEAST)
    assert len(published) > 60
    hidden = [leaf for leaf in numbers if leaf not in published]
    for option in range(options):
        assert all(numbers[leaf][option] >= LEAST for leaf in published if leaf)
        total = sum(numbers[leaf][option] for leaf in hidden)
        assert total == 0 or total >= LEAST
