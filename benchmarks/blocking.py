"""For how long a commit or a release of the largest tally holds up the store, by its own SLOWLOG.

A store answers nobody while it runs a command or a script. What is too large for one is cut (`store.staging`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "system" / "faults"))

from processes import Redis, servers

from deniable.wire.layout import MAX_CELLS
from deniable.wire.report import Stratum
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.sums import deltas, staging

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")


def cases() -> dict[str, np.ndarray]:
    """Make what commits add to a tally of the largest size."""
    rng, results = np.random.default_rng(1), {}
    for name, number in (("1 report", 1), ("50,000 reports", 50_000), ("262,144 reports", 1 << 18)):
        results[name] = np.bincount(rng.integers(0, MAX_CELLS, number), minlength=MAX_CELLS)
        results[name][-1] += 1
    results["every cell"] = np.ones(MAX_CELLS, np.int64)
    return results


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=servers(), default=next(iter(servers())))
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'longest call, ms: least of all turns':<40}{'whole':>8}{'cut':>8}{'all of it, whole':>20}{'cut':>8}")
    with TemporaryDirectory() as folder:
        server = Redis(servers()[arguments.store], Path(folder), "everysec")
        server.start()
        client = connect(f"redis://127.0.0.1:{server.port}")
        client.config_set("slowlog-log-slower-than", 0)
        client.config_set("slowlog-max-len", 10_000)
        for name, cells in cases().items():
            for which in ("first", "second"):
                _print(
                    f"{name}, {which} time",
                    [_least(client, _commits(cells, which), arguments.turns, cut=cut) for cut in (False, True)],
                )
        _print("a release", [_least(client, _release, arguments.turns, cut=cut) for cut in (False, True)])
        client.close()
        server.kill()
    return 0


def _commits(cells: np.ndarray, which: str) -> Callable[[Store], Callable[[], object]]:
    """Make what prepares a commit."""

    def prepare(store: Store) -> Callable[[], object]:
        store._client.flushdb()
        store.partitions[0].join()
        if which == "second":
            store.partitions[0].commit("w", [], {ONE: cells}, 0)
        return lambda: store.partitions[0].commit("w", [], {ONE: cells}, 0)

    return prepare


def _release(store: Store) -> Callable[[], object]:
    """Prepare a release, as the publisher makes it."""
    value = np.ones(MAX_CELLS, ">i8").tobytes()
    return lambda: store.staging.replace("{shop}:release:x", value)


def _least(
    client: redis.Redis, prepare: Callable[[Store], Callable[[], object]], turns: int, *, cut: bool
) -> tuple[float, float]:
    """Return the milliseconds of the longest call, and of all of it, in the best turn of some."""
    calls, times = [], []
    with (
        patch.multiple(deltas, AT_ONCE=deltas.AT_ONCE if cut else 1 << 60),
        patch.multiple(staging, CHUNK=staging.CHUNK if cut else 1 << 30),
    ):
        for _ in range(turns):
            act = prepare(Store(client, "shop"))
            client.slowlog_reset()
            began = time.perf_counter()
            act()
            times.append(1000 * (time.perf_counter() - began))
            calls.append(max(each["duration"] for each in client.slowlog_get(10_000)) / 1000)
    return min(calls), min(times)


def _print(name: str, figures: list[tuple[float, float]]) -> None:
    (full, whole_all), (cut, cut_all) = figures
    print(f"{name:<40}{full:>8.1f}{cut:>8.1f}{whole_all:>20.0f}{cut_all:>8.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
