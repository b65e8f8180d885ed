"""A service of real processes that shows its numbers: a store, gunicorn with two processes, and a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from processes import Redis, children, end, servers
from prometheus_client.parser import text_string_to_metric_families

from deniable import mechanisms, registry
from deniable.declared import fingerprint
from deniable.registry import period
from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import Store, connect
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

INGEST, METRICS = "pk_observed_12345678", "mk_observed_12345678"
WEB = 2
_SECONDS = 120.0
_REGISTRY = """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"

[metrics."ui.theme"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
mechanism = "grr"
description = "Which theme people use"
owner = "design@shop.example"
"""
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Observed:
    """The processes, and what they say."""

    def __init__(self, folder: Path) -> None:
        registry_file = folder / "metrics.toml"
        registry_file.write_text(_REGISTRY, "utf-8")
        self.log = folder / "log"
        self.redis_server = Redis(next(iter(servers().values())), folder, "everysec", options=("--maxmemory", "1gb"))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.worker_url = f"http://127.0.0.1:{free_port()}"
        self.file, self.registry = registry_file, registry.load(registry_file)
        self.settings = Settings(
            redis_url=f"redis://127.0.0.1:{self.redis_server.port}",
            registry=str(registry_file),
            ingest_keys=f"shop:{INGEST}",
            metrics_key=METRICS,
        )
        self._numbers = count()

    def start(self) -> None:
        """Start all; return when they answer."""
        self.redis_server.start()
        self.redis = connect(self.settings.redis_url)
        self.store = Store(self.redis, "shop")
        self.redis.xgroup_create(self.store.partitions[0].stream, "agg", id="0", mkstream=True)
        bind = self.url.removeprefix("http://")
        gunicorn = ["gunicorn", "-c", "python:deniable_server.gunicorn_conf", "-b", bind, "-w", str(WEB)]
        self.server = self._launch([*gunicorn, "deniable_server:create_app()"])
        bind = self.worker_url.removeprefix("http://")
        self.worker = self._launch(["deniable", "worker", "--app", "shop", "--claim-after", "1", "--metrics-bind", bind])
        self.until(lambda: len(self.web()) == WEB and self.ask("/readyz") == 200)
        self.until(self.worker_numbers)

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                env={name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")}
                | self.settings.environment()
                | {"OPENBLAS_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End all that was started."""
        for name in ("server", "worker"):
            if process := getattr(self, name, None):
                for child in children(process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGCONT)
                end(process)
        self.redis.close()
        self.redis_server.send(signal.SIGCONT)
        self.redis_server.kill()

    def until(self, done) -> None:
        """Wait for something that is to come."""
        deadline = time.monotonic() + _SECONDS
        while True:
            with suppress(OSError):
                if done():
                    return
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-2000:]
            time.sleep(0.02)

    def web(self) -> list[int]:
        """Return the processes that answer requests."""
        return sorted(children(self.server.pid))

    def folder(self) -> Path:
        """Return where they count."""
        opened = (each.readlink() for each in Path(f"/proc/{self.server.pid}/fd").iterdir())
        return next(each.parent for each in opened if "deniable-counts" in str(each))

    @contextmanager
    def only(self, answering: int) -> Iterator[None]:
        """Let nobody but one process answer."""
        others = [process for process in self.web() if process != answering]
        for process in others:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in others:
                os.kill(process, signal.SIGCONT)

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> int:
        """Ask the server on a connection of its own."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, body, fields)
        try:
            with _direct.open(request, timeout=300) as answer:
                self.last = answer.read().decode()
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                self.last = error.read().decode()
                return error.code

    def upload(self, *values: int, key: str | None = None, **changes: object) -> int:
        """Upload a batch of one group."""
        declared = self.registry.metrics["ui.theme"]
        mechanism = mechanisms.of(declared)
        group = {
            "metric": declared.id,
            "version": declared.version,
            "fingerprint": fingerprint(declared, mechanism.canonical),
            "period": period.of(datetime.now(UTC), declared.period),
            "segment": "",
            "count": len(values),
            "payloads": b64encode(b"".join(map(mechanism.randomize, values))).decode(),
        }
        headers = {"Idempotency-Key": key or f"key-{next(self._numbers)}", "Content-Type": "application/json"}
        body = dumps({"format": 1, "app": "shop", "groups": [group | changes]}).encode()
        return self.ask("/v1/reports", body, Authorization=f"Bearer {INGEST}", **headers)

    def numbers(self) -> dict[tuple, float]:
        """Scrape the server."""
        assert self.ask("/metrics", Authorization=f"Bearer {METRICS}") == 200
        return _samples(self.last)

    def worker_numbers(self) -> dict[tuple, float]:
        """Scrape the worker."""
        with _direct.open(self.worker_url + "/metrics", timeout=300) as answer:
            return _samples(answer.read().decode())


def _samples(text: str) -> dict[tuple, float]:
    families = text_string_to_metric_families(text)
    return {(sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples}


def series(name: str, **labels: str) -> tuple:
    """Return how a sample is found."""
    return (f"deniable_{name}", *sorted(labels.items()))


@contextmanager
def observed(folder: Path) -> Iterator[Observed]:
    """Run a service."""
    service = Observed(folder)
    try:
        service.start()
        yield service
    finally:
        service.stop()
