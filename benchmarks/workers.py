"""What another worker adds: reports counted per second by one, two, ... workers from the same stream, as real processes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from deniable import mechanisms
from deniable.report import Stratum
from deniable_aggregator import batch, embedded, pulse
from deniable_aggregator.store import Store, connect

APP = "bench"


def fill(store: Store, batches: int, reports: int) -> None:
    """Put batches of honest reports into the stream."""
    mechanism = mechanisms.make("oue", domain_size=64, epsilon=1.0)
    payloads = b"".join(mechanism.randomize(number % 64) for number in range(reports))
    entry = batch.encode([batch.Group(Stratum("m", 1, "f" * 16, "2026-11-21", ""), mechanism.layout, payloads)])
    store.redis.flushall()
    store.join()
    for start in range(0, batches, 1000):
        pipeline = store.redis.pipeline(transaction=False)
        for _ in range(min(1000, batches - start)):
            pipeline.xadd(store.stream, {"d": entry})
        pipeline.execute()


def rate(store: Store, url: str, workers: int, reports: int) -> float:
    """Return the reports counted per second once all workers are at it, until a tenth is left."""
    command = [sys.executable, "-m", "deniable", "worker", "--redis-url", url, "--app", APP]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    full = store.backlog()
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(workers)]
    try:
        while pulse.feel(store).workers < workers:
            time.sleep(0.01)
        first, began = store.backlog(), time.monotonic()
        while (left := store.backlog()) > full / 10:
            time.sleep(0.01)
        return (first - left) * reports / (time.monotonic() - began)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60_000)
    parser.add_argument("--reports", type=int, default=100, help="in each batch")
    parser.add_argument("--workers", type=int, default=2, help="at most")
    arguments = parser.parse_args()
    with embedded.open_store() as server:
        store = Store(connect(server.url), APP)
        for workers in range(1, arguments.workers + 1):
            fill(store, arguments.batches, arguments.reports)
            counted = rate(store, server.url, workers, arguments.reports)
            print(f"{workers} workers: {counted:12,.0f} reports/s on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    main()
