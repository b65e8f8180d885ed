"""The alarms against made-up reports, and attacks on reports that a relay has mixed.

    python benchmarks/redteam.py                 # all tables, some seven minutes
    python benchmarks/redteam.py --relay         # the last one alone, some ten seconds
    python benchmarks/redteam.py --quick         # a smoke run
    python benchmarks/redteam.py --markdown

Honest reports are simulated as tallies and weights: by the exact probabilities of cells and bits, so that a million reports take
milliseconds. (For `subset`, whose bits are dependent, report by report.) All seeds are fixed. Two tables:

* false alarms: looks at one stratum of honest reports each, of three populations: everybody holds one value (the edge of what is
  allowed, where the bounds are met), all values alike, and Zipf's. How many raised an alarm, which is promised to be at most
  1e-4 of them, and the share of looks whose smallest p-value, all tests considered, was below 1%;
* detection: 5% of the reports are made up for the greatest gain of r rare values; how often an alarm is raised, by which tests.
  Plain: with the mean weight and the best rows. Disguised: with honest weights and rows. Gain is by how much the sum of the
  targets' estimated shares rises.
* relay: somebody who has a pool, and knows all answers but one, guesses it by the difference of the counts of two values. The
  epsilon that shows so, at 99.9% confidence, beside the central one that is claimed: it must not be above. Of a pool of which the
  attacker made all reports but a few, only these few are a crowd. Then the rank correlation of arrival and place in a pool.
"""

from __future__ import annotations

import argparse
import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from deniable import mechanisms
from deniable_aggregator import decode, tally
from deniable_aggregator.accounting.crowds.crowd import Crowd
from deniable_aggregator.alarms import checks, tail_bounds
from deniable_aggregator.decode.binomial import clopper_pearson
from deniable_aggregator.tally import set_bits

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import forgery

DELTA = 1e-6
VALUES = 128
BETA = 0.05
NAMES = ("grr", "oue", "sue", "subset", "local_hash", "hadamard", "general_hadamard", "pgr", "rappor_bloom", "cms", "hcms")
SLOW = ("subset", "rappor_bloom", "cms", "hcms")  # to simulate, so fewer of them
BLOOM = {"cohorts": 16, "bits": 32, "hashes": 2}


class Population:
    """Draws honest reports of a mechanism as tallies and weights."""

    def __init__(self, name: str, epsilon: float) -> None:
        options = BLOOM if name == "rappor_bloom" else {}
        self.mechanism = mechanisms.make(name.partition("_bloom")[0], domain_size=VALUES, epsilon=epsilon, **options)
        bounds = self.mechanism.bounds()
        self.low, self.high = float(bounds.low), float(bounds.high)
        self.ones = tail_bounds.ones(bounds)
        layout = self.mechanism.layout
        self.table = None
        if layout.kind == "index":
            supports = np.zeros((VALUES, layout.rows * layout.width), bool)
            for cell in range(layout.rows * layout.width):
                supports[list(self.mechanism.supported(layout.pack(*divmod(cell, layout.width)))), cell] = True
            self.table = np.where(supports, self.high, self.low) / layout.rows
        elif layout.rows > 1:
            held = np.zeros((layout.rows, VALUES, layout.width), bool)
            for row in range(layout.rows):
                for value in range(VALUES):
                    bits = forgery._wanted(self.mechanism, row, value)
                    held[row, value] = [bits >> place & 1 for place in range(layout.width)]
            self.held = held

    def draw(self, n: int, shares: np.ndarray, rng: np.random.Generator) -> tuple[tally.Tally, np.ndarray | None]:
        held = rng.multinomial(n, shares)
        layout = self.mechanism.layout
        if self.table is not None:
            cells = sum(rng.multinomial(number, self.table[value]) for value, number in enumerate(held) if number)
            return tally.from_cells(layout, cells), None
        if self.mechanism.name == "subset":
            return self._subsets(held, rng)
        counts, ones = np.zeros((layout.rows, layout.width), np.int64), np.zeros(layout.width + 1, np.int64)
        reports = np.zeros(layout.rows, np.int64)
        for value, number in enumerate(held):
            rows = rng.multinomial(number, np.full(layout.rows, 1 / layout.rows))
            reports += rows
            own = self.held[:, value] if layout.rows > 1 else np.arange(layout.width)[None, :] == value
            counts += rng.binomial(rows[:, None], np.where(own, self.high, self.low))
            for row in range(layout.rows) if layout.rows > 1 else (0,):
                kind = self.ones[own[row].sum() - 1 if len(self.ones) > 1 else 0]
                ones += rng.multinomial(rows[row], kind / kind.sum())
        return tally.Tally(layout, counts, reports), ones

    def _subsets(self, held: np.ndarray, rng: np.random.Generator) -> tuple[tally.Tally, np.ndarray]:
        counts, size = np.zeros(VALUES, np.int64), self.mechanism.size
        for value, number in enumerate(held):
            for begin in range(0, number, 20_000):
                part = min(20_000, number - begin)
                keys = rng.random((part, VALUES), np.float32)
                keys[:, value] = np.where(rng.random(part) < float(self.mechanism.p), -1, 2)
                counts += np.bincount(np.argpartition(keys, size - 1, axis=1)[:, :size].ravel(), minlength=VALUES)
        ones = np.zeros(VALUES + 1, np.int64)
        ones[size] = held.sum()
        return tally.Tally(self.mechanism.layout, counts[None, :], np.array([held.sum()])), ones


def zipf() -> np.ndarray:
    shares = 1 / np.arange(1, VALUES + 1) ** 1.1
    return shares / shares.sum()


SHARES = {"one value": np.eye(VALUES)[0], "all alike": np.full(VALUES, 1 / VALUES), "Zipf": zipf()}


def false_alarms(looks: int, sizes: tuple[int, ...]) -> list[list[str]]:
    rows, total, alarms = [], 0, 0
    for name in NAMES:
        for n in sizes:
            raised = small = result = 0
            seconds = 0.0
            part = max(3, looks // 100) if name in SLOW else looks
            people = Population(name, 1.0)
            for place, shares in enumerate(SHARES.values()):
                rng = np.random.default_rng([n, place])
                for _ in range(part):
                    draw = people.draw(n, shares, rng)
                    begin = time.perf_counter()
                    results = checks.examine(people.mechanism, *draw)
                    raised += bool(checks.raised([results])[0])
                    seconds += time.perf_counter() - begin
                    small += min(each.p_value for each in results) * len(results) < 0.01
                    result += 1
            total, alarms = total + result, alarms + raised
            rows.append([name, f"{n:,}", f"{result:,}", f"{raised}", f"{small / result:.2%}", f"{1000 * seconds / result:.1f}"])
    rows.append(["all", "", f"{total:,}", f"{alarms}", "", ""])
    return rows


def share_of(mechanism: mechanisms.Mechanism, counted: tally.Tally, targets: list[int]) -> float:
    """Estimate the targets' shares together; of a Bloom filter by the plain support of its bits."""
    if mechanism.name == "rappor":
        return float("nan")
    return float(decode.estimate(mechanism, counted).frequency[targets].sum())


def detection(runs: int, cases: list[tuple[str, float, int, int]]) -> list[list[str]]:
    rows = []
    shares = zipf()
    for name, epsilon, r, n in cases:
        people = Population(name, epsilon)
        mechanism = people.mechanism
        line = [name, f"{epsilon:g}", f"{r}", f"{n:,}"]
        for disguised in (False, True):
            caught, tests, gains = 0, set(), []
            part = max(2, runs // 5) if name in SLOW else runs
            for run in range(part):
                rng = np.random.default_rng([run, r, n])
                targets = rng.choice(np.arange(32, VALUES), r, replace=False).tolist()
                result = int(BETA * n)
                counted, ones = people.draw(n - result, shares, rng)
                payloads = forgery.maximal_gain(mechanism, targets, result, rng, disguised=disguised)
                both = tally.merge(counted, tally.count(mechanism.layout, payloads))
                if ones is not None:
                    ones = ones + set_bits.count(mechanism.layout, payloads)
                results = checks.raised([checks.examine(mechanism, both, ones)])[0]
                caught += bool(results)
                tests |= {each.test for each in results}
                gains.append(share_of(mechanism, both, targets) - shares[targets].sum())
            line += [f"{np.mean(gains):+.2f}", f"{caught}/{part}", " ".join(sorted(tests)) or "-"]
        rows.append(line)
    return rows


def signs(mechanism: mechanisms.Mechanism, value: int) -> list[float]:
    """Return how likely a report of a value speaks for the first value alone, for the second alone, and for both or none."""
    layout, bounds = mechanism.layout, mechanism.bounds()
    parts = [0.0, 0.0, 0.0]
    for cell in range(layout.rows * layout.width):
        supported = set(mechanism.supported(layout.pack(*divmod(cell, layout.width))))
        chance = float(bounds.high if value in supported else bounds.low) / layout.rows
        parts[2 if (0 in supported) == (1 in supported) else 1 - (0 in supported)] += chance
    return parts


def seen(mechanism: mechanisms.Mechanism, honest: int, delta: float, pools: int) -> float:
    """Return the epsilon that so many simulated pools of each of two answers show, but for one case in a thousand."""
    rng = np.random.default_rng(honest)
    counts = []
    for answer in (0, 1):  # of the victim; all others have the last value
        others = rng.multinomial(honest - 1, signs(mechanism, mechanism.domain_size - 1), pools)
        own = rng.multinomial(1, signs(mechanism, answer), pools)
        counts.append((others + own)[:, 0] - (others + own)[:, 1])
    best = 0.0
    places = np.unique(np.concatenate(counts))
    for place in places[:: max(1, len(places) // 50)]:
        hits = [int((each >= place).sum()) for each in counts]
        low, _ = clopper_pearson(np.array([hits[0]]), pools, 0.001)
        _, high = clopper_pearson(np.array([hits[1]]), pools, 0.001)
        if float(low[0]) > delta:
            best = max(best, float(np.log((low[0] - delta) / high[0])))
    return best


def relay(pools: int) -> tuple[list[list[str]], bool]:
    """Attack pools of five mechanisms, and pools that are mostly made up; also return whether all claims hold."""
    rows, holds = [], True
    cases = [
        (name, size, 3.0, 1000) for name, size in (("binary", 2), ("grr", 8), ("hadamard", 8), ("local_hash", 8), ("pgr", 8))
    ]
    cases += [("binary", 2, 3.0, honest) for honest in (300, 30, 1)]
    for name, size, epsilon, honest in cases:
        mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
        central = Crowd.of(mechanism, honest).epsilon(DELTA)
        leak = seen(mechanism, honest, DELTA, pools)
        holds &= leak <= central
        rows.append([name, f"{size}", f"{honest:,}", f"{epsilon:g}", f"{central:.2f}", f"{leak:.2f}"])
    return rows, holds


def correlation(reports: int) -> float:
    """Return the rank correlation of the order in which reports came, and their places in a pool."""
    rng = np.random.default_rng(7)
    digests = [sha256(rng.bytes(56)).digest() for _ in range(reports)]
    places = np.argsort(np.argsort(np.array(digests, "S32")))
    return float(np.corrcoef(np.arange(reports), places)[0, 1])


def show(title: str, heads: list[str], rows: list[list[str]], *, markdown: bool) -> None:
    print(f"\n{'### ' if markdown else ''}{title}\n")
    if markdown:
        print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few runs")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--relay", action="store_true", help="attack pools of a relay alone")
    arguments = parser.parse_args()
    quick = arguments.quick
    if not arguments.relay:
        alarms(quick=quick, markdown=arguments.markdown)
    rows, holds = relay(2_000 if quick else 200_000)
    columns = ["mechanism", "values", "honest", "local", "central", "seen"]
    show(f"A report in a pool, delta {DELTA:g}", columns, rows, markdown=arguments.markdown)
    print(f"\nArrival and place in a pool of 2,000: rank correlation {correlation(2000):+.3f}; 1 in order of arrival")
    return int(not holds)


def alarms(*, quick: bool, markdown: bool) -> None:
    """Show how often honest reports and made-up ones raise an alarm."""
    heads = ["mechanism", "reports", "looks", "alarms", "p below 1%", "ms a look"]
    results = false_alarms(3 if quick else 400, (100_000,) if quick else (100_000, 1_000_000))
    show("False alarms, epsilon 1, 128 values", heads, results, markdown=markdown)
    sys.stdout.flush()
    sizes = (20_000,) if quick else (10_000, 100_000, 1_000_000)
    cases = [(name, 1.0, 5, n) for name in NAMES for n in sizes]
    if not quick:
        part = ("grr", "oue", "subset", "local_hash")
        cases += [(name, epsilon, 5, 100_000) for name in part for epsilon in (0.5, 2.0)]
        cases += [(name, 4.0, 5, 100_000) for name in part if name != "local_hash"]  # which has more cells than are looked at
        cases += [(name, 1.0, r, 100_000) for name in part for r in (1, 20)]
    columns = ["mechanism", "epsilon", "r", "reports", "gain", "plain", "by", "gain", "disguised", "by"]
    show(f"Detection of {BETA:.0%} made up", columns, detection(2 if quick else 20, cases), markdown=markdown)


if __name__ == "__main__":
    sys.exit(main())
