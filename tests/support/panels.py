"""Estimates of panels: the support of a value over many periods, drawn by its exact law without devices."""

from __future__ import annotations

import numpy as np

from deniable import mechanisms
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.support_estimate import Supported


def make(name, size, epsilon):
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    return mechanism, hasattr(mechanism, "permanent_support")


def estimate(mechanism, n, support, *, permanent):
    """Return an estimate of which each value is a run of its own."""
    frequency = (support / n - float(mechanism.q)) / float(mechanism.p - mechanism.q)
    single = Supported(mechanism, n, support, shares=np.clip(frequency, 0, 1))
    return Panel(n, single, 0.0, mechanism) if permanent else single


def steps(mechanism, *, permanent):
    """Return the probabilities of support by the response that is kept, and by a report of that; without one it is the answer."""
    p, q = float(mechanism.p), float(mechanism.q)
    if not permanent:
        return 1.0, 0.0, p, q
    p1, q1 = map(float, mechanism.permanent_support)
    step = (p - q) / (p1 - q1)
    return p1, q1, min(q - q1 * step + step, 1.0), max(q - q1 * step, 0.0)


def replay(mechanism, shares, n, turnover, rng, *, permanent, runs):
    """Draw the support in each period by the exact law; all people have the same chance to be replaced.

    `shares` is the share of holders among those who are there, period by period. Where it changes, people change their answer,
    and draw a new response to the new one.
    """
    p1, q1, p2, q2 = steps(mechanism, permanent=permanent)
    groups = None  # holders whose response supports the value, other holders, and likewise those who do not hold it
    for last, share in zip((shares[0], *shares), shares, strict=False):
        if groups is None:
            groups = np.zeros((4, runs), np.int64)
        else:
            groups = rng.binomial(groups, 1 - turnover)
            rises = share >= last
            stayers, others = (groups[2:], groups[:2]) if rises else (groups[:2], groups[2:])
            changed = rng.binomial(stayers, (share - last) / (1 - last) if rises else (last - share) / last)
            stayers -= changed
            others += split(changed.sum(axis=0), p1 if rises else q1, rng)
        new = n - groups.sum(axis=0)
        holders = rng.binomial(new, share)
        groups += np.concatenate([split(holders, p1, rng), split(new - holders, q1, rng)])
        yield rng.binomial(groups[0] + groups[2], p2) + rng.binomial(groups[1] + groups[3], q2)


def split(people, chance, rng):
    stayers = rng.binomial(people, chance)
    return np.array([stayers, people - stayers])
