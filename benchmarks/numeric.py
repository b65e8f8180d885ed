"""Errors of numbers: our means beside other mechanisms', and our distributions beside histograms and square waves.

    python benchmarks/numeric.py [--json] [--runs 30]
    python benchmarks/numeric.py --smoothing [--runs 10] [--only uniform stars]

Variances of means are of one report, for values in [-1, 1], at the value with the largest. They are simulated, but for what says
that it is a formula. Distances of distributions are W1, as a share of the range, each the mean over
runs and three populations. The square wave is measured twice: its window with our fit, and as its authors have it, with a
continuous report and expectation maximisation that smooths each step.

With --smoothing it is thirteen populations, smooth and rough, at five levels and numbers of reports: what we show, our fit
without smoothing, and the square wave as its authors have it. Each is divided by the lesser of the latter two.

References
----------
Duchi et al., JASA 2018 (one bit); N. Wang et al., ICDE 2019 (piecewise, hybrid); Z. Li et al., SIGMOD 2020 (square wave).
"""

from __future__ import annotations

import argparse
import json
import sys
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import tallies
from populations import NUMBERS, Numbers

from deniable import mechanisms
from deniable.mechanisms.window import for_distribution
from deniable_aggregator.decode.consistent import consistent
from deniable_aggregator.decode.numbers.distribution import distribution, fit
from deniable_aggregator.decode.numbers.mean import mean
from deniable_aggregator.tally import from_cells

EPSILONS = (1.0, 2.0, 4.0, 8.0)
MOST_OF_LAPLACE = {1.0: 0.51, 2.0: 0.48, 4.0: 0.30, 8.0: 0.07}
MOST_OF_OUE = 0.4
REPORTS = 200_000
SMALL = (("1", 10_000), ("1", 100_000), ("2", 10_000), ("2", 100_000))
ROUGH_AND_SMOOTH = NUMBERS | {"lognormal": Numbers(lambda rng, n: rng.lognormal(0.0, 0.5, n), 0, 6)}
FIVE = (("1", 2000), ("1", 20_000), ("2", 20_000), ("2", 200_000), ("4", 20_000))
POPULATIONS = {
    "near the low end": lambda rng, n: rng.beta(2, 8, n),
    "two humps": lambda rng, n: np.clip(np.where(rng.random(n) < 0.5, rng.normal(0.25, 0.06, n), rng.normal(0.7, 0.1, n)), 0, 1),
    "long tail": lambda rng, n: np.clip(np.exp(rng.normal(-2, 0.8, n)), 0, 1),
}


def draw(mechanism: Any, places: Any, rng: np.random.Generator) -> Any:
    """Draw the tally of one report of each place, in [0, 1], by a window."""
    steps, w, width = mechanism.points - 1, mechanism.length, mechanism.layout.width
    points = np.minimum((places * steps + rng.random(len(places))).astype(int), steps)
    near = rng.random(len(points)) < float(w * mechanism.inside)
    shifts = np.where(near, rng.integers(0, w, len(points)), rng.integers(w, width, len(points)))
    return from_cells(mechanism.layout, np.bincount((points + shifts) % width, minlength=width))


def one_bit(t: Any, epsilon: float, rng: np.random.Generator) -> Any:
    """Report one of two numbers (Duchi et al.)."""
    most = (exp(epsilon) + 1) / (exp(epsilon) - 1)
    return np.where(rng.random(len(t)) < (1 + t / most) / 2, most, -most)


def piecewise(t: Any, epsilon: float, rng: np.random.Generator) -> Any:
    """Report a number near the true one, or any within the range that keeps it unbiased."""
    half = exp(epsilon / 2)
    most = (half + 1) / (half - 1)
    low = (most + 1) / 2 * t - (most - 1) / 2
    near = low + rng.random(len(t)) * (most - 1)
    far = rng.random(len(t)) * (most + 1) - most
    far = np.where(far > low, far + most - 1, far)
    return np.where(rng.random(len(t)) < half / (half + 1), near, far)


def hybrid(t: Any, epsilon: float, rng: np.random.Generator) -> Any:
    """Report by the piecewise mechanism with a probability, else by one bit."""
    chance = 1 - exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    return np.where(rng.random(len(t)) < chance, piecewise(t, epsilon, rng), one_bit(t, epsilon, rng))


def laplace(epsilon: float) -> tuple[float, str]:
    """Return the variance of Laplace noise for a range of 2: by opendp's mechanism where it is installed, else by formula."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return 8 / epsilon**2, "formula"
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    add = dp.m.make_laplace(*space, scale=2 / epsilon)
    return float(np.var([add(0.0) for _ in range(20_000)])), "opendp"


def means(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Measure the variance of one report's contribution to a mean, for the answer with the largest."""
    rows = []
    t = np.repeat(np.linspace(-1, 1, 41), REPORTS // 41)
    for epsilon in EPSILONS:
        noise, source = laplace(epsilon)
        rivals = {each.__name__: each(t, epsilon, rng) - t for each in (one_bit, piecewise, hybrid)}
        worst = {name: float(np.max(np.square(errors).reshape(41, -1).mean(axis=1))) for name, errors in rivals.items()}
        mechanism = mechanisms.make("window", domain_size=65_537, epsilon=epsilon)
        ours = [
            4 * REPORTS * mean(mechanism, draw(mechanism, np.full(REPORTS, p), rng)).stderr ** 2 for p in np.linspace(0, 1, 11)
        ]
        rows.append({"epsilon": epsilon, "window": max(ours), **worst, "laplace": noise, "laplace_source": source})
    return rows


def oue(places: Any, epsilon: float, rng: np.random.Generator, bins: int = 64) -> Any:
    """Estimate a histogram by optimised unary encoding and norm-sub; return its cumulative shares."""
    held, q, n = np.bincount((places * bins).astype(int).clip(0, bins - 1), minlength=bins), 1 / (exp(epsilon) + 1), len(places)
    bits = rng.binomial(held, 0.5) + rng.binomial(n - held, q)
    return np.cumsum(consistent((bits / n - q) / (0.5 - q), complete=True))


def square_wave(places: Any, epsilon: float, rng: np.random.Generator) -> Any:
    """Estimate a distribution from the square wave's window, by our fit; return cumulative shares at 128 edges."""
    e = exp(epsilon)
    width = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))  # on each side of the answer
    mechanism = mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **_in_cells(2 * width))
    return cumulative(mechanism, places, rng)


class SquareWave:
    """The square wave as its authors have it: a continuous report, and a fit of which each step is smoothed."""

    parts = 256  # of the range, and of what reports can say

    def __init__(self, epsilon: float) -> None:
        e = exp(epsilon)
        self.reach = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))  # on each side of the answer
        self.near = 2 * self.reach * e / (2 * self.reach * e + 1)
        # The probability of each part of reports for the middle part of answers, and for all others by its mean over 16 places.
        places = (np.arange(16 * self.parts) + 0.5)[:, None] / (16 * self.parts)
        edges = np.linspace(-self.reach, 1 + self.reach, self.parts + 1)
        inside = np.diff(np.clip(edges, places - self.reach, places + self.reach), axis=1)
        low = (1 - self.near) * (np.diff(edges) - inside)  # what is not near is even over a length of 1
        chances = self.near * inside / (2 * self.reach) + low
        self.chances = chances.reshape(self.parts, 16, self.parts).mean(axis=1)

    def draw(self, places: Any, rng: np.random.Generator) -> Any:
        """Draw one report of each place, and count them by parts."""
        n = len(places)
        far = rng.random(n)
        far = np.where(far < places, far - self.reach, far + self.reach)
        reports = np.where(rng.random(n) < self.near, places + rng.uniform(-self.reach, self.reach, n), far)
        return np.histogram(reports, self.parts, (-self.reach, 1 + self.reach))[0].astype(float)

    def estimate(self, places: Any, rng: np.random.Generator) -> Any:
        """Estimate a distribution; return (edges, cumulative shares)."""
        counts, mass, before = self.draw(places, rng), np.full(self.parts, 1 / self.parts), -np.inf
        while True:
            likely = mass @ self.chances
            gained = counts @ np.log(likely)
            if abs(gained - before) < 1e-3:  # as the authors stop
                return np.arange(1, self.parts + 1) / self.parts, np.cumsum(mass)
            before = gained
            mass = mass * (self.chances @ (counts / likely))
            padded = np.concatenate([mass[:1], mass, mass[-1:]])
            mass = padded[:-2] + 2 * mass + padded[2:]
            mass /= mass.sum()


def _in_cells(length: float, steps: int = 128) -> dict[str, int]:
    """Return the options of the window that has about this length, of a range of 1; a whole number of them make the range."""
    blocks = max(1, round(1 / length))
    return {"blocks": blocks, "length": max(1, round(steps / blocks))}


def cumulative(mechanism: Any, places: Any, rng: np.random.Generator) -> Any:
    """Fit the distribution of places; return (edges, cumulative shares)."""
    fitted = fit(mechanism, draw(mechanism, places, rng).counts[0].astype(float)[None])[0]
    return np.concatenate([(np.arange(1, mechanism.points) - 0.5) / (mechanism.points - 1), [1.0]]), np.cumsum(fitted)


def as_published(mechanism: Any, places: Any, rng: np.random.Generator) -> Any:
    """Estimate the distribution of places as it is shown; return (edges, cumulative shares)."""
    estimate = distribution(mechanism, draw(mechanism, places, rng))
    assert estimate
    return estimate.edges[1:], estimate.cumulative[1:]


def distance(edges: Any, shares: Any, truth: Any) -> float:
    """Compute W1 between what was estimated at edges, joined by lines, and a sorted large sample."""
    at = (np.arange(2000) + 0.5) / 2000
    estimated = np.interp(at, np.concatenate([[0.0], edges]), np.concatenate([[0.0], shares]))
    return float(np.abs(estimated - np.searchsorted(truth, at) / len(truth)).mean())


def distributions(runs: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Measure the mean W1 of each way, over populations and runs."""
    truths = {name: np.sort(make(np.random.default_rng(1), 2_000_000)) for name, make in POPULATIONS.items()}
    rows = []
    for written, n in SMALL:
        epsilon, names = float(written), ("window", "square_wave", "square_wave_ems", "oue_64")
        results: dict[str, list[float]] = {name: [] for name in names}
        authors = SquareWave(epsilon)
        ours = mechanisms.make("window", domain_size=65_537, epsilon=written, **for_distribution(written))
        for name, make in POPULATIONS.items():
            for _ in range(runs):
                places = make(rng, n)
                results["window"].append(distance(*as_published(ours, places, rng), truths[name]))
                results["square_wave_ems"].append(distance(*authors.estimate(places, rng), truths[name]))
                results["square_wave"].append(distance(*square_wave(places, epsilon, rng), truths[name]))
                results["oue_64"].append(distance(np.arange(1, 65) / 64, oue(places, epsilon, rng), truths[name]))
        averages = {
            name: exp(float(np.mean([log(np.mean(part)) for part in np.split(np.array(w1), 3)]))) for name, w1 in results.items()
        }
        rows.append({"epsilon": epsilon, "n": n, **averages})
    return rows


def smoothing(runs: int, only: list[str]) -> list[dict[str, Any]]:
    """Measure what smoothing does to smooth and to rough populations."""
    rows = []
    for name in only:
        rng, numbers = np.random.default_rng(7), ROUGH_AND_SMOOTH[name]
        truth = np.sort(numbers.places(np.random.default_rng(1), 1_000_000))
        for written, n in FIVE:
            mechanism = mechanisms.make("window", domain_size=65_537, epsilon=written, **for_distribution(written))
            wave = SquareWave(float(written))
            results: dict[str, list[float]] = {"ours": [], "rough": [], "square_wave_ems": []}
            for _ in range(runs):
                places = numbers.places(rng, n)
                estimate = distribution(mechanism, tallies.of_places(mechanism, places, rng))
                assert estimate
                edges = estimate.edges[1:]
                results["ours"].append(distance(edges, estimate.cumulative[1:], truth))
                results["rough"].append(distance(edges, np.cumsum(estimate.rough), truth))
                results["square_wave_ems"].append(distance(*wave.estimate(places, rng), truth))
            rows.append(
                {"population": name, "epsilon": written, "n": n, **{key: float(np.mean(w1)) for key, w1 in results.items()}}
            )
            print("{population:28}{epsilon:>3}{n:8,}{ours:9.4f}{rough:9.4f}{square_wave_ems:9.4f}".format(**rows[-1]), flush=True)
    best = np.array([min(row["rough"], row["square_wave_ems"]) for row in rows])
    for key in ("ours", "rough", "square_wave_ems"):
        over = np.array([row[key] for row in rows]) / best
        mean = exp(float(np.log(over).mean()))
        print(f"{key}: {over.max():.2f} at worst, above 1.1 in {(over > 1.1).sum()} of {len(rows)}, geometric mean {mean:.3f}")
    return rows


def main() -> int:
    """Measure, print, and return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--runs", type=int, default=20, help="samples of each population")
    parser.add_argument("--smoothing", action="store_true", help="smooth and rough populations instead")
    parser.add_argument("--only", nargs="+", choices=list(ROUGH_AND_SMOOTH), default=list(ROUGH_AND_SMOOTH), help="of these")
    arguments = parser.parse_args()
    if arguments.smoothing:
        rows = smoothing(arguments.runs, arguments.only)
        if arguments.json:
            print(json.dumps(rows, indent=2))
        return 0
    rng = np.random.default_rng(1)
    result = {"means": means(rng), "distributions": distributions(arguments.runs, rng)}
    missed = [
        f"mean at epsilon {row['epsilon']:g}"
        for row in result["means"]
        if row["window"] > MOST_OF_LAPLACE[row["epsilon"]] * 8 / row["epsilon"] ** 2
    ]
    missed += [
        f"W1 at epsilon {row['epsilon']:g}, n {row['n']}"
        for row in result["distributions"]
        if row["window"] > MOST_OF_OUE * row["oue_64"]
    ]
    if arguments.json:
        print(json.dumps(result | {"missed": missed}, indent=2))
    else:
        _show(result, missed)
    return bool(missed)


def _show(result: dict[str, list[dict[str, Any]]], missed: list[str]) -> None:
    print("Worst variance of one report, values in [-1, 1]; in brackets of Laplace's")
    print("epsilon      window     one bit   piecewise      hybrid     Laplace")
    for row in result["means"]:
        item = "".join(f"{row[name]:12.4g}" for name in ("window", "one_bit", "piecewise", "hybrid", "laplace"))
        print(f"{row['epsilon']:7g}{item}  ({row['window'] / row['laplace']:.3f}; {row['laplace_source']})")
    print("\nW1 of distributions, as a share of the range; in brackets of OUE's")
    print("epsilon       n    window  square wave, our fit  its authors'  OUE, 64 bins")
    for row in result["distributions"]:
        item = f"{row['window']:10.4f}{row['square_wave']:22.4f}{row['square_wave_ems']:14.4f}{row['oue_64']:14.4f}"
        print(f"{row['epsilon']:7g}{row['n']:8}{item}  ({row['window'] / row['oue_64']:.3f})")
    print(f"\nMissed: {', '.join(missed) or 'none'}")


if __name__ == "__main__":
    raise SystemExit(main())
