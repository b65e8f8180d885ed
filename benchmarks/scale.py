"""What an upload costs server, store and worker, by what it holds; and the machines that so many devices need.

    python benchmarks/scale.py               # five minutes; needs wrk and redis-server
    python benchmarks/scale.py --quick       # one minute, less exact

Costs are seconds of processor time, so others who use the machine change them little. The uploads of each kind are sent to the
server, which appends them to a store that writes every second, and then counted by a worker. Of the costs of all kinds, the
slopes are fitted: what a report, a metric and a kilobyte add. Then one app is divided into 1, 3 and 16 partitions on a cluster of
three primaries, and one and two workers count the same stream.

The last table is extrapolated from these slopes to numbers of devices that no machine here can be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import which
from statistics import median
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import ingest
import numpy as np
import workers

from deniable import registry as registries
from deniable.declared import Declared
from deniable.registry import period
from deniable.wire import report
from deniable.wire.report import Report, Stratum
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.server.servers import primaries
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from machines import Machines

METRICS = 20
WIDTHS = (16, 128, 1024)
PARTS = ("server", "store, append", "worker", "store, commit")
PEAK, BUSY, DAY = 3.0, 0.6, 86_400
REMEMBERED = 27 * 4  # bytes of an upload in the store: 27 for each of the days for which it is remembered
CEILING = 0.75  # of a store's memory, up to which uploads are taken


class Kind(NamedTuple):
    """What an upload holds: reports of each of some metrics, of a mechanism over some values."""

    mechanism: str
    values: int
    metrics: int
    reports: int


KINDS = (
    *(Kind("binary", 2, 1, each) for each in (1, 10, 100, 1000)),
    *(Kind("binary", 2, metrics, 10) for metrics in (2, 5, 10, 20)),
    *(Kind("grr", values, 1, 100) for values in WIDTHS),
    *(Kind("oue", values, metrics, 100) for values in WIDTHS for metrics in (1, 5)),
)


def registry(folder: Path) -> Path:
    """Write a registry with metrics of each mechanism and number of values."""
    text = f'format = 1\nbudget.per_month = 1000000\nbudget.lifetime = 1000000\napp = "{ingest.APP}"\n'
    about = 'epsilon = 1.0\ndescription = "Made up"\nowner = "nobody@shop.example"\n'
    for number in range(METRICS):
        text += f'[metrics."binary2.{number}"]\ntype = "boolean"\n{about}'
        for mechanism in ("grr", "oue"):
            for width in WIDTHS if number < 5 else ():
                values = ", ".join(f'"v{value}"' for value in range(width))
                text += f'[metrics."{mechanism}{width}.{number}"]\ntype = "categorical"\nvalues = [{values}]\n'
                text += f'mechanism = "{mechanism}"\n{about}'
    path = folder / "metrics.toml"
    path.write_text(text, "utf-8")
    return path


def upload(declared: registries.Registry, kind: Kind) -> tuple[bytes, int]:
    """Make an upload of honest reports; return it with the bytes of its payloads."""
    reports = []
    for number in range(kind.metrics):
        question = Declared.of(declared.metrics[f"{kind.mechanism}{kind.values}.{number}"])
        now = period.of(ingest.datetime.now(ingest.UTC), question.metric.period)
        stratum = Stratum(*question.definition, now, "")
        reports += [Report(stratum, question.mechanism.randomize(value % 2)) for value in range(kind.reports)]
    return report.encode(ingest.APP, reports), sum(len(each.payload) for each in reports)


def used(store: Store) -> float:
    """Return the processor seconds of all servers of a store."""
    answer = [server.info("cpu") for server in primaries(store._client)]
    return sum(float(each["used_cpu_user"]) + float(each["used_cpu_sys"]) for each in answer)


def costs(arguments: argparse.Namespace, folder: Path) -> tuple[NDArray[np.float64], float]:
    """Measure each kind.

    Returns
    -------
    measured : array
        Seconds of an upload (kinds x parts), and its kilobytes in the last column.
    rate : float
        Uploads/s that the server took here, of the kind of which it took fewest.
    """
    server = embedded.open_store()
    with ExitStack() as undo:
        url = undo.enter_context(server).url
        store = Store(connect(url), ingest.APP)
        settings = Settings(
            redis_url=url,
            registry=str(registry(folder)),
            ingest_keys=f"{ingest.APP}:{ingest.KEY}",
            max_backlog=10**8,
            rate_limit_key="off",
            rate_limit_source="off",
            stored_limit_source="off",
        )
        store._client.config_set("maxmemory", "8gb")
        declared = registries.load(settings.registry)
        log = folder / "server.log"
        app = "deniable_server:create_app()"
        address, process = undo.enter_context(ingest.gunicorn(app, log, settings.environment(), 2))
        results, rates = [], []
        for kind in KINDS:
            body, size = upload(declared, kind)
            turns = [_turn(arguments, folder, store, (address, process), body, kind) for _ in range(arguments.turns + 1)][1:]
            rates.append(median(turn[-1] for turn in turns))
            results.append([*(median(turn[part] for turn in turns) for part in range(len(PARTS))), size / 1000])
            cells = (f"{1e6 * cost:,.0f}" for cost in results[-1][:-1])
            print(
                f"| {kind.metrics} x {kind.reports} {kind.mechanism} of {kind.values} | {size:,} | {' | '.join(cells)} |",
                flush=True,
            )
    return np.array(results), min(rates)


def _turn(
    arguments: argparse.Namespace, folder: Path, store: Store, server: tuple[str, int], body: bytes, kind: Kind
) -> list[float]:
    """Send uploads and count them; return the processor seconds of one in each part, and last how many a second were taken."""
    address, process = server
    store._client.flushall()
    before = ingest.spent(process), used(store)
    script = ingest.script(folder, [body], addresses=0)
    answered = ingest.ask(address, script, 16, arguments.seconds)
    time.sleep(0.3)  # what was under way when wrk stopped
    sent = store.backlog()
    append = [(b - a) / sent for a, b in zip(before, (ingest.spent(process), used(store)), strict=True)]
    if not 0 <= sent - answered.requests <= 16:
        raise SystemExit(f"{answered.requests} uploads were answered with 202, {sent} were appended")
    return [*append, *_counted(store, sent, kind.metrics * kind.reports), answered.rate]


def _counted(store: Store, batches: int, reports: int) -> list[float]:
    """Count all that waits; return the processor seconds of worker and store for a batch."""
    worker = Worker([store])
    before = time.process_time(), used(store)
    worker.run(Event(), burst=True)
    if worker.counted != batches * reports:
        raise SystemExit(f"{batches * reports} reports were appended, {worker.counted} were counted")
    return [(b - a) / batches for a, b in zip(before, (time.process_time(), used(store)), strict=True)]


def slopes(measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit what an upload costs in any case, and what each metric, report and kilobyte adds (parts x 4), by least squares."""
    terms = np.array(
        [[1, kind.metrics, kind.metrics * kind.reports, size] for kind, size in zip(KINDS, measured[:, -1], strict=True)]
    )
    fitted = []
    for cost in measured[:, :-1].T:  # relative errors count, so that small uploads matter as much as large ones
        solved, *_ = np.linalg.lstsq(terms / cost[:, None], np.ones(len(KINDS)), rcond=None)
        fitted.append(solved)
    return np.array(fitted)


def divided(arguments: argparse.Namespace, folder: Path) -> None:
    """Print what an upload costs where its app has several partitions, beside one, within each turn."""
    program = which("redis-server") or sys.exit("this needs redis-server on PATH")
    numbers = (1, 3, 16)
    mechanism = workers.KINDS["oue, 128 values"]
    entry, uploads = workers.entry("oue, 128 values", 100), 4000
    with closing(Machines(program, folder)) as machines:
        client = connect(machines.cluster(3, 0, "--appendonly", "yes"))
        turns = []
        for turn in range(arguments.turns + 1):
            client.flushall()
            costs = []
            for number in numbers:
                store = Store(client, f"shop{number}")
                store.divide(number)
                before = time.process_time(), used(store)
                for key in range(uploads):
                    store.append(Upload(entry, key=f"{turn} {key}", remember=b"answer", cap=10**9, ttl=60))
                after = time.process_time(), used(store)
                costs.append([(b - a) / uploads for a, b in zip(before, after, strict=True)] + _counted(store, uploads, 100))
                stratum = Stratum("m0", 1, "f" * 16, "2026-11-21", "")
                assert store.read(mechanism.layout, [stratum]).n == 100 * uploads
            turns.append(costs)
        own = np.median(np.array(turns[1:]), axis=0)
        ratios = np.median(np.array(turns[1:]) / np.array(turns[1:])[:, :1], axis=0)
    print("\n| partitions | client, append | store, append | worker | store, commit |\n|---|---|---|---|---|")
    for number, costs, beside in zip(numbers, own, ratios, strict=True):
        print(f"| {number} | " + " | ".join(f"{1e6 * c:.1f} us ({r:.2f})" for c, r in zip(costs, beside, strict=True)) + " |")


def together(arguments: argparse.Namespace) -> None:
    """Print what a second worker adds on this machine."""
    with embedded.open_store() as server:
        store = Store(connect(server.url), workers.APP)
        rates = [workers.together(store, server.url, number, 20_000 * arguments.seconds) for number in (1, 2)]
    print(f"\n{rates[0]:,.0f} reports/s by one worker, {rates[1]:,.0f} by two ({rates[1] / rates[0]:.2f} times)")


def sizes(fitted: NDArray[np.float64], rate: float, numbers: Sequence[float] = (1e6, 1e7, 1e8, 1e9)) -> None:
    """Print the machines that devices need, each with one upload a day: 10 reports of each of 10 metrics, `oue` of 128 values."""
    item = fitted @ np.array([1, 10, 100, 1.6])
    columns = ("devices a day", "uploads/s at the peak", *(f"cores: {part}" for part in PARTS), "remembered, GB", "that rate was")
    print(f"\n| {' | '.join(columns)} |\n|" + "---|" * len(columns))
    for devices in numbers:
        peak = PEAK * devices / DAY
        cores = (f"{peak * cost / BUSY:.2f}" for cost in item)
        known = "measured" if peak <= rate else "extrapolated"
        print(f"| {devices:,.0f} | {peak:,.0f} | {' | '.join(cores)} | {devices * REMEMBERED / 1e9 / CEILING:,.1f} | {known} |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short turn of each kind")
    arguments = parser.parse_args()
    arguments.turns, arguments.seconds = (1, 1) if arguments.quick else (3, 2)
    print(f"{ingest.cores()}; microseconds of processor time for an upload\n")
    print("| reports | bytes of payloads | " + " | ".join(PARTS) + " |\n|" + "---|" * (2 + len(PARTS)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measured, rate = costs(arguments, Path(folder))
        fitted = slopes(measured)
        print("\n| us | any upload | a metric more | a report more | a kilobyte more |\n|---|---|---|---|---|")
        for part, row in zip(PARTS, fitted, strict=True):
            print(f"| {part} | " + " | ".join(f"{1e6 * value:.3g}" for value in row) + " |")
        divided(arguments, Path(folder) / "cluster")
    together(arguments)
    sizes(fitted, rate)


if __name__ == "__main__":
    main()
