"""How fast reports are counted, as multiples of the time that only reading their bytes takes.

    python benchmarks/counting.py [--reports 1000000]

CPU time of one thread, best of several runs, in a process that has compiled its kernels. Reading is `numpy.sum` over the
bytes as uint64, timed on an array larger than the caches and scaled to each case: what memory allows, whatever is counted.
A second table has reports of many rows beside those of one row and the same width, in batches of growing size.
"""

from __future__ import annotations

import argparse
from time import thread_time
from typing import TYPE_CHECKING

import numpy as np

from deniable.wire.layout import Layout
from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CASES = [
    ("unary d=128", Layout(1, 128, "bits"), 1),
    ("unary d=1024", Layout(1, 1024, "bits"), 1),
    ("unary d=105", Layout(1, 105, "bits"), 1),
    ("RAPPOR 64 cohorts x 32", Layout(64, 32, "bits"), 1),
    ("RAPPOR 64 cohorts x 128", Layout(64, 128, "bits"), 1),
    ("CMS 1,024 rows x 1,024", Layout(1024, 1024, "bits"), 1),
    ("index d=3 (1 byte)", Layout(1, 3, "index"), 10),
    ("index d=16 (1 byte)", Layout(1, 16, "index"), 10),
    ("index d=128 (1 byte)", Layout(1, 128, "index"), 10),
    ("index d=1024 (2 bytes)", Layout(1, 1024, "index"), 10),
    ("FLH 16,384 x 4 (2 bytes)", Layout(16_384, 4, "index"), 10),
    ("FLH 16,384 x 5 (3 bytes)", Layout(16_384, 5, "index"), 10),
    ("index 280,000 cells (3 bytes)", Layout(280, 1000, "index"), 10),
]

MANY_ROWS = [(64, 32), (64, 64), (64, 128), (128, 32), (128, 64), (128, 128), (256, 256), (1022, 1021), (1024, 1024)]
BATCHES = [1000, 10_000, 100_000, 1_000_000]


def best(run: Callable[[], object], runs: int) -> float:
    """Least of `runs` times, in seconds: what else the machine does only ever adds."""
    times = []
    for _ in range(runs):
        start = thread_time()
        run()
        times.append(thread_time() - start)
    return min(times)


def draw(layout: Layout, reports: int) -> NDArray[np.uint8]:
    """Payloads of uniformly random reports."""
    rng = np.random.default_rng(0)
    if layout.kind == "index":
        numbers = rng.integers(0, layout.rows * layout.width, reports, dtype="<u4")
        return np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 4)[:, : layout.payload_size]).reshape(-1)
    payloads = rng.integers(0, 256, (reports, layout.payload_size), dtype=np.uint8)
    rows = rng.integers(0, layout.rows, reports)
    for byte in range(layout.row_size):
        payloads[:, byte] = rows >> 8 * byte & 255
    payloads[:, -1] &= 255 >> -layout.width % 8
    return payloads.reshape(-1)


def counter(layout: Layout, payloads: NDArray[np.uint8], backend: str) -> Callable[[], None]:
    """One count of `payloads` by `backend`."""
    size = layout.payload_size
    cells, reports = np.zeros((layout.rows, layout.width), np.int64), np.zeros(layout.rows, np.int64)
    if layout.kind == "index":
        histogram = getattr(kernels, f"_histogram_{backend}")
        return lambda: histogram(payloads, size, cells.reshape(-1))
    popcount = getattr(kernels, f"_popcount_{backend}")
    return lambda: popcount(payloads, layout.row_size, size, layout.width, cells, reports)


def reading(second_per_byte: float, options: argparse.Namespace) -> None:
    """Print each case beside the reading of its bytes."""
    print(f"{'case':<30} {'MB':>5} {'read ms':>8} {'backend':>8} {'count ms':>9} {'x read':>7} {'M reports/s':>12}")
    for name, layout, scale in CASES:
        reports = options.reports * scale
        payloads = draw(layout, reports)
        read = second_per_byte * payloads.nbytes
        for backend in ("numba", "numpy"):
            if backend == "numba" != kernels.backend():
                continue
            count = counter(layout, payloads, backend)
            count()  # compiled, and the pages touched
            time = best(count, options.runs if backend == "numba" else 1)
            print(
                f"{name:<30} {payloads.nbytes / 1e6:5.0f} {read * 1e3:8.2f} {backend:>8} {time * 1e3:9.2f}"
                f" {time / read:6.1f}x {reports / time / 1e6:12.0f}"
            )


def rows(options: argparse.Namespace) -> None:
    """Print the time for a report of many rows, and its multiple of that for one row of the same width."""
    batches = [reports for reports in BATCHES if reports <= options.reports]
    print("\nns a report of many rows (multiple of one row as wide), by reports in a batch")
    print(f"{'rows x bits':<14}" + "".join(f"{reports:>18,}" for reports in batches))
    for number, width in MANY_ROWS:
        line = f"{f'{number} x {width}':<14}"
        for reports in batches:
            many, one = (
                best(counter(layout, draw(layout, reports), kernels.backend()), options.runs * max(1, 100_000 // reports))
                for layout in (Layout(number, width, "bits"), Layout(1, width, "bits"))
            )
            line += f"{many / reports * 1e9:9.2f} ({many / one:5.1f}x)"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, default=1_000_000, help="of each unary case; 10 times as many indices")
    parser.add_argument("--runs", type=int, default=9, help="of which the best counts")
    options = parser.parse_args()
    print(f"backend in use: {kernels.backend()}; {options.reports:,} reports a case, 10 times as many indices")
    memory = np.ones(1 << 24, np.uint64)
    second_per_byte = best(memory.sum, options.runs) / memory.nbytes
    print(f"reading: {1e-9 / second_per_byte:.1f} GB/s\n")
    reading(second_per_byte, options)
    rows(options)


if __name__ == "__main__":
    main()
