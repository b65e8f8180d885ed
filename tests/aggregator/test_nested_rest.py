"""Large cubes along one order of segments: what is left of a cell, where a cell in between may not be published."""

from __future__ import annotations

import pytest

from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.suppression import nested
from deniable_aggregator.publish.suppression.cube import Cube

BREAKDOWN = Breakdown({"platform": ("linux", "macos"), "edition": ("free", "paid")})
INNER = "platform=linux,edition=paid"


@pytest.mark.parametrize(("others", "published"), [(99, {""}), (100, {"", INNER})])
def test_a_cell_within_one_that_is_withheld_is_taken_from_the_next(others, published):
    """The number of all reports less that of the inner cell would be few: so it is withheld, too."""
    cube = Cube.of(BREAKDOWN, {INNER: 300, "platform=linux,edition=free": others - 40, "platform=macos,edition=free": 40})
    chosen = nested.choose(cube, 100, frozenset({"", INNER}))
    assert {BREAKDOWN.text(words) for words, safe in chosen.items() if safe} == published
