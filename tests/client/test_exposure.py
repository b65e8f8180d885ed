"""What a device shows besides its answers: as many groups as there are, counted, and drawn evenly."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.device.permanent_responses import row_of
from deniable.device.state import State
from deniable.limits.exposure import Exposure, groups
from deniable.proof import distribution
from deniable.registry import parse

HEAD = (
    'format = 1\napp = "shop"\n[segments]\nplatform = ["linux", "macos", "windows"]\nversion = ["1", "2"]\nunused = ["a", "b"]\n'
)
ROWS = """
[metrics.m{}]
type = "string"
candidates = "c.txt"
epsilon = 1
mechanism = "rappor"
parameters = {{ cohorts = {} }}
{}
description = "d"
owner = "o"
"""


@given(st.lists(st.integers(1, 20), max_size=4))
def test_groups_are_the_joint_rows(rows):
    """There are as many groups as different combinations of rows that a device can have."""
    parts = lcm(*rows)
    assert groups(rows) == len({tuple(place * each // parts for each in rows) for place in range(parts)})


def test_groups_of_what_mechanisms_have():
    """Rows that divide one another show what the most of them show; others little more than their sum, not their product."""
    assert groups([128, 128, 64, 16]) == 128
    assert groups([2187, 3125]) == 2187 + 3125 - 1
    assert groups([]) == 1
    assert groups([1 << 40]) == 1 << 40


def test_exposure_of_a_registry():
    """Rows count where responses are kept, segments where any metric carries them."""
    permanent = "epsilon_permanent = 2"
    text = HEAD + ROWS.format(1, 8, permanent) + ROWS.format(2, 16, permanent + '\nsegments = ["version", "platform"]')
    text += ROWS.format(3, 64, 'segments = ["platform"]')
    exposure = Exposure.of(parse(text))
    assert (exposure.rows, exposure.segments) == (16, 6)
    assert (exposure.row_bits, exposure.segment_bits) == (4, pytest.approx(2.585, abs=1e-3))
    assert Exposure.of(parse(HEAD + ROWS.format(1, 8, ""))) == Exposure(1, 1)


@pytest.mark.parametrize("rows", [(4, 4, 4), (4, 2, 8), (3, 5), (6, 4, 3), (2, 9, 2)])
def test_one_place_gives_all_rows(rows):
    """Each row is exactly uniform, and all of them together are the groups that are counted, whichever comes first."""

    def joint(tape) -> bytes:
        state = State(None)
        with state.transaction() as db:
            places = bytes(row_of(db, count, tape) for count in rows)
            assert places == bytes(row_of(db, count, tape) for count in rows)  # for good
        return places

    shares = distribution(joint)
    assert len(shares) == groups(rows)
    for number, count in enumerate(rows):
        for row in range(count):
            assert sum(share for places, share in shares.items() if places[number] == row) == Fraction(1, count)
