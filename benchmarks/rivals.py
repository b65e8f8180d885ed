"""Deniable beside pure-ldp and multi-freq-ldpy: speed, bytes and error, measured in one run.

    python benchmarks/rivals.py                  # all of it, half an hour
    python benchmarks/rivals.py --quick          # a smoke run: fewer cells, as many reports
    python benchmarks/rivals.py --only cms pgr   # some rows
    python benchmarks/rivals.py --reports 1000   # what fewer reports cost
    python benchmarks/rivals.py --markdown --json figures.json --resume

The rivals need old pins, so they live in a private environment that is made on first use. Each library runs in a worker
process of its own, all pinned to the same core, and they take turns within every cell of the table. Times are of the
processor, and the best of several turns counts. Still, a busy machine slows caches, so trust the ratios more than the rates.

What is timed is what a user of the library would write. On the device: one call per value in a Python loop. In the
aggregator, two steps: take in all reports, given as the library's own device made them, and decode their sum to estimates of
the whole domain. Ours arrive as concatenated payloads, as they do on the wire. Set-up, hash tables and compilation are warmed
up on every side.

All libraries of a cell have the same number of reports, n: 10,000, or the largest smaller power of ten with which the slowest
of them takes five seconds at most. Decoding costs the same whatever n is, and so does a part of taking in, which counts with few
reports. So a ratio holds for its n only: with more reports that of both steps nears that of taking in, with fewer that of
decoding.

Rows are mechanisms, on both sides with the same parameters, but for these:

    *-complete      ours as it is by default, with a complete hash family, beside the rival's pool of functions
    rappor-basic    ours as it is by default up to 1,024 values, a bit for each, beside what the rivals call SUE
    pgr             no rival has it; beside their fastest of nearly its error: subset of multi-freq-ldpy, and FLH of pure-ldp
                    (its OLH is slower than its FLH both on the device and in the aggregator)
    hadamard        ours has one block of columns; theirs, at larger epsilon, several, as general_hadamard has
    rappor          with Bloom filters. Theirs never clears a bit of the value, so it is private at no epsilon and its
                    estimates are biased: only speed and bytes can be compared. Their LASSO states no errors and tests
                    nothing; our regression does both, so its time to decode is not that of the same answer
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib.util
import json
import math
import os
import pickle
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OURS, PURE, MULTI = "deniable", "pure-ldp", "multi-freq-ldpy"
FLH_HASHES = 1000
SKETCH_ROWS, SKETCH_WIDTH = 128, 1024
BLOOM_BITS, BLOOM_HASHES, COHORTS = 128, 2, 8


class Row(NamedTuple):
    """What stands beside what."""

    mechanism: str  # ours
    rivals: dict[str, str]  # a library, and the mechanism of it
    options: Mapping[str, int] = MappingProxyType({})  # of ours

    def label(self, library: str) -> str:
        """Name a library in this row; with the mechanism, if it is another than ours."""
        mechanism = self.rivals.get(library, self.mechanism)
        return library if mechanism == self.mechanism else f"{library} {mechanism}"


SKETCH = {"rows": SKETCH_ROWS, "width": SKETCH_WIDTH}
BLOOM = {"bits": BLOOM_BITS, "hashes": BLOOM_HASHES, "cohorts": COHORTS}
ROWS = {
    "grr": Row("grr", {PURE: "grr", MULTI: "grr"}),
    "sue": Row("sue", {PURE: "sue", MULTI: "sue"}),
    "oue": Row("oue", {PURE: "oue", MULTI: "oue"}),
    "subset": Row("subset", {MULTI: "subset"}),
    "local_hash": Row("local_hash", {PURE: "local_hash", MULTI: "local_hash"}),
    "fast_local_hash": Row("fast_local_hash", {PURE: "fast_local_hash"}, {"rows": FLH_HASHES}),
    "fast_local_hash-complete": Row("fast_local_hash", {PURE: "fast_local_hash"}),
    "hadamard": Row("hadamard", {PURE: "hadamard"}),
    "general_hadamard": Row("general_hadamard", {PURE: "hadamard"}),
    "pgr": Row("pgr", {PURE: "fast_local_hash", MULTI: "subset"}),
    "cms": Row("cms", {PURE: "cms"}, SKETCH),
    "cms-complete": Row("cms", {PURE: "cms"}),
    "hcms": Row("hcms", {PURE: "hcms"}, SKETCH),
    "hcms-complete": Row("hcms", {PURE: "hcms"}),
    "rappor": Row("rappor", {PURE: "rappor"}, BLOOM),
    "rappor-basic": Row("rappor", {PURE: "sue", MULTI: "sue"}),
}
CLIPPED = {MULTI}  # returns clipped and renormalised frequencies only, so its error is not that of an unbiased estimate
REQUIREMENTS = Path(__file__).with_name("rivals-requirements.txt")
TIMED_RUNS = 5  # the best counts: short runs, because another process may take the core at any time
EXTRA_RUNS = {16: 30, 128: 10}  # for the error: few values make a noisy mean over the domain
FEWEST = 1000  # reports of a cell


class Scheme(NamedTuple):
    """One mechanism of one library, with its parameters set."""

    device: Callable[[Sequence[int]], list[Any]]
    ingest: Callable[[Any], Any]  # reports to their sum
    decode: Callable[[Any], Any]  # the sum to estimated frequencies, or to an object that has them and states their errors
    variance: Callable[[Sequence[float], int], float] | None  # of the estimates of n reports, averaged over the domain
    packed: float | None = None  # bytes of information in a report; None: the report is bytes already
    full: bool = False  # decode takes in the reports, too


# --- the three libraries ----------------------------------------------------------------------------------------------


def ours(mechanism: str, d: int, epsilon: float, **options: int) -> Scheme:
    """Set up our side."""
    from deniable import mechanisms
    from deniable_aggregator import decode, tally

    m: Any = mechanisms.make(mechanism, domain_size=d, epsilon=epsilon, **options)
    randomize = m.randomize

    def decoded(counted: tally.Tally) -> Any:
        estimate = decode.estimate(m, counted)
        assert len(estimate.frequency) == d  # and so they are computed
        return estimate

    def variance(truth: Sequence[float], n: int) -> float:
        if mechanism == "general_hadamard":
            return blocked(truth, [m.slots(v)[0] for v in range(d)], lambda f, mass: m.variance(f, n, mass))
        return statistics.fmean(m.variance(f, n) for f in truth)  # what a pool confuses is cleared

    return Scheme(
        device=lambda values: [randomize(value) for value in values],
        ingest=lambda payloads: tally.count(m.layout, payloads),
        decode=decoded,
        variance=None if "cohorts" in options else variance,  # a regression states its errors itself
    )


def pure_ldp(mechanism: str, d: int, epsilon: float) -> Scheme:
    """Set up pure-ldp: a client object, and a server object that takes one report at a time."""
    import numpy as np

    client, server = pure_ldp_pair(mechanism, d, epsilon)
    privatise, aggregate = client.privatise, server.aggregate

    def ingest(reports: list[Any]) -> int:
        server.reset()
        if mechanism == "fast_local_hash":
            server.hash_counts[:] = 0  # its reset() forgets to
        if mechanism == "rappor":
            server.bloom_filters = [np.zeros(BLOOM_BITS) for _ in range(COHORTS)]  # and so does this one
            server.cohort_count[:] = 0
        for report in reports:
            aggregate(report)
        return len(reports)

    def decode(n: int) -> Any:
        try:
            return np.asarray(server.estimate_all(range(d), suppress_warnings=True)) / n
        except ValueError:
            if mechanism != "rappor":
                raise
            return np.zeros(d)  # of few reports its LASSO may keep no candidate, which its next step cannot bear

    scheme = rival(mechanism, d, epsilon, lambda values: [privatise(value) for value in values], ingest, decode)
    if mechanism != "hadamard":
        return scheme
    # Both of its variants cut the columns into blocks; the one for small epsilon has a single block.
    blocks, size = getattr(server.hr, "part", 1), getattr(server.hr, "partsz", server.hr.outsz)
    block = [int(value) // (size - 1) for value in getattr(server.hr, "permute", range(d))]
    return scheme._replace(
        variance=lambda truth, n: hadamard_variance(truth, epsilon, block, blocks) / n, packed=math.log2(server.hr.outsz) / 8
    )


def pure_ldp_pair(mechanism: str, d: int, epsilon: float) -> tuple[Any, Any]:
    """Make a client and a server of pure-ldp."""
    from pure_ldp import frequency_oracles as fo

    def same(value: int) -> int:
        return value  # the default mapper expects values from 1

    def hadamard() -> tuple[Any, Any]:
        server = fo.HadamardResponseServer(epsilon, d, same)
        return fo.HadamardResponseClient(epsilon, d, server.get_hash_funcs(), same), server

    def sketch(transformed: bool) -> tuple[Any, Any]:  # noqa: FBT001
        server = fo.CMSServer(epsilon, SKETCH_ROWS, SKETCH_WIDTH, transformed)
        return fo.CMSClient(epsilon, server.get_hash_funcs(), SKETCH_WIDTH, transformed), server

    def rappor() -> tuple[Any, Any]:
        f = 2 / (math.exp(epsilon / (2 * BLOOM_HASHES)) + 1)  # at which the server states this epsilon
        server = fo.RAPPORServer(f, BLOOM_BITS, BLOOM_HASHES, d, COHORTS, same)
        return fo.RAPPORClient(f, BLOOM_BITS, server.get_hash_funcs(), COHORTS, same), server

    hashing = {"use_olh": True, "index_mapper": same}
    pairs: dict[str, Callable[[], tuple[Any, Any]]] = {
        "grr": lambda: (fo.DEClient(epsilon, d, same), fo.DEServer(epsilon, d, same)),
        "sue": lambda: (fo.UEClient(epsilon, d, False, same), fo.UEServer(epsilon, d, False, same)),  # noqa: FBT003
        "oue": lambda: (fo.UEClient(epsilon, d, True, same), fo.UEServer(epsilon, d, True, same)),  # noqa: FBT003
        "local_hash": lambda: (fo.LHClient(epsilon, d, **hashing), fo.LHServer(epsilon, d, **hashing)),
        "fast_local_hash": lambda: (
            fo.FastLHClient(epsilon, d, FLH_HASHES, **hashing),
            fo.FastLHServer(epsilon, d, FLH_HASHES, **hashing),
        ),
        "hadamard": hadamard,
        "cms": lambda: sketch(False),  # noqa: FBT003
        "hcms": lambda: sketch(True),  # noqa: FBT003
        "rappor": rappor,
    }
    return pairs[mechanism]()


def multi_freq_ldpy(mechanism: str, d: int, epsilon: float) -> Scheme:
    """Set up multi-freq-ldpy: a client function, and an aggregator function of the whole list of reports."""
    from multi_freq_ldpy.pure_frequency_oracles import GRR, LH, SS, UE

    grr, ue, ss, lh = GRR.GRR_Client, UE.UE_Client, SS.SS_Client, LH.LH_Client
    # Each call is written out, because unpacking the arguments would slow these compiled functions by a fifth.
    pairs: dict[str, tuple[Callable[..., list[Any]], Callable[..., Any]]] = {
        "grr": (lambda vs: [grr(v, d, epsilon) for v in vs], lambda rs: GRR.GRR_Aggregator_MI(rs, d, epsilon)),
        "sue": (
            lambda vs: [ue(v, d, epsilon, False) for v in vs],  # noqa: FBT003
            lambda rs: UE.UE_Aggregator_MI(rs, epsilon, optimal=False),
        ),
        "oue": (lambda vs: [ue(v, d, epsilon) for v in vs], lambda rs: UE.UE_Aggregator_MI(rs, epsilon)),
        "subset": (lambda vs: [ss(v, d, epsilon) for v in vs], lambda rs: SS.SS_Aggregator_MI(rs, d, epsilon)),
        "local_hash": (lambda vs: [lh(v, d, epsilon) for v in vs], lambda rs: LH.LH_Aggregator_MI(rs, d, epsilon)),
    }
    device, full = pairs[mechanism]
    return rival(mechanism, d, epsilon, device, lambda reports: reports, full)._replace(full=True)


def rival(
    mechanism: str,
    d: int,
    epsilon: float,
    device: Callable[..., list[Any]],
    ingest: Callable[..., Any],
    decode: Callable[..., Any],
) -> Scheme:
    """Add what theory says of a rival's mechanism."""
    p, q, bits = theory(mechanism, d, epsilon)
    pool = {
        "fast_local_hash": (FLH_HASHES, round(math.exp(epsilon)) + 1),
        "cms": (SKETCH_ROWS, SKETCH_WIDTH),
        "hcms": (SKETCH_ROWS, SKETCH_WIDTH),
    }.get(mechanism)

    def variance(truth: Sequence[float], n: int) -> float:
        noise = statistics.fmean((f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2 for f in truth) / n
        return noise + (confusion(truth, *pool) if pool else 0)

    return Scheme(device, ingest, decode, None if mechanism == "rappor" else variance, packed=bits / 8)


def confusion(truth: Sequence[float], rows: int, width: int) -> float:
    """Variance that a pool of random functions adds, whatever the number of reports, averaged over the domain."""
    total = sum(f * f for f in truth)
    return statistics.fmean(total - f * f for f in truth) / (rows * (width - 1))


def theory(mechanism: str, d: int, epsilon: float) -> tuple[float, float, float]:
    """Probabilities that a report supports the true value and another one, and the bits in it (32 for a seed)."""
    e, root = math.exp(epsilon), math.exp(epsilon / 2)
    g, w = round(e) + 1, max(1, round(d / (e + 1)))  # as they choose them
    total = w * e + d - w
    m = SKETCH_WIDTH
    return {
        "grr": (e / (e + d - 1), 1 / (e + d - 1), math.log2(d)),
        "sue": (root / (root + 1), 1 / (root + 1), d),
        "oue": (1 / 2, 1 / (e + 1), d),
        "subset": (w * e / total, ((w - 1) * w * e + (d - w) * w) / ((d - 1) * total), d),
        "local_hash": (e / (e + g - 1), 1 / g, 32 + math.log2(g)),
        "fast_local_hash": (e / (e + g - 1), 1 / g, math.log2(FLH_HASHES * g)),
        "hadamard": (e / (e + 1), 1 / 2, math.nan),
        "cms": (root / (root + 1), (root + m - 1) / (root + 1) / m, math.log2(SKETCH_ROWS) + m),
        "hcms": (e / (e + 1), (e / (e + 1) + (m - 1) / 2) / m, math.log2(SKETCH_ROWS * m * 2)),
        "rappor": (math.nan, math.nan, math.log2(COHORTS) + BLOOM_BITS),
    }[mechanism]


def hadamard_variance(truth: Sequence[float], epsilon: float, block: Sequence[int], blocks: int) -> float:
    """Variance of one report's estimate, where a report also tells the block of columns that the value lives in.

    A report adds c / (e^eps - 1) for a column of the value's set, takes as much away for another column of its block, and
    does nothing elsewhere, with c = 2 blocks - 1 + e^eps.
    """
    e = math.exp(epsilon)
    c = 2 * blocks - 1 + e
    scale = (c / (e - 1)) ** 2
    return blocked(truth, block, lambda f, mass: scale * (mass * (e + 1) / c + (1 - mass) * 2 / c) - f)


def blocked(truth: Sequence[float], block: Sequence[int], variance: Callable[[float, float], float]) -> float:
    """Average over the domain what depends on the frequency of a value and on that of its whole block."""
    mass: dict[int, float] = {}
    for f, b in zip(truth, block, strict=True):
        mass[b] = mass.get(b, 0.0) + f
    return statistics.fmean(variance(f, mass[b]) for f, b in zip(truth, block, strict=True))


LIBRARIES = {OURS: ours, PURE: pure_ldp, MULTI: multi_freq_ldpy}

# --- the worker process -----------------------------------------------------------------------------------------------


class Worker:
    """Measures one library; each public method answers one request."""

    def __init__(self, library: str) -> None:
        self._make = LIBRARIES[library]

    def prepare(self, mechanism: str, options: dict[str, int], d: int, epsilon: float, most: int) -> dict[str, Any]:
        """Set up and warm up; say how long reports are, and how exact."""
        self._d, self._scheme = d, self._make(mechanism, d, epsilon, **options)
        self._values = random.Random(20261121).choices(range(d), [rank**-1.1 for rank in range(1, d + 1)], k=most)
        self.run(min(most, FEWEST))  # compiles
        packed, variance = self._scheme.packed, self._scheme.variance
        reports = self._scheme.device(self._values[:200])
        size = statistics.fmean(len(r if packed is None else pickle.dumps(r, 5)) for r in reports)
        stated = variance(self._truth(most), most) if variance else None
        return {"bytes": size, "packed": packed or size, "variance": stated}

    def _truth(self, n: int) -> list[float]:
        counts = Counter(self._values[:n])
        return [counts[value] / n for value in range(self._d)]

    def run(self, n: int) -> dict[str, Any]:
        """Collect and estimate once."""
        values = self._values[:n]
        gc.collect()
        start = time.process_time()
        reports = self._scheme.device(values)
        device = time.process_time() - start
        delivered: Any = b"".join(reports) if self._scheme.packed is None else reports  # the wire is not timed
        passes, ingest, decode = 0, 0.0, 0.0
        while passes == 0 or ingest + decode < 0.02:  # a millisecond alone would be timed badly
            start = time.process_time()
            counted = self._scheme.ingest(delivered)
            middle = time.process_time()
            estimate = self._scheme.decode(counted)
            decode += time.process_time() - middle
            ingest += middle - start
            passes += 1
        parts = {} if self._scheme.full else {"ingest": n * passes / ingest, "decode": decode / passes}
        both = (ingest + decode) / passes
        return {"device": n / device, "both": both, "seconds": device + both, "error": self._error(estimate, n)} | parts

    def _error(self, estimate: Any, n: int) -> float:
        """Mean squared error over what it should be: in theory, or as stated; without either, times n."""
        truth, frequency = self._truth(n), getattr(estimate, "frequency", estimate)
        error = statistics.fmean((float(x) - f) ** 2 for x, f in zip(frequency, truth, strict=True))
        if self._scheme.variance:
            return error / self._scheme.variance(truth, n)
        if frequency is estimate:
            return error * n
        return error / statistics.fmean(float(x) ** 2 for x in estimate.respondents_stderr)


def work(library: str) -> None:
    """Answer requests, one JSON document per line, until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not garble the replies
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    worker = Worker(library)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(worker, request.pop("do"))(**request)
        except Exception as error:  # noqa: BLE001 - a rival's crash is a finding, and must not end the comparison
            reply = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


# --- the comparison ---------------------------------------------------------------------------------------------------


class Library:
    """A worker process, as the comparison sees it."""

    def __init__(self, name: str, python: str) -> None:
        # Neither this folder nor, for the rivals, our PYTHONPATH may be where they import from.
        command = [python, "-P" if name == OURS else "-I", "-W", "ignore", __file__, "--worker", name]
        threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | threads
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # its input ends, and so does it

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the reply."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # then the reply is empty
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        reply = self._process.stdout.readline()
        return json.loads(reply) if reply else {"failed": "the worker died"}


def environment(folder: Path, python: str, requirements: Path = REQUIREMENTS) -> str:
    """Make the rivals' environment unless it is there; return its interpreter."""
    inside = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pins = requirements.read_bytes()
    stamp, target = folder / "installed", hashlib.sha256(pins).hexdigest()
    if not (stamp.exists() and stamp.read_text() == target):
        print(f"installing the rivals in {folder} (once)", file=sys.stderr)
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([inside, "-m", "pip", "install", "-r", requirements], check=True, stdout=sys.stderr)
        stamp.write_text(target)
    return str(inside)


def measure(libraries: dict[str, Library], cell: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Measure one mechanism, domain size and epsilon in every library that has it."""
    row, size = ROWS[cell["mechanism"]], {"d": cell["d"], "epsilon": cell["epsilon"]}
    figures: dict[str, dict[str, Any]] = {}
    for name, mechanism in {OURS: row.mechanism, **row.rivals}.items():
        chosen = {"mechanism": mechanism, "options": dict(row.options) if name == OURS else {}}
        figures[name] = libraries[name].ask("prepare", **chosen, **size, most=options.reports)
    n = reports_of(libraries, figures, options)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in figures}
    extra = 0 if options.quick else EXTRA_RUNS.get(cell["d"], 0)
    spent = dict.fromkeys(figures, 0.0)
    for turn in range(TIMED_RUNS + extra):
        for name, figure in figures.items():
            if "failed" in figure or (turn >= TIMED_RUNS and spent[name] > options.seconds):
                continue
            run = libraries[name].ask("run", n=n)
            if "failed" in run:
                figure["failed"] = run["failed"]
                continue
            spent[name] += run["seconds"]
            runs[name].append(run)
    for name, figure in figures.items():
        if "failed" not in figure:
            errors = [run["error"] for run in runs[name]]
            for what, best in {"device": max, "ingest": max, "decode": min, "both": min}.items():
                if what in runs[name][0]:
                    figure[what] = best(run[what] for run in runs[name])
            figure |= {"error": statistics.fmean(errors), "runs": len(errors)}
            figure["error_stderr"] = statistics.stdev(errors) / math.sqrt(len(errors))
    return {**cell, "n": n, "figures": {row.label(name): figure for name, figure in figures.items()}}


def reports_of(libraries: dict[str, Library], figures: dict[str, dict[str, Any]], options: argparse.Namespace) -> int:
    """Choose the number of reports of a cell: the most for which a run of its slowest library is short enough."""
    n = min(FEWEST, options.reports)
    while 10 * n <= options.reports:
        runs = [libraries[name].ask("run", n=n) for name, figure in figures.items() if "failed" not in figure]
        # Decoding takes as long whatever n is; where it cannot be told apart, it counts as if it grew.
        longest = max((10 * run["seconds"] - 9 * run.get("decode", 0.0) for run in runs if "failed" not in run), default=0.0)
        if longest > options.seconds:
            break
        n *= 10
    return n


HEADS = ["mechanism", "d", "eps", "n", "device/s ours", "fastest rival", "ratio"]
HEADS += ["ingest/s ours", "rival", "ratio", "decode ms ours", "rival", "ratio", "both ms ours", "fastest rival", "ratio"]
HEADS += ["bytes ours", "rival pickled (packed)", "MSE/theory ours", "rivals", "variance ours/rival"]
LEGEND = f"""\
Ratios above 1: ours is faster than the fastest rival. Ingest: taking in reports. Decode: their sum to estimates. Both: n
reports to estimates, the only figure of {MULTI}, which does both in one call. Bytes: our payload; the rival's report
pickled, and its information packed. MSE/theory: measured error over the exact variance of an unbiased estimate, with the
collisions of a random pool where there is one (a pool is drawn once, so where they outweigh the noise expect 0.6 to 1.4 at
d=16). rappor: over the variance that our regression states; the rival's as it is. Rivals are {PURE}, {MULTI}; * returns
clipped and renormalised frequencies only, so it is biased. Variance: ours over the smallest rival's, in theory, at the same
n. What a row compares is in --help."""
TIMED = {
    "device": "calls on the device",
    "ingest": "reports taken in per second",
    "decode": "decoding once",
    "both": "from reports to estimates",
}
ADMISSIONS = {
    "device": "Slower than a rival on the device",
    "ingest": "Ahead by less than 20x in taking in",
    "decode": "Slower than a rival in decoding",
    "both": "Ahead by less than 20x from reports to estimates",
    "variance": "More variance than a rival at equal n",
    "failed": "Failed",
}
TARGETS = {"device": 1, "ingest": 20, "decode": 1, "both": 20}


def leads(cell: dict[str, Any]) -> dict[str, tuple[str, float]]:
    """Say of each thing timed which rival is the fastest, and how many times as fast we are."""
    rivals = {who: f for who, f in cell["figures"].items() if "failed" not in f}
    mine = rivals.pop(OURS, None)
    ahead = {}
    for what in TIMED if mine else ():
        ratios = {
            who: mine[what] / f[what] if what in ("device", "ingest") else f[what] / mine[what]
            for who, f in rivals.items()
            if what in f
        }
        if ratios:
            who = min(ratios, key=lambda rival: ratios[rival])
            ahead[what] = (who, ratios[who])
    return ahead


def judge(cell: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    """Write a cell as a line of the table, and list what there is to admit, by the keys of ADMISSIONS."""
    name = f"{cell['mechanism']} d={cell['d']} epsilon={cell['epsilon']:g} n={cell['n']:,}"
    line = [cell["mechanism"], str(cell["d"]), f"{cell['epsilon']:g}", f"{cell['n']:,}"]
    admitted = [("failed", f"{name}: {who}: {f['failed']}") for who, f in cell["figures"].items() if "failed" in f]
    rivals = {who: f for who, f in cell["figures"].items() if "failed" not in f}
    mine, ahead = rivals.pop(OURS, None), leads(cell)
    if not (mine and rivals):
        return [*line, *["-"] * (len(HEADS) - len(line))], admitted
    for what, least in TARGETS.items():
        write = rate if what in ("device", "ingest") else milliseconds
        if what not in ahead:
            line += [write(mine[what]), "-", "-"]
            continue
        who, ratio = ahead[what]
        line += [write(mine[what]), f"{write(rivals[who][what])} {who}", times(ratio)]
        if ratio < least:
            admitted.append((what, f"{name}: {times(ratio)} {who}"))
    smallest = min(rivals.values(), key=lambda figure: figure["bytes"])
    line += [f"{mine['bytes']:.0f}", f"{smallest['bytes']:.0f} ({smallest['packed']:.1f})", f"{mine['error']:.2f}"]
    if mine["variance"] is None:
        return [*line, ", ".join(f"{f['error']:.3g}/n" for f in rivals.values()), "-"], admitted
    line.append(", ".join(f"{f['error']:.2f}{'*' if who.split()[0] in CLIPPED else ''}" for who, f in rivals.items()))
    who = min(rivals, key=lambda rival: rivals[rival]["variance"])
    excess = mine["variance"] / rivals[who]["variance"]
    if excess > 1.005:
        admitted.append(("variance", f"{name}: {times(excess)} {who}"))
    return [*line, times(excess)], admitted


def kind(cell: dict[str, Any]) -> str:
    """Name what a row needs to decode, on which its lead depends most."""
    options = ROWS[cell["mechanism"]].options
    return "a regression" if options is BLOOM else "pools of hash functions" if options else "all other rows"


def summary(cells: Sequence[dict[str, Any]]) -> str:
    """Say between which ratios all cells lie, for each number of reports and each kind of row."""
    lines = []
    for of, n in sorted({(kind(cell), cell["n"]) for cell in cells}):
        own = [leads(cell) for cell in cells if (kind(cell), cell["n"]) == (of, n)]
        lines.append(f"\nTimes as fast as the fastest rival, {of}, n = {n:,}:\n")
        for what, title in TIMED.items():
            ratios = [ahead[what][1] for ahead in own if what in ahead]
            if ratios:
                lines.append(
                    f"- {title}: {times(min(ratios))} to {times(max(ratios))}, median {times(statistics.median(ratios))}"
                )
    return "\n".join(lines)


def rate(per_second: float) -> str:
    """Write a rate with three digits."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= unit:
            return f"{per_second / unit:.3g}{name}"
    return f"{per_second:.3g}"


def milliseconds(seconds: float) -> str:
    """Write a time."""
    return f"{1000 * seconds:.2g}"


def times(ratio: float) -> str:
    """Write a ratio."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


def table(rows: list[list[str]], *, markdown: bool) -> str:
    """Write rows, the first of them heads, as aligned text or as Markdown."""
    if markdown:
        rows = [rows[0], ["---"] + ["--:"] * (len(rows[0]) - 1), *rows[1:]]
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few reports, d = 16 and 128, epsilon 1")
    parser.add_argument("--only", nargs="+", metavar="ROW", choices=list(ROWS), default=list(ROWS), help="rows (default all)")
    parser.add_argument("--markdown", action="store_true", help="write a Markdown table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    parser.add_argument("--resume", action="store_true", help="with --json: keep the cells that FILE has")
    parser.add_argument("--reports", type=int, default=10_000, help="most reports of a cell (10000); a power of ten")
    parser.add_argument("--seconds", type=float, default=5.0, help="about the longest a run may take (5)")
    parser.add_argument("--venv", type=Path, default=Path.home() / ".cache" / "deniable-rivals", help="the rivals' home")
    parser.add_argument("--python", default=sys.executable, help="makes that home; 3.11 or 3.12")
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return
    if options.resume and not options.json:
        parser.error("--resume: add --json FILE, whose cells are kept")
    if not all(importlib.util.find_spec(name) for name in ("deniable", "deniable_aggregator")):
        parser.error(f"deniable is not installed for {sys.executable}")
    cells = [
        {"mechanism": mechanism, "d": d, "epsilon": epsilon, "most": options.reports}
        for mechanism in options.only
        for d in ((16, 128) if options.quick else (16, 128, 1024))
        for epsilon in ((1.0,) if options.quick else (1.0, 3.0))
    ]
    pythons = {OURS: sys.executable} | dict.fromkeys((PURE, MULTI), environment(options.venv, options.python))
    before = json.loads(options.json.read_text())["cells"] if options.resume and options.json.exists() else []
    before = [old for old in before if not any("failed" in figure for figure in old["figures"].values())]
    machine = {"machine": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    measured: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        libraries = {name: stack.enter_context(Library(name, python)) for name, python in pythons.items()}
        for i, cell in enumerate(cells, 1):
            start = time.perf_counter()
            known = [old for old in before if cell.items() <= old.items()]
            measured += known or [measure(libraries, cell, options)]
            took = time.perf_counter() - start
            print(f"{i}/{len(cells)} ({took:.0f} s)", *judge(measured[-1])[0], file=sys.stderr, flush=True)
            if options.json:  # at once, for --resume
                others = [old for old in before if not any(new.items() <= old.items() for new in cells[:i])]
                options.json.write_text(json.dumps({**machine, "cells": measured + others}, indent=1))
    judged = [judge(cell) for cell in measured]
    print(table([HEADS, *(line for line, _ in judged)], markdown=options.markdown), LEGEND, summary(measured), sep="\n\n")
    for key, title in ADMISSIONS.items():
        results = [finding for _, admitted in judged for what, finding in admitted if what == key]
        print(f"\n{title}:\n\n" + "\n".join(f"- {finding}" for finding in results or ["none"]))
    if any("failed" in cell["figures"][OURS] for cell in measured):
        sys.exit(1)


if __name__ == "__main__":
    main()
