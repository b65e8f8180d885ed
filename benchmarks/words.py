"""Real words at scale: how many of them are detected, how exact the estimates are, and how long decoding takes.

    pip install wordfreq==3.1.1 --no-deps
    python benchmarks/words.py [--language en zh] [--reports 100000 1000000 10000000] [--epsilon 2 4]

The population holds the 20,000 most frequent words of a language with their real frequencies (Robyn Speer's wordfreq, of
which only the data are read), and all of them are candidates. The tally is simulated: each report draws a word and a row, and
each cell is a binomial of the reports that set it, which is how the sum of so many devices is distributed. `deniable demo
--input words.csv --string word` sends as many through the real service; ``--csv`` writes that file.

For each mechanism: words detected at a family-wise error of 5%, the first rank missed, the error of the estimates over the one
stated (1 where the standard errors are honest), the share of words within their 95% intervals, seconds to decode.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from deniable import mechanisms
from deniable.exact.hashing import PoolFamily
from deniable.mechanisms.texts.rappor import Rappor
from deniable.mechanisms.texts.sketch import Sketch
from deniable.registry import text
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.pools import hash_lookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

WORDS = 20_000
LENGTH = 64
CASES = [
    ("fast_local_hash", {}),
    ("cms", {}),
    ("hcms", {}),
    ("rappor", {}),
    ("rappor", {"bits": 128, "hashes": 1}),
]


def words(language: str) -> tuple[list[str], NDArray[np.float64]]:
    """Read the most frequent words and their shares, which here sum to 1."""
    spec = find_spec("wordfreq")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark reads the data of wordfreq: pip install wordfreq==3.1.1 --no-deps")
    data = gzip.decompress((Path(spec.origin).parent / "data" / f"large_{language}.msgpack.gz").read_bytes())
    # A header, then the words of each centibel below 1.
    ranked = [(word, 10 ** (-bel / 100)) for bel, each in enumerate(msgspec.msgpack.decode(data)[1:]) for word in each]
    known = [(word, share) for word, share in ranked if len(word.encode()) <= LENGTH][:WORDS]
    shares = np.array([share for _, share in known])
    return [word for word, _ in known], shares / shares.sum()


def simulate(mechanism: Mechanism, values: list[int], shares: NDArray[np.float64], n: int, rng: np.random.Generator) -> Tally:
    """Draw the tally of n devices."""
    layout = mechanism.layout
    keys = hash_lookup.keys(values, mechanism.domain_size)
    held = rng.multinomial(n, shares)
    counted = tally.empty(layout)
    for row in range(layout.rows):
        # Reports of a word fall on the rows evenly: each row takes a binomial of what those before it have left.
        mine = rng.binomial(held, 1 / (layout.rows - row))
        held = held - mine
        counted.reports[row] = mine.sum()
        counted.counts[row] = _noisy(mechanism, _held(mechanism, row, keys, mine), int(mine.sum()), rng)
    return counted


def _held(mechanism: Mechanism, row: int, keys: NDArray[np.uint64], people: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the people of a row whose word is at each place."""
    if isinstance(mechanism, Rappor):
        family, width, hashes = mechanism.family, mechanism.bits, mechanism.hashes
        places = np.array([hash_lookup.hashes(family, number, keys) for number in range(row * hashes, (row + 1) * hashes)])
        filters = np.zeros((len(keys), width), np.bool_)  # two hashes of one word may name one bit
        filters[np.arange(len(keys)), places] = True
        return people @ filters
    assert isinstance(mechanism, Sketch)
    assert isinstance(mechanism.family, PoolFamily)
    counted = np.bincount(hash_lookup.hashes(mechanism.family, row, keys), weights=people, minlength=mechanism.width)
    return counted.astype(np.int64)


def _noisy(mechanism: Mechanism, held: NDArray[np.int64], reports: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if mechanism.layout.kind == "bits":
        one = float(mechanism.one if isinstance(mechanism, Rappor) else mechanism.p)
        return rng.binomial(held, one) + rng.binomial(reports - held, float(mechanism.other))  # type: ignore[attr-defined]
    width = len(held)
    if mechanism.name == "hcms":
        signs = np.zeros((width, 2), np.int64)
        columns = np.arange(width)
        for place in np.flatnonzero(held):
            coefficients = rng.multinomial(held[place], np.full(width, 1 / width))
            flipped = rng.binomial(coefficients, 1 - float(mechanism.p))
            negative = np.bitwise_count(columns & place) & 1
            signs[columns, negative] += coefficients - flipped
            signs[columns, 1 - negative] += flipped
        return signs.ravel()
    noisy = rng.binomial(held, float(mechanism.p))
    moved = held - noisy
    for place in np.flatnonzero(moved):  # to another cell, each alike
        noisy += np.roll(np.append(0, rng.multinomial(moved[place], np.full(width - 1, 1 / (width - 1)))), place)
    return noisy


def measure(estimate: Estimate, shares: NDArray[np.float64]) -> dict[str, float]:
    """Compare estimates with the truth."""
    detected = estimate.detected(0.05)
    low, high = estimate.interval(0.95)
    known = np.isfinite(estimate.frequency)
    score = ((estimate.frequency - shares) / estimate.stderr)[known]
    return {
        "detected": int(detected.sum()),
        "first_missed": int(np.argmin(detected)) + 1,
        "score_sd": float(np.std(score)),
        "covered": float(((low <= shares) & (shares <= high))[known].mean()),
        "stderr": float(np.median(estimate.stderr[known])),
        "limit": estimate.detection_frequency(0.05),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--language", nargs="+", default=["en", "zh"])
    parser.add_argument("--reports", nargs="+", type=int, default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--epsilon", nargs="+", default=["2", "4"])
    parser.add_argument("--only", nargs="+", help="mechanisms; by default all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv", metavar="FILE", help="write the words of as many people as --reports first says, and stop")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.csv:
        known, shares = words(options.language[0])
        with Path(options.csv).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(
                [["word"], *([known[place]] for place in rng.choice(len(known), options.reports[0], p=shares))]
            )
        print(f"{options.csv}: next, deniable demo --input {options.csv} --string word --devices {options.reports[0]}")
        return
    columns = ["words", "mechanism", "bytes", "epsilon", "reports", "detected", "first missed", "share seen", "std. err."]
    columns += ["error / stated", "in 95%", "decode s"]
    print(f"| {' | '.join(columns)} |\n|---|---|{'--:|' * (len(columns) - 2)}")
    for language in options.language:
        known, shares = words(language)
        values = [text.encode(word, LENGTH) for word in known]
        for name, chosen in CASES:
            if options.only and name not in options.only:
                continue
            for epsilon in options.epsilon:
                mechanism = mechanisms.make(name, domain_size=text.domain_size(LENGTH), epsilon=epsilon, **chosen)
                for n in options.reports:
                    counted = simulate(mechanism, values, shares, n, rng)
                    began = perf_counter()
                    estimate = decode.estimate(mechanism, counted, values)
                    results = measure(estimate, shares)
                    seconds = perf_counter() - began
                    print(
                        f"| {language} | {name} {chosen or ''} | {mechanism.layout.payload_size} | {epsilon} | {n:,} "
                        f"| {results['detected']} | {results['first_missed']} | {results['limit']:.3%} | {results['stderr']:.4%} "
                        f"| {results['score_sd']:.3f} | {results['covered']:.1%} | {seconds:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
