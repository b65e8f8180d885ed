"""Decoding RAPPOR: strings found, false ones, and calibration, beside the procedure that google/rappor ships.

    python benchmarks/rappor.py                  # all of it, half an hour
    python benchmarks/rappor.py --quick          # a smoke run
    python benchmarks/rappor.py --markdown

Counts are simulated, not reports: strings to cohorts by a multinomial, bits by binomials. That is exact, and as fast for 1e8
respondents as for 100. All seeds are fixed. Four tables:

* comparison: true strings found and false ones, of the published test cases. Ours at the threshold that gives no more false
  strings than theirs did in the same data, and at a family-wise error of 5% (Holm); the distance is the total variation
  between the population's shares and those found;
* family-wise error: runs with any false string at Holm 5%, where 100 absent strings are offered;
* calibration: z = (estimate - truth) / standard error of the strings that are present;
* scale: time to decode 10,000 candidates.

On a busy machine OPENBLAS_NUM_THREADS=1 makes the first three several times faster: their matrices are small.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from scipy.sparse import csc_array

from deniable_aggregator.decode.bloom.bloom_regression import detection_frequency, fit
from deniable_aggregator.decode.multiple_testing import holm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DISTRIBUTIONS = ("exp", "zipf1", "gauss", "unif")


class Case(NamedTuple):
    """A collection: p, q, f are those of the reports' two steps of noise."""

    n: int
    bits: int
    hashes: int
    cohorts: int
    p: float
    q: float
    f: float
    extra: int  # candidates that nobody holds
    missing: int = 0  # strings that are held, but are no candidates
    strings: int = 100

    @property
    def effective(self) -> tuple[float, float]:
        """Probabilities that a bit that is 0, and one that is 1, in the filter is reported as 1."""
        return self.p * (1 - self.f / 2) + self.q * self.f / 2, self.q * (1 - self.f / 2) + self.p * self.f / 2

    @property
    def density(self) -> float:
        return 1 - (1 - 1 / self.bits) ** self.hashes


CASES = {
    "tiny-typical 1e3": Case(10**3, 8, 2, 128, 0.39, 0.61, 0.45, 20, 10),
    "small-typical 1e6": Case(10**6, 8, 2, 128, 0.39, 0.61, 0.45, 20, 10),
    "small-sharp 1e6": Case(10**6, 8, 2, 128, 0.39, 0.61, 0.45, 0),
    "small-loose 1e6, epsilon 5": Case(10**6, 8, 2, 128, 0.225, 0.775, 0, 20, 10),
    "Chrome UMA 1e6": Case(10**6, 32, 2, 128, 0.25, 0.75, 0.5, 20),
    "Chrome UMA 1e5": Case(10**5, 32, 2, 128, 0.25, 0.75, 0.5, 20),
    "demo-like 1e6": Case(10**6, 32, 1, 64, 0.25, 0.75, 0.5, 100, 10),
}
MORE = {"128 bits, 16 cohorts 1e6": Case(10**6, 128, 2, 16, 0.5, 0.75, 0, 100)}  # the paper's section 5.2; exponential only
FAMILIES = {
    "Chrome UMA 1e6": CASES["Chrome UMA 1e6"]._replace(extra=100),
    "small-typical 1e6": CASES["small-typical 1e6"]._replace(extra=100, missing=0),
    "small-typical 1e6, 10 unlisted": CASES["small-typical 1e6"]._replace(extra=100),
    "small-loose 1e6, 10 unlisted": CASES["small-loose 1e6, epsilon 5"]._replace(extra=100),
    "small-typical 1e6, 1,000 absent": CASES["small-typical 1e6"]._replace(extra=1000),
    "Chrome UMA, 128 reports": CASES["Chrome UMA 1e6"]._replace(extra=100, n=128),
}


def shares(distribution: str, strings: int) -> Floats:
    """Shares of the population, the published shapes."""
    rank = np.arange(1, strings + 1)
    shape = {
        "exp": lambda: np.exp(-5 * (rank - 0.5) / strings),
        "zipf1": lambda: 1 / rank,
        "gauss": lambda: np.exp(-np.square((rank - (strings + 1) / 2) / (strings / 6)) / 2),
        "unif": lambda: np.ones(strings),
    }[distribution]()
    return np.asarray(shape / shape.sum(), np.float64)


def filters(case: Case) -> csc_array:
    """Make the filters of all strings and of the extra candidates, hashed as the original does: MD5 of cohort and word."""
    rows, columns = [], []
    for string in range(case.strings + case.extra):
        for cohort in range(case.cohorts):
            digest = hashlib.md5(cohort.to_bytes(4, "big") + b"v%d" % (string + 1)).digest()
            bits = {byte % case.bits for byte in digest[: case.hashes]}
            rows += [cohort * case.bits + bit for bit in bits]
            columns += [string] * len(bits)
    return csc_array((np.ones(len(rows)), (rows, columns)), (case.cohorts * case.bits, case.strings + case.extra))


def random_filters(case: Case, rng: np.random.Generator) -> csc_array:
    """Make the filters of all strings and of the extra candidates, hashed at random."""
    number = case.strings + case.extra
    cohort, _, string = np.indices((case.cohorts, case.hashes, number)).reshape(3, -1)
    row = cohort * case.bits + rng.integers(case.bits, size=len(cohort))
    design = csc_array((np.ones(len(row)), (row, string)), (case.cohorts * case.bits, number))
    design.sum_duplicates()
    design.data[:] = 1
    return design


class Data(NamedTuple):
    design: csc_array  # of the candidates
    truth: Floats  # their shares
    counts: NDArray[np.int64]
    reports: NDArray[np.int64]


def simulate(case: Case, population: csc_array, distribution: str, rng: np.random.Generator) -> Data:
    """Draw the counts of one collection."""
    frequency = shares(distribution, case.strings)
    p, q = case.effective
    reports = rng.multinomial(case.n, np.full(case.cohorts, 1 / case.cohorts))
    held = rng.multinomial(reports, frequency)
    rows = population.tocsr()[:, : case.strings]
    slices = [slice(cohort * case.bits, (cohort + 1) * case.bits) for cohort in range(case.cohorts)]
    ones = np.stack([rows[part] @ strings for part, strings in zip(slices, held, strict=True)]).astype(np.int64)
    counts = rng.binomial(ones, q) + rng.binomial(reports[:, None] - ones, p)
    listed = np.ones(case.strings + case.extra, np.bool_)
    if case.missing:
        listed[8 : case.strings : case.strings // case.missing] = False  # v9, v19, ...
    truth = np.concatenate([frequency, np.zeros(case.extra)])
    return Data(population[:, np.flatnonzero(listed)], truth[listed], counts, reports)


# --- the procedure that google/rappor ships ---------------------------------------------------------------------------


def constrained(a: Floats, b: Floats, g: Floats, h: Floats) -> Floats:
    """Minimise |a x - b| subject to g x >= h.

    By Lawson and Hanson's reduction to a least distance problem (Solving Least Squares Problems, 1974, chapter 23), as their
    solver does.
    """
    rotation, triangle = np.linalg.qr(a)
    start = rotation.T @ b
    inside = solve_triangular(triangle, g.T, trans=1).T
    dual = np.vstack([inside.T, h - inside @ start])
    weights, _ = nnls(dual, np.eye(len(dual))[-1])
    residual = dual @ weights
    residual[-1] -= 1
    return solve_triangular(triangle, start - residual[:-1] / residual[-1])


def shipped(case: Case, data: Data, rng: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
    """Decode as google/rappor does (analysis/R/decode.R, alternative.R): estimates, and which strings are reported.

    Weighted least squares with shares that are not negative, add up to 1 at most and overshoot no bit by three standard
    deviations; 5 times, 4 of them with noise added again; reported is what has a mean of two standard deviations. The LASSO
    before it, of more candidates than 0.8 times the cells, never applies here.
    """
    p, q = case.effective
    used = data.reports > 0
    reports = data.reports[used, None]
    raw = (data.counts[used] / reports - p) / (q - p)
    rate = np.clip(raw, 0, 1) * (q - p) + p
    noise = np.sqrt(rate * (1 - rate) / reports) / (q - p)
    x = data.design.toarray()[np.repeat(used, case.bits)]
    number = x.shape[1]
    fits = []
    for run in range(5):
        y, sd = (raw, noise) if not run else (raw + rng.normal(0, noise), noise * np.sqrt(2))
        weight = np.minimum(1 / sd, 2 * np.median(1 / sd)).ravel()
        weight /= weight.mean()
        most = np.clip(y + 3 * sd, 0.01, 1).ravel()
        g = np.vstack([np.eye(number), -np.ones(number), -x])
        h = np.concatenate([np.zeros(number), [-1], -most])
        fits.append(constrained(x * weight[:, None], y.ravel() * weight, g, h))
    mean, spread = np.mean(fits, axis=0), np.std(fits, axis=0, ddof=1)
    return mean, mean > 1e-6 + 2 * spread


# --- tables -----------------------------------------------------------------------------------------------------------


def distance(truth: Floats, estimate: Floats, detected: NDArray[np.bool_]) -> float:
    """Total variation between the population and the strings found; what is not listed counts as not found."""
    unlisted = 1 - truth.sum()
    return float(np.abs(truth - np.where(detected, np.maximum(estimate, 0), 0)).sum() + unlisted) / 2


def matched(p_values: list[Floats], absent: list[NDArray[np.bool_]], most: int) -> float:
    """Choose the threshold for p-values at which at most so many false strings are found in all runs together."""
    pooled = np.sort(np.concatenate([p[a] for p, a in zip(p_values, absent, strict=True)]))
    return float(pooled[most]) if most < len(pooled) else 1.0


def comparison(runs: int, cases: dict[str, Case], distributions: tuple[str, ...], seed: int) -> Iterator[list[str]]:
    for name, case in cases.items():
        population = filters(case)
        for distribution in distributions:
            theirs, ours, holms, z = [], [], [], []
            p_values, absents = [], []
            for run in range(runs):
                rng = np.random.default_rng([seed, run])
                data = simulate(case, population, distribution, rng)
                present = data.truth > 0
                estimate, reported = shipped(case, data, rng)
                theirs.append([reported[present].sum(), reported[~present].sum(), distance(data.truth, estimate, reported)])
                result = fit(data.design, data.counts, data.reports, *case.effective, density=case.density)
                p_values.append(result.p_value)
                absents.append(~present)
                results = holm(result.p_value, 0.05)
                holms.append([results[present].sum(), results[~present].sum(), distance(data.truth, result.frequency, results)])
                z.append(((result.frequency - data.truth) / result.stderr)[present])
                ours.append((data.truth, result, present))
            cut = matched(p_values, absents, int(np.sum(theirs, axis=0)[1]))
            equal = []
            for truth, result, present in ours:
                results = result.p_value < cut
                equal.append([results[present].sum(), results[~present].sum(), distance(truth, result.frequency, results)])
            row = [name, distribution]
            for table in (theirs, equal, holms):
                found_mean, false_mean, away = np.mean(table, axis=0)
                row += [f"{found_mean:.1f} / {false_mean:.1f} / {away:.3f}"]
            if not case.extra:
                row[3] = "no absent string offered"
            yield [*row, f"{np.std(np.concatenate(z)):.3f}"]


def families(runs: int, cases: dict[str, Case]) -> Iterator[list[str]]:
    for name, case in cases.items():
        false, found_mean = [], []
        present_z, absent_z = [], []
        for run in range(runs):
            rng = np.random.default_rng([2, run])
            data = simulate(case, random_filters(case, rng), "exp", rng)
            result = fit(data.design, data.counts, data.reports, *case.effective, density=case.density)
            present = data.truth > 0
            results = holm(result.p_value, 0.05)
            false.append(results[~present].sum())
            found_mean.append(results[present].sum())
            z = (result.frequency - data.truth) / result.stderr
            present_z.append(z[present])
            absent_z.append(z[~present])
            progress(f"{name}: {run + 1}/{runs}")
        wrong = int((np.array(false) > 0).sum())
        yield [name, f"{wrong}/{runs}", f"{np.mean(found_mean):.1f}", f"{np.mean(false):.3f}"] + [
            f"{np.concatenate(z).std():.3f}" for z in (present_z, absent_z)
        ]


def calibration(runs: int, cases: dict[str, Case]) -> Iterator[list[str]]:
    for name, case in cases.items():
        for distribution in ("exp", "zipf1"):
            z, above = [], []
            for run in range(runs):
                rng = np.random.default_rng([3, run])
                data = simulate(case, random_filters(case, rng), distribution, rng)
                result = fit(data.design, data.counts, data.reports, *case.effective, density=case.density)
                present = data.truth > 0
                z.append(((result.frequency - data.truth) / result.stderr)[present])
                above.append((data.truth > 4 * result.stderr)[present])
                progress(f"{name} {distribution}: {run + 1}/{runs}")
            values, large = np.array(z), np.array(above)
            inside = (np.abs(values) < 1.959964).mean()
            last = f"{values[large].std():.3f}" if large.any() else "none"
            yield [name, distribution, f"{values.mean():+.3f}", f"{values.std():.3f}", f"{inside:.3f}", last]


def scale(*, quick: bool) -> Iterator[list[str]]:
    case = Case(10**7, 128, 2, 128, 0.25, 0.75, 0.5, 9900)
    cases = [("exp", case), ("zipf1", case), ("zipf1", case._replace(strings=1000, extra=9000))]
    for distribution, item in cases[:1] if quick else cases:
        rng = np.random.default_rng(4)
        population = random_filters(item, rng)
        data = simulate(item, population, distribution, rng)
        start, cpu = time.perf_counter(), time.process_time()
        result = fit(data.design, data.counts, data.reports, *item.effective, density=item.density)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        results, present = holm(result.p_value, 0.05), data.truth > 0
        limit = detection_frequency(
            item.n, item.bits, *item.effective, density=item.density, candidates=item.strings + item.extra
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)
        row = [f"{item.strings} {distribution} of {item.strings + item.extra:,}", f"{seconds:.1f}", f"{cpu:.1f}", f"{peak:.1f}"]
        over = int((data.truth > limit).sum())
        yield [*row, f"{limit:.5f}", str(over), str(results[present].sum()), str(results[~present].sum())]


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def show(title: str, head: list[str], rows: Iterator[list[str]], *, markdown: bool) -> None:
    """Print a table row by row, as its rows come."""
    print(f"\n{'### ' if markdown else ''}{title}\n", flush=True)
    widths = [max(14, len(cell)) for cell in head]
    widths[0] = 32
    lines: Iterator[list[str]] = iter([head, ["---"] * len(head)] if markdown else [head])
    for part in (lines, rows):
        for row in part:
            progress("")
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            print(f"| {' | '.join(row)} |" if markdown else "  ".join(padded).rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few cases, few runs")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--only", choices=["comparison", "families", "calibration", "scale"], help="one table")
    parser.add_argument("--runs", type=int, help="of each case, instead of 20 for the comparison and 200 or 50 for the others")
    options = parser.parse_args()
    quick, markdown = options.quick, options.markdown

    def chosen(table: str) -> bool:
        return options.only in {None, table}

    if chosen("comparison"):
        head = ["case", "shares", "google/rappor", "ours, no more false", "ours, Holm 5%", "sd of z"]
        title = "Strings found / false ones / distance"
        names = list(CASES)[1:2] if quick else list(CASES)
        runs = options.runs or (1 if quick else 20)
        rows = comparison(runs, {name: CASES[name] for name in names}, DISTRIBUTIONS[: 1 if quick else 4], 1)
        show(title, head, rows, markdown=markdown)
        if not quick:
            show(f"{title}, exponential shares", head, comparison(runs, MORE, ("exp",), 1), markdown=markdown)
    if chosen("families"):
        head = ["case", "runs with a false string", "found", "false", "sd of z, present", "sd of z, absent"]
        part = dict(list(FAMILIES.items())[: 1 if quick else None])
        show("Family-wise error at Holm 5%", head, families(options.runs or (10 if quick else 200), part), markdown=markdown)
    if chosen("calibration"):
        head = ["case", "shares", "mean of z", "sd of z", "95% interval holds", "sd, shares above 4 errors"]
        part = dict(list(CASES.items())[: 1 if quick else None])
        show("Calibration, strings present", head, calibration(options.runs or (5 if quick else 50), part), markdown=markdown)
    if chosen("scale"):
        head = [
            "strings held, of candidates",
            "seconds",
            "of CPU",
            "peak GiB",
            "detection at",
            "shares above it",
            "found",
            "false",
        ]
        show("10,000 candidates, 128 cohorts of 128 bits, 1e7 reports", head, scale(quick=quick), markdown=markdown)


if __name__ == "__main__":
    main()
