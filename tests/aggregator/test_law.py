"""The law of honest reports, against every draw that a mechanism can make."""

from __future__ import annotations

import numpy as np
import pytest

from deniable import mechanisms
from deniable.proof import distribution
from deniable_aggregator.alarms import honest_bounds

SMALL = [
    ("coin", 2, {}),
    ("binary", 2, {}),
    ("grr", 5, {}),
    ("sue", 4, {}),
    ("oue", 4, {}),
    ("subset", 5, {}),
    ("local_hash", 6, {}),
    ("hadamard", 5, {}),
    ("general_hadamard", 5, {}),
    ("pgr", 6, {}),
    ("l_grr", 4, {}),
    ("l_osue", 4, {}),
    ("loloha", 4, {}),
    ("dbitflip", 6, {"buckets": 3}),
    ("dbitflip", 4, {"buckets": 4}),
    ("rappor", 4, {}),
    ("rappor", 4, {"bits": 5, "hashes": 2, "cohorts": 3}),
    ("cms", 6, {"rows": 3, "width": 4}),
    ("cms", 4, {}),
    ("hcms", 6, {"rows": 3, "width": 4}),
    ("fast_local_hash", 6, {"rows": 3, "width": 3}),
    ("pem", 256, {"rows": 8, "step": 4, "start": 4}),
]


def prefix(name):
    return name in ("pem", "tree_hist")


@pytest.mark.parametrize(("name", "domain_size", "options"), SMALL)
def test_the_law_bounds_every_report(name, domain_size, options):
    """Cells and bits keep between the bounds for every value, the weight has one of the distributions, rows are uniform."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=1.3, **options)
    known = honest_bounds.of(mechanism)
    layout = mechanism.layout
    kinds = set()
    least, most = 1.0, 0.0
    for value in (0, 7, 255) if prefix(name) else range(domain_size):
        cells = np.zeros((layout.rows, layout.width))
        rows = np.zeros(layout.rows)
        weights = np.zeros(layout.width + 1)
        for payload, mass in distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)).items():
            row, content = layout.unpack(payload)
            rows[row] += float(mass)
            if layout.kind == "index":
                cells[row, content] += float(mass)
            else:
                cells[row] += [float(mass) * (content >> place & 1) for place in range(layout.width)]
                weights[content.bit_count()] += float(mass)
        assert rows == pytest.approx(np.full(layout.rows, 1 / layout.rows))
        within = cells / rows[:, None]
        least, most = min(least, within.min()), max(most, within.max())
        if layout.kind == "bits":  # a mixture of the kinds: solve for the shares and find what is left
            shares, *_ = np.linalg.lstsq(known.weights.T, weights, rcond=None)
            assert known.weights.T @ shares == pytest.approx(weights, abs=1e-12)
            assert (shares > -1e-9).all()
            kinds |= {int(kind) for kind in np.flatnonzero(shares > 1e-9)}
        if known.direct:
            assert np.flatnonzero(within[0] == within[0].max()).tolist() == [value]
    assert (least, most) == pytest.approx((known.low, known.high))  # bounds that are met, so that nothing is given away
    assert (known.weights is None) == (layout.kind == "index")
    if known.weights is not None:
        assert known.weights.sum(axis=1) == pytest.approx(np.ones(len(known.weights)))
        assert len(kinds) == len(known.weights) or options.get("hashes")


def test_every_mechanism_has_a_law():
    """None is left without alarms, but those to come."""
    for name in (*mechanisms.names(), "pem", "tree_hist"):
        size = 2 if name in ("coin", "binary") else 100_000 if prefix(name) else 12
        assert honest_bounds.of(mechanisms.make(name, domain_size=size, epsilon=1.2)) is not None, name
    assert honest_bounds.of(object()) is None
