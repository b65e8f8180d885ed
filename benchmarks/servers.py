"""Uploads a second, and how long others wait while one address holds 1,100 slow connections, under several WSGI servers.

    python benchmarks/servers.py                        # ours, and gunicorn's own threaded worker; needs wrk
    python benchmarks/servers.py waitress granian       # pip install waitress granian
    python benchmarks/servers.py --caddy caddy          # the same behind the proxy that is shipped

The app is the product, with a store that writes every second; each server has 2 processes of 4 threads. The slow connections come
from one address of loopback, begin a request, send a few bytes of it every two seconds, and connect again when they are closed.
Meanwhile somebody else connects and asks, twenty times in turn. Waits end at 15 seconds. The ratio is of the processor's time
for an upload, to that of the first server within a turn: others who use the machine do not change it.

    python benchmarks/servers.py --readers 8            # how long probes and uploads wait while eight read a long page
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import ingest
from gunicorn.workers.base import Worker

from deniable import mechanisms
from deniable import registry as registries
from deniable.declared import fingerprint
from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator.counting.worker import Worker as CountingWorker
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads import batch
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONF = ["-c", "python:deniable_server.gunicorn_conf", "-w", "2"]
GUNICORN = [sys.executable, "-m", "gunicorn", *CONF]
APP = "deniable_server:create_app()"
SERVERS = {
    "ours": [*GUNICORN, "-b", "{bind}", APP],
    "gthread": [*GUNICORN, "-k", "gthread", "-b", "{bind}", APP],
    "waitress": [*GUNICORN, "-k", "servers.Waitress", "-b", "{bind}", APP],
    "granian": [
        *(sys.executable, "-m", "granian", "--interface", "wsgi", "--workers", "2", "--blocking-threads", "4"),
        *("--host", "127.0.0.1", "--port", "{port}", "--factory", "deniable_server:create_app"),
    ],
}
MANY, PAUSE, LONGEST = 1100, 2.0, 15.0
READ, WIDE = "rk_bench_12345678", 1 << 11
HEAD = b"POST /v1/reports HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
SLOW = {
    "headers": (HEAD, b"X: y\r\n"),
    "body": (HEAD + b"Authorization: Bearer pk_bench_12345678\r\nIdempotency-Key: k\r\nContent-Length: 1000\r\n\r\n{", b" "),
}
"""What a slow connection begins with, and what follows now and then."""


class Waitress(Worker):  # type: ignore[misc] # gunicorn has no types
    """waitress, in processes that gunicorn starts and watches."""

    def run(self) -> None:
        import waitress

        limits = {"max_request_header_size": 1 << 14, "max_request_body_size": 1 << 18, "channel_timeout": 10}
        server = waitress.create_server(
            self.wsgi,
            sockets=[each.sock for each in self.sockets],
            threads=self.cfg.threads,
            connection_limit=self.cfg.worker_connections,
            asyncore_use_poll=True,
            cleanup_interval=1,
            **limits,
        )
        Thread(target=server.run, daemon=True).start()
        while self.alive:
            self.notify()
            time.sleep(0.2)


def attack(port: int, beginning: bytes, drip: bytes) -> None:
    """Hold slow connections for as long as this process lives."""
    selector, held = selectors.DefaultSelector(), set()
    while True:
        due = time.monotonic() + PAUSE
        for _ in range(MANY - len(held)):
            slow = socket.socket()
            slow.bind(("127.0.0.2", 0))
            slow.settimeout(0.05)
            try:
                slow.connect(("127.0.0.1", port))
                slow.sendall(beginning)
            except OSError:
                slow.close()
                continue
            slow.settimeout(0)
            selector.register(slow, selectors.EVENT_READ)
            held.add(slow)
        while (left := due - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                with suppress(OSError):
                    if key.fileobj.recv(1 << 16):
                        continue
                selector.unregister(key.fileobj)
                key.fileobj.close()
                held.discard(key.fileobj)
        for slow in held:
            with suppress(OSError):
                slow.send(drip)


def wait_of(port: int, path: str) -> float:
    """Connect, ask, and return the milliseconds until an answer."""
    begun = time.monotonic()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=LONGEST) as asking:
        asking.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        if asking.recv(1 << 16).startswith(b"HTTP/1.1 "):
            return 1000 * (time.monotonic() - begun)
    return 1000 * LONGEST


def waits(addresses: Sequence[tuple[int, str]], turns: int) -> str:
    """Ask in turn, and tell the median and the longest wait for each address."""
    results: list[list[float]] = [[] for _ in addresses]
    deadline = time.monotonic() + 4 * LONGEST
    for _ in range(turns):
        for times, (port, path) in zip(results, addresses, strict=True):
            if time.monotonic() < deadline:
                times.append(wait_of(port, path))
        time.sleep(0.1)
    return "; ".join(f"{median(times):,.0f}, {max(times):,.0f}" for times in results)


def spawn(undo: ExitStack, log: Path, command: Sequence[str | Path], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that is stopped in the end."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DENIABLE_")}
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    output = undo.enter_context(log.open("ab"))
    process = subprocess.Popen(command, env=environment | variables | {"PYTHONPATH": path}, stdout=output, stderr=output)
    undo.callback(process.wait)
    undo.callback(process.terminate)
    return process


class Server:
    """A server that runs, behind Caddy or not.

    Parameters
    ----------
    undo
        What stops it.
    name
        Which of `SERVERS`.
    folder
        For logs.
    settings
        What it serves.
    caddy
        Path of the proxy to put in front.
    """

    def __init__(self, undo: ExitStack, name: str, folder: Path, settings: Settings, caddy: str | None) -> None:
        self.name, self.folder, self.settings = name, folder, settings
        self.port = self.front = free_port()
        self.addresses = [(self.port, "/healthz")]
        self.rates: list[float] = []
        command = [part.format(bind=f"127.0.0.1:{self.port}", port=self.port) for part in SERVERS[name]]
        log = folder / f"{name}.log"
        process = spawn(undo, log, command, settings.environment())
        await_answer(process, self.port, log)
        self.pid = process.pid
        self.spent: list[float] = []
        if caddy:
            self.front = free_port()
            served = dict.fromkeys(("TELEMETRY_INGEST", "TELEMETRY_QUERY"), f"127.0.0.1:{self.port}")
            own = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))
            config = Path(__file__).parents[1] / "deploy" / "Caddyfile"
            run = [caddy, "run", "--config", config, "--adapter", "caddyfile"]
            answer = served | own | {"TELEMETRY_HOST": f"http://127.0.0.1:{self.front}"}
            await_answer(spawn(undo, folder / "caddy.log", run, answer), self.front, folder / "caddy.log")
            self.addresses.append((self.front, "/v1/registry"))

    def take(self, seconds: int) -> None:
        """Have it take uploads; keep how many in a second, and the processor's microseconds that each cost it."""
        sent = ingest.script(self.folder, ingest.bodies(Path(self.settings.registry), ingest.LOADS[0]), addresses=0)
        before = ingest.spent(self.pid)
        taken = ingest.ask(f"http://127.0.0.1:{self.front}", sent, 16, seconds)
        self.rates.append(taken.rate)
        self.spent.append((ingest.spent(self.pid) - before) / taken.requests * 1e6)

    def beside_readers(self, readers: int, turns: int) -> None:
        """Print how long probes and an upload wait while nobody reads, one does, and so many do, without a pause."""
        asks = [(self.port, "/healthz"), (self.port, "/readyz"), (self.port, "/v1/registry")]
        row = "{:<12}{:>12}{:>20}{:>20}{:>20}{:>20}"
        print(row.format("server", "readers", *(path for _, path in asks), "a page"))
        url = f"http://127.0.0.1:{self.port}/api/v1/metrics/wide"
        for many in (0, 1, readers):
            read = [
                "wrk",
                "-t1",
                f"-c{many}",
                "-d12s",
                "--timeout",
                "60s",
                "-H",
                f"Authorization: Bearer {READ}",
                "--latency",
                url,
            ]
            process = subprocess.Popen(read, stdout=subprocess.PIPE, text=True) if many else None
            time.sleep(2 if many else 0)
            waited = waits(asks, turns).split("; ")
            printed = process.communicate()[0] if process else ""
            page = printed.partition("50%")[2].split()[:1] or ["-"]
            print(row.format(self.name, many, *waited, *page), flush=True)

    def under_attack(self, turns: int) -> Iterator[str]:
        """Tell how long others wait, with nobody slow and with each kind of slow connection."""
        yield waits(self.addresses, turns)
        for kind in SLOW:
            with ExitStack() as undo:
                spawn(undo, self.folder / "attack.log", [sys.executable, __file__, "--attack", str(self.front), kind], {})
                time.sleep(6)
                yield waits(self.addresses, turns)
            time.sleep(1)


def registry(folder: Path) -> Path:
    """Write the registry of the other benchmark with a metric whose page is long."""
    path, names = ingest.registry(folder), json.dumps([f"v{number}" for number in range(WIDE)])
    wide = f'[metrics.wide]\ntype = "categorical"\nvalues = {names}\nepsilon = 4.0\nmechanism = "grr"\n'
    about = 'description = "Many values"\nowner = "nobody@shop.example"\n[publication]\ntrial = true\n'
    path.write_text(path.read_text("utf-8") + wide + about, "utf-8")
    return path


def publish(settings: Settings) -> None:
    """Have reports of the long page counted and published."""
    declared = registries.load(settings.registry)
    metric, store = declared.metrics["wide"], Store(connect(settings.redis_url), ingest.APP)
    mechanism = mechanisms.of(metric)
    stratum = Stratum("wide", 1, fingerprint(metric, mechanism.canonical), period.of(datetime.now(UTC), metric.period), "")
    payloads = b"".join(mechanism.randomize(value % WIDE) for value in range(50_000))
    entry = batch.encode([batch.Group(stratum, mechanism.layout, payloads)])
    store.append(Upload(entry, key="k", remember=b"{}", cap=9, ttl=60))
    CountingWorker([store]).run(Event(), burst=True)
    Publisher(store, declared).publish(time.time())


def await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + 60
    while wait_of(port, "/healthz") >= 1000 * LONGEST:
        pass
    if process.poll() is not None or time.monotonic() > deadline:
        raise SystemExit(log.read_text("utf-8"))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("servers", nargs="*", default=["ours", "gthread"], help=f"which of {', '.join(SERVERS)}")
    parser.add_argument("--caddy", metavar="PATH", help="behind this Caddy")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--asked", type=int, default=20)
    parser.add_argument("--readers", type=int, metavar="N", help="of pages, instead of slow connections")
    parser.add_argument("--attack", nargs=2, metavar=("PORT", "KIND"), help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.attack:
        attack(int(arguments.attack[0]), *SLOW[arguments.attack[1]])
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        store = undo.enter_context(embedded.open_store())
        settings = Settings(
            redis_url=store.url,
            registry=str(registry(folder)),
            ingest_keys=f"{ingest.APP}:{ingest.KEY}",
            read_keys=f"{ingest.APP}:{READ}",
            max_backlog=10**8,
            trusted_proxies=int(bool(arguments.caddy)),
            rate_limit_key="off",
            rate_limit_source="off",
        )
        if arguments.readers:
            publish(settings)
            for name in arguments.servers:
                with ExitStack() as running:
                    Server(running, name, folder, settings, None).beside_readers(arguments.readers, arguments.asked)
            return
        query = "/healthz of the server; through Caddy" if arguments.caddy else "/healthz"
        print(f"{ingest.cores()}; median and longest wait in ms: {query}")
        row = "{:<12}{:>12}{:>14}{:>8}{:>20}" + "{:>28}" * len(SLOW)
        print(
            row.format(
                "server", "uploads/s", "processor us", "ratio", "nobody slow", *(f"{MANY:,} slow with {kind}" for kind in SLOW)
            )
        )
        servers = [Server(undo, name, folder, settings, arguments.caddy) for name in arguments.servers]
        for turn in range(arguments.turns + 1):
            for server in servers:
                server.take(arguments.seconds if turn else 1)  # the first turn warms up
        for server in servers:
            ratio = median(own / first for own, first in zip(server.spent[1:], servers[0].spent[1:], strict=True))
            cells = f"{median(server.rates[1:]):,.0f}", f"{median(server.spent[1:]):,.0f}", f"{ratio:.2f}"
            print(row.format(server.name, *cells, *server.under_attack(arguments.asked)), flush=True)


if __name__ == "__main__":
    main()
