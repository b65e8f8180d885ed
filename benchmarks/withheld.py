"""Figures of withheld cells: how often intervals hold, and how wide they are, with few reports.

    python benchmarks/withheld.py [--json] [--runs 100] [--price 0.5]

People answer numbers from the whole range, or one of four values (a half, a quarter, an eighth, an eighth). Reports are made by
the code of the device, one call a person. Noise is drawn by OpenDP, as the service draws it.

Stated are the share of runs in which the mean, the sum, and the number of reports lie in their 95% intervals; half of the median
width of a mean's interval, as a part of the range; and of the most frequent value, how often it is named, how often it is within
`behind`, and the median of that.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import Any

import numpy as np

from deniable import registry
from deniable.declared import Declared
from deniable.limits.allowance import MICRO
from deniable_aggregator import tally
from deniable_aggregator.questions import central_noise, figures

REPORTS = (1, 5, 20, 50, 200, 800)
EPSILONS = (1, 4)
LEVEL = 0.95
TOTAL = 100_000  # reports of all cells together, which are published
SHARES = (0.5, 0.25, 0.125, 0.125)
COVERAGE = 0.9  # of 100 runs at 0.95 fewer are rarer than 1 in 30

_METRICS = """
format = 1
app = "shop"
caps = {{ epsilon = 16 }}
[budget]
per_month = 10000
lifetime = 100000
[metrics.number]
type = "number"
range = [0, 1]
unit = "parts"
estimate = "mean"
epsilon = {epsilon}
description = "a number"
owner = "o@shop.example"
[metrics.value]
type = "categorical"
values = ["a", "b", "c", "d"]
epsilon = {epsilon}
description = "a value"
owner = "o@shop.example"
"""


def answer_of(declared: Declared, name: str, answers: list[int], cost: int) -> dict[str, Any]:
    """Have people report, and ask for a figure of them."""
    mechanism, figure = declared.mechanism, figures.figure_of(name, declared, 1)
    counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, answers)))
    of_count, of_figure = figures.halves(cost)
    n = central_noise.count(len(answers), of_count)
    reach = central_noise.reach(of_count, LEVEL)
    return figure.fields(figure.draw(counted, of_figure), n, cost, LEVEL, TOTAL) | {"count_interval": (n - reach, n + reach)}


def case(epsilon: float, n: int, runs: int, cost: int, rng: np.random.Generator) -> dict[str, Any]:
    """Measure one number of reports."""
    loaded = registry.parse(_METRICS.format(epsilon=epsilon))
    number, value = (Declared.of(loaded.metrics[name]) for name in ("number", "value"))
    top = number.mechanism.domain_size - 1
    held = {"mean": 0, "sum": 0, "count": 0, "value": 0}
    widths, behind, named = [], [], 0
    for _ in range(runs):
        answers = rng.integers(0, top + 1, n).tolist()
        truth = sum(answers) / top
        for name, true in (("mean", truth / n), ("sum", truth)):
            answer = answer_of(number, name, answers, cost)
            low, high = answer["interval"]
            held[name] += low <= true <= high
            if name == "mean":
                widths.append((high - low) / 2)
                low, high = answer["count_interval"]
                held["count"] += low <= n <= high
        values = rng.choice(4, n, p=SHARES)
        answer, counts = answer_of(value, "value", values.tolist(), cost), np.bincount(values, minlength=4)
        place = "abcd".index(answer["value"])
        named += counts[place] == counts.max()
        held["value"] += counts.max() - counts[place] <= answer["behind"] * n + 1e-9
        behind.append(answer["behind"])
    shares = {name: times / runs for name, times in held.items()}
    return {"epsilon": epsilon, "n": n, "held": shares, "width": median(widths), "named": named / runs, "behind": median(behind)}


def main() -> int:
    """Print a table, or JSON; the exit status is 1 if an interval holds too rarely."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--price", type=float, default=0.5)
    arguments = parser.parse_args()
    rng, cost = np.random.default_rng(35), round(arguments.price * MICRO)
    cases = [case(epsilon, n, arguments.runs, cost, rng) for epsilon in EPSILONS for n in REPORTS]
    if arguments.json:
        print(json.dumps(cases))
    else:
        print("epsilon  reports   held: mean   sum  count  value   half width  named  behind")
        for line in cases:
            held = "  ".join(f"{line['held'][name]:5.2f}" for name in ("mean", "sum", "count", "value"))
            others = f"{line['width']:6.3f}   {line['named']:4.2f}   {line['behind']:5.2f}"
            print(f"{line['epsilon']:7g} {line['n']:8}         {held}       {others}")
    return int(min(share for each in cases for share in each["held"].values()) < COVERAGE)


if __name__ == "__main__":
    raise SystemExit(main())
