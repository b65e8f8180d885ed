"""Reports counted per second, from the stream to the tally, and what another worker adds.

    python benchmarks/workers.py                 # one worker, batches of several mechanisms and sizes
    python benchmarks/workers.py --workers 2     # one and two workers on the same stream, as real processes

One worker reads, decodes, counts and commits in this process, and the store is another process. Neither ever waits for anything
but the other, so they take turns on the processor; the last two columns are reports per second of processor time, of the worker's
and of both: what one core does if the machine is busy with nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from threading import Event

from deniable import mechanisms
from deniable.wire.report import Stratum
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads import batch, health

APP = "bench"
KINDS = {
    "binary": mechanisms.make("binary", domain_size=2, epsilon=1.0),
    "grr, 128 values": mechanisms.make("grr", domain_size=128, epsilon=1.0),
    "oue, 128 values": mechanisms.make("oue", domain_size=128, epsilon=1.0),
    "local_hash, 1,024 values": mechanisms.make("local_hash", domain_size=1024, epsilon=1.0),
    "rappor, 64 x 128 bits": mechanisms.make("rappor", domain_size=1 << 20, epsilon=1.0, cohorts=64, bits=128),
}
MIXED = "10 metrics of these"


def entry(kind: str, reports: int) -> bytes:
    """Make a batch of honest reports as the server appends it."""
    item = [*KINDS.values()] * 2 if kind == MIXED else [KINDS[kind]]
    groups = []
    for number, mechanism in enumerate(item):
        payloads = b"".join(mechanism.randomize(value % 2) for value in range(reports // len(item)))
        groups.append(batch.Group(Stratum(f"m{number}", 1, "f" * 16, "2026-11-21", ""), mechanism.layout, payloads))
    return batch.encode(groups)


def fill(store: Store, body: bytes, batches: int) -> None:
    """Put a batch into the stream many times."""
    store._client.flushall()
    store.partitions[0].join()
    for start in range(0, batches, 1000):
        pipeline = store._client.pipeline(transaction=False)
        for _ in range(min(1000, batches - start)):
            pipeline.xadd(store.partitions[0].stream, {"d": body})
        pipeline.execute()


def used(store: Store) -> float:
    """Return the processor seconds of the store."""
    answer = store._client.info("cpu")
    return float(answer["used_cpu_user"]) + float(answer["used_cpu_sys"])


def alone(store: Store, batches: int) -> None:
    """Print a line for each kind and size of batch."""
    row = "{:<26}{:>9}{:>9}{:>16}{:>22}{:>24}"
    print(row.format("batches of", "reports", "bytes", "reports/s", "per s of the worker's", "per s of worker + store"))
    for kind in (*KINDS, MIXED):
        for reports in (100, 1000):
            body = entry(kind, reports)
            fill(store, body, 300)
            Worker([store]).run(Event(), burst=True)  # compiles the kernels
            fill(store, body, batches)
            worker = Worker([store])
            before = time.perf_counter(), time.process_time(), used(store)
            worker.run(Event(), burst=True)
            wall, own, its = (b - a for a, b in zip(before, (time.perf_counter(), time.process_time(), used(store)), strict=True))
            if worker.counted != batches * reports:
                raise SystemExit(f"{batches * reports} reports were sent, {worker.counted} were counted")
            rates = (f"{worker.counted / seconds:,.0f}" for seconds in (wall, own, own + its))
            print(row.format(kind, reports, len(body), *rates), flush=True)


def together(store: Store, url: str, workers: int, batches: int) -> float:
    """Return the reports counted per second once all workers are at it, until a tenth is left."""
    fill(store, entry("oue, 128 values", 100), batches)
    command = [sys.executable, "-m", "deniable", "worker", "--redis-url", url, "--app", APP]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    full = store.backlog()
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(workers)]
    try:
        while health.read(store).workers < workers:
            time.sleep(0.01)
        first, began = store.backlog(), time.monotonic()
        while (left := store.backlog()) > full / 10:
            time.sleep(0.01)
        return (first - left) * 100 / (time.monotonic() - began)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, help="by default 20,000 for one worker, 200,000 for several")
    parser.add_argument("--workers", type=int, default=1, help="at most")
    arguments = parser.parse_args()
    with embedded.open_store() as server:
        store = Store(connect(server.url), APP)
        if arguments.workers == 1:
            alone(store, arguments.batches or 20_000)
            return
        for workers in range(1, arguments.workers + 1):
            counted = together(store, server.url, workers, arguments.batches or 200_000)
            print(f"{workers} workers: {counted:12,.0f} reports/s on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    main()
