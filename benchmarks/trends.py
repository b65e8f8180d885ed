"""What trends, shares and merged versions hold in populations as they are: days that differ, households, tails, growth.

    python benchmarks/trends.py               # all cells, some five minutes
    python benchmarks/trends.py --runs 200 --json figures.json

Each line is a population. Each figure is the share of cases in which what is stated holds: 95% intervals of slopes and shares
that hold the truth (aim .93), and metrics without a false shift in 200 days (aim .95). Cells that fall short are marked.
`benchmarks/atoms.py` has the same for quantiles of numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from courses import Days, correlated, course

from deniable import mechanisms
from deniable_aggregator import decode
from deniable_aggregator.decode.combination import combine
from deniable_aggregator.decode.panel import Panel, overlap
from deniable_aggregator.inference.shift import confidence, shifts
from deniable_aggregator.inference.slope import slope
from deniable_aggregator.tally import from_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

AIM, AIM_OF_SHIFTS = 0.93, 0.95
EPSILONS, REPORTS = ("1", "4"), (500, 20_000)
LEVEL = 0.3


def tailed(rng: np.random.Generator, days: int, metrics: int) -> NDArray[np.float64]:
    """Draw days that are mostly alike, and now and then far out: Student's law with 3 degrees."""
    return 0.01 * rng.standard_t(3, (days, metrics)) / np.sqrt(3)


def weekends(rng: np.random.Generator, days: int, metrics: int) -> NDArray[np.float64]:
    """Draw days of which Saturdays and Sundays vary three times as much as others."""
    wide = np.where(np.arange(days) % 7 >= 5, 3.0, 1.0)[:, None]
    return 0.005 * wide * rng.standard_normal((days, metrics))


def season(of: Days) -> Days:
    """Add a weekly season of ten points."""
    return lambda rng, days, metrics: of(rng, days, metrics) + 0.1 * np.sin(2 * np.pi * np.arange(days) / 7)[:, None]


def outage(rng: np.random.Generator, days: int, metrics: int) -> NDArray[np.float64]:
    """Draw alike days, of which each thirtieth is a holiday, twelve points off."""
    return correlated(0.0, 0.005)(rng, days, metrics) + 0.12 * (np.arange(days) % 30 == 20)[:, None]


DAYS: dict[str, Days] = {
    "days alike": correlated(0.0, 0.0),
    "days differ by a point": correlated(0.0, 0.01),
    "by two points, correlated by .5": correlated(0.5, 0.02),
    "correlated by .8": correlated(0.8, 0.01),
    "a weekly season": season(correlated(0.0, 0.0)),
    "season, a point, correlated by .5": season(correlated(0.5, 0.01)),
    "heavy tails": tailed,
    "weekends vary more": weekends,
    "holidays": outage,
}
SIZES: dict[str, Callable[[int, int], NDArray[np.int64]]] = {
    "": lambda n, days: np.full(days, n),
    "growing": lambda n, days: np.linspace(n / 10, n, days).astype(np.int64),
    "shrinking": lambda n, days: np.linspace(n, n / 10, days).astype(np.int64),
}


def quiet(rng: np.random.Generator, runs: int, epsilon: str, n: int, of: Days, size: str) -> float:
    """Return the share of metrics without a false shift in 200 days, but for unusual days."""
    result, level = course(rng, 200, runs, epsilon, SIZES[size](n, 200), of), confidence(1)
    reach = -ndtri((1 - level) / 2) * result.stderr
    results = shifts(result, (result.estimates - reach, result.estimates + reach), level, cycle=7)
    return 1 - len({each.value for each in results if not each.single}) / runs


def straight(rng: np.random.Generator, runs: int, epsilon: str, n: int, of: Days, size: str) -> float:
    """Return the share of intervals of slopes through 30 days that hold 0."""
    results = slope(course(rng, 30, runs, epsilon, SIZES[size](n, 30), of), 7)
    assert results is not None
    low, high = results.interval()
    return float(np.mean((low <= 0) & (high >= 0)))


def alike(rng: np.random.Generator, runs: int, epsilon: str, n: int, group: int, declared: int) -> float:
    """Return the share of intervals that hold a share of which groups answer alike."""
    mechanism, hits = mechanisms.make("binary", domain_size=2, epsilon=epsilon), 0
    for held in (group * rng.binomial(n // group, LEVEL, runs)).tolist():
        one = int(rng.binomial(held, float(mechanism.p)) + rng.binomial(n - held, float(mechanism.q)))
        results = decode.estimate(mechanism, from_cells(mechanism.layout, np.array([n - one, one])), repeats=declared - 1.0)
        low, high = results.interval()
        hits += bool(low[1] <= LEVEL <= high[1])
    return hits / runs


def versions(rng: np.random.Generator, runs: int, epsilon: str, n: int) -> float:
    """Return the share of merged intervals that hold, of two versions whose mix changes over ten days of the same people."""
    mechanism, hits = mechanisms.make("binary", domain_size=2, epsilon=epsilon), 0
    mix = np.linspace(0.95, 0.05, 10)
    for _ in range(runs):
        answers, ones, counts = rng.random(n // 10) < LEVEL, [0, 0], [{}, {}]
        for day, share in enumerate(mix):
            old = rng.random(len(answers)) < share
            for at, mine in enumerate((old, ~old)):
                held = answers[mine]
                ones[at] += int((rng.random(len(held)) < np.where(held, float(mechanism.p), float(mechanism.q))).sum())
                counts[at][str(day)] = float(len(held))
        result = []
        for one, by_day in zip(ones, counts, strict=True):
            total = int(sum(by_day.values()))
            distance = decode.estimate(mechanism, from_cells(mechanism.layout, np.array([total - one, one])))
            result.append(Panel(total, distance, 9.0))
        overlaps = np.array([[overlap(a, b) for b in counts] for a in counts])
        low, high = combine(result, [[0, 1], [0, 1]], overlaps).interval()
        hits += bool(low[1] <= LEVEL <= high[1])
    return hits / runs


def _line(cells: Sequence[str], *, markdown: bool) -> str:
    if markdown:
        return f"| {' | '.join(cells)} |"
    return f"{cells[0]:36}{cells[1]:16}" + "".join(f"{cell:>20}" for cell in cells[2:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true", help="write lines of docs/reference/populations.md")
    arguments = parser.parse_args()
    rng, runs = np.random.default_rng(1), arguments.runs
    lines: list[tuple[str, str, float, Callable[[str, int], float]]] = []
    for name, of in DAYS.items():
        for size in SIZES:
            if size and name not in ("days alike", "days differ by a point"):
                continue
            output = f"{name}{', ' + size if size else ''}"
            lines.append((output, "slopes", AIM, lambda e, n, of=of, size=size: straight(rng, 5 * runs, e, n, of, size)))
            lines.append(
                (output, "no false shift", AIM_OF_SHIFTS, lambda e, n, of=of, size=size: quiet(rng, runs, e, n, of, size))
            )
    for group in (5, 50):
        lines.append((f"{group} alike, declared", "shares", AIM, lambda e, n, g=group: alike(rng, runs, e, n, g, g)))
        lines.append((f"{group} alike, not declared", "shares", AIM, lambda e, n, g=group: alike(rng, runs, e, n, g, 1)))
    lines.append(("a changing mix of versions", "merged shares", AIM, lambda e, n: versions(rng, runs, e, n)))
    cells = [(epsilon, n) for epsilon in EPSILONS for n in REPORTS]
    titles = ["population", "what holds", *(f"epsilon {epsilon}, {n:,}" for epsilon, n in cells)]
    print(_line(titles, markdown=arguments.markdown))
    if arguments.markdown:
        print(_line(["---"] * len(titles), markdown=True))
    figures = []
    for name, what, aim, measure in lines:
        output = []
        for epsilon, n in cells:
            figure = measure(epsilon, n)
            figures.append({"population": name, "what": what, "epsilon": epsilon, "n": n, "share": figure, "aim": aim})
            output.append(f"{figure:.3f}" if figure >= aim else f"**{figure:.3f}**")
        print(_line([name, what, *output], markdown=arguments.markdown), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), "utf-8")
    print(f"{len(figures)} cells, {sum(each['share'] < each['aim'] for each in figures)} fall short (between stars)")


if __name__ == "__main__":
    main()
