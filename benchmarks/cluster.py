"""Uploads on a cluster, beside the same uploads on one server: seconds of an append, and what it waits for a replica.

    python benchmarks/cluster.py                 # half a minute; needs redis-server

One thread appends small uploads to each store in turn, and what counts is the ratio within a turn: its median over all turns. On
the cluster a script must first find the primary that has the app. The one server is a primary of the same cluster, with its
address given directly, so that both do the same work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from shutil import which
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from machines import Machines

from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.durability import Durability
from deniable_aggregator.store.server.servers import primary


def seconds(store: Store, uploads: int, turn: str) -> float:
    """Return the mean time of an append."""
    began = time.perf_counter()
    for number in range(uploads):
        store.append(Upload(bytes(200), key=f"{turn} {number}", remember=b"answer", cap=10**9, ttl=60))
    return (time.perf_counter() - began) / uploads


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uploads", type=int, default=1500, help="in a turn")
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    program = which("redis-server") or sys.exit("this needs redis-server on PATH")
    with tempfile.TemporaryDirectory() as folder, closing(Machines(program, Path(folder))) as machines:
        cluster = connect(machines.cluster(3, 1, "--appendonly", "yes"))
        place = about.connection(primary(cluster, "{shop}"))
        stores = {
            "directly": Store(connect(f"redis://{place['host']}:{place['port']}"), "shop"),
            "by the cluster": Store(cluster, "shop"),
            "by the cluster, replicated": Store(cluster, "shop", Durability("replicated")),
        }
        turns = [
            [seconds(store, arguments.uploads, f"{name} {turn}") for name, store in stores.items()]
            for turn in range(arguments.turns)
        ]
    print(f"{arguments.turns} turns of {arguments.uploads} appends, one thread\n")
    print("| | us | beside directly |\n|---|---|---|")
    for place, name in enumerate(stores):
        own = median(turn[place] for turn in turns)
        print(f"| {name} | {1e6 * own:.1f} | {median(turn[place] / turn[0] for turn in turns):.2f} |")


if __name__ == "__main__":
    main()
