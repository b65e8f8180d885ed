"""How long a joint table of two randomised variables takes, and how much memory.

    python benchmarks/association.py [--reports 100000 1000000]

Strings are Bloom filters of 32 bits in 64 cohorts (p* = 0.25, q* = 0.75), the boolean is a direct answer of epsilon 2. Each case
runs in a process of its own; its peak memory includes the libraries, and the likelihoods, which are the caller's.
"""

from __future__ import annotations

import argparse
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np

from deniable import mechanisms
from deniable.mechanisms.texts import google_rappor
from deniable_aggregator.decode.tables import joint, likelihood, payload_likelihood

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS, COHORTS, P, Q = 32, 64, 0.25, 0.75
CASES = [(100, 2), (50, 50)]


def zipf(size: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Values of n people, the second half as frequent as the first, and so on."""
    weights = 1 / np.arange(1, size + 1)
    return rng.choice(size, n, p=weights / weights.sum())


def strings(values: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Likelihoods of noisy Bloom filters."""
    params = google_rappor.Params(bits=BITS, hashes=1, cohorts=COHORTS, prob_p=0, prob_q=1, prob_f=0)
    words = [b"v%d" % value for value in range(size)]
    filters = [google_rappor.bloom(word, cohort, params) for cohort in range(COHORTS) for word in words]
    masks = likelihood.pack(filters, BITS).reshape(COHORTS, size, -1)
    cohorts = rng.integers(0, COHORTS, len(values))
    held = np.unpackbits(masks[cohorts, values], axis=1, bitorder="little")
    bits = np.packbits(
        rng.random(held.shape, np.float32) < np.where(held, np.float32(Q), np.float32(P)), axis=1, bitorder="little"
    )
    return likelihood.bit_likelihood(cohorts, bits, masks, p=P, q=Q)


def booleans(values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float32]:
    """Likelihoods of direct answers."""
    mechanism = mechanisms.make("binary", domain_size=2, epsilon=2)
    answer = values ^ (rng.random(len(values)) >= float(mechanism.p))
    return payload_likelihood.likelihood(mechanism, answer.astype(np.uint8).tobytes())


def run(n: int, shape: tuple[int, int], errors: bool) -> str:  # noqa: FBT001 - a column of the table
    rng = np.random.default_rng(0)
    first = zipf(shape[0], n, rng)
    second = np.where(rng.random(n) < 0.3, first % shape[1], zipf(shape[1], n, rng))
    start = perf_counter()
    left = strings(first, shape[0], rng)
    right = booleans(second, rng) if shape[1] == 2 else strings(second, shape[1], rng)
    result, spent = perf_counter(), process_time()
    results = joint.joint([left, right], errors=errors)
    done, spent = perf_counter(), process_time() - spent
    truth = np.bincount(first * shape[1] + second, minlength=shape[0] * shape[1]) / n
    distance = np.abs(results.frequency.ravel() - truth).sum() / 2
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{n:>9,} {shape[0]:>3} x {shape[1]:<3} {'yes' if errors else 'no':>6} {result - start:9.1f} {done - result:8.1f}"
        f" {spent:6.1f} {results.iterations:7} {gigabytes:8.2f} {distance:9.3f} {results.independence().p_value:9.1e}"
        f"{'' if results.converged else '  not converged'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, nargs="+", default=[100_000, 1_000_000])
    options = parser.parse_args()
    print("  reports   cells  errors encode s  joint s  CPU s  passes  peak GB  distance  independ.", flush=True)
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for n in options.reports:
            for shape in CASES:
                for errors in (False, True):
                    print(processes.submit(run, n, shape, errors).result(), flush=True)


if __name__ == "__main__":
    main()
