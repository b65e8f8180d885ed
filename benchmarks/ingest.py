"""Uploads taken per second, beside a Flask view that does nothing, and memory over ten million reports.

    python benchmarks/ingest.py                  # the table, some four minutes; needs wrk
    python benchmarks/ingest.py --limits         # with a limit for the key and one for each of many addresses
    python benchmarks/ingest.py --metrics        # with requests counted for Prometheus
    python benchmarks/ingest.py --tcp            # the store on a port, not on a Unix socket
    python benchmarks/ingest.py --unchecked      # what nobody can undercut: uploads appended by the same call, as they are
    python benchmarks/ingest.py --memory         # resident memory while reports are sent and counted

Both servers are gunicorn with the product's own settings (worker class, processes, threads, keep-alive) and get the very same
requests: the headers, a body out of 64, and an Idempotency-Key that no other request has. The one appends each to a store that
writes every second; the other reads the body and answers 202. They take turns, and what counts is the ratio within a turn: its
median over all turns. The store, wrk and the server share the machine's cores, so the store's work is in the ratio, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import requests
from flask import Flask, request

from deniable import mechanisms
from deniable import registry as registries
from deniable.declared import fingerprint
from deniable.registry import period
from deniable.wire import report
from deniable.wire.report import Report, Stratum
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import embedded
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

APP, KEY = "bench", "pk_bench_12345678"
BODIES = 64
METRICS = 100
MECHANISMS = ("binary", "grr", "oue", "local_hash", "rappor")
SCRIPT = """
local file = io.open("{bodies}", "r")
local bodies = {{}}
for line in file:lines() do bodies[#bodies + 1] = line end
file:close()
local sent = 0
local headers = {{
  ["Authorization"] = "Bearer {key}",
  ["Content-Type"] = "application/json",
}}
request = function()
  sent = sent + 1
  headers["Idempotency-Key"] = string.format("{prefix}-%012d", sent)
  if {addresses} > 0 then
    headers["X-Forwarded-For"] = string.format("198.18.%d.%d", math.floor(sent / 250) % {addresses}, sent % 250)
  end
  return wrk.format("POST", "/v1/reports", headers, bodies[sent % #bodies + 1])
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format('{{"requests": %d, "seconds": %.6f, "failed": %d, "p50": %.3f, "p99": %.3f}}\\n', summary.requests,
    summary.duration / 1e6, errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


class Load(NamedTuple):
    """What an upload holds."""

    name: str
    groups: int
    reports: int


LOADS = (
    Load("1 report", 1, 1),
    Load("100 reports of 1 metric", 1, 100),
    Load("100 reports of 10 metrics", 10, 10),
    Load("100 reports of 100 metrics", 100, 1),
)


def nothing() -> Flask:
    """Make the app that does nothing."""
    app = Flask("nothing")

    @app.post("/v1/reports")
    def take() -> tuple[str, int]:
        request.get_data()
        return "", 202

    return app


def unchecked() -> Flask:
    """Make the app that appends what it is sent, once for each key, and looks at nothing."""
    app = Flask("unchecked")
    store = Store(connect(os.environ["DENIABLE_REDIS_URL"]), APP)

    @app.post("/v1/reports")
    def take() -> tuple[str, int]:
        key = request.headers["Idempotency-Key"]
        store.append(Upload(request.get_data(), key=key, remember=b"{}", cap=1 << 40, ttl=3600))
        return "", 202

    return app


def registry(folder: Path) -> Path:
    """Write a registry with metrics of several mechanisms, some of them with segments."""
    names = json.dumps([f"v{value}" for value in range(128)])
    (folder / "pages.txt").write_text("\n".join(f"page-{number}" for number in range(100)), "utf-8")
    kinds = {
        "binary": 'type = "boolean"',
        "grr": f'type = "categorical"\nvalues = {names}\nmechanism = "grr"',
        "oue": f'type = "categorical"\nvalues = {names}\nmechanism = "oue"',
        "local_hash": f'type = "categorical"\nvalues = {names}\nmechanism = "local_hash"',
        "rappor": 'type = "string"\ncandidates = "pages.txt"\nmechanism = "rappor"\nepsilon_permanent = 2.0',
    }
    text = f'format = 1\napp = "{APP}"\n[budget]\nper_month = 1000000\nlifetime = 1000000\n'
    text += '[segments]\nplatform = ["linux", "macos"]\n'
    for number in range(METRICS):
        kind = list(kinds.values())[number % len(kinds)]
        text += f'[metrics."m{number}"]\nepsilon = 1.0\n{kind}\ndescription = "Made up"\nowner = "nobody@shop.example"\n'
        text += 'segments = ["platform"]\n' if number % 2 else ""
    path = folder / "metrics.toml"
    path.write_text(text, "utf-8")
    return path


def bodies(path: Path, load: Load) -> list[bytes]:
    """Make uploads of honest reports."""
    declared, result = registries.load(path), []
    metrics = list(declared.metrics.values())
    for body in range(BODIES):
        reports = []
        for number in range(load.groups):
            metric = metrics[(body + number) % len(metrics)]
            mechanism = mechanisms.of(metric)
            stratum = Stratum(
                metric.id,
                metric.version,
                fingerprint(metric, mechanism.canonical),
                period.of(datetime.now(UTC), metric.period),
                "platform=linux" if metric.segments else "",
            )
            values = declared.candidates(metric) or (0, 1)
            reports += [Report(stratum, mechanism.randomize(values[each % 2])) for each in range(load.reports)]
        result.append(report.encode(APP, reports))
    return result


class Answered(NamedTuple):
    """What wrk saw."""

    rate: float
    p50: float
    p99: float
    requests: int


def ask(url: str, script: Path, connections: int, seconds: int) -> Answered:
    """Send uploads as fast as they are answered, and see that each was taken."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", script, url]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    answer = json.loads(printed[printed.index('{"requests"') :].splitlines()[0])
    if answer["failed"]:
        raise SystemExit(f"{answer['failed']} uploads of {answer['requests']} were not taken")
    return Answered(answer["requests"] / answer["seconds"], answer["p50"], answer["p99"], answer["requests"])


@contextmanager
def gunicorn(app: str, log: Path, settings: dict[str, str], processes: int) -> Iterator[tuple[str, int]]:
    """Run an app as the product is run; give its address and its process."""
    bind = f"127.0.0.1:{free_port()}"
    options = ["-c", "python:deniable_server.gunicorn_conf", "-w", str(processes), "-b", bind]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *options, app],
            env=environment
            | settings
            | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])},
            stdout=output,
            stderr=output,
        )
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    requests.get(f"http://{bind}/healthz", timeout=20)
                    break
                except requests.RequestException:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit(log.read_text("utf-8")) from None
                    time.sleep(0.05)
            yield f"http://{bind}", process.pid
        finally:
            process.terminate()
            process.wait()


def script(folder: Path, bodies_: list[bytes], *, addresses: int) -> Path:
    """Write what wrk sends, out of some bodies; no two such scripts share an Idempotency-Key."""
    prefix = token_hex(8)
    uploads = folder / f"{prefix}.jsonl"
    uploads.write_bytes(b"\n".join(bodies_) + b"\n")
    written = folder / f"{prefix}.lua"
    written.write_text(SCRIPT.format(bodies=uploads, key=KEY, prefix=prefix, addresses=addresses), "utf-8")
    return written


def spent(*processes: int) -> float:
    """Return the processor seconds that processes and their children have used."""
    total = 0.0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(") ")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        total += spent(*map(int, Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()))
    return total


def compare(arguments: argparse.Namespace, folder: Path, store: Store, settings: Settings) -> None:
    """Print a line for each load."""
    environment = settings.environment()
    app = "ingest:unchecked()" if arguments.unchecked else "deniable_server:create_app()"
    with (
        gunicorn("ingest:nothing()", folder / "nothing.log", environment, arguments.processes) as (nothing_, idle),
        gunicorn(app, folder / "server.log", environment, arguments.processes) as (ours, busy),
    ):
        row = "{:<27}{:>7}{:>9}{:>11}{:>7}{:>14}{:>14}{:>11}{:>20}"
        columns = (
            "upload",
            "bytes",
            "no-op/s",
            "uploads/s",
            "ratio",
            "of the turns",
            "p50, p99 ms",
            "reports/s",
            "processor us each",
        )
        print(row.format(*columns))
        for load in (LOADS[number] for number in arguments.loads):
            base, mine, used = [], [], []
            variables = int(store._client.info("server")["process_id"])
            size = int(median(map(len, bodies(Path(settings.registry), load))))
            for turn in range(arguments.turns + 1):
                seconds = arguments.seconds if turn else 1  # the first turn warms up
                result = bodies(Path(settings.registry), load)
                sent = [script(folder, result, addresses=200 * arguments.limits) for _ in range(2)]
                store._client.flushall()
                before = spent(idle), spent(busy), spent(variables)
                base.append(ask(nothing_, sent[0], arguments.connections, seconds))
                mine.append(ask(ours, sent[1], arguments.connections, seconds))
                after = spent(idle), spent(busy), spent(variables)
                number = base[-1].requests, mine[-1].requests, mine[-1].requests
                used.append([(b - a) / n * 1e6 for a, b, n in zip(before, after, number, strict=True)])
                # What wrk no longer waited for at its end was appended, too.
                surplus = store.backlog() - mine[-1].requests
                if not 0 <= surplus <= arguments.connections:
                    raise SystemExit(f"{mine[-1].requests} uploads were answered with 202, {store.backlog()} were appended")
            base, mine, used = base[1:], mine[1:], used[1:]
            ratios = [ours_.rate / theirs.rate for theirs, ours_ in zip(base, mine, strict=True)]
            rate = median(each.rate for each in mine)
            print(
                row.format(
                    load.name,
                    size,
                    f"{median(each.rate for each in base):,.0f}",
                    f"{rate:,.0f}",
                    f"{median(ratios):.2f}",
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                    f"{median(each.p50 for each in mine):.1f}, {median(each.p99 for each in mine):.1f}",
                    f"{rate * load.groups * load.reports:,.0f}",
                    "{:.0f}, {:.0f} + {:.0f}".format(*(median(each) for each in zip(*used, strict=True))),
                ),
                flush=True,
            )


def resident(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def watch(arguments: argparse.Namespace, folder: Path, store: Store, settings: Settings) -> None:
    """Print the memory of each process while reports are sent and counted."""
    load = LOADS[2]
    command = [sys.executable, "-m", "deniable", "worker", "--redis-url", settings.redis_url, "--app", APP]
    row = "{:>14}{:>20}{:>12}{:>12}{:>22}"
    print(row.format("counted", "server processes", "worker", "store", "of that, remembered"))
    with gunicorn("deniable_server:create_app()", folder / "server.log", settings.environment(), arguments.processes) as (
        url,
        pid,
    ):
        servers = [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            counted, due = 0, 1_000_000
            while counted < arguments.memory:
                sent = script(folder, bodies(Path(settings.registry), load), addresses=0)
                counted += ask(url, sent, arguments.connections, 2).requests * load.groups * load.reports
                while store.backlog():
                    time.sleep(0.05)
                if counted >= due:
                    due += 1_000_000
                    app_ = store._client.info("memory")
                    remembered = int(app_["used_memory_dataset"]) / 2**20
                    item = ", ".join(f"{resident(server):.1f}" for server in servers)
                    own = resident(int(store._client.info("server")["process_id"]))
                    print(
                        row.format(f"{counted:,}", item, f"{resident(worker.pid):.1f}", f"{own:.1f}", f"{remembered:.1f}"),
                        flush=True,
                    )
        finally:
            worker.terminate()
            worker.wait()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of each server's part of a turn")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2, help="of each server")
    parser.add_argument("--loads", type=int, nargs="*", default=range(len(LOADS)), help="which of the table's lines")
    parser.add_argument("--limits", action="store_true", help="hold limits for the key and for 50,000 addresses")
    parser.add_argument("--metrics", action="store_true", help="count requests for Prometheus")
    parser.add_argument("--unchecked", action="store_true", help="append uploads without a look at them, for the ceiling")
    parser.add_argument("--tcp", action="store_true", help="ask the store on a port")
    parser.add_argument("--memory", type=int, nargs="?", const=10_000_000, help="watch it over so many reports")
    arguments = parser.parse_args()
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        server = undo.enter_context(embedded.open_store())
        store = Store(connect(server.url), APP)
        url = server.url
        if arguments.tcp:
            port = free_port()
            store._client.config_set("bind", "127.0.0.1")
            store._client.config_set("port", port)
            url = f"redis://127.0.0.1:{port}/0"
        store._client.config_set("maxmemory", "8gb")  # of which nothing is counted
        settings = Settings(
            redis_url=url,
            registry=str(registry(folder)),
            ingest_keys=f"{APP}:{KEY}",
            read_keys=f"{APP}:rk_bench_12345678",
            metrics_key="a metrics key of a benchmark" if arguments.metrics else "",
            max_backlog=10**8,
            trusted_proxies=int(arguments.limits),
            rate_limit_key="100000000/minute" if arguments.limits else "off",
            rate_limit_source="100000000/minute" if arguments.limits else "off",
            stored_limit_source="100000000MB/minute" if arguments.limits else "off",
        )
        print(f"{cores()}; store: {server.origin.partition(' (')[0]}, {'TCP' if arguments.tcp else 'Unix socket'}, everysec")
        (watch if arguments.memory else compare)(arguments, folder, store, settings)


def cores() -> str:
    """Say what this machine is."""
    about = Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in about.read_text("utf-8").splitlines() if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {names[0] if names else 'unknown make'}"


if __name__ == "__main__":
    main()
