"""The bounds that every honest report keeps, exactly: against every draw that a mechanism can make."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from math import comb

import pytest

from deniable import mechanisms
from deniable.mechanisms import Mechanism
from deniable.proof import distribution

GOOGLE = {"bits": 4, "hashes": 2, "cohorts": 2, "prob_p": "0.25", "prob_q": "0.75", "prob_f": "0.5"}
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
    ("general_hadamard", 6, {"blocks": 2}),
    ("pgr", 6, {}),
    ("l_grr", 4, {}),
    ("l_osue", 4, {}),
    ("loloha", 4, {}),
    ("dbitflip", 6, {"buckets": 3}),
    ("dbitflip", 4, {"buckets": 4}),
    ("dbitflip", 4, {"buckets": 1}),
    ("rappor", 4, {}),
    ("rappor", 6, {"bits": 4, "hashes": 2, "cohorts": 3}),
    ("google_rappor", 6, GOOGLE),
    ("cms", 6, {"rows": 3, "width": 4}),
    ("cms", 4, {}),
    ("hcms", 6, {"rows": 3, "width": 4}),
    ("fast_local_hash", 6, {"rows": 3, "width": 3}),
    ("fast_local_hash", 5, {}),
    ("pem", 256, {"rows": 8, "step": 4, "start": 4}),
    ("tree_hist", 256, {"rows": 8, "step": 4, "start": 4}),
    ("window", 5, {"blocks": 2, "length": 3}),
    ("window", 6, {"blocks": 1, "length": 2}),
    ("sampled_options", 8, {}),
    ("sampled_pair", 8, {}),
    ("padded_subset", 8, {"most": 2}),
]


def binomial(trials, chance):
    return [comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(trials + 1)]


def sum_of(parts):
    """Convolve the distributions of independent binomial counts."""
    total = Counter({0: Fraction(1)})
    for trials, chance in parts:
        more = Counter()
        for before, mass in total.items():
            for k, share in enumerate(binomial(trials, chance)):
                more[before + k] += mass * share
        total = more
    return {k: mass for k, mass in total.items() if mass}


@pytest.mark.parametrize(("name", "domain_size", "options"), SMALL)
def test_bounds_are_exact(name, domain_size, options):
    """In every row the least and the greatest probability of a cell or bit are met; ones have one of the distributions."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=4 if options is GOOGLE else 1.3, **options)
    bounds, layout = mechanism.bounds(), mechanism.layout
    stated = {number: sum_of(parts) for number, parts in enumerate(bounds.ones)}
    stated |= {number: {k: mass for k, mass in enumerate(masses) if mass} for number, masses in enumerate(bounds.counts)}
    met, kinds = set(), set()
    for value in (0, 7, 255) if domain_size > 8 else range(domain_size):
        parts = defaultdict(Counter)
        ones = defaultdict(Counter)
        for payload, mass in distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)).items():
            row, content = layout.unpack(payload)
            if layout.kind == "index":
                parts[row][content] += mass * layout.rows
            else:
                for place in range(layout.width):
                    parts[row][place] += mass * layout.rows * (content >> place & 1)
                ones[row][content.bit_count()] += mass * layout.rows
        assert len(parts) == layout.rows
        met |= {chance for row in parts.values() for chance in (row[cell] for cell in range(layout.width))}
        for row in ones.values():
            kinds |= {number for number, kind in stated.items() if kind == row}
            assert dict(row) in stated.values()
        if bounds.direct:
            assert layout.rows == 1
            assert max(range(layout.width), key=parts[0].get) == value
            assert [cell for cell in range(layout.width) if parts[0][cell] == bounds.high] == [value]
    assert (min(met), max(met)) == (bounds.low, bounds.high)
    assert [bool(bounds.ones), bool(bounds.counts)].count(True) == (layout.kind == "bits")
    assert kinds == set(stated)
    assert all(sum(trials for trials, _ in parts) == layout.width for parts in bounds.ones)


def test_no_mechanism_is_without_bounds():
    """Every mechanism that there is stands in the list above, and one that states no bounds cannot be made."""
    assert {name for name, _, _ in SMALL} == set(mechanisms._ALL) >= set(mechanisms.names())
    assert "bounds" in Mechanism.__abstractmethods__
