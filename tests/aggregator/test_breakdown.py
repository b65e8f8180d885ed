"""Cells: how they are written, what they lie in, and how many reports they have."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable.errors import ParameterError
from deniable.registry import OTHER, parse
from deniable.registry.hierarchy import parents
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.suppression.cube import Cube

VERSIONS = ("2.4", "2.4.0", "2.4.1", "3.0")
BREAKDOWN = Breakdown({"platform": ("linux", "macos"), "version": VERSIONS}, {"version": parents(VERSIONS, ".")})
REPORTS = {
    "platform=linux,version=2.4": 1,
    "platform=linux,version=2.4.0": 20,
    "platform=linux,version=2.4.1": 300,
    "platform=linux,version=3.0": 0,
    "platform=macos,version=2.4.1": 4000,
    "platform=macos,version=3.0": 50000,
}
CUBE = Cube.of(BREAKDOWN, REPORTS)


def test_from_the_registry():
    """A metric is broken down by its own segments, in its order."""
    registry = parse(
        registry_toml(
            metric_toml("m", segments=["platform", "version"]),
            metric_toml("n"),
            segments={"arch": ["arm"], "platform": ["linux", "macos"], "version": ["2.4", "2.4.0", "2.4.1", "3.0"]},
            generalize={"version": "."},
        )
    )
    breakdown = Breakdown.of(registry, registry.metrics["m"])
    assert breakdown == Breakdown({name: (*values, OTHER) for name, values in BREAKDOWN.values.items()}, BREAKDOWN.parents)
    assert Breakdown.of(registry, registry.metrics["n"]).names == ()


def test_only_segments_generalise():
    """What generalises is a segment of the metric."""
    with pytest.raises(ParameterError, match="a generalised segment = 'b': write one of "):
        Breakdown({"a": ("x",)}, {"b": {}})


@pytest.mark.parametrize(
    ("cell", "canonical"),
    [
        ("", ""),
        ("platform=linux", "platform=linux"),
        ("version=2", "version=2"),
        ("version=2.4,platform=macos", "platform=macos,version=2.4"),
    ],
)
def test_cells_are_written_in_one_way(cell, canonical):
    """The order in which a cell's segments are given does not matter."""
    assert BREAKDOWN.canonical(cell) == canonical


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("arch=arm", "the metric has no segment 'arch': write one of platform, version"),
        ("platform=beos", "segment platform has no value 'beos': write one of linux, macos"),
        ("version=2.5", "segment version has no value '2.5': write one of 2.4, 2.4.0, 2.4.1, 3.0, 2, 3"),
        ("platform=linux,platform=macos", "the segment platform is named twice: write it once"),
        ("platform", "'platform' is no segment: write name=value, several joined by commas"),
        ("platform=linux,", "'' is no segment: write name=value, several joined by commas"),
        ("platform= linux", "segment platform has no value ' linux': write one of linux, macos; did you mean 'linux'?"),
    ],
)
def test_what_is_no_cell(cell, words):
    """What is no cell is refused with the rule and the part that breaks it."""
    for reader in (BREAKDOWN.canonical, CUBE.members, CUBE.total):
        with pytest.raises(ParameterError) as caught:
            reader(cell)
        assert str(caught.value) == words


def test_what_a_cell_lies_in():
    """Cells around a cell come nearest first: few segments left open, then few steps, in the last segment before the first."""
    assert list(BREAKDOWN.coarser("platform=linux,version=2.4.1")) == [
        "platform=linux,version=2.4",
        "platform=linux,version=2",
        "version=2.4.1",
        "version=2.4",
        "platform=linux",
        "version=2",
        "",
    ]
    assert list(BREAKDOWN.coarser("")) == []


@pytest.mark.parametrize(
    ("cell", "total"),
    [
        ("", 54321),
        ("version=2", 4321),
        ("version=2.4", 4321),
        ("version=2.4.1", 4300),
        ("version=3", 50000),
        ("platform=linux", 321),
        ("platform=linux,version=2.4", 321),
        ("platform=linux,version=3", 0),
    ],
)
def test_reports_of_a_cell(cell, total):
    """A cell has the reports of all leaves in it; a value that stands for others has its own and theirs."""
    assert CUBE.total(cell) == total
    assert CUBE.reports[CUBE.members(cell)].sum() == total


def test_all_cells():
    """Every cell with reports is listed, with the same members as when it is asked for."""
    cells = CUBE.cells()
    words = product((None, "linux", "macos"), (None, *VERSIONS, "2", "3"))
    assert set(cells) == {w for w in words if CUBE.total(BREAKDOWN.text(w))}
    for w, members in cells.items():
        assert members.tolist() == CUBE.members(BREAKDOWN.text(w)).tolist()
    assert CUBE.memberships == sum(map(len, cells.values()))


def test_leaves():
    """A leaf has a declared value of every segment; leaves without reports are not kept, and none is given twice."""
    assert len(CUBE.leaves) == 5
    assert (CUBE.reports > 0).all()
    for segment in ("platform=linux", "platform=linux,version=2", ""):
        with pytest.raises(
            ParameterError, match=r"the (platform|version) of a report (= .*|is missing): write one of its declared values"
        ):
            Cube.of(BREAKDOWN, {segment: 3})
    with pytest.raises(ParameterError, match="two strata are the same leaf of the cube: give each once"):
        Cube.of(BREAKDOWN, {"platform=linux,version=3.0": 1, "version=3.0,platform=linux": 2})


def test_a_metric_without_segments():
    """A metric without segments has one cell."""
    cube = Cube.of(Breakdown({}), {"": 7})
    assert {words: members.tolist() for words, members in cube.cells().items()} == {(): [0]}
    assert cube.total("") == 7
    with pytest.raises(ParameterError, match="the metric has no segment 'platform': this metric has none, so write none"):
        cube.total("platform=linux")


def test_numbers_are_not_shown():
    """A cube that lands in a log does not tell how many reports there are."""
    assert repr(CUBE) == "Cube(platform, version; 5 leaves)"


def test_ladders_form_a_tree():
    """Of any two cells on ladders one lies in the other or they share no leaf, whichever leaves there are."""
    leaves = list(product(("linux", "macos"), VERSIONS))
    arch = Breakdown({**BREAKDOWN.values, "arch": ("arm", "x86")}, BREAKDOWN.parents)
    cube = Cube.of(arch, {arch.text((*leaf, cpu)): 1 for leaf in leaves for cpu in ("arm", "x86")})
    cells = {words for leaf in cube.leaves for words in arch.ladder(leaf)}
    members = [frozenset(cube.members(arch.text(words)).tolist()) for words in cells]
    assert all(a <= b or b <= a or not a & b for a, b in combinations(members, 2))
    assert ("linux", "2.4", None) in cells
    assert ("linux", "2.4", "arm") not in cells
    assert ("linux", "2.4.1", "arm") in cells
    assert np.unique(cube.reports).tolist() == [1]
