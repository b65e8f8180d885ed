"""The relay of ``deniable demo --relay``: a third party beside server and devices, and what it makes possible.

The devices answer in the hour that has just ended. The relay is the one that ``deniable relay`` starts, so it waits as long as
any relay: until an eighth of the time for late reports is over. The demo declares that time so that this is soon.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from math import ceil
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Self

import requests
from rich.table import Table

from deniable import registry
from deniable.declared import Declared
from deniable.errors import ConfigurationError
from deniable.wire import sealing
from deniable_aggregator.accounting.crowds import readers, relay
from deniable_aggregator.accounting.crowds.crowd import Crowd
from deniable_aggregator.planning.mixing import DELTA, ways
from deniable_aggregator.planning.outlook import Terms
from deniable_aggregator.process import children, ports, variables
from deniable_server.access.keys import KeyStore

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console

    from deniable.registry import Metric, Registry
    from deniable_aggregator.store import Store
    from deniable_server.local.population import Population

OPERATOR = "the demo's third party"
_COMMAND = [sys.executable, "-m", "deniable", "relay"]
_HOUR = 3600.0
_EIGHTH = _HOUR / 8  # a pool closes so many times this after its period, as hours are given to late reports
_LEAST_SECONDS, _DEVICES_A_SECOND = 20.0, 100.0  # time that devices get
_PATIENCE = 60.0  # seconds for the relay to start
_WITHIN, _CENTRAL = 0.02, 1.0


class Mixing:
    """A relay on this machine, with the keys of all three parties."""

    def __init__(self, folder: Path, reports: int) -> None:
        self._folder, self._reports = folder, max(2, reports)
        private, self._public = sealing.generate(1)
        self.keys = folder / "sealing.pem"  # the server's private key
        self.keys.write_bytes(private)
        self.keys.chmod(0o600)
        self._ends = time.time() // _HOUR * _HOUR
        ready = time.time() + _LEAST_SECONDS + reports / _DEVICES_A_SECOND
        self._grace = ceil((ready - self._ends) / _EIGHTH)  # hours
        self.closes = self._ends + self._grace * _EIGHTH
        self.moment = self._ends - _HOUR / 2
        self._key = f"pk_{token_urlsafe(24)}"
        self.waited = 0.0  # seconds from the last answer until the pools close
        self._process: subprocess.Popen[bytes] | None = None

    def declare(self, people: Population, app: str, epsilon: str) -> Path:
        """Write the registry, with the smallest central epsilons that are proved of its metrics."""
        table = f'[relay]\noperator = "{OPERATOR}"\nkey = "{self._public}"\n\n'
        late = f'period = "hour"\ngrace = "{self._grace}h"\n'
        path = people.registry(self._folder, app, epsilon, table, {column.metric: late for column in people.columns})
        delta = min(DELTA, 1 / (100 * self._reports))
        claims = {}
        for metric in registry.load(path).metrics.values():
            central = readers.upward(Crowd.of(Declared.of(metric).mechanism, self._reports).epsilon(delta))
            claims[metric.id] = f"{late}shuffled = {{ min = {self._reports}, delta = {delta:g}, central = {central} }}\n"
        return people.registry(self._folder, app, epsilon, table, claims)

    def start(self, path: Path, server: str, store: Store) -> Self:
        """Give the relay a key of the server, and start it."""
        self._port, app = ports.free_port(), registry.load(path).app
        self.dsn = f"http://{self._key}@127.0.0.1:{self._port}/{app}"
        options = ["--registry", str(path), "--server", server, "--data", str(self._folder / "relay")]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(variables.PREFIX)} | {
            "DENIABLE_RELAY_INGEST_KEY": self._key,
            "DENIABLE_RELAY_SERVER_KEY": KeyStore(store).create("relay", OPERATOR)[0],
            "DENIABLE_RELAY_UPLOADS": "0",  # all devices have one address
            "DENIABLE_RELAY_REPORTS": "0",
        }
        with (self._folder / "relay.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, *options, "--bind", f"127.0.0.1:{self._port}"],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=children.tied(),  # noqa: PLW1509 - see `Stack`
            )
        return self

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            self.check()
            if time.monotonic() > deadline:
                raise ConfigurationError(f"the relay did not answer within {_PATIENCE:g} s")
            time.sleep(0.1)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait()

    def _answers(self) -> bool:
        with requests.Session() as session:
            session.trust_env = False
            try:
                return session.get(f"http://127.0.0.1:{self._port}/healthz", timeout=2).ok
            except requests.RequestException:
                return False

    def check(self) -> None:
        """Raise ConfigurationError, with the last lines of its log, if the relay has ended."""
        if self._process and self._process.poll() is not None:
            lines = (self._folder / "relay.log").read_text(errors="replace").splitlines()[-8:]
            raise ConfigurationError("\n".join([f"the relay ended with status {self._process.returncode}", *lines]))

    def announce(self, console: Console) -> float:
        """Say when the pools close; return in how many seconds that is."""
        moment = datetime.fromtimestamp(self.closes, UTC)
        console.print(f"The relay keeps the reports until {moment:%H:%M:%S} UTC, and then forwards each pool as a whole.")
        self.waited = max(0.0, self.closes - time.time())
        return self.waited


def outcome(declared: Registry) -> dict[str, Any]:
    """Return both epsilons of each metric, and how many reports it needs with a relay and without one, as plain values."""
    metrics = list(declared.metrics.values())
    needs = [
        {"metric": metric.id, "values": len(metric.values)} | ways(metric, Terms(within=_WITHIN), _CENTRAL)._asdict()
        for metric in metrics
        if not metric.open  # of texts the error depends on their candidates
    ]
    epsilons = {metric.id: relay.to_dict(metric) for metric in metrics}
    return {"operator": OPERATOR, "within": _WITHIN, "central": _CENTRAL, "epsilons": epsilons, "needs": needs}


def show(console: Console, declared: Registry, figures: dict[str, Any]) -> None:
    """Show what `outcome` returns: the local epsilon first."""
    metrics: list[Metric] = list(declared.metrics.values())
    console.print(f"What {OPERATOR} changes. {relay.sentence(declared, metrics[0])}\n")
    both = Table(title="Epsilon of a report", title_justify="left")
    both.add_column("metric")
    for heading in ("local: for anyone", "central: for the server alone"):
        both.add_column(heading, justify="right")
    for metric in metrics:
        both.add_row(metric.id, readers.upward(float(metric.epsilon)), relay.claimed(metric))
    console.print(both)
    title = f"Reports for ±{100 * _WITHIN:g} points, if the server shall learn ε = {_CENTRAL:g} of each at most"
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for heading in ("values", "without a relay", "with a relay", "local ε then"):
        table.add_column(heading, justify="right")
    for need in figures["needs"]:
        numbers = ["-" if number is None else f"{number:,}" for number in (need["alone"], need["mixed"])]
        table.add_row(need["metric"], str(need["values"]), *numbers, f"{need['local']:g}")
    console.print(table)
    console.print()
