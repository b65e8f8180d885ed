"""Bands of quantiles where many answers are equal: how often they hold, and how wide they are beside resampled ones.

    python benchmarks/atoms.py                  # all cells, some half an hour
    python benchmarks/atoms.py --runs 8 --only stars uniform
    python benchmarks/atoms.py --json figures.json

Twelve populations, epsilon 1, 2 and 4, and 2,000, 20,000 and 200,000 reports. Each cell is the share of 95% bands that hold the
true quantile, over the quantiles of 10, 25, 50, 75 and 90% that are resolved. With `step` where answers have one. The width is
that of the band over that of the percentiles of resampled fits, which bands were before; both from the same reports. The last
line says how much of the processor's time of resampled fits the bands take, in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import tallies
from populations import NUMBERS, Numbers

from deniable import mechanisms
from deniable.mechanisms.window import for_distribution
from deniable_aggregator.decode.numbers.distribution import distribution

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
CELLS = tuple((epsilon, n) for epsilon in ("1", "2", "4") for n in (2000, 20_000, 200_000))


def cell(numbers: Numbers, epsilon: str, n: int, runs: int, *, step: bool) -> dict[str, float]:
    """Measure one cell."""
    mechanism = mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **for_distribution(epsilon))
    rng, true = np.random.default_rng(1), numbers.quantiles(SHARES)
    values = np.linspace(0, 1, numbers.values) if step else ()
    held, widths, times = [], [], []
    for _ in range(runs):
        counted = tallies.of_places(mechanism, numbers.places(rng, n), rng)
        began = time.process_time()
        results = distribution(mechanism, counted, values=values)
        bands = [results.quantile(share) for share in SHARES]
        resolved = [results.resolves(band) for band in bands]
        estimated = time.process_time()
        results.resampled  # noqa: B018 - what bands took before, too
        times.append((estimated - began) / (time.process_time() - began))
        for band, is_resolved, share, place in zip(bands, resolved, SHARES, true, strict=True):
            if is_resolved:
                held.append(band.low - 1e-9 <= place <= band.high + 1e-9)
                low, high = results._resampled_band(share, 0.95)
                widths.append((band.high - band.low) / (high - low))
    return {
        "bands": len(held),
        "coverage": float(np.mean(held)) if held else float("nan"),
        "width": float(np.mean(widths or [np.nan])),
        "time": float(np.median(times)),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--only", nargs="*", choices=list(NUMBERS), default=list(NUMBERS))
    parser.add_argument("--reports", nargs="*", type=int, default=[2000, 20_000, 200_000])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = []
    cells = [item for item in CELLS if item[1] in arguments.reports]
    print(f"{'coverage (width)':28}" + "".join(f"{f'e {epsilon}, n {n:,}':>16}" for epsilon, n in cells))
    for name in arguments.only:
        for step in (False, True) if NUMBERS[name].values else (False,):
            print(f"{name + (', step' if step else ''):28}", end="", flush=True)
            for epsilon, n in cells:
                answer = cell(NUMBERS[name], epsilon, n, arguments.runs, step=step)
                figures.append({"population": name, "step": step, "epsilon": epsilon, "n": n, **answer})
                print(f"{answer['coverage']:10.2f} ({answer['width']:.2f})", end="", flush=True)
            print()
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), "utf-8")
    short = [item for item in figures if item["coverage"] < 0.93]
    print(f"{len(figures)} cells, {len(short)} below .93")
    times = sorted(item["time"] for item in figures)
    print(f"processor's time, of that with resampled fits: {times[0]:.2f} to {times[-1]:.2f}, median {np.median(times):.2f}")
    for item in short:
        name = f"{item['population']}{', step' if item['step'] else ''}, epsilon {item['epsilon']}, n {item['n']:,}"
        print(f"  {name}: {item['coverage']:.2f} of {item['bands']}")


if __name__ == "__main__":
    main()
