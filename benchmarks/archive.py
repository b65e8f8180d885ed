"""What an archive costs: bytes a report, writing, mixing and counting again, and what a worker loses by it.

    python benchmarks/archive.py [--reports 2000000]

Reports have the mechanisms' own share of ones. Speeds are per second of this process's cores, of a worker without the store's;
those of executors are per second of the clock, with two processes each that were started before. Writing sorts; mixing reads,
recounts, sorts and writes. A worker counts uploads of 100 reports in commits of 100 uploads, with and without an archive on this
disk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deniable import mechanisms
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.archive import mixture, recount
from deniable_aggregator.archive.folder import PERIOD, Folder
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from deniable.wire.layout import Layout

OF = Stratum("metric", 1, "f" * 16, "2026-11-21", "")
OUE = mechanisms.make("oue", domain_size=128, epsilon=1.0)
CASES = {
    "OUE, 16 values, epsilon 1": (16, 1.0),
    "OUE, 128 values, epsilon 1": (128, 1.0),
    "OUE, 128 values, epsilon 4": (128, 4.0),
    "OUE, 1,024 values, epsilon 1": (1024, 1.0),
}


def draw(layout: Layout, ones: float, reports: int, seed: int = 0) -> bytes:
    """Random payloads with a share of ones."""
    rng = np.random.default_rng(seed)
    parts = []
    for begin in range(0, reports, 1 << 16):
        n = min(1 << 16, reports - begin)
        bits = np.packbits(rng.random((n, layout.width), np.float32) < ones, axis=1, bitorder="little")
        rows = rng.integers(0, layout.rows, n, dtype="<u4").view(np.uint8).reshape(-1, 4)[:, : layout.row_size]
        parts.append(np.hstack([rows, bits]).tobytes())
    return b"".join(parts)


def took(run: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    run()
    return clock() - start


def layouts(folder: Folder, reports: int) -> None:
    """Print a line for each layout."""
    print(f"{'reports':<32}{'payload':>8}{'entropy':>8}{'B each':>8}{'write M/s':>10}{'mix M/s':>9}{'recount M/s':>12}")
    cases = {
        name: (result.layout, float(result.q))
        for name, (values, epsilon) in CASES.items()
        if (result := mechanisms.make("oue", domain_size=values, epsilon=epsilon))
    }
    rappor = mechanisms.make("rappor", domain_size=1 << 20, epsilon=1.0, cohorts=64, bits=128).layout
    cases[f"RAPPOR, {rappor.rows} x {rappor.width}, half are ones"] = (rappor, 0.5)
    for name, (layout, ones) in cases.items():
        measure(folder, reports, name, layout, ones)


def measure(folder: Folder, reports: int, name: str, layout: Layout, ones: float) -> None:
    payloads = draw(layout, ones, reports)
    counted = tally.count(layout, payloads)
    entropy = (layout.width * -(ones * np.log2(ones) + (1 - ones) * np.log2(1 - ones)) + np.log2(layout.rows)) / 8
    names: list[str] = []
    write = took(lambda: names.append(folder.write(OF, layout, payloads)))
    size = next(each.size for each in folder.find() if each.name == names[0])
    mix = took(lambda: mixture.write(folder, OF, names, counted))
    again = min(took(lambda: recount.count_files(folder.url, folder.number, OF, names[:1])) for _ in range(3))
    print(
        f"{name:<32}{layout.payload_size:>8}{entropy:>8.1f}{size / reports:>8.2f}{reports / write / 1e6:>10.1f}"
        f"{reports / mix / 1e6:>9.1f}{reports / again / 1e6:>12.1f}"
    )
    folder.delete(each.path for each in folder.find())


def executors(folder: Folder, reports: int) -> None:
    """Print how long the same recount takes on processes and on Dask."""
    layout = OUE.layout
    names = []
    for seed in range(8):
        payloads = draw(layout, 0.27, reports // 2, seed)
        names.append(folder.write(OF, layout, payloads, PERIOD))
    lots = {OF: [[name] for name in names]}
    print(f"\n{4 * reports:,} reports in {len(names)} files, {layout.payload_size} bytes each, two processes")
    times = {}

    def run(name: str, executor: Executor) -> None:
        recount.count(folder, lots, executor)  # compiled
        times[name] = min(took(lambda: recount.count(folder, lots, executor), time.perf_counter) for _ in range(5))
        print(f"{name:<10}{times[name]:>8.2f} s{4 * reports / times[name] / 1e6:>8.1f} M/s")

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        run("process", processes)
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        print("dask       is not installed")
        return
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        run("dask", client.get_executor())
    print(f"dask takes {times['dask'] / times['process']:.2f} times as long")
    folder.delete(each.path for each in folder.find())


def workers(folder: Path, uploads: int) -> None:
    """Print what a worker counts with and without an archive."""
    layout = OUE.layout
    print(f"\na worker, {uploads:,} uploads of 100 reports, {layout.payload_size} bytes each")
    rates = {}
    with embedded.open_store() as started, connect(started.url) as client:
        for name in ("without", "with", "without", "with"):
            client.flushall()
            store = Store(client, "shop")
            for key in range(uploads):
                group = batch.Group(OF, layout, draw(layout, 0.27, 100, key))
                store.append(Upload(batch.encode([group]), key=str(key), remember=b"-", cap=1 << 30, ttl=60))
            worker = Worker([store], archive=Folder(str(folder)) if name == "with" else None)
            rates[name] = 100 * uploads / took(lambda worker=worker: worker.run(threading.Event(), burst=True)) / 1e6
        for name, rate in rates.items():
            print(f"{name:<10}{rate:>8.2f} M/s")
        number = store.partitions[0].archived.number() or ""
        files = Folder(str(folder), number).find()
        held = client.memory_usage(f"{{shop}}:archived:{'|'.join(map(str, OF))}", samples=0)
        print(f"{len(files)} files, {held / len(files):.0f} bytes of the store for each name")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, default=2_000_000, help="of each layout")
    parser.add_argument("--uploads", type=int, default=20_000, help="that a worker counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = Folder(folder, "0" * 32)
        layout = OUE.layout
        tally.count(layout, bytes(layout.payload_size))  # compiled
        layouts(archive, options.reports)
        executors(archive, options.reports)
        workers(Path(folder) / "worker", options.uploads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
