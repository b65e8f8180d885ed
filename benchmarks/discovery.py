"""What a search finds that nobody listed: ours beside pure-ldp's PEM, TreeHist and SFP on the same populations.

    python benchmarks/discovery.py                # all of it, eight minutes or so
    python benchmarks/discovery.py --quick        # epsilon 4 and n = 100,000 alone
    python benchmarks/discovery.py --markdown

Populations: Zipf 1.4 over 5,000 values, which are random 64-bit keys or words of six letters (English ones if the package
`wordfreq` is installed, else made of syllables). Ours counts words as texts of up to six bytes and does not know the alphabet;
pure-ldp gets keys as 64 zeros and ones, and words with their alphabet.

Recall: how many of the twenty most frequent values are among the first twenty named. Precision: how many of those named anybody
has. Ours names what it calls detected at a family-wise error of 5 %; pure-ldp names twenty values, come what may, because it has
no test. Our reports are drawn by numpy with the mechanism's probabilities, pure-ldp's by its own clients. Seconds are of the
aggregator alone: for pure-ldp, to take the reports in and to search; for ours, to search, as the worker has counted before.

How pure-ldp is used: as its own simulations do, but with the count mean sketch as oracle. The Hadamard one has more variance, and
local hashing goes through the whole domain at each report. TreeHist and SFP get ``k``: TreeHist's default threshold compares a
share with n / 100 and finds nothing. Before anything is measured, each rival is seen to find three values that are all there is,
at epsilon 8.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import statistics
import string
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

TOP = 20
VALUES = 5000
ZIPF = 1.4
LETTERS = 6
ROWS = {"PEM": 256, "TreeHist": 256, "SFP": 64}  # hash functions of the rivals' sketches, each to 1,024 places
BITS = {"PEM": 8, "TreeHist": 8, "SFP": 4}  # that a level adds, and that a fragment has
GRAM = 2  # the same in letters

# --- populations ------------------------------------------------------------------------------------------------------


def words() -> list[str]:
    """Words of six letters, the frequent ones first: wordfreq's list, read without importing it, else syllables."""
    spec = importlib.util.find_spec("wordfreq")
    if spec and spec.origin:
        import msgspec

        packed = (Path(spec.origin).parent / "data" / "small_en.msgpack.gz").read_bytes()
        buckets = msgspec.msgpack.decode(gzip.decompress(packed))[1:]  # after a header, one list for each centibel
        return [w for bucket in buckets for w in bucket if len(w) == LETTERS and set(w) <= set(string.ascii_lowercase)][:VALUES]
    import numpy as np

    syllables = [c + v for c in "bcdfghklmnprstvwz" for v in "aeiou"]
    chosen = np.random.default_rng(1).choice(len(syllables), (4 * VALUES, LETTERS // 2))
    return list(dict.fromkeys("".join(syllables[i] for i in row) for row in chosen))[:VALUES]


def population(kind: str, n: int, seed: int) -> tuple[list[Any], Any]:
    """Draw n people: the values, and how many hold each."""
    import numpy as np

    rng = np.random.default_rng(seed)
    values = words() if kind == "words" else [int(key) for key in rng.integers(0, 1 << 64, VALUES, np.uint64)]
    weights = np.arange(1, len(values) + 1) ** -ZIPF
    return values, rng.multinomial(n, weights / weights.sum())


# --- ours -------------------------------------------------------------------------------------------------------------


def ours(name: str, kind: str, epsilon: float, values: list[Any], counts: Any, seed: int) -> tuple[list[Any], float, float]:
    """Return the values detected, the seconds of the decoder, and the frequency it says is found half of the time."""
    import numpy as np

    from deniable.mechanisms.texts.prefix import Pem, TreeHist
    from deniable.registry import text
    from deniable_aggregator import tally
    from deniable_aggregator.decode.pools import hash_lookup
    from deniable_aggregator.decode.search.discovery import discover

    size = text.domain_size(LETTERS) if kind == "words" else 1 << 64
    mechanism = {"PEM": Pem, "TreeHist": TreeHist}[name](domain_size=size, epsilon=epsilon)
    numbers = [text.encode(value, LETTERS) for value in values] if kind == "words" else values
    rng = np.random.default_rng(seed)
    held = np.repeat(np.arange(len(values)), counts)
    rows = rng.integers(mechanism.rows, size=len(held))
    table = [[mechanism.key(level, number) for number in numbers] for level in range(len(mechanism.lengths))]
    keys = np.array(table, np.uint64)[np.searchsorted(mechanism.first_rows, rows, side="right") - 1, held]
    a, b, c = hash_lookup.multipliers(mechanism.family)[rows].T
    high = (a * (keys >> np.uint64(32)) + b * (keys & np.uint64(0xFFFFFFFF)) + c) >> np.uint64(32)
    cells = (high * np.uint64(mechanism.width) >> np.uint64(32)).astype(np.int64)
    shifts = np.where(rng.random(len(held)) < float(mechanism.p), 0, rng.integers(1, mechanism.width, size=len(held)))
    reports = rows * mechanism.width + (cells + shifts) % mechanism.width
    counted = tally.from_cells(mechanism.layout, np.bincount(reports, minlength=mechanism.rows * mechanism.width))
    start = perf_counter()
    results = discover(mechanism, counted, text=kind == "words")
    took = perf_counter() - start
    named = [value for value, yes in zip(results.values, results.detected(), strict=True) if yes]
    if kind == "words":
        named = [text.decode(value, LETTERS) for value in named]
    return named, took, results.detection_frequency()


# --- pure-ldp, in its own environment ---------------------------------------------------------------------------------


def work() -> None:
    """Run one rival: a JSON request from the input, the values it names and its seconds as JSON to the output."""
    request = json.load(sys.stdin)
    import random

    import numpy as np
    from pure_ldp import heavy_hitters as hh
    from pure_ldp.frequency_oracles import CMSClient, CMSServer

    name, epsilon, seed = request["name"], request["epsilon"], request["seed"]
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - it is what pure-ldp draws from
    oracle = CMSServer(epsilon, ROWS[name], 1024)
    client_oracle = CMSClient(epsilon, oracle.get_hash_funcs(), 1024)
    alphabet: Any = list(request["alphabet"])
    if name == "SFP":
        alphabet = set(alphabet)
    common = {
        "epsilon": epsilon,
        "fragment_length": GRAM if len(alphabet) > 2 else BITS[name],
        "max_string_length": len(request["strings"][0]),
        "alphabet": alphabet,
        "index_mapper": lambda string: string,
    }
    if name == "PEM":
        common["start_length"] = 0
    client = getattr(hh, f"{name}Client")(fo_client=client_oracle, **common)
    server = getattr(hh, f"{name}Server")(fo_server=oracle, **common)
    held = [string for string, count in zip(request["strings"], request["counts"], strict=True) for _ in range(count)]
    took = 0.0
    for first in range(0, len(held), 1000):  # all reports at once would fill the memory
        reports = [client.privatise(string) for string in held[first : first + 1000]]
        start = perf_counter()
        for report in reports:
            server.aggregate(report)
        took += perf_counter() - start
    start = perf_counter()
    named, frequencies = server.find_heavy_hitters(k=TOP)
    took += perf_counter() - start
    order = np.argsort(-np.array(frequencies, float), kind="stable")
    json.dump({"named": [named[i].rstrip("*") for i in order], "seconds": took}, sys.stdout)


def rival(
    python: str, name: str, epsilon: float, kind: str, values: list[Any], counts: Any, seed: int
) -> tuple[list[Any], float]:
    """Ask pure-ldp."""
    present = [(value, int(count)) for value, count in zip(values, counts, strict=True) if count]
    strings = [value if kind == "words" else format(value, "064b") for value, _ in present]
    alphabet = string.ascii_lowercase if kind == "words" else "01"
    request = {"name": name, "epsilon": epsilon, "seed": seed, "strings": strings, "alphabet": alphabet}
    request["counts"] = [count for _, count in present]
    query = json.dumps(request)
    done = subprocess.run([python, "-I", "-W", "ignore", __file__, "--worker"], input=query, capture_output=True, text=True)  # noqa: PLW1510
    if done.returncode:
        sys.exit(f"pure-ldp's {name} failed:\n{done.stderr}")
    answer = json.loads(done.stdout)
    named = [
        name if kind == "words" or "*" in name else int(name, 2) for name in answer["named"]
    ]  # SFP names impossible ones, too
    return named, answer["seconds"]


def check(python: str) -> None:
    """See that each rival, as used here, finds what nobody could miss."""
    for kind in ("keys", "words"):
        values = population(kind, 10, 0)[0][:3]
        for name in ROWS:
            named, took = rival(python, name, 8, kind, values, [40_000, 30_000, 30_000], 0)
            results = len(set(values) & set(named[:TOP]))
            print(
                f"pure-ldp {name}: finds {results} of 3 {kind} that are all there is ({took:.0f} s)", file=sys.stderr, flush=True
            )


# --- the comparison ---------------------------------------------------------------------------------------------------

HEADS = ["values", "n", "eps", "method", "named", "recall of top 20", "precision", "seconds", "half found at"]


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="epsilon 4 and n = 100,000 alone")
    parser.add_argument("--repeats", type=int, default=3, help="populations for each of our cells; a rival has one")
    parser.add_argument("--markdown", action="store_true", help="write a Markdown table")
    parser.add_argument("--ours", action="store_true", help="leave the rivals out")
    parser.add_argument("--venv", type=Path, default=Path.home() / ".cache" / "deniable-rivals", help="the rivals' home")
    parser.add_argument("--python", default=sys.executable, help="makes that home; 3.11 or 3.12")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    from rivals import environment, table

    python = "" if options.ours else environment(options.venv, options.python)
    if python:
        check(python)
    ours("PEM", "keys", 1.0, *population("keys", 1000, 0), 0)  # compiles
    rows = [HEADS]
    for kind in ("keys", "words"):
        for n in (100_000,) if options.quick else (100_000, 1_000_000):
            for epsilon in (4.0,) if options.quick else (1.0, 2.0, 4.0):
                populations = [population(kind, n, seed) for seed in range(options.repeats)]
                methods = [("deniable", name) for name in ("PEM", "TreeHist")]
                if python and n == 100_000:
                    methods += [("pure-ldp", name) for name in ROWS]
                for library, name in methods:
                    runs = []
                    for seed, (values, counts) in enumerate(populations if library == "deniable" else populations[:1]):
                        if library == "deniable":
                            named, took, half = ours(name, kind, epsilon, values, counts, seed)
                        else:
                            named, took = rival(python, name, epsilon, kind, values, counts, seed)
                            half = float("nan")
                        held = {value for value, count in zip(values, counts, strict=True) if count}
                        top = {values[i] for i in (-counts).argsort(kind="stable")[:TOP]}
                        true = sum(value in held for value in named)
                        runs.append((len(named), len(top & set(named[:TOP])) / TOP, true, took, half))
                    number, recall, true, took, half = (statistics.fmean(column) for column in zip(*runs, strict=True))
                    row = [kind, f"{n:,}", f"{epsilon:g}", f"{library} {name}", f"{number:.1f}", f"{recall:.2f}"]
                    row += [f"{true / number:.2f}" if number else "-", f"{took:.2f}", f"{half:.2%}" if half == half else "-"]  # noqa: PLR0124
                    rows.append(row)
                    print(*row, file=sys.stderr, flush=True)
    print(table(rows, markdown=options.markdown))


if __name__ == "__main__":
    main()
