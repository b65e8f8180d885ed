"""Tallies of numbers and sets without devices: drawn by the exact law of a report, all at once."""

from __future__ import annotations

import numpy as np

from deniable_aggregator.tally import from_cells


def of_places(mechanism, places, rng):
    """Draw the tally of one report of each place on the axis, in [0, 1], by a window."""
    steps, w = mechanism.points - 1, mechanism.length
    points = np.minimum((places * steps + rng.random(len(places))).astype(int), steps)
    near = rng.random(len(points)) < float(w * mechanism.inside)
    shifts = np.where(near, rng.integers(0, w, len(points)), rng.integers(w, w + steps, len(points)))
    width = mechanism.layout.width
    return from_cells(mechanism.layout, np.bincount((points + shifts) % width, minlength=width))


def of_sets(mechanism, chosen, rng):
    """Draw the tally of one report of each set, (people, options) of 0 and 1."""
    layout, groups, n = mechanism.layout, np.array(mechanism.groups), len(chosen)
    rows = rng.integers(0, layout.rows, n)
    true = sum(chosen[np.arange(n), groups[rows, place]] << place for place in range(groups.shape[1]))
    reported = np.where(rng.random(n) < float(mechanism.keep - mechanism.other), true, rng.integers(0, layout.width, n))
    return from_cells(layout, np.bincount(rows * layout.width + reported, minlength=layout.rows * layout.width))
