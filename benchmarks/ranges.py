"""Shares of ranges of a number: how often their intervals hold, and how wide they are.

    python benchmarks/ranges.py                  # all cells, some twenty minutes
    python benchmarks/ranges.py --runs 20 --only stars uniform
    python benchmarks/ranges.py --json figures.json

Twelve populations, epsilon 0.5 to 4, and 20 to 20,000 reports. Each cell is the share of 95% intervals that hold the true share
of a range, over eight ranges: of half of the axis, from the median on and up to it, of a tenth, of a hundredth, and of what lies
at an end. With `step` where answers have one. The least is that of the range whose intervals hold least often.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import tallies
from populations import NUMBERS, Numbers

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.mechanisms.window import for_distribution
from deniable_aggregator.decode.numbers.range_share import range_share

CELLS = tuple((epsilon, n) for epsilon in ("0.5", "1", "2", "4") for n in (20, 200, 2000, 20_000))
_BEYOND = (-1.0, 2.0)  # places beyond both ends


def ranges(median: float) -> tuple[tuple[float, float], ...]:
    """Return the ranges, as places on the axis: above the first and at most the second."""
    low, high = _BEYOND
    ends = ((0.0, high), (low, 0.5), (median, high), (low, median), (0.3, 0.4), (0.36, 0.37), (low, 0.0), (0.999_999, high))
    return tuple(each for each in ends if each[0] < 1 and each[1] >= 0)


def cell(numbers: Numbers, epsilon: str, n: int, runs: int, *, step: bool) -> dict[str, float]:
    """Measure one cell."""
    mechanism = mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **for_distribution(epsilon))
    rng, values = np.random.default_rng(1), np.linspace(0, 1, numbers.values) if step else ()
    population = numbers.places(np.random.default_rng(0), 1_000_000)
    ends_of_each = ranges(float(np.quantile(population, 0.5, method="inverted_cdf")))
    truths = [float(np.mean((population > low + 1e-12) & (population <= high + 1e-12))) for low, high in ends_of_each]
    held, widths = np.zeros((runs, len(ends_of_each))), []
    for run in range(runs):
        counted = tallies.of_places(mechanism, numbers.places(rng, n), rng)
        for place, (ends, truth) in enumerate(zip(ends_of_each, truths, strict=True)):
            try:
                low, high = range_share(mechanism, counted, *ends, values=values).interval()
            except ParameterError:  # no value lies in it
                held[run, place] = np.nan
                continue
            held[run, place] = low - 1e-9 <= truth <= high + 1e-9
            widths.append(min(high, 1.0) - max(low, 0.0))
    return {
        "coverage": float(np.nanmean(held)),
        "least": float(np.nanmin(held.mean(axis=0))),
        "width": float(np.mean(np.maximum(widths, 0))),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", nargs="*", choices=list(NUMBERS), default=list(NUMBERS))
    parser.add_argument("--reports", nargs="*", type=int, default=[20, 200, 2000, 20_000])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = []
    cells = [item for item in CELLS if item[1] in arguments.reports]
    print("coverage, the least of a range, and the mean width within 0 to 1")
    for name in arguments.only:
        for step in (False, True) if NUMBERS[name].values else (False,):
            for epsilon, n in cells:
                answer = cell(NUMBERS[name], epsilon, n, arguments.runs, step=step)
                figures.append({"population": name, "step": step, "epsilon": epsilon, "n": n, **answer})
                label = f"{name + (', step' if step else ''):32} epsilon {epsilon:4} n {n:6,}"
                print(f"{label} {answer['coverage']:8.3f} {answer['least']:8.3f} {answer['width']:8.3f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), "utf-8")
    for step in (False, True):
        alike = [each for each in figures if each["step"] == step]
        if alike:
            coverage, least = (min(each[of] for each in alike) for of in ("coverage", "least"))
            name = "step" if step else "no step"
            print(f"{name}: {len(alike)} cells, the least coverage is {coverage:.3f}, of a range {least:.3f}")


if __name__ == "__main__":
    main()
