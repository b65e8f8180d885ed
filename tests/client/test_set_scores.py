"""How far one report of a set moves an estimate: as far as the cell that it names, and no cell further."""

from __future__ import annotations

from itertools import product

import pytest

from deniable import mechanisms


@pytest.mark.parametrize(("name", "options"), [("sampled_option", 3), ("sampled_pair", 3)])
def test_the_influence_is_the_greatest_score(name, options):
    mechanism = mechanisms.make(name, domain_size=1 << options, epsilon=1)
    layout = mechanism.layout
    payloads = [layout.pack(row, index) for row, index in product(range(layout.rows), range(layout.width))]
    assert mechanism.influence == max(abs(score) for payload in payloads for score in mechanism.scores(payload))
