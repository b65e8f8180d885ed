"""How fast simulated people answer: ``deniable simulate --send`` into a store of its own, with six kinds of metrics.

    python benchmarks/simulated_people.py [--devices N] [--days D]

The figure is people a minute, of all processes together; beside it the processor's time for a person and a period.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from deniable.registry import parse
from deniable_aggregator.people import plausible, sending
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.server import embedded

HEAD = """
format = 1
app = "shop"
publication = { trial = true }
budget = { per_month = 1000.0, lifetime = 10000.0 }
segments = { platform = ["linux", "mac", "windows"] }
"""
METRICS = (
    'type = "boolean"\nsegments = ["platform"]',
    'type = "categorical"\nvalues = ["a", "b", "c", "d", "e", "f", "g", "h"]',
    'type = "number"\nrange = [0, 1000]\nunit = "ms"\nestimate = "distribution"',
    'type = "number"\nrange = [0, 100]\nunit = "MB"\nestimate = "mean"',
    'type = "set"\nvalues = ["a", "b", "c", "d", "e"]',
    'type = "ordinal"\nvalues = ["a", "b", "c", "d", "e"]\nepsilon_permanent = 2.0',
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=90)
    arguments = parser.parse_args()
    about = 'epsilon = 1.0\ndescription = "x"\nowner = "a@shop.example"'
    tables = (f"[metrics.m{number}]\n{kind}\n{about}" for number, kind in enumerate(METRICS))
    registry = parse("\n".join((HEAD, *tables)))
    crowd = plausible.crowd(registry, arguments.devices, {}, np.random.SeedSequence(1))
    days = sending.Days.until(datetime.now(UTC), arguments.days, registry)
    planned = sending.occasions(registry, list(crowd.answers), days)
    with tempfile.TemporaryDirectory() as folder, embedded.open_store(None, directory=Path(folder)) as server:
        client = connect(server.url)
        began, used = time.perf_counter(), processor()
        _, reports = sending.send(Store(client, "shop"), registry, crowd, days, planned)
        seconds, used = time.perf_counter() - began, processor() - used
        client.close()
    share = 1e6 * used / (arguments.devices * arguments.days)
    print(f"{reports:,} reports in {seconds:.1f} s: {60 * arguments.devices / seconds:,.0f} people a minute")
    print(f"{share:.1f} microseconds of a processor for a person and a period with {len(METRICS)} metrics")


def processor() -> float:
    """Return the seconds of a processor that this process and its children have used."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


if __name__ == "__main__":
    main()
