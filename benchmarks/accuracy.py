"""How large errors are beside the exact variance, and how often intervals hold the truth, for every mechanism.

    python benchmarks/accuracy.py --json docs/reference/accuracy.json    # the figures of the site, some 20 minutes
    python benchmarks/accuracy.py --quick                      # a smoke run
    python benchmarks/accuracy.py --only oue rappor-pool       # some mechanisms
    python benchmarks/accuracy.py --faults                     # run every example of docs/reference/rivals.md

Ours: tallies are drawn without devices, by the exact probabilities of cells and bits (see simulated.py), and decoded by the
code of the service. A name with `-pool` has random hash functions, as for texts: each run has other values. The rivals: their
own devices make each report, in the environment of rivals.py. Both have the same truths: Zipf's, and one value that all hold.

In a run, people are drawn from the population, and their reports are drawn and decoded. A cell has at least 200 runs, unless
they take too long, and more until the ratio is known to 1.25% or the time for the cell is over. Each figure has its standard
error. A cell that is off is measured again, with other seeds and eight times as long; only what is measured then is kept.
The file is written as the measurement goes on. With --resume, cells that it has are not measured again.

    ratio      mean squared error over its exact variance, given who answered (with a Bloom filter: over the stated variance)
    stated     mean of the variance that the estimates state for a population, over the mean squared error there
    coverage   share of 95% intervals that hold the truth, all values alike; simultaneous: of runs where all intervals do
    bias       mean error of the share of the most common value, over the exact standard error of one run
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from itertools import product
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # the rivals' interpreter does not
import rivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DOMAINS = (2, 8, 128, 1024)
EPSILONS = (1.0, 4.0, 0.5, 2.0)  # in this order, so that a run that is ended early has the ends
REPORTS = (300, 3_000, 100_000)
POOLS = ("fast_local_hash-pool", "cms-pool", "hcms-pool", "rappor-pool")
TWO_VALUES = ("coin", "binary")
ENDS = (1.0, 4.0)  # where cells are slow to measure
LEAST_RUNS, FEWEST_RUNS = 200, 20  # where it is cheap, and always
KNOWN = 0.0125
AGAIN = 8
RATIO, COVERAGE = (0.95, 1.05), 0.93
TARGETS = ("population", "respondents")
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "rivals.md"
EXAMPLE = re.compile(r"<!-- rival -->\n```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def truths(d: int) -> dict[str, Floats]:
    """Return the shares of the populations."""
    zipf = np.arange(1, d + 1) ** -1.1
    return {"Zipf": zipf / zipf.sum(), "one value": np.eye(d)[d // 2]}


class Sums:
    """Collects what is measured in runs, and tells means with their standard errors."""

    def __init__(self) -> None:
        self.runs: list[dict[str, float]] = []

    def mean(self, name: str) -> tuple[float, float]:
        """Return a mean and its standard error."""
        values = np.array([run[name] for run in self.runs])
        return float(values.mean()), float(values.std(ddof=1) / sqrt(len(values)))

    def ratio(self, above: str, below: str) -> tuple[float, float]:
        """Return a ratio of means and its standard error."""
        x, y = (np.array([run[name] for run in self.runs]) for name in (above, below))
        ratio = float(x.mean() / y.mean())
        return ratio, float((x - ratio * y).std(ddof=1) / sqrt(len(x)) / y.mean())

    def enough(self, spent: float, seconds: float, least: int) -> bool:
        """Tell whether a cell needs no more runs."""
        number = len(self.runs)
        if number < FEWEST_RUNS:
            return False
        if number < least:
            return spent > 3 * seconds
        return spent > seconds or (number % 50 == 0 and self.ratio("error", "exact")[1] < KNOWN)


def measure(run: Callable[[], dict[str, float]], seconds: float, least: int = LEAST_RUNS) -> Sums:
    """Repeat runs until enough is known."""
    sums, start = Sums(), time.process_time()
    while not sums.enough(time.process_time() - start, seconds, least):
        sums.runs.append(run())
    return sums


# --- ours -------------------------------------------------------------------------------------------------------------


def our_cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield each cell of our mechanisms."""
    from deniable import mechanisms

    names = [name for name in (*mechanisms.names(), *POOLS) if not options.only or name in options.only]
    for epsilon, name, d, n in product(options.epsilons, names, options.domains, options.reports):
        if (name == "coin" and epsilon != 1) or (name in TWO_VALUES and d != 2):
            continue
        if d == max(DOMAINS) and epsilon not in ENDS:
            continue
        if name in POOLS and not options.quick and (d != 128 or epsilon not in ENDS):
            continue
        if name == "rappor-pool" and n > 3_000:  # seconds for each run
            continue
        for truth in truths(d):
            yield {"mechanism": name, "d": d, "epsilon": epsilon, "n": n, "truth": truth}


def our_cell(cell: dict[str, Any], simulation: Any, seconds: float, times: int = 1) -> dict[str, Any]:
    """Measure a cell of ours, so many times as long."""
    from deniable_aggregator import decode

    shares, n, mechanism = truths(cell["d"])[cell["truth"]], cell["n"], simulation.mechanism
    rng = np.random.default_rng([times, *json.dumps(cell).encode()])
    top = int(shares.argmax())

    def run() -> dict[str, float]:
        held = rng.multinomial(n, shares)
        counted, values = simulation.draw(held, rng)
        estimate = decode.estimate(mechanism, counted, values)
        known = {"population": shares, "respondents": held / n}
        error = estimate.frequency - known["respondents"]
        exact = variance(mechanism, known["respondents"], n)
        if exact is None:
            exact = np.square(estimate.respondents_stderr)
        output = {
            "error": float(np.square(error).sum()),
            "exact": float(exact.sum()),
            "stated": float(np.square(estimate.stderr).sum()),
            "in population": float(np.square(estimate.frequency - shares).sum()),
            "bias": float(error[top] / sqrt(exact[top])),
        }
        for target in TARGETS:
            for simultaneous in (False, True):
                low, high = estimate.interval(simultaneous=simultaneous, target=target)
                holds = (low <= known[target]) & (known[target] <= high)
                output[f"{target} {simultaneous}"] = float(holds.all() if simultaneous else holds.mean())
        return output

    sums = measure(run, times * seconds, times * LEAST_RUNS)
    return cell | {
        "runs": len(sums.runs),
        "ratio": rounded(sums.ratio("error", "exact")),
        "stated": rounded(sums.ratio("stated", "in population")),
        "bias": rounded(sums.mean("bias")),
        "coverage": {target: rounded(sums.mean(f"{target} False")) for target in TARGETS},
        "simultaneous": {target: rounded(sums.mean(f"{target} True")) for target in TARGETS},
    }


def variance(mechanism: Any, shares: Floats, n: int) -> Floats | None:
    """Return the exact variance of each estimate given who answered; None where only the estimates themselves state one."""
    from deniable.exact.hashing import PoolFamily
    from deniable.mechanisms.listed.general_hadamard import GeneralHadamard
    from deniable.mechanisms.texts.rappor import Bloom
    from deniable.mechanisms.texts.sketch import Sketch

    if isinstance(mechanism, Bloom) and not mechanism.basic:
        return None
    if isinstance(mechanism, GeneralHadamard):
        blocks = mechanism.slots(np.arange(len(shares)))[0]
        return np.asarray(mechanism.variance(shares, n, np.bincount(blocks, shares)[blocks]))  # type: ignore[arg-type]
    if isinstance(mechanism, Sketch) and isinstance(mechanism.family, PoolFamily):  # how much others confuse is read from a tally
        return None
    return np.asarray(mechanism.variance(shares, n))  # type: ignore[arg-type]


def rounded(numbers: tuple[float, float]) -> list[float]:
    """Round a figure and its standard error for the file."""
    return [round(number, 4) for number in numbers]


def off(cell: dict[str, Any]) -> bool:
    """Tell whether a cell is to be listed first."""
    covered = [figure[0] for name in ("coverage", "simultaneous") for figure in cell[name].values()]
    return not RATIO[0] <= cell["ratio"][0] <= RATIO[1] or min(covered) < COVERAGE


def ours(options: argparse.Namespace, file: File) -> None:
    """Measure all cells of ours; those that are off a second time."""
    import simulated

    cells, result = [cell for cell in our_cells(options) if not file.has(cell)], ((), None)
    for number, cell in enumerate(cells, 1):
        key = cell["mechanism"], cell["d"], cell["epsilon"]
        if result[0] != key:
            result = key, simulated.make(*key)
        measured = our_cell(cell, result[1], options.seconds)
        if off(measured) and not options.quick:
            measured = our_cell(cell, result[1], options.seconds, AGAIN) | {"again": True}
        file.add(measured, f"{number}/{len(cells)}")


# --- the rivals -------------------------------------------------------------------------------------------------------


def rival_cells(options: argparse.Namespace, library: str) -> Iterator[dict[str, Any]]:
    """Yield each cell of a rival. Its devices take their time, so there are fewer."""
    names = dict.fromkeys(row.rivals[library] for row in rivals.ROWS.values() if library in row.rivals)
    chosen = [name for name in names if not options.only or name in options.only]
    for name, d, epsilon in product(chosen, (8,) if options.quick else (8, 128), (1.0,) if options.quick else ENDS):
        for truth in truths(d):
            yield {"mechanism": name, "d": d, "epsilon": epsilon, "n": 300, "truth": truth, "library": library}


def rival_cell(cell: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Measure a cell of a rival. Where it has a pool of functions, each run draws another."""
    d, n = cell["d"], cell["n"]
    shares = truths(d)[cell["truth"]]
    rng, top = np.random.default_rng([3, d, n]), int(shares.argmax())
    pooled = cell["mechanism"] in ("cms", "hcms", "rappor")
    scheme = rivals.LIBRARIES[cell["library"]](cell["mechanism"], d, cell["epsilon"])

    def run() -> dict[str, float]:
        chosen = rivals.LIBRARIES[cell["library"]](cell["mechanism"], d, cell["epsilon"]) if pooled else scheme
        held = rng.multinomial(n, shares)
        truth = held / n
        values = [int(value) for value in rng.permutation(np.repeat(np.arange(d), held))]
        estimate = np.asarray(chosen.decode(chosen.ingest(chosen.device(values))), np.float64)
        exact = chosen.variance(truth.tolist(), n) * d if chosen.variance else float("nan")
        error = estimate - truth
        return {"error": float(np.square(error).sum()), "exact": exact, "bias": float(error[top]), "sum": float(estimate.sum())}

    sums = measure(run, seconds)
    known = {"ratio": rounded(sums.ratio("error", "exact"))} if scheme.variance else {}
    return cell | {"runs": len(sums.runs), "bias": rounded(sums.mean("bias")), "sum": rounded(sums.mean("sum"))} | known


def beside(library: str, options: argparse.Namespace, file: File) -> None:
    """Measure a rival in its own environment."""
    python = rivals.environment(options.venv, options.python)
    command = [python, "-I", "-W", "ignore", __file__, "--rival", library, "--rival-seconds", str(options.rival_seconds)]
    command += ["--quick"] * options.quick + (["--only", *options.only] if options.only else [])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("{"):  # a library may print as well
                file.add(json.loads(line), "beside")
    if process.returncode:
        print(f"{library} ended with {process.returncode}", file=sys.stderr)


def faults(options: argparse.Namespace) -> int:
    """Run each example of the page about rivals, and return how many print something else than the page says."""
    python, wrong = rivals.environment(options.venv, options.python), 0
    for code, expected in EXAMPLE.findall(PAGE.read_text("utf-8")):
        done = subprocess.run([python, "-I", "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
        same = done.stdout == expected
        wrong += not same
        print(code, done.stdout, done.stderr, "as the page says" if same else f"BUT THE PAGE SAYS\n{expected}", sep="\n")
    return wrong


# --- the report -------------------------------------------------------------------------------------------------------


class File:
    """The cells that were measured, and the file that they are written to."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        self.path = path
        self.cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"] if path and resume and path.exists() else []

    def has(self, cell: dict[str, Any]) -> bool:
        """Tell whether a cell was measured."""
        return any(cell.items() <= each.items() and ("library" in each) == ("library" in cell) for each in self.cells)

    def add(self, cell: dict[str, Any], progress: str) -> None:
        """Show a cell as soon as it is measured, and write it."""
        print(progress, *line(cell), file=sys.stderr, flush=True)
        self.cells.append(cell)
        if self.path:
            head = {"python": platform.python_version(), "numpy": np.__version__}
            cells = ",\n".join(json.dumps(each) for each in self.cells)
            self.path.write_text(f'{{"made": {json.dumps(head)}, "cells": [\n{cells}\n]}}\n')


HEADS = ["mechanism", "d", "epsilon", "n", "truth", "runs", "ratio", "stated", "bias", "population", "all", "respondents", "all"]


def line(cell: dict[str, Any]) -> list[str]:
    """Write a cell as a line of the table."""
    name = f"{cell['library']} {cell['mechanism']}" if "library" in cell else cell["mechanism"]
    figures = [cell.get("ratio"), cell.get("stated"), cell["bias"]]
    figures += [cell[kind][target] for target in TARGETS for kind in ("coverage", "simultaneous") if kind in cell]
    texts = ["-" if each is None else f"{each[0]:.3f}±{each[1]:.3f}" for each in figures]
    texts += ["-"] * (len(HEADS) - 6 - len(texts))
    return [name, str(cell["d"]), f"{cell['epsilon']:g}", str(cell["n"]), cell["truth"], str(cell["runs"]), *texts]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few cells, d = 2 and 8")
    parser.add_argument("--only", nargs="+", metavar="MECHANISM", help="some mechanisms")
    parser.add_argument("--markdown", action="store_true", help="write a Markdown table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    parser.add_argument("--seconds", type=float, help="CPU time of a cell (0.25; quick: 0.02)")
    parser.add_argument("--rival-seconds", type=float, help="of a rival (0.7; quick: 0.1)")
    parser.add_argument("--resume", action="store_true", help="keep the cells that FILE has")
    parser.add_argument("--no-rivals", action="store_true", help="ours alone")
    parser.add_argument("--faults", action="store_true", help="run the examples of docs/reference/rivals.md instead")
    parser.add_argument("--venv", type=Path, default=Path.home() / ".cache" / "deniable-rivals", help="the rivals' home")
    parser.add_argument("--python", default=sys.executable, help="makes that home; 3.11 or 3.12")
    parser.add_argument("--rival", choices=(rivals.PURE, rivals.MULTI), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seconds = options.seconds or (0.02 if options.quick else 0.25)
    options.rival_seconds = options.rival_seconds or (0.1 if options.quick else 0.7)
    options.domains = (2, 8) if options.quick else DOMAINS
    options.epsilons = (1.0,) if options.quick else EPSILONS
    options.reports = (300,) if options.quick else REPORTS
    if options.faults:
        sys.exit(faults(options))
    if options.rival:
        for cell in rival_cells(options, options.rival):
            print(json.dumps(rival_cell(cell, options.rival_seconds)), flush=True)
        return
    start, file = time.monotonic(), File(options.json, resume=options.resume)
    for library in () if options.no_rivals else (rivals.PURE, rivals.MULTI):
        if not any(cell.get("library") == library for cell in file.cells):
            beside(library, options, file)
    ours(options, file)
    lines = sorted(file.cells, key=lambda cell: 2 if "library" in cell else not off(cell))
    print(rivals.table([HEADS, *map(line, lines)], markdown=options.markdown))
    mine = [cell for cell in file.cells if "library" not in cell]
    print(f"\n{sum(map(off, mine))} of {len(mine)} cells of ours are off; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
